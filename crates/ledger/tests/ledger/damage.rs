//! Damage of every sort is found, named by its record, and never served as if it were whole.

use std::fs;
use std::path::Path;

use neap_core::event::JobEnded;
use neap_core::job::Outcome;
use neap_ledger::{Envelope, Error, Head, Ledger, Options, VerifyOptions, verify};
use proptest::prelude::*;
use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::story::{Story, WORKSPACE, open, write_log};

/// Flips one bit of one column of one record.
fn flip(dir: &Path, seq: u64, column: &str, at: usize, bit: u32) {
    let db = Connection::open(dir.join("neap.db")).unwrap();
    let value: Value = db
        .query_row(&format!("SELECT {column} FROM events WHERE seq = ?1"), [seq as i64], |row| row.get(0))
        .unwrap();
    let flipped = match value {
        Value::Integer(number) => Value::Integer(number ^ (1 << (at % 8 * 4))),
        Value::Text(text) => {
            let mut bytes = text.into_bytes();
            let at = at % bytes.len();
            // The highest bit would not leave it text: that is another damage, tried with the blobs.
            bytes[at] ^= 1 << (bit % 7);
            Value::Text(String::from_utf8(bytes).unwrap())
        }
        Value::Blob(mut bytes) => {
            let at = at % bytes.len();
            bytes[at] ^= 1 << (bit % 8);
            Value::Blob(bytes)
        }
        other => panic!("{other:?}"),
    };
    db.execute(&format!("UPDATE events SET {column} = ?2 WHERE seq = ?1"), params![seq as i64, flipped])
        .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_flipped_bit_is_found_at_its_record(
        seq in 1..60u64, column in 0..7usize, at in any::<usize>(), bit in any::<u32>(),
    ) {
        let column = ["at_ms", "kind", "version", "actor", "body", "previous", "hash"][column];
        let dir = tempfile::tempdir().unwrap();
        write_log(dir.path(), 150);
        flip(dir.path(), seq, column, at, bit);

        let refused = Ledger::open(dir.path(), Options::default());
        let Err(Error::Damaged { seq: found, advice, .. }) = refused else { panic!("{refused:?}") };
        prop_assert_eq!(found, seq);
        prop_assert!(advice.contains("backup"));

        let report = verify(dir.path(), VerifyOptions::default(), |_| {}).unwrap();
        prop_assert_eq!(report.findings.first().and_then(|f| f.seq), Some(seq), "{:?}", report.findings);
    }
}

/// A byte anywhere in the file: what opens is what was written, and nothing panics.
#[test]
fn a_changed_byte_of_the_file_is_refused_or_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    let story = write_log(dir.path(), 60);
    let path = dir.path().join("neap.db");
    let whole = fs::read(&path).unwrap();
    let (mut refused, mut harmless) = (0, 0);
    for at in (0..whole.len()).step_by(whole.len() / 150) {
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        fs::write(&path, &changed).unwrap();
        match Ledger::open(dir.path(), Options::default()) {
            Ok(opened) => {
                assert!(opened.state == story.state, "byte {at}");
                harmless += 1;
            }
            Err(_) => refused += 1,
        }
        fs::write(&path, &changed).unwrap();
        let _ = verify(dir.path(), VerifyOptions { replay: true }, |_| {});
    }
    assert!(refused > 0 && harmless > 0, "{refused} refused, {harmless} harmless");
}

#[test]
fn a_missing_record_is_found() {
    let dir = tempfile::tempdir().unwrap();
    write_log(dir.path(), 100);
    Connection::open(dir.path().join("neap.db"))
        .unwrap()
        .execute("DELETE FROM events WHERE seq = 17", [])
        .unwrap();
    let refused = Ledger::open(dir.path(), Options::default());
    assert!(matches!(refused, Err(Error::Damaged { seq: 17, .. })), "{refused:?}");
}

