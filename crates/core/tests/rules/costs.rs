//! What nodes cost, by whom and for what: every slice of a node's time, and that they sum to its bill.

use neap_core::command::{PutCluster, PutLock};
use neap_core::job::{Exit, Need};
use neap_core::lock::{LockLevel, LockScope};
use neap_core::meter::{self, Cause, Posting};
use neap_core::{Command, Draft, Event, JobId, Millis, NodeId};

use crate::world::{CPU, QUARTER, World, cancel, cluster, job, share};

/// A world that keeps its books: (cause, payer, micro-dollars) of everything posted, in order.
struct Books {
    world: World,
    posted: Vec<(Cause, Option<u64>, u64)>,
    recast: Vec<(u64, u32, Cause)>,
}

impl Books {
    fn new(min: i64, max: i64) -> Self {
        let mut books = Self { world: World::new(), posted: Vec::new(), recast: Vec::new() };
        let put = PutCluster { min: Some(min), max: Some(max), idle_ms: Some(10_000), ..cluster("cpu") };
        books.tell(Command::PutCluster(put));
        books
    }

    /// One command, and what its events and those of the plan after it mean.
    fn tell(&mut self, command: Command) {
        self.after(|world| world.tell(command));
    }

    fn after(&mut self, act: impl FnOnce(&mut World) -> Vec<Event>) {
        let mut draft = Draft::new(self.world.state.clone());
        let events = act(&mut self.world);
        for event in events {
            draft.emit(self.world.now, event);
        }
        for posting in draft.postings.into_iter().flatten() {
            match posting {
                Posting::Segment(s) => {
                    self.posted.push((s.cause, s.payer.map(|payer| payer.job.0), s.cost.0));
                }
                Posting::Recast { attempt, cause } => {
                    self.recast.push((attempt.job.0, attempt.number, cause));
                }
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.after(|world| world.wait(ms));
    }

    fn spent(&self) -> u64 {
        self.posted.iter().map(|(_, _, cost)| cost).sum()
    }
}

/// Of the default size, for so many milliseconds.
fn price(ms: u64) -> u64 {
    293_000 * ms / 3_600_000
}

#[test]
fn every_slice_has_a_cause_and_a_payer_and_they_sum_to_the_bill() {
    let mut books = Books::new(0, 1);
    books.tell(Command::SubmitJob(job("first")));
    let first = JobId(1);
    books.pass(3_600);
    books.after(|world| world.ready(1));
    books.pass(1_200);
    books.after(|world| world.start(first));
    books.pass(7_200);
    books.after(|world| world.end(first, Exit::Success));
    books.pass(20_000);
    books.after(|world| world.gone(1));
    let causes: Vec<_> = books.posted.iter().map(|(cause, payer, _)| (*cause, *payer)).collect();
    let of_first = Some(1);
    assert_eq!(
        causes,
        [
            (Cause::Boot, of_first),
            (Cause::Staging, of_first),
            (Cause::Run, of_first),
            (Cause::Idle, of_first),
        ],
        "it left as soon as its idle time was over, and was gone in the same moment"
    );
    assert_eq!(books.spent(), price(3_600 + 1_200 + 7_200 + 20_000));
    assert_eq!(books.posted[2].2, price(3_600 + 1_200 + 7_200) - price(3_600 + 1_200));
}

#[test]
fn a_run_that_failed_or_was_lost_or_canceled_is_recast() {
    let mut books = Books::new(0, 1);
    for (name, id) in [("fails", 1), ("stopped", 2), ("lost", 3)] {
        books.tell(Command::SubmitJob(job(name)));
        if id == 1 {
            books.after(|world| world.ready(1));
        }
    }
    books.after(|world| world.start(JobId(1)));
    books.pass(1_000);
    books.after(|world| world.end(JobId(1), Exit::Code { code: 1 }));
    books.after(|world| world.start(JobId(2)));
    books.after(|world| world.tell(cancel(JobId(2))));
    books.pass(1_000);
    books.after(|world| world.end(JobId(2), Exit::Stopped));
    books.after(|world| world.start(JobId(3)));
    books.pass(1_000);
    books.after(|world| world.gone(1));
    assert_eq!(books.recast, [(1, 1, Cause::Failed), (2, 1, Cause::Canceled), (3, 1, Cause::Lost)]);
    assert_eq!(books.spent(), price(3_000), "three attempts of a second");
}

#[test]
fn those_who_share_a_node_share_its_price_by_their_dominant_share() {
    let mut books = Books::new(0, 1);
    books.tell(Command::SubmitJob(share("small", QUARTER)));
    let mut large = share("large", QUARTER);
    let Need::Share(of) = &mut large.need else { panic!() };
    of.cpus_milli = 3_000;
    books.tell(Command::SubmitJob(large));
    books.after(|world| world.ready(1));
    books.posted.clear();
    books.after(|world| world.start(JobId(1)));
    books.after(|world| world.start(JobId(2)));
    books.pass(3_600_000);
    books.after(|world| world.end(JobId(1), Exit::Success));
    assert_eq!(books.posted, [(Cause::Run, Some(1), 293_000 / 4), (Cause::Run, Some(2), 293_000 * 3 / 4)]);
}

#[test]
fn what_the_minimum_keeps_is_nobodys_and_what_a_lock_keeps_is_said() {
    let mut books = Books::new(1, 2);
    books.pass(1_000);
    books.after(|world| world.ready(1));
    books.pass(60_000);
    books.after(|world| world.scale(0, 2));
    books.after(|world| world.gone(1));
    let causes: Vec<_> = books.posted.iter().map(|(cause, payer, _)| (*cause, *payer)).collect();
    assert_eq!(causes, [(Cause::Boot, None), (Cause::Idle, None)]);

    let mut books = Books::new(0, 1);
    books.tell(Command::SubmitJob(job("first")));
    books.after(|world| world.ready(1));
    books.after(|world| world.start(JobId(1)));
    books.after(|world| world.end(JobId(1), Exit::Success));
    let scope = LockScope::Cluster(CPU);
    let (name, level) = ("keep".into(), LockLevel::ReadOnly);
    books.tell(Command::PutLock(PutLock {
        scope: scope.clone(),
        name,
        level,
        notes: "".into(),
        by: "o".into(),
    }));
    books.pass(25_000);
    books.posted.clear();
    books.tell(Command::DeleteLock { scope, name: "keep".into() });
    let of_first = Some(1);
    assert_eq!(
        books.posted,
        [(Cause::Idle, of_first, price(10_000)), (Cause::Lock, of_first, price(25_000) - price(10_000))]
    );
}

#[test]
fn a_node_that_never_came_is_a_failed_boot() {
    let mut books = Books::new(0, 1);
    books.tell(Command::SubmitJob(job("waits")));
    books.pass(5_000);
    books.after(|world| world.report_failed(1));
    assert_eq!(books.posted, [(Cause::FailedBoot, Some(1), price(5_000))]);
}

#[test]
fn what_is_open_is_counted_up_to_now() {
    let mut books = Books::new(0, 1);
    books.tell(Command::SubmitJob(job("runs")));
    books.after(|world| world.ready(1));
    books.after(|world| world.start(JobId(1)));
    books.pass(9_000);
    let open = meter::open(&books.world.state, books.world.now);
    let (segment, node) = (&open[0], books.world.state.nodes[&NodeId(1)].clone());
    assert_eq!((open.len(), segment.cause, segment.cost.0), (1, Cause::Run, price(9_000)));
    assert_eq!(books.spent() + segment.cost.0, meter::bill(&node, books.world.now));
    assert_eq!(meter::bill(&node, Millis(0)), 0, "nothing before it was asked for");
}
