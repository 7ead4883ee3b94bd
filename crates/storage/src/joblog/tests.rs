//! A job's log over attempts, repeats, restarts and losses.

use super::*;
use crate::{Condition, PACKED_BYTES_MAX};

struct Place {
    folder: tempfile::TempDir,
    log: BlobAddress,
    packed_bytes_max: u64,
}

/// Logs as files of their own, logs that get one on the way, and packed logs.
fn places() -> [Place; 3] {
    [0, 8, PACKED_BYTES_MAX].map(|packed_bytes_max| Place { packed_bytes_max, ..Place::new() })
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = address("neapst1", "artifacts", "job-1").unwrap();
        Self { folder, log, packed_bytes_max: PACKED_BYTES_MAX }
    }

    fn logs(&self) -> JobLogs {
        let root = self.folder.path().join("blobs");
        let store = Store::open_packing(&root, self.packed_bytes_max).unwrap();
        store.create_container("neapst1", "artifacts").unwrap();
        JobLogs::open(Arc::new(store), &self.folder.path().join("joblogs")).unwrap()
    }

    fn text(&self, logs: &JobLogs) -> String {
        String::from_utf8(logs.store.read(&self.log, 0, 1 << 20).unwrap()).unwrap()
    }
}

#[test]
fn attempts_follow_each_other_and_repeats_change_nothing() {
    for place in places() {
        let mut logs = place.logs();
        for (attempt, offset, bytes, acknowledged, text) in [
            (1, 0, "one\n", 4, "one\n"),
            (1, 0, "one\ntw", 6, "one\ntw"),
            (1, 2, "e\n", 6, "one\ntw"),
            (2, 0, "again\n", 6, "one\ntw\nagain\n"),
            (1, 6, "o\n", 8, "one\ntw\nagain\n"),
            (2, 0, "again\n", 6, "one\ntw\nagain\n"),
            (2, 6, "on\n", 9, "one\ntw\nagain\non\n"),
            (4, 0, "", 0, "one\ntw\nagain\non\n"),
            (3, 0, "late", 4, "one\ntw\nagain\non\n"),
            (4, 0, "x", 1, "one\ntw\nagain\non\nx"),
        ] {
            let bytes = bytes.as_bytes();
            let said = logs.append(&place.log, 9, attempt, offset, bytes).unwrap();
            assert_eq!(said, acknowledged, "attempt {attempt} at {offset}");
            assert_eq!(place.text(&logs), text);
            // Each step also holds after a restart.
            drop(logs);
            logs = place.logs();
        }
        assert_eq!(logs.attempts(9).unwrap(), [(1, 0), (2, 7), (4, 16)]);
    }
}

#[test]
fn a_gap_says_where_to_go_on_in_the_attempt() {
    for place in places() {
        let logs = place.logs();
        logs.append(&place.log, 1, 1, 0, b"one\n").unwrap();
        logs.append(&place.log, 1, 2, 0, b"two\n").unwrap();
        for (attempt, offset, have) in [(2, 9, 4), (3, 5, 0)] {
            let error = logs.append(&place.log, 1, attempt, offset, b"x").unwrap_err();
            let Error::Gap { have_bytes, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(have_bytes, have);
        }
    }
}

#[test]
fn a_log_that_lost_its_end_goes_on_from_what_is_left() {
    for place in places() {
        let logs = place.logs();
        logs.append(&place.log, 1, 1, 0, b"one\ntwo\n").unwrap();
        logs.append(&place.log, 1, 2, 0, b"three\n").unwrap();
        logs.store.delete(&place.log, &Condition::default()).unwrap();
        logs.store.append_at(&place.log, 0, b"one\n").unwrap();
        let error = logs.append(&place.log, 1, 2, 6, b"four\n").unwrap_err();
        assert!(matches!(error, Error::Gap { have_bytes: 0, .. }), "{error}");
        assert_eq!(logs.append(&place.log, 1, 2, 0, b"three\nfour\n").unwrap(), 11);
        assert_eq!(place.text(&logs), "one\nthree\nfour\n");
    }
}

#[test]
fn only_whole_lines_count_unless_one_is_endless() {
    for place in places() {
        let logs = place.logs();
        assert_eq!(logs.whole_lines_len(&place.log).unwrap(), 0);
        let mut sent = 0;
        for (more, whole) in [
            ("half".to_owned(), 0),
            (" line\nnext".to_owned(), 10),
            ("x".repeat(200_000), 10),
            ("\n".to_owned(), 200_015),
            ("y".repeat(1024 * 1024), 200_015 + 1024 * 1024),
        ] {
            sent = logs.append(&place.log, 1, 1, sent, more.as_bytes()).unwrap();
            assert_eq!(logs.whole_lines_len(&place.log).unwrap(), whole);
        }
    }
}

#[test]
fn memory_of_indexes_is_bounded_and_forgetting_is_safe() {
    let place = Place::new();
    let logs = place.logs();
    for job in 0..LOG_INDEXES_IN_MEMORY_MAX as u64 + 10 {
        logs.attempts(job).unwrap();
    }
    assert!(logs.indexes().recent.len() <= LOG_INDEXES_IN_MEMORY_MAX);
    logs.append(&place.log, 1, 2, 0, b"x\n").unwrap();
    logs.forget(1).unwrap();
    logs.forget(1).unwrap();
    assert_eq!(logs.attempts(1).unwrap(), [(1, 0)]);
}
