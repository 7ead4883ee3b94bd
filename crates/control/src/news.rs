//! An agent's report in the core's words. What it says goes into the log for ever, so each text in it has a bound: a longer one is
//! cut off, and says so.

use std::collections::BTreeMap;

use neap_core::command::AttemptNews;
use neap_core::job::{Class, Exit as CoreExit};
use neap_protocol::{Exit, FailureClass, Report};

use crate::limits;

const CUT_OFF: &str = "… (cut off)";

pub(crate) fn core_news(report: Report) -> AttemptNews {
    match report {
        Report::Started { properties } => AttemptNews::Started { facts: few(properties) },
        Report::Measured { facts } => AttemptNews::Measured { facts: few(facts) },
        Report::Finalizing => AttemptNews::Finalizing,
        Report::Ended { exit } => AttemptNews::Ended { exit: core_exit(exit) },
    }
}

fn core_exit(exit: Exit) -> CoreExit {
    match exit {
        Exit::Success => CoreExit::Success,
        Exit::Code { code } => CoreExit::Code { code },
        Exit::Signal { signal } => CoreExit::Signal { signal },
        Exit::OutOfMemory { limit_mb } => CoreExit::OutOfMemory { limit_mb },
        Exit::Timeout => CoreExit::Timeout,
        Exit::Stopped => CoreExit::Stopped,
        Exit::LeaseLost => CoreExit::LeaseLost,
        Exit::PrepareFailed { class, message } => {
            let class = match class {
                FailureClass::InputData => Class::InputData,
                FailureClass::Environment => Class::Environment,
                FailureClass::System => Class::System,
                FailureClass::Identity => Class::Identity,
                FailureClass::Capacity => Class::QuotaCapacity,
            };
            CoreExit::PrepareFailed { class, message: shortened(message).into() }
        }
        Exit::FinalizeFailed { message } => CoreExit::FinalizeFailed { message: shortened(message).into() },
        Exit::DiskQuota { message } => CoreExit::DiskQuota { message: shortened(message).into() },
        Exit::DiskShort { message } => CoreExit::DiskShort { message: shortened(message).into() },
        Exit::Process { rank, exit } => CoreExit::Process { rank, exit: Box::new(core_exit(*exit)) },
    }
}

/// As many facts as are kept of one report.
fn few(facts: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let kept = facts.into_iter().take(limits::FACTS_MAX);
    kept.map(|(name, value)| (shortened(name), shortened(value))).collect()
}

pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > limits::TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(limits::TEXT_BYTES_MAX - CUT_OFF.len()));
        text.push_str(CUT_OFF);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_off() {
        let most = "é".repeat(limits::TEXT_BYTES_MAX / 2);
        assert_eq!(shortened(most.clone()), most);
        let longer = shortened(format!("{most}é"));
        assert!(longer.len() <= limits::TEXT_BYTES_MAX && longer.ends_with(CUT_OFF));
    }

    #[test]
    fn a_report_has_so_many_facts_at_most() {
        let properties =
            (0..limits::FACTS_MAX + 5).map(|n| (format!("{n:05}"), "x".repeat(1 << 20))).collect();
        let AttemptNews::Started { facts } = core_news(Report::Started { properties }) else { panic!() };
        assert_eq!(facts.len(), limits::FACTS_MAX);
        assert!(facts.values().all(|value| value.len() <= limits::TEXT_BYTES_MAX));
    }
}
