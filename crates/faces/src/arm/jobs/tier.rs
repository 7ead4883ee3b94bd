//! Which nodes a job takes by tier: `queueSettings.jobTier`, in Azure's words. Whether a cluster has such nodes is for the core
//! to say.

use neap_core::Problem;
use neap_core::cluster::Tier;

use crate::arm::errors::bad;
use crate::fields::Fields;

/// Spot is low priority, Standard and Premium are dedicated; Basic takes whatever is free, as a job does that says nothing.
pub(super) fn read(fields: &Fields<'_>, serverless: bool, problems: &mut Vec<Problem>) -> Option<Tier> {
    // Read with the compute: the cluster is made for the tier.
    if serverless {
        return None;
    }
    let queue = fields.object("queueSettings", &mut Vec::new());
    let word = queue.text("jobTier", problems)?;
    match word.to_ascii_lowercase().as_str() {
        "" | "null" | "basic" => None,
        "spot" => Some(Tier::LowPriority),
        "standard" | "premium" => Some(Tier::Dedicated),
        _ => {
            problems.push(bad(
                format!("The job tier '{word}' is not known: Spot, Basic, Standard or Premium."),
                &queue.place("jobTier"),
            ));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn azures_words() {
        for (word, expect, problems_expected) in [
            (json!("Spot"), Some(Tier::LowPriority), 0),
            (json!("standard"), Some(Tier::Dedicated), 0),
            (json!("Premium"), Some(Tier::Dedicated), 0),
            (json!("Basic"), None, 0),
            (json!("Null"), None, 0),
            (json!(null), None, 0),
            (json!("gold"), None, 1),
            (json!(3), None, 1),
        ] {
            let body = json!({"queueSettings": {"jobTier": word}});
            let mut problems = Vec::new();
            let fields = Fields::of(Some(&body), "properties", &mut problems);
            assert_eq!(read(&fields, false, &mut problems), expect, "{word}");
            assert_eq!(problems.len(), problems_expected, "{word}: {problems:?}");
            assert_eq!(read(&fields, true, &mut Vec::new()), None, "{word}");
        }
    }
}
