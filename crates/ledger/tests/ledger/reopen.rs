//! What was acknowledged is there again, by every way of starting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use neap_ledger::{Batch, Entry, Error, Ledger, Options, VerifyOptions, verify};
use proptest::prelude::*;

use crate::story::{Story, WORKSPACE, open, write_log};

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_course_of_events_reopens_to_the_same_state(
        lives in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), 1..8usize, any::<bool>()), 1..5)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut story = Story::begin();
        let mut snapshot_at = 0;
        for (steps, batch_steps, snapshot) in lives {
            let mut opened = open(dir.path());
            for chunk in steps.chunks(batch_steps) {
                chunk.iter().for_each(|step| story.step(*step));
                story.commit(&mut opened.ledger);
            }
            story.commit(&mut opened.ledger);
            if snapshot {
                let head = opened.ledger.head();
                snapshot_at = head.seq;
                opened.ledger.write_snapshot(&story.state, head).unwrap();
                opened.ledger.wait_for_snapshot().unwrap();
            }
            let head = opened.ledger.head();
            drop(opened);

            let mut again = open(dir.path());
            prop_assert_eq!(again.head, head);
            prop_assert!(again.state == story.state, "the state differs");
            prop_assert!(again.warnings.is_empty());
            prop_assert_eq!(again.replayed, head.seq - snapshot_at);
            again.ledger.wait_for_check();
            prop_assert_eq!(again.ledger.read_only(), None);
        }
        let report = verify(dir.path(), VerifyOptions { replay: true }, |_| {}).unwrap();
        prop_assert!(report.is_clean() && report.replayed, "{report:?}");
    }
}

#[test]
fn the_tables_say_of_live_jobs_and_nodes_what_the_state_says() {
    let dir = tempfile::tempdir().unwrap();
    let story = write_log(dir.path(), 400);
    let reader = open(dir.path()).ledger.reader();
    assert!(!story.state.jobs.is_empty() && !story.state.nodes.is_empty());
    for job in story.state.jobs.values() {
        let row = reader.job_by_id(job.id).unwrap().unwrap();
        assert_eq!((row.status, &*row.name, row.created), (job.status(), &*job.name, job.submitted));
        assert_eq!(row.node, job.attempt().map(|a| a.node));
        assert_eq!(row.attempt, job.attempts_made);
        assert_eq!(reader.job(WORKSPACE, &job.name.to_uppercase()).unwrap(), Some(row));
    }
    for node in story.state.nodes.values() {
        let row = reader.node(node.id).unwrap().unwrap();
        assert_eq!((&*row.state, row.since, &*row.reason), (node.word(), node.since, &*node.reason));
        assert_eq!((row.nominal, row.actual), (node.nominal, node.actual));
    }
}

#[test]
fn a_second_opener_is_refused_with_the_first_ones_pid() {
    let dir = tempfile::tempdir().unwrap();
    let lock = dir.path().join("outer.lock");
    let options = || Options { lock: Some(lock.clone()), ..Options::default() };
    let first = Ledger::open(dir.path(), options()).unwrap();
    let refused = Ledger::open(dir.path(), options());
    let Err(Error::InUse { pid, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(pid, Some(std::process::id()));
    drop(first);
    Ledger::open(dir.path(), options()).unwrap();
}

#[test]
fn readers_see_whole_batches_only_and_verify_runs_beside_the_writer() {
    const BATCH: u64 = 10;
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    for _ in 0..BATCH - 4 {
        story.submit();
    }
    story.commit(&mut opened.ledger);
    let reader = opened.ledger.reader();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut looks = 0;
            while !done.load(Ordering::Acquire) || looks == 0 {
                let events = reader.events(0, 10_000).unwrap();
                assert_eq!(events.len() as u64 % BATCH, 0);
                looks += 1;
            }
            looks
        });
        let verifying = scope.spawn(|| verify(dir.path(), VerifyOptions { replay: true }, |_| {}).unwrap());
        for _ in 0..60 {
            for _ in 0..BATCH {
                story.submit();
            }
            story.commit(&mut opened.ledger);
        }
        let report = verifying.join().unwrap();
        assert!(report.is_clean(), "{report:?}");
        done.store(true, Ordering::Release);
        assert!(watching.join().unwrap() > 0);
    });
    assert_eq!(reader.events(0, 10_000).unwrap().len() as u64, 61 * BATCH);
}

