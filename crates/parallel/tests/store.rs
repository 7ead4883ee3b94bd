//! Claims and results, as data: who gets what, what a lost attempt leaves behind, and that a result is taken once.

use neap_parallel::{Batches, Counts, Exchange, Fate, Finished, Holder, Report};

const FAMILY: u64 = 7;

struct World {
    folder: tempfile::TempDir,
    store: Batches,
    files_with_attempt: bool,
}

impl World {
    fn with(batches: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Batches::open(folder.path()).unwrap();
        let list: Vec<Vec<String>> = (0..batches).map(|n| vec![format!("f{n}")]).collect();
        store.begin(FAMILY, &list).unwrap();
        Self { folder, store, files_with_attempt: false }
    }

    fn ask(
        &self,
        holder: Holder,
        finished: &[Finished],
        holding: &[u32],
        want: u32,
        lost: &[(Holder, Fate)],
    ) -> Vec<u32> {
        let asked = Exchange {
            family: FAMILY,
            holder,
            finished,
            holding,
            want,
            max_retries: 1,
            files_with_attempt: self.files_with_attempt,
        };
        let fate = |asked: Holder| {
            lost.iter().find(|(holder, _)| *holder == asked).map_or(Fate::Runs, |(_, fate)| *fate)
        };
        self.store.exchange(&asked, &fate).unwrap().into_iter().map(|given| given.number).collect()
    }

    fn counts(&self) -> (u64, u64, u64, u64) {
        let Counts { free, claimed, done, failed, .. } = self.store.counts(FAMILY).unwrap();
        (free, claimed, done, failed)
    }

    fn rows(&self) -> String {
        let (mut all, mut after) = (String::new(), None);
        while let Some((number, rows)) = self.store.rows_after(FAMILY, after).unwrap() {
            all.push_str(&rows);
            after = Some(number);
        }
        all
    }
}

fn one(job: u64) -> Holder {
    Holder { job, attempt: 1 }
}

fn done(number: u32) -> Finished {
    Finished { number, report: Report::Done { items: 1, returned: 1, rows: format!("r{number}\n") } }
}

fn failed(number: u32) -> Finished {
    Finished { number, report: Report::Failed { error: format!("e{number}") } }
}

#[test]
fn each_mini_batch_is_given_once_and_rows_come_in_order() {
    let world = World::with(5);
    assert_eq!(world.ask(one(1), &[], &[], 2, &[]), [0, 1]);
    assert_eq!(world.ask(one(2), &[], &[], 2, &[]), [2, 3]);
    assert_eq!(world.ask(one(2), &[done(3)], &[2], 1, &[]), [4]);
    assert_eq!(world.ask(one(1), &[done(1), done(0)], &[], 2, &[]), [0_u32; 0]);
    assert_eq!(world.ask(one(2), &[done(4), done(2)], &[], 1, &[]), [0_u32; 0]);
    assert_eq!(world.counts(), (0, 0, 5, 0));
    assert_eq!(world.rows(), "r0\nr1\nr2\nr3\nr4\n");
    assert!(world.store.counts(FAMILY).unwrap().settled());
}

#[test]
fn what_a_lost_attempt_held_is_given_again_and_its_late_words_change_nothing() {
    let world = World::with(2);
    assert_eq!(world.ask(one(1), &[], &[], 2, &[]), [0, 1]);
    world.ask(one(1), &[done(0)], &[1], 0, &[]);
    let lost = [(one(1), Fate::Lost)];
    assert_eq!(world.ask(one(2), &[], &[], 5, &lost), [1], "the result that was taken stays");
    let late = Finished { number: 1, report: Report::Done { items: 1, returned: 1, rows: "late\n".into() } };
    world.ask(one(1), &[late], &[], 0, &[]);
    world.ask(one(2), &[done(1)], &[], 0, &[]);
    world.ask(one(2), &[done(1), failed(1)], &[], 0, &[]);
    assert_eq!((world.rows(), world.counts()), ("r0\nr1\n".into(), (0, 0, 2, 0)));
}