#[test]
fn a_log_cut_behind_its_snapshot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let story = write_log(dir.path(), 100);
    let last = snapshot(dir.path(), &story).seq;
    let db = Connection::open(dir.path().join("neap.db")).unwrap();
    db.execute("DELETE FROM events WHERE seq > ?1", [last as i64 - 3]).unwrap();
    let refused = Ledger::open(dir.path(), Options::default());
    assert!(matches!(&refused, Err(Error::Damaged { seq, .. }) if *seq == last - 2), "{refused:?}");
}

/// Opens, writes a snapshot of the whole story, and closes.
fn snapshot(dir: &Path, story: &Story) -> Head {
    let mut opened = open(dir);
    assert!(opened.state == story.state);
    opened.ledger.write_snapshot(&story.state, opened.head).unwrap();
    opened.ledger.wait_for_snapshot().unwrap();
    opened.head
}

#[test]
fn damage_before_the_snapshot_makes_the_log_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut story = write_log(dir.path(), 100);
    snapshot(dir.path(), &story);
    flip(dir.path(), 13, "body", 20, 0);

    let mut opened = open(dir.path());
    assert!(opened.state == story.state, "the snapshot is whole");
    opened.ledger.wait_for_check();
    let reason = opened.ledger.read_only().unwrap().to_owned();
    assert!(reason.contains("record 13 "), "{reason}");
    let reader = opened.ledger.reader();
    assert_eq!(reader.read_only(), Some(&*reason));

    let head = opened.ledger.head();
    let job = story.submit();
    let refused = opened.ledger.append(story.now(), &story.batch);
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    assert_eq!(reader.job_by_id(job).unwrap(), None);
    assert_eq!(reader.events(head.seq - 1, 10).unwrap().len(), 1);

    let report = verify(dir.path(), VerifyOptions { replay: true }, |_| {}).unwrap();
    assert_eq!(report.findings[0].seq, Some(13));
    assert!(!report.replayed || !report.is_clean());
}

#[test]
fn a_torn_or_foreign_snapshot_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let story = write_log(dir.path(), 100);
    let head = snapshot(dir.path(), &story);
    let path = dir.path().join(format!("snapshots/{}.snap", head.seq));
    let good = fs::read(&path).unwrap();

    let other = tempfile::tempdir().unwrap();
    let other_story = write_log(other.path(), 100);
    assert_eq!(snapshot(other.path(), &other_story).seq, head.seq);
    let foreign = fs::read(other.path().join(format!("snapshots/{}.snap", head.seq))).unwrap();

    for bad in [&good[..good.len() / 2], &good[..40], b"", &foreign] {
        fs::write(&path, bad).unwrap();
        let opened = open(dir.path());
        assert_eq!(opened.warnings.len(), 1, "{:?}", opened.warnings);
        assert_eq!(opened.replayed, head.seq);
        assert!(opened.state == story.state);
    }
}

#[test]
fn a_truncated_file_is_never_taken_for_a_log() {
    let dir = tempfile::tempdir().unwrap();
    write_log(dir.path(), 300);
    let path = dir.path().join("neap.db");
    let whole = fs::read(&path).unwrap();
    for percent in [1, 10, 50, 90, 99] {
        fs::write(&path, &whole[..whole.len() * percent / 100]).unwrap();
        let refused = Ledger::open(dir.path(), Options::default());
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{percent} %: {refused:?}");
        let report = verify(dir.path(), VerifyOptions::default(), |_| {}).unwrap();
        assert!(!report.is_clean(), "{percent} %");
    }
}

