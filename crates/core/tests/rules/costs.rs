//! What nodes cost, by whom and for what: every slice of a node's time, and that they sum to its bill.

use neap_core::charge::{self, Charge, ChargeKind};
use neap_core::command::{AttemptNews, PutCluster, PutLock};
use neap_core::job::{AttemptFacts, Exit, Need};
use neap_core::location::Charges;
use neap_core::lock::{LockLevel, LockScope};
use neap_core::meter::{self, Cause, Posting};
use neap_core::{Command, Draft, Event, JobId, MicroUsd, Millis, NodeId, usage};

use crate::world::{CPU, QUARTER, WORKSPACE, World, cancel, cluster, job, settings, share};

/// A world that keeps its books: (cause, payer, micro-dollars) of everything posted, in order.
struct Books {
    world: World,
    posted: Vec<(Cause, Option<u64>, u64)>,
    recast: Vec<(u64, u32, Cause)>,
    beside: Vec<Charge>,
}

impl Books {
    fn new(min: i64, max: i64) -> Self {
        Self::in_world(World::new(), min, max)
    }

    fn in_world(world: World, min: i64, max: i64) -> Self {
        let mut books = Self { world, posted: Vec::new(), recast: Vec::new(), beside: Vec::new() };
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
                Posting::Charge(charge) => self.beside.push(charge),
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

#[test]
fn what_is_open_can_be_asked_for_by_the_moment() {
    let mut books = Books::new(0, 1);
    books.tell(Command::SubmitJob(job("runs")));
    books.after(|world| world.ready(1));
    books.after(|world| world.start(JobId(1)));
    books.pass(9_000);
    let (state, now) = (&books.world.state, books.world.now);
    let node = state.nodes[&NodeId(1)].clone();
    let open = |from, to| meter::open_between(state, from, to).iter().map(|s| s.cost.0).sum::<u64>();
    let mut sum = 0;
    // No matter when it is asked: what a time has cost is what the bill says, and adjoining times sum to it.
    for part in 0..900 {
        let (from, to) = (node.metered.plus(part * 10), node.metered.plus(part * 10 + 10));
        assert_eq!(open(from, to), meter::bill(&node, to) - meter::bill(&node, from));
        sum += open(from, to);
    }
    assert_eq!((sum, node.metered.plus(9_000)), (open(Millis(0), now), now));
    assert_eq!(open(now, now), 0);
    assert_eq!(open(Millis(0), node.metered), 0, "what is closed is on the books");
}

fn facts(pairs: &[(&str, u64)]) -> AttemptFacts {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.to_string())).collect()
}

#[test]
fn an_image_that_is_pulled_and_an_environment_that_is_built_are_apart_from_staging() {
    let mut books = Books::new(0, 1);
    books.tell(Command::SubmitJob(job("first")));
    books.after(|world| world.ready(1));
    books.posted.clear();
    books.pass(10_000);
    let prepared = facts(&[(usage::PULL_MS, 3_000), (usage::BUILD_MS, 5_000)]);
    books.after(|world| world.news(JobId(1), AttemptNews::Started { facts: prepared }));
    let causes: Vec<_> = books.posted.iter().map(|(cause, payer, _)| (*cause, *payer)).collect();
    assert_eq!(causes, [(Cause::Pull, Some(1)), (Cause::Build, Some(1)), (Cause::Staging, Some(1))]);
    assert_eq!(books.spent(), price(10_000), "to the last micro-unit");
    assert!(books.posted[0].2.abs_diff(price(3_000)) <= 1 && books.posted[1].2.abs_diff(price(5_000)) <= 1);

    // Facts that cannot be are cut to the time that there was.
    books.after(|world| world.end(JobId(1), Exit::Success));
    books.tell(Command::SubmitJob(job("second")));
    books.posted.clear();
    books.pass(1_000);
    let boasting = facts(&[(usage::PULL_MS, u64::MAX), (usage::BUILD_MS, 7)]);
    books.after(|world| world.news(JobId(2), AttemptNews::Started { facts: boasting }));
    let causes: Vec<_> = books.posted.iter().map(|(cause, ..)| *cause).collect();
    assert_eq!(causes, [Cause::Pull]);
}