#[test]
fn results_go_with_an_attempt_whose_files_are_gone() {
    let mut world = World::with(3);
    world.files_with_attempt = true;
    world.ask(one(1), &[], &[], 1, &[]);
    world.ask(one(1), &[done(0)], &[], 0, &[]);
    world.ask(one(2), &[], &[], 1, &[]);
    world.ask(one(2), &[done(1)], &[], 0, &[]);
    let fates = [(one(1), Fate::Lost), (one(2), Fate::Ended)];
    assert_eq!(world.ask(one(3), &[], &[], 5, &fates), [0, 2], "of a worker that ended well all stays");
    assert_eq!(world.rows(), "r1\n");
}

#[test]
fn a_failed_mini_batch_is_tried_again_and_then_given_up() {
    let world = World::with(1);
    assert_eq!(world.ask(one(1), &[], &[], 1, &[]), [0]);
    assert_eq!(world.ask(one(1), &[failed(0)], &[], 1, &[]), [0], "one retry is allowed");
    assert_eq!(world.ask(one(1), &[failed(0)], &[], 1, &[]), [0_u32; 0]);
    assert_eq!(world.counts(), (0, 0, 0, 1));
    assert_eq!(world.store.errors(FAMILY, 5).unwrap(), [(0, "e0".into())]);
    assert_eq!(world.store.counts(FAMILY).unwrap().items_failed, 1);
}

#[test]
fn a_lost_node_is_no_failed_try() {
    let world = World::with(1);
    for job in 1..9 {
        let lost = [(one(job - 1), Fate::Lost)];
        assert_eq!(world.ask(one(job), &[], &[], 1, &lost), [0]);
    }
    world.ask(one(8), &[done(0)], &[], 0, &[]);
    assert_eq!(world.counts(), (0, 0, 1, 0));
}

#[test]
fn what_never_reached_the_worker_is_free_again() {
    let world = World::with(3);
    assert_eq!(world.ask(one(1), &[], &[], 2, &[]), [0, 1]);
    assert_eq!(world.ask(one(1), &[], &[0], 1, &[]), [1], "the answer was lost: it asks again without 1");
    assert_eq!(world.counts(), (1, 2, 0, 0));
}

#[test]
fn too_few_rows_are_counted() {
    let world = World::with(1);
    world.ask(one(1), &[], &[], 1, &[]);
    let report = Report::Done { items: 5, returned: 3, rows: "x\n".into() };
    world.ask(one(1), &[Finished { number: 0, report }], &[], 0, &[]);
    assert_eq!(world.store.counts(FAMILY).unwrap().items_failed, 2);
}

#[test]
fn the_first_list_and_the_first_fault_count_and_all_survives_a_restart() {
    let world = World::with(2);
    world.store.begin(FAMILY, &[vec!["other".into()]]).unwrap();
    world.ask(one(1), &[], &[], 1, &[]);
    world.store.set_fault(FAMILY, "first").unwrap();
    world.store.set_fault(FAMILY, "second").unwrap();
    world.store.set_fault(9, "before any list").unwrap();
    let World { folder, store, .. } = world;
    drop(store);
    let again = Batches::open(folder.path()).unwrap();
    assert_eq!(again.counts(FAMILY).unwrap().total, 2);
    assert_eq!(again.counts(FAMILY).unwrap().claimed, 1);
    assert_eq!(again.fault(FAMILY).unwrap().as_deref(), Some("first"));
    assert_eq!(again.families().unwrap(), [FAMILY, 9]);
    assert!(again.has_begun(FAMILY).unwrap() && !again.has_begun(9).unwrap());
    again.forget(FAMILY).unwrap();
    assert_eq!((again.families().unwrap(), again.counts(FAMILY).unwrap()), (vec![9], Counts::default()));
}
