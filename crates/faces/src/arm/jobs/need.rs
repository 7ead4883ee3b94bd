//! How much of a node a job takes: the whole, unless `resources.properties.neap` says less.

use std::borrow::Cow;

use neap_core::job::Need;
use neap_core::{Capacity, Problem};
use serde_json::Value;

use crate::arm::errors::bad;

/// An object that came as JSON text, as the object; anything else as it is.
pub(super) fn plain(value: &Value) -> Cow<'_, Value> {
    match value.as_str().map(serde_json::from_str::<Value>) {
        Some(Ok(object @ Value::Object(_))) => Cow::Owned(object),
        _ => Cow::Borrowed(value),
    }
}

/// Reads `{cpus, memory_gb, gpus}`; numbers may come as text, and the object itself as JSON text.
pub(super) fn read(value: &Value, place: &str, problems: &mut Vec<Problem>) -> Need {
    let parsed = plain(value);
    let object = match &*parsed {
        Value::Object(map) => map,
        Value::String(_) => {
            problems.push(bad(format!("'{place}' is text that is not a JSON object."), place));
            return Need::Whole;
        }
        _ => {
            problems.push(bad(
                format!("'{place}' must be an object such as {{\"cpus\": 2, \"memory_gb\": 4}}."),
                place,
            ));
            return Need::Whole;
        }
    };
    let mut capacity = Capacity::default();
    let mut states_something = false;
    for (key, value) in object {
        let target = format!("{place}.{key}");
        match key.as_str() {
            "cpus" => {
                if let Some(milli) = thousandths(value, &target, problems) {
                    let smallest = u64::from(neap_core::limits::SHARE_CPUS_MILLI_MIN);
                    if milli < smallest {
                        problems.push(bad(
                            format!("'{target}' must be at least {}.", smallest as f64 / 1000.0),
                            &target,
                        ));
                    }
                    capacity.cpus_milli = u32::try_from(milli).unwrap_or(u32::MAX);
                    states_something = true;
                }
            }
            "memory_gb" => {
                if let Some(milli) = thousandths(value, &target, problems) {
                    capacity.memory_mb = milli.saturating_mul(1_024) / 1_000;
                    states_something = true;
                }
            }
            "gpus" => {
                if let Some(milli) = thousandths(value, &target, problems) {
                    if milli % 1_000 != 0 {
                        problems.push(bad(format!("'{target}' must be a whole number."), &target));
                    }
                    capacity.gpus = u32::try_from(milli / 1_000).unwrap_or(u32::MAX);
                    states_something = true;
                }
            }
            "isolation" | "retry" | "disk_mb" => {}
            _ => problems.push(bad(
                format!(
                    "'{target}' is not known: cpus, memory_gb, gpus, disk_mb, isolation and retry can be stated."
                ),
                &target,
            )),
        }
    }
    if states_something && capacity.cpus_milli == 0 && !object.contains_key("cpus") {
        problems.push(bad(
            format!("'{place}' states a share of a node and must say how many 'cpus' of it."),
            place,
        ));
    }
    if states_something { Need::Share(capacity) } else { Need::Whole }
}

/// Reads `disk_mb`: how much of the node's disk the job asks for. It is no share of a node: no job waits for it.
pub(super) fn disk_mb(value: &Value, place: &str, problems: &mut Vec<Problem>) -> Option<u64> {
    let asked = plain(value).get("disk_mb")?.clone();
    let target = format!("{place}.disk_mb");
    let milli = thousandths(&asked, &target, problems)?;
    if milli < 1_000 || milli % 1_000 != 0 {
        problems.push(bad(format!("'{target}' must be a whole number of at least 1."), &target));
    }
    Some(milli / 1_000)
}

/// A number, or text that is one, in thousandths.
fn thousandths(value: &Value, target: &str, problems: &mut Vec<Problem>) -> Option<u64> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => String::new(),
    };
    let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0 && *n <= 1.0e9);
    if number.is_none() {
        problems.push(bad(format!("'{target}' must be a number that is not negative."), target));
    }
    number.map(|n| (n * 1_000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn disk() {
        for (asked, expect) in [
            (json!({"disk_mb": 512}), Some(512)),
            (json!("{\"disk_mb\": \"64\"}"), Some(64)),
            (json!({"cpus": 1}), None),
        ] {
            let mut problems = Vec::new();
            assert_eq!(disk_mb(&asked, "neap", &mut problems), expect, "{asked}");
            assert_eq!(problems, [], "{asked}");
        }
        for bad in [
            json!({"disk_mb": 0}),
            json!({"disk_mb": 0.5}),
            json!({"disk_mb": "much"}),
            json!({"disk_mb": -1}),
        ] {
            let mut problems = Vec::new();
            disk_mb(&bad, "neap", &mut problems);
            assert_eq!(problems.len(), 1, "{bad}");
        }
    }

    #[test]
    fn shares() {
        let share = |cpus_milli, memory_mb, gpus| Need::Share(Capacity { cpus_milli, memory_mb, gpus });
        for (asked, expect) in [
            (json!({}), Need::Whole),
            (json!({"cpus": 2, "memory_gb": 4}), share(2_000, 4_096, 0)),
            (json!({"cpus": "0.5", "memory_gb": 0.5}), share(500, 512, 0)),
            (json!("{\"cpus\": 1, \"gpus\": \"1\"}"), share(1_000, 0, 1)),
            (json!({"isolation": "host-allowed"}), Need::Whole),
            (json!({"disk_mb": 512}), Need::Whole),
        ] {
            let mut problems = Vec::new();
            assert_eq!(read(&asked, "neap", &mut problems), expect, "{asked}");
            assert_eq!(problems, [], "{asked}");
        }
        for bad in [
            json!(3),
            json!("x"),
            json!({"cpus": -1}),
            json!({"cpus": "two"}),
            json!({"memory_gb": 1}),
            json!({"cpus": 1, "gpus": 0.5}),
            json!({"cpus": 1, "disk": 3}),
            json!({"cpus": 0.001}),
        ] {
            let mut problems = Vec::new();
            read(&bad, "neap", &mut problems);
            assert!(!problems.is_empty(), "{bad}");
        }
    }
}
