//! The logs of several ranks over repeats, restarts, attempts and tags.

use std::sync::Arc;

use super::*;
use crate::Store;

const SHELF: Shelf<'_> = Shelf { account: "neapst1", container: "artifacts", job_name: "job-1" };

fn open(folder: &tempfile::TempDir) -> JobLogs {
    let store = Store::open(&folder.path().join("blobs")).unwrap();
    store.create_container("neapst1", "artifacts").unwrap();
    JobLogs::open(Arc::new(store), &folder.path().join("joblogs")).unwrap()
}

fn text(logs: &JobLogs, address: &BlobAddress) -> String {
    match logs.store.read(address, 0, 1 << 20) {
        Ok(bytes) => String::from_utf8(bytes).unwrap(),
        Err(Error::BlobNotFound(_)) => String::new(),
        Err(e) => panic!("{e}"),
    }
}

fn rank(logs: &JobLogs, rank: u32) -> String {
    text(logs, &rank_address(SHELF, rank).unwrap())
}

fn merged(logs: &JobLogs) -> String {
    text(logs, &address(SHELF.account, SHELF.container, SHELF.job_name).unwrap())
}

fn piece(attempt: u32, rank: u32, offset: u64, bytes: &str) -> Piece<'_> {
    Piece { attempt, rank, untag: None, offset, bytes: bytes.as_bytes(), last: false }
}

/// `7:text` is a line of rank 7, `7+text` a piece of one.
fn untag(line: &[u8]) -> (Option<u32>, &[u8]) {
    match line {
        [digit, b':', text @ ..] => (Some(u32::from(digit - b'0')), text),
        [digit, b'+', text @ ..] => (Some(u32::from(digit - b'0')), text.strip_suffix(b"\n").unwrap_or(text)),
        _ => (None, line),
    }
}

#[test]
fn one_rank_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(&folder);
    for (attempt, of, offset, bytes, stored) in [
        (1, 0, 0, "zero\n", 5),
        (1, 1, 0, "one\nha", 6),
        (1, 1, 0, "one\nha", 6),
        (1, 0, 5, "more\n", 10),
        (1, 1, 4, "half\n", 9),
        (2, 1, 0, "again 1\n", 8),
        (1, 0, 10, "too late\n", 19),
        (2, 0, 0, "again 0\n", 8),
    ] {
        assert_eq!(
            logs.append_piece(SHELF, 7, &piece(attempt, of, offset, bytes)).unwrap(),
            stored,
            "{bytes}"
        );
        // Nothing that was said depends on memory.
        logs.ranks().clear();
    }
    assert_eq!(rank(&logs, 0), "zero\nmore\nagain 0\n");
    assert_eq!(rank(&logs, 1), "one\nhalf\nagain 1\n");
    assert_eq!(merged(&logs), "zero\n[1] one\nmore\n[1] half\n[1] again 1\nagain 0\n");
    let error = logs.append_piece(SHELF, 7, &piece(2, 0, 20, "x")).unwrap_err();
    assert!(matches!(error, Error::Gap { have_bytes: 8, .. }), "{error}");
    logs.forget(7).unwrap();
    assert_eq!(logs.append_piece(SHELF, 7, &piece(1, 0, 0, "new\n")).unwrap(), 4);
}

#[test]
fn several_ranks_in_one_stream() {
    let stream = "our own\n2:two\n3+thr\n2:more\n3:ee\n3+end";
    for step in [1, 5, 8, 1000] {
        let folder = tempfile::tempdir().unwrap();
        let logs = open(&folder);
        let mut at = 0;
        while at < stream.len() {
            let end = (at + step).min(stream.len());
            let part = Piece {
                untag: Some(untag),
                last: end == stream.len(),
                ..piece(1, 2, at as u64, &stream[at..end])
            };
            let stored = logs.append_piece(SHELF, 7, &part).unwrap();
            assert!(
                stored as usize == stream.len() || stream[..stored as usize].ends_with('\n') || stored == 0
            );
            // The same again, as after a lost connection: from where it was said to be stored.
            let again = Piece {
                offset: stored.min(at as u64),
                bytes: &stream.as_bytes()[(stored as usize).min(at)..end],
                ..part
            };
            assert_eq!(logs.append_piece(SHELF, 7, &again).unwrap(), stored);
            at = end;
        }
        assert_eq!(rank(&logs, 2), "our own\ntwo\nmore\n", "{step}");
        assert_eq!(rank(&logs, 3), "three\nend", "{step}");
        assert_eq!(merged(&logs), "[2] our own\n[2] two\n[2] more\n[3] three\n[3] end\n", "{step}");
    }
}