#[test]
fn a_kind_from_the_future_names_the_release_that_wrote_it() {
    let dir = tempfile::tempdir().unwrap();
    write_log(dir.path(), 20);
    let last = open(dir.path()).head;
    let mut record = Envelope {
        seq: last.seq + 1,
        at: last.at,
        kind: "moon.landed".into(),
        version: 3,
        actor: "tester".into(),
        body: b"{}".to_vec(),
        previous: last.hash,
        hash: [0; 32],
    };
    record.hash = record.computed_hash();
    let db = Connection::open(dir.path().join("neap.db")).unwrap();
    db.execute("INSERT INTO releases VALUES (?1, '9.9.9')", [record.seq as i64]).unwrap();
    db.execute(
        "INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            record.seq as i64,
            record.at.0 as i64,
            record.kind,
            record.version,
            record.actor,
            record.body,
            record.previous,
            record.hash
        ],
    )
    .unwrap();
    drop(db);
    let refused = Ledger::open(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(refused, Error::UnknownEvent { version: 3, .. }), "{refused:?}");
    assert!(
        refused.to_string().contains("Neap 9.9.9") && refused.to_string().contains("moon.landed"),
        "{refused}"
    );
}

#[test]
fn an_erased_document_leaves_the_chain_valid() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    story.submit();
    story.commit(&mut opened.ledger);
    let reader = opened.ledger.reader();
    let document = story.erasable[0];
    assert_eq!(reader.document(&document).unwrap().as_deref(), Some(&b"command"[..]));
    story.tell(neap_core::event::DocumentErased { document });
    story.commit(&mut opened.ledger);
    assert_eq!(reader.document(&document).unwrap(), None);
    drop((reader, opened));
    assert!(!dir.path().join("neap.db-wal").exists(), "a clean stop carries the write-ahead log over");
    let bytes = fs::read(dir.path().join("neap.db")).unwrap();
    assert!(!bytes.windows(7).any(|w| w == b"command"), "the body is still somewhere in the file");
    let report = verify(dir.path(), VerifyOptions { replay: true }, |_| {}).unwrap();
    assert!(report.is_clean() && report.erased == 1, "{report:?}");
}

#[test]
fn verify_finds_changed_lost_and_wrongly_emptied_documents_and_rows() {
    type Check = (&'static str, &'static str);
    let cases: [Check; 6] = [
        ("UPDATE documents SET body = x'00' WHERE rowid = 2", "does not match its hash"),
        ("UPDATE documents SET body = NULL WHERE rowid = 2", "no event erased it"),
        ("DELETE FROM documents WHERE rowid = 2", "which is not there"),
        ("UPDATE jobs SET status = 'Failed' WHERE id = 2", "another row 2"),
        ("DELETE FROM jobs WHERE id = 2", "lacks the row 2"),
        (
            "INSERT INTO clusters (id, workspace, name, name_key, location, created) VALUES (9, 1, 'x', 'x', 'l', 0)",
            "a row 9 that the log does not say",
        ),
    ];
    for (sql, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = open(dir.path());
        let mut story = Story::begin();
        for _ in 0..3 {
            story.submit();
        }
        story.commit(&mut opened.ledger);
        assert_eq!(opened.ledger.reader().jobs(WORKSPACE, &Default::default(), None, 9).unwrap().len(), 3);
        drop(opened);
        Connection::open(dir.path().join("neap.db")).unwrap().execute(sql, []).unwrap();
        let report = verify(dir.path(), VerifyOptions { replay: true }, |_| {}).unwrap();
        assert!(
            report.findings.len() == 1 && report.findings[0].what.contains(expected),
            "{sql}: {report:?}"
        );
    }
}

#[test]
fn verify_of_nothing_says_so() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(verify(dir.path(), VerifyOptions::default(), |_| {}), Err(Error::NoLedger { .. })));
}

/// A log that is whole, of things that must not happen.
#[test]
fn a_replay_names_the_record_that_breaks_a_promise() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    let job = story.submit();
    let cancelled = || JobEnded { id: job, attempt: None, exit: None, outcome: Outcome::completed() };
    story.tell(cancelled());
    story.tell(cancelled());
    let seq = story.batch.entries.len() as u64;
    story.commit(&mut opened.ledger);
    drop(opened);
    assert!(verify(dir.path(), VerifyOptions::default(), |_| {}).unwrap().is_clean());
    let report = verify(dir.path(), VerifyOptions { replay: true }, |_| {}).unwrap();
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert_eq!(found, [format!("record {seq} breaks a promise: J3: job {job} ended twice")]);
}
