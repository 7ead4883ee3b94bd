//! Named places where a process of Neap can be told to die, so that a test can kill it exactly there.
//!
//! `NEAP_CRASH_AT=name` makes the process that first comes to that place kill itself with SIGKILL; `name:3` the third
//! time. With `NEAP_CRASH_MARK=file` only one process ever dies: it makes the file first, and who finds it lives. So
//! agents that inherit the variable do not die one after the other, and a test can see that the place was reached.
//!
//! The points are in every build. What is tested is then what is shipped, and a point that nobody asked for costs one
//! load and a branch. Whoever can set a process's variables can kill it without this.
//!
//! It never decides anything, and nothing is cleaned up: that is the purpose.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which one, e.g. `after-commit-before-publish` or `before-commit:3`.
pub const AT: &str = "NEAP_CRASH_AT";
/// A file that says somebody has died already.
pub const MARK: &str = "NEAP_CRASH_MARK";

/// Every point: who dies there, its name, and what has happened by then. The chaos suite reads this table.
pub const POINTS: &[(&str, &str, &str)] = &[
    ("server", "before-commit", "a batch is decided; nothing of it is written"),
    ("server", "in-transaction-before-commit", "a batch is written; its transaction is open"),
    ("server", "after-commit-before-publish", "a batch is durable; nobody can see it"),
    ("server", "after-publish-before-answer", "a batch is published; its callers wait"),
    ("server", "after-answer-before-effects", "the callers know; nobody acts on it yet"),
    ("server", "snapshot-written-before-rename", "a snapshot is whole under its temporary name"),
    ("server", "snapshot-renamed-before-sweep", "a snapshot has its name; older ones are still there"),
    ("server", "node-folder-made-before-spawn", "a node has its folder and no agent"),
    ("server", "agent-spawned-before-record", "an agent runs; no file says which process it is"),
    ("server", "node-made-before-report", "the provider has made a node; the log does not know"),
    ("server", "node-fenced-before-removal", "a node's processes are ended; its folder is there"),
    ("server", "node-removed-before-report", "nothing of a node is left; the log does not know"),
    ("server", "dead-agent-fenced-before-report", "an agent died and was fenced; the log does not know"),
    ("server", "log-begun-before-append", "the index names a new attempt; the log has none of its bytes"),
    ("server", "log-appended-before-acknowledgement", "bytes of a log are stored; the agent does not know"),
    ("server", "schedule-due-before-submit", "a schedule's time has come; its job is not submitted"),
    (
        "server",
        "schedule-submitted-before-record",
        "a schedule's job is submitted; the schedule is still due",
    ),
    ("agent", "joined-before-certificate-kept", "the server gave a certificate; the node does not have it"),
    ("agent", "order-heard-before-launch", "an attempt was ordered; nothing of it exists"),
    ("agent", "attempt-started-before-report", "the command runs; the server does not know"),
    ("agent", "log-acknowledged-before-noted", "the server has bytes of a log; the agent does not know"),
    ("agent", "exit-recorded-before-outputs", "the command ended; its outputs are not stored"),
    ("agent", "outputs-stored-before-report", "the outputs are stored; the server does not know of the end"),
    ("agent", "end-acknowledged-before-cleaning", "the server knows the end; the attempt's folder is there"),
    ("supervisor", "command-started-before-word", "the command runs; the agent does not know"),
    ("supervisor", "tree-ended-before-word", "every process ended; the agent does not know"),
];

#[derive(Debug)]
struct Order {
    name: String,
    nth: u64,
    mark: Option<PathBuf>,
    seen: AtomicU64,
}

/// Dies here if that was ordered.
#[inline]
pub fn point(name: &'static str) {
    static ORDER: OnceLock<Option<Order>> = OnceLock::new();
    if let Some(order) = ORDER.get_or_init(ordered) {
        order.reached(name);
    }
}

fn ordered() -> Option<Order> {
    let order = parse(&std::env::var(AT).ok()?);
    order.map(|(name, nth)| Order {
        name,
        nth,
        mark: std::env::var_os(MARK).map(PathBuf::from),
        seen: AtomicU64::new(0),
    })
}

fn parse(text: &str) -> Option<(String, u64)> {
    let (name, nth) = match text.split_once(':') {
        Some((name, nth)) => (name, nth.parse().ok()?),
        None => (text, 1),
    };
    POINTS.iter().any(|(_, known, _)| *known == name).then(|| (name.to_owned(), nth))
}

impl Order {
    #[cold]
    fn reached(&self, name: &str) {
        if name != self.name || self.seen.fetch_add(1, Ordering::Relaxed) + 1 != self.nth {
            return;
        }
        let first = self
            .mark
            .as_ref()
            .is_none_or(|mark| std::fs::OpenOptions::new().write(true).create_new(true).open(mark).is_ok());
        if first {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            // The first process of a pid namespace is spared by its own signals.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;

    #[test]
    fn an_order_names_a_point_and_a_turn() {
        for (text, expect) in [
            ("before-commit", Some(("before-commit", 1))),
            ("before-commit:3", Some(("before-commit", 3))),
            ("before-commit:x", None),
            ("no-such-point", None),
            ("", None),
        ] {
            let expect = expect.map(|(name, nth)| (name.to_owned(), nth));
            assert_eq!(parse(text), expect, "{text}");
        }
    }

    /// A name in the table that nobody passes, or a point that the table does not have, would test nothing.
    #[test]
    fn the_table_and_the_code_name_the_same_points() {
        let mut used = BTreeMap::<String, u32>::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for entry in std::fs::read_dir(crates).unwrap() {
            let src = entry.unwrap().path().join("src");
            if src.is_dir() && !src.starts_with(env!("CARGO_MANIFEST_DIR")) {
                collect(&src, &mut used);
            }
        }
        let table: Vec<&str> = POINTS.iter().map(|(_, name, _)| *name).collect();
        for name in &table {
            assert!(used.contains_key(*name), "{name} is in the table and nowhere else");
        }
        for name in used.keys() {
            assert!(table.contains(&name.as_str()), "{name} is not in the table");
        }
    }

    fn collect(folder: &Path, used: &mut BTreeMap<String, u32>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, used);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for rest in text.split("neap_crash::point(\"").skip(1) {
                    let name = rest.split('"').next().unwrap();
                    *used.entry(name.to_owned()).or_default() += 1;
                }
            }
        }
    }
}
