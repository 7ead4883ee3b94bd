//! Jobs that print the time at which they run, and how that is found in their log.

use super::clock;
use super::wire::Wire;
use super::workspace::Workspace;
use crate::failure::{Failure, Outcome};

/// bash has the time at hand; another shell asks a program for it.
pub const COMMAND: &str = "echo NEAP_BENCH ${EPOCHREALTIME:-$(date +%s.%N)}";
const MARK: &str = "NEAP_BENCH ";

/// One job's way, in milliseconds after its request was sent.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    /// Its submit was acknowledged: it is on the disk.
    pub acknowledged: f64,
    /// Its own first command ran: the time that it printed.
    pub running: f64,
    /// What it printed was read by this client, which follows its log.
    pub seen: f64,
    /// Its log had ended, which is when the job has.
    pub completed: f64,
}

/// Submits one job, follows its log to the end, and checks that it completed.
pub fn submit(wire: &mut Wire, workspace: &Workspace, body: &[u8], name: &str) -> Outcome<Course> {
    let sent_ms = clock::wall_ms();
    let begun = clock::now();
    wire.put_bytes(&workspace.job_path(name), body)?;
    let acknowledged = clock::ms_since(begun);
    let mut log = Vec::new();
    let mut seen = None;
    wire.follow(&workspace.log_path(name), &mut |piece| {
        log.extend_from_slice(piece);
        if seen.is_none() && printed_ms(&log).is_some() {
            seen = Some(clock::ms_since(begun));
        }
    })?;
    let completed = clock::ms_since(begun);
    workspace.check_job_completed(wire, name)?;
    let (Some(printed), Some(seen)) = (printed_ms(&log), seen) else {
        return Err(Failure::failed(format!("job {name} completed and its log does not tell when it ran")));
    };
    Ok(Course { acknowledged, running: printed - sent_ms, seen, completed })
}

/// The time in a whole line of the log, in milliseconds since 1970.
fn printed_ms(log: &[u8]) -> Option<f64> {
    let text = String::from_utf8_lossy(log);
    let (_, rest) = text.split_once(MARK)?;
    let (number, _) = rest.split_once('\n')?;
    // Some languages write a comma.
    number.trim().replace(',', ".").parse::<f64>().ok().map(|seconds| seconds * 1e3)
}

#[cfg(test)]
mod tests {
    use super::printed_ms;

    #[test]
    fn only_a_whole_line_is_read() {
        for (log, expected) in [
            ("", None),
            ("[neap] This job runs\nNEAP_BENCH 12.5", None),
            ("[neap] This job runs\nNEAP_BENCH 12.5\n", Some(12_500.0)),
            ("NEAP_BENCH 12,5\nmore", Some(12_500.0)),
        ] {
            assert_eq!(printed_ms(log.as_bytes()), expected, "{log}");
        }
    }
}