#[test]
fn a_refused_batch_changes_nothing_and_the_next_one_goes_in() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    story.submit();
    story.commit(&mut opened.ledger);
    let (head, before) = (opened.ledger.head(), story.state.clone());

    // The third entry repeats a job that is there: the tables refuse it, and so the whole batch.
    let mut bad = Story { state: story.state.clone(), ..Story::default() };
    bad.submit();
    bad.submit();
    let repeated: Entry = bad.batch.entries[0].clone();
    bad.batch.entries.push(Entry { at: bad.now(), ..repeated });
    assert!(matches!(opened.ledger.append(bad.now(), &bad.batch), Err(Error::Storage { .. })));
    assert_eq!(opened.ledger.head(), head);
    assert_eq!(opened.ledger.read_only(), None);

    // Time that goes back is refused as well.
    let mut late = Story { state: before, ..Story::default() };
    late.submit();
    late.batch.entries[0].at.0 = 0;
    assert!(matches!(opened.ledger.append(late.now(), &late.batch), Err(Error::TimeWentBack { .. })));

    assert_eq!(opened.ledger.append(story.now(), &Batch::default()).unwrap(), head);
    story.submit();
    story.commit(&mut opened.ledger);
    drop(opened);
    let again = open(dir.path());
    assert_eq!(again.head.seq, head.seq + 1);
    assert!(again.state == story.state);
}

/// What a crash leaves: the files as they are, the write-ahead log cut anywhere. Whole batches come back, in order, and
/// with the whole write-ahead log every one of them.
#[test]
fn after_a_crash_whole_batches_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    let mut states = vec![(0, story.state.clone())];
    states[0].1 = opened.state.clone();
    for step in 0..80_u8 {
        story.step(step);
        story.step(step.wrapping_mul(3));
        story.commit(&mut opened.ledger);
        states.push((opened.ledger.head().seq, story.state.clone()));
    }
    let [db, wal] = ["neap.db", "neap.db-wal"].map(|name| std::fs::read(dir.path().join(name)).unwrap());
    for part in 0..=40 {
        let crashed = tempfile::tempdir().unwrap();
        std::fs::write(crashed.path().join("neap.db"), &db).unwrap();
        std::fs::write(crashed.path().join("neap.db-wal"), &wal[..wal.len() * part / 40]).unwrap();
        let again = open(crashed.path());
        let (_, expected) =
            states.iter().find(|(seq, _)| *seq == again.head.seq).expect("the end of a batch");
        assert!(again.state == *expected, "part {part}");
        assert!(part < 40 || again.head == opened.ledger.head());
        drop(again);
        let report = verify(crashed.path(), VerifyOptions { replay: true }, |_| {}).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

#[test]
fn snapshots_come_due_and_shorten_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options { snapshot_every: 50, ..Options::default() };
    let mut opened = Ledger::open(dir.path(), options()).unwrap();
    let mut story = Story::begin();
    let mut written = 0;
    for _ in 0..300 {
        story.submit();
        story.commit(&mut opened.ledger);
        if opened.ledger.snapshot_due() {
            let head = opened.ledger.head();
            opened.ledger.write_snapshot(&story.state, head).unwrap();
            written += 1;
        }
    }
    assert!(written >= 2, "{written}");
    opened.ledger.wait_for_snapshot().unwrap();
    drop(opened);
    let files = std::fs::read_dir(dir.path().join("snapshots")).unwrap().count();
    assert_eq!(files, 2);
    let again = Ledger::open(dir.path(), options()).unwrap();
    assert!(again.replayed < 100, "{}", again.replayed);
    assert!(again.state == story.state);
}
