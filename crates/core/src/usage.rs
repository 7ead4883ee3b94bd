//! What an attempt used of its node, as its agent measured it: the facts that the log keeps of it, read back.

use crate::gpus;
use crate::job::AttemptFacts;
use crate::units::Capacity;

/// Processor seconds of all its processes.
pub const CPU_SECONDS: &str = "neap.cpu.seconds";
/// Of how many seconds that is the sum.
pub const RAN_SECONDS: &str = "neap.run.seconds";
/// The most memory that it had at once.
pub const MEMORY_PEAK_MB: &str = "neap.memory.peak_mb";
/// How long an image was pulled and an environment was built for it, before it started.
pub const PULL_MS: &str = "neap.prepare.pull_ms";
pub const BUILD_MS: &str = "neap.prepare.build_ms";
/// Bytes that its node fetched for it and stored of it.
pub const FETCHED_BYTES: &str = "neap.transfer.in_bytes";
pub const STORED_BYTES: &str = "neap.transfer.out_bytes";

pub fn number(facts: &AttemptFacts, key: &str) -> Option<u64> {
    facts.get(key)?.parse().ok()
}

/// `12.5` in thousandths.
fn milli(facts: &AttemptFacts, key: &str) -> Option<u64> {
    let text = facts.get(key)?;
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let rest: String = rest.chars().chain("000".chars()).take(3).collect();
    Some(whole.parse::<u64>().ok()?.saturating_mul(1_000).saturating_add(rest.parse().ok()?))
}

/// Cores on average, memory at its most, and of `gpus` none if they did nothing at all; none where it was not measured.
pub fn used(facts: &AttemptFacts, gpus: u32) -> Option<Capacity> {
    let (cpu_ms, ran_ms) = (milli(facts, CPU_SECONDS)?, milli(facts, RAN_SECONDS)?);
    let cpus_milli = cpu_ms.saturating_mul(1_000).checked_div(ran_ms).unwrap_or(0);
    let idle_gpus = facts.get(gpus::UTILIZATION).is_some_and(|percent| percent == "0.0");
    Some(Capacity {
        cpus_milli: u32::try_from(cpus_milli).unwrap_or(u32::MAX),
        memory_mb: number(facts, MEMORY_PEAK_MB)?,
        gpus: if idle_gpus { 0 } else { gpus },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_back() {
        let facts = |pairs: &[(&str, &str)]| -> AttemptFacts {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let ran = facts(&[(CPU_SECONDS, "15"), (RAN_SECONDS, "10.0"), (MEMORY_PEAK_MB, "300")]);
        assert_eq!(used(&ran, 2), Some(Capacity { cpus_milli: 1_500, memory_mb: 300, gpus: 2 }));
        let mut idle = ran;
        idle.insert(gpus::UTILIZATION.into(), "0.0".into());
        assert_eq!(used(&idle, 2).map(|used| used.gpus), Some(0));
        assert_eq!(used(&facts(&[(CPU_SECONDS, "x")]), 0), None);
        assert_eq!(milli(&facts(&[("a", "0.0625")]), "a"), Some(62));
    }
}
