//! What is said about GPUs: that a machine has too few for a size, and that a job makes little use of its own.
//!
//! Which GPU is whose is decided elsewhere: by the provider for nodes, by the agent for attempts.

use crate::catalogue;
use crate::job::AttemptFacts;
use crate::limits::{GPU_HINT_BELOW_PERCENT, GPU_HINT_SECONDS_MIN};
use crate::units::many;

/// Mean over the time it ran and over its GPUs, in percent with one digit: `37.5`.
pub const UTILIZATION: &str = "neap.gpu.utilization";
/// Of how many seconds that is the mean.
pub const MEASURED_SECONDS: &str = "neap.gpu.measured_seconds";
/// What the hint is shown under.
pub const HINT: &str = "neap.gpu.hint";

/// `1 x T4`, or only how many, where the size is not in the catalogue.
fn model(size: &str, gpus: u32) -> String {
    match catalogue::size(size).map(|size| size.gpu_type).filter(|kind| !kind.is_empty()) {
        Some(kind) => format!("{gpus} x {kind}"),
        None => many(gpus, "GPU"),
    }
}

fn has(machine: u32) -> String {
    match machine {
        0 => "none".to_owned(),
        n => format!("{n}"),
    }
}

/// Why a job cannot run here: it is never run on the CPU in silence.
pub fn refusal(needs: u32, size: &str, nominal: u32, machine: u32) -> Option<String> {
    (needs > machine).then(|| {
        format!(
            "The job needs {} (size {size} has {}) and this machine has {}: {} missing. It is not run on the CPU \
             instead; use a size without GPUs, state resources.properties.neap.gpus: 0, run the server on a machine with \
             NVIDIA GPUs ('neap doctor' lists them), or start it with 'neap up --emulate-gpus {needs}' to try things out \
             with pretended ones.",
            many(needs, "GPU"),
            model(size, nominal),
            has(machine),
            needs - machine
        )
    })
}

/// What whoever declares a cluster of this size on this machine is told.
pub fn warning(size: &str, nominal: u32, machine: u32) -> Option<String> {
    (nominal > machine).then(|| {
        format!(
            "Size {size} has {} and this machine has {}: the cluster is declared, and jobs on it that need more are \
             refused (GpuNotAvailable). 'neap doctor' lists the machine's GPUs; 'neap up --emulate-gpus {nominal}' pretends \
             to have them.",
            model(size, nominal),
            has(machine)
        )
    })
}

/// What a job that is over is told about its GPUs, where it left them idle for most of a time worth speaking of.
pub fn hint(facts: &AttemptFacts) -> Option<String> {
    let mean = tenths(facts.get(UTILIZATION)?)?;
    let seconds: u64 = facts.get(MEASURED_SECONDS)?.parse().ok()?;
    (seconds >= GPU_HINT_SECONDS_MIN && mean < GPU_HINT_BELOW_PERCENT * 10).then(|| {
        format!(
            "The GPUs worked {} % of the time on average, over {seconds} s. Look at data loading first: more workers that \
             read ahead, larger batches, data copied to the node (mode: download) instead of read piece by piece.",
            facts.get(UTILIZATION).map_or("", String::as_str)
        )
    })
}

/// `37.5` as 375.
fn tenths(percent: &str) -> Option<u64> {
    let (whole, rest) = percent.split_once('.').unwrap_or((percent, "0"));
    let digit = rest.as_bytes().first().filter(|digit| digit.is_ascii_digit()).map(|digit| digit - b'0')?;
    Some(whole.parse::<u64>().ok()? * 10 + u64::from(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let text = refusal(1, "STANDARD_NC4AS_T4_V3", 1, 0).unwrap();
        assert!(text.contains("needs 1 GPU (size STANDARD_NC4AS_T4_V3 has 1 x T4)"), "{text}");
        assert!(text.contains("has none: 1 missing") && text.contains("neap up --emulate-gpus 1"), "{text}");
        let text = refusal(8, "Standard_ND96isr_H100_v5", 8, 2).unwrap();
        assert!(text.contains("this machine has 2: 6 missing"), "{text}");
        assert_eq!(refusal(2, "x", 2, 2), None);
        assert_eq!(refusal(0, "x", 8, 0), None);
        let text = warning("Standard_ND96isr_H100_v5", 8, 2).unwrap();
        assert!(text.contains("has 8 x H100 and this machine has 2"), "{text}");
        assert_eq!(warning("Standard_DS3_v2", 0, 0), None);
    }

    #[test]
    fn a_hint_needs_a_low_mean_over_long_enough() {
        let facts = |mean: &str, seconds: &str| {
            AttemptFacts::from([(UTILIZATION.into(), mean.into()), (MEASURED_SECONDS.into(), seconds.into())])
        };
        assert!(hint(&facts("49.9", "30")).is_some_and(|text| text.contains("data loading")));
        assert_eq!(hint(&facts("50.0", "30")), None);
        assert_eq!(hint(&facts("3.0", "29")), None);
        assert!(hint(&facts("0", "3000")).is_some());
        assert_eq!(hint(&facts("unknown", "3000")), None);
        assert_eq!(hint(&AttemptFacts::new()), None);
    }
}