#[test]
fn a_node_that_is_taken_back_and_one_that_leaves_are_apart() {
    let mut books = Books::new(0, 1);
    books.tell(Command::SubmitJob(job("first")));
    books.after(|world| world.ready(1));
    books.after(|world| world.start(JobId(1)));
    books.pass(2_000);
    books.tell(Command::Evict {
        cluster: CPU,
        node: Some(NodeId(1)),
        grace_ms: 5_000,
        reason: "wanted elsewhere".into(),
    });
    books.pass(1_000);
    books.after(|world| world.end(JobId(1), Exit::Stopped));
    books.pass(500);
    books.after(|world| world.gone(1));
    let causes: Vec<_> = books.posted.iter().map(|(cause, payer, _)| (*cause, *payer)).collect();
    let of_first = Some(1);
    assert_eq!(causes, [(Cause::Run, of_first), (Cause::Eviction, of_first), (Cause::Leaving, of_first)]);
    assert_eq!(books.recast, [], "what was saved is not lost");
}

#[test]
fn storage_is_paid_for_by_what_was_last_seen() {
    let prices = Charges { storage_gb_month: MicroUsd(18_000), transfer_gb: MicroUsd(0) };
    let mut books = Books::in_world(World::with(settings(|settings| settings.charges = prices)), 0, 1);
    let measure = |bytes| Command::MeasureStorage { workspace: WORKSPACE, bytes };
    books.tell(measure(100 * charge::GIGABYTE));
    assert_eq!(books.beside, [], "from here on");
    books.pass(charge::MONTH_MS / 2);
    books.tell(measure(100 * charge::GIGABYTE));
    assert_eq!(books.beside, [], "nothing has changed");
    books.tell(measure(10 * charge::GIGABYTE));
    books.pass(charge::MONTH_MS);
    let open = charge::open(&books.world.state, books.world.now);
    let paid = |charges: &[Charge]| charges.iter().map(|c| (c.kind, c.cost.0)).collect::<Vec<_>>();
    assert_eq!(paid(&books.beside), [(ChargeKind::Storage, 900_000)]);
    assert_eq!(paid(&open), [(ChargeKind::Storage, 180_000)]);
    // A new price counts from its start on.
    let dear =
        settings(|settings| settings.charges = Charges { storage_gb_month: MicroUsd(36_000), ..prices });
    books.tell(Command::Start { release: "test".into(), settings: dear });
    books.pass(charge::MONTH_MS);
    books.tell(measure(0));
    assert_eq!(paid(&books.beside)[1..], [(ChargeKind::Storage, 180_000), (ChargeKind::Storage, 360_000)]);
    assert_eq!(books.spent(), 0, "no node was there");
}

#[test]
fn what_goes_from_one_location_to_another_is_paid_for() {
    let prices = Charges { storage_gb_month: MicroUsd(0), transfer_gb: MicroUsd(20_000) };
    for (location, paid) in [("eastus", Some(50_000)), ("westus", None)] {
        let mut world = World::with(settings(|settings| settings.charges = prices));
        world.tell(Command::PutCluster(PutCluster {
            location: Some(location.into()),
            max: Some(1),
            ..cluster("cpu")
        }));
        let mut books = Books { world, posted: Vec::new(), recast: Vec::new(), beside: Vec::new() };
        books.tell(Command::SubmitJob(job("first")));
        books.after(|world| world.ready(1));
        books.after(|world| world.start(JobId(1)));
        let moved = facts(&[
            (usage::FETCHED_BYTES, 2 * charge::GIGABYTE),
            (usage::STORED_BYTES, charge::GIGABYTE / 2),
        ]);
        books.after(|world| world.news(JobId(1), AttemptNews::Measured { facts: moved }));
        let charged: Vec<_> = books.beside.iter().map(|c| (c.kind, c.cost.0, c.payer.clone())).collect();
        let expected: Vec<_> = paid
            .map(|cost| (ChargeKind::Transfer, cost, Some((JobId(1), "me".into()))))
            .into_iter()
            .collect();
        assert_eq!(charged, expected, "{location}");
    }
}
