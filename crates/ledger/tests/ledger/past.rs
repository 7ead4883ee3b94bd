//! The past as the log tells it is what it was: state, tables and costs, at every record that was committed.

use neap_core::Millis;
use neap_ledger::{Archived, CostBy, CostQuery, JobFilter, Members, Reader};

use crate::story::{CLUSTER, Story, WORKSPACE, open};

fn costs(by: CostBy, upto_seq: u64) -> CostQuery {
    CostQuery { workspace: None, from: Millis(0), to: Millis(u64::MAX >> 1), by, upto_seq }
}

/// Everything that tables show, in words.
fn shown(reader: &Reader) -> String {
    let all = JobFilter { archived: Archived::All, members: Members::With, ..JobFilter::default() };
    format!(
        "{:?}\n{:?}\n{:?}\n{:?}",
        reader.jobs(WORKSPACE, &all, None, 1_000).unwrap(),
        reader.nodes(CLUSTER, true, 1_000).unwrap(),
        reader.revisions(CLUSTER, 10).unwrap().len(),
        reader.costs(&costs(CostBy::Job, u64::MAX)).unwrap(),
    )
}

#[test]
fn what_was_is_made_again_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let reader = opened.ledger.reader();
    let mut story = Story::begin();
    let mut then = Vec::new();
    for step in 0..240_usize {
        story.step((step * 7 + step / 11) as u8);
        if step % 24 == 0 {
            story.commit(&mut opened.ledger);
            then.push((opened.ledger.head(), story.state.clone(), shown(&reader)));
        }
    }
    story.commit(&mut opened.ledger);
    for (head, state, tables) in then {
        let seq = reader.record_at(head.at).unwrap().unwrap();
        assert_eq!(seq, head.seq, "each record of a story has a time of its own");
        let moment = reader.past(seq).unwrap();
        assert!(moment.state == state, "the state after record {seq} differs");
        assert_eq!(shown(&moment.reader), tables, "record {seq}");
    }
    assert!(dir.path().join("past").read_dir().unwrap().next().is_none(), "nothing stays behind");
}

#[test]
fn what_later_records_closed_is_no_part_of_what_was_spent_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let reader = opened.ledger.reader();
    let mut story = Story::begin();
    let spent = |seq| reader.costs(&costs(CostBy::Node, seq)).unwrap();
    let mut then = Vec::new();
    for step in 0..240_usize {
        story.step((step * 7 + step / 11) as u8);
        story.commit(&mut opened.ledger);
        then.push((opened.ledger.head().seq, spent(u64::MAX)));
    }
    let last = then.last().unwrap().1.clone();
    assert!(last.iter().map(|row| row.micro_usd).sum::<u64>() > 0 && last != then[120].1);
    for (seq, before) in then {
        assert_eq!(spent(seq), before, "record {seq}");
    }
}

#[test]
fn times_between_records_belong_to_the_record_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let reader = opened.ledger.reader();
    assert_eq!((reader.record_at(Millis(5)).unwrap(), reader.reach().unwrap()), (None, None));
    let mut story = Story::begin();
    story.state.now = Millis(1_000);
    story.submit();
    story.state.now = Millis(2_000);
    story.submit();
    story.commit(&mut opened.ledger);
    let last = opened.ledger.head().seq;
    let at = |ms| reader.record_at(Millis(ms)).unwrap();
    assert_eq!((at(0), at(1)), (None, Some(1)));
    assert_eq!(
        (at(1_000), at(1_001), at(2_000), at(2_001)),
        (Some(last - 2), Some(last - 1), Some(last - 1), Some(last))
    );
    assert_eq!(at(u64::MAX >> 1), Some(last));
    let reach = reader.reach().unwrap().unwrap();
    assert_eq!((reach.first, reach.last), (Millis(1), Millis(2_001)));
}

#[test]
fn documents_are_those_of_the_log_and_an_erased_one_stays_erased() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let reader = opened.ledger.reader();
    let mut story = Story::begin();
    let job = story.submit();
    story.commit(&mut opened.ledger);
    let then = opened.ledger.head().seq;
    let moment = reader.past(then).unwrap();
    let row = moment.reader.job_by_id(job).unwrap().unwrap();
    assert_eq!(moment.reader.document(&row.document).unwrap().as_deref(), Some(&b"command"[..]));
    story.step(17);
    story.commit(&mut opened.ledger);
    assert_eq!(reader.past(then).unwrap().reader.document(&row.document).unwrap(), None);
}
