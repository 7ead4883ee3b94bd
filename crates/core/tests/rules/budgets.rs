//! Budgets: money is reserved before it is spent, leases are renewed or nodes are gone in time, and nothing passes an amount.

use neap_core::budget::{AtCap, Budget, BudgetScope, Every, Figures, Lease, tag_label};
use neap_core::command::{PutBudget, SubmitJob};
use neap_core::event::{AttemptStopRequested, BudgetRenewed, MoneyLeased, NodeRequested};
use neap_core::job::{Cause, Exit, JobState, StopReason};
use neap_core::limits::{BUDGET_PERIODS_KEPT, BUDGET_THRESHOLDS_MAX, BUDGETS_MAX};
use neap_core::meter;
use neap_core::settings::Settings;
use neap_core::state::GroupKey;
use neap_core::unblock::{Kind, unblock};
use neap_core::{Code, Command, Event, JobId, MicroUsd, Millis, NodeId, Problem, explain};

use crate::world::{CPU, QUARTER, WORKSPACE, World, gang, job, kinds, pipeline, share, workspace};

/// Of a node of the default size: the price for so many milliseconds.
pub fn price(ms: u64) -> u64 {
    293_000 * ms / 3_600_000
}

/// Patience with a stop, lease, removal.
pub const BOUND: u64 = 15_000 + 120_000 + 30_000;
/// With the shortest time that a new node is given.
pub const LEAST: u64 = BOUND + 60_000;

/// What must be left to start a node: its price for that time, and a micro-unit for rounding.
pub fn least() -> u64 {
    price(LEAST) + 1
}

pub fn put(name: &str, scope: BudgetScope, amount: u64, every: Every) -> Command {
    Command::PutBudget(PutBudget {
        name: name.into(),
        scope: Some(scope),
        amount: Some(MicroUsd(amount)),
        every: Some(every),
        at_cap: None,
        thresholds: None,
        by: "owner".into(),
        problems: vec![],
    })
}

pub fn on_cluster(amount: u64) -> Command {
    put("cap", BudgetScope::Cluster(CPU), amount, Every::Total)
}

fn requested(events: &[Event]) -> Vec<Option<Lease>> {
    let lease = |event: &Event| match event {
        Event::NodeRequested(NodeRequested { lease, .. }) => Some(*lease),
        _ => None,
    };
    events.iter().filter_map(lease).collect()
}

pub fn figures(world: &World, name: &str) -> (u64, u64, u64) {
    let figures = world.state.budget(name).expect("it is there").figures(world.now);
    (figures.spent.0, figures.reserved.0, figures.excess.0)
}

#[test]
fn a_node_is_asked_for_when_there_is_money_for_it_and_the_job_says_what_it_waits_for() {
    let mut world = World::with_cluster(0, 4);
    world.tell(on_cluster(least() - 1));
    let id = world.submit("waits");
    assert!(world.state.nodes.is_empty());
    let reasons = explain::queue_reasons(&world.state, id);
    assert_eq!(
        reasons,
        [
            "A node takes $0.018313 to be reserved for it, which is more than the whole of budget 'cap' of $0.018312 in total; raise it with 'neap budget create --name cap --amount'.",
            "Budget 'cap' on compute 'cpu': $0.018312 in total, $0.00 is spent, $0.00 is reserved for nodes, $0.018312 is left.",
        ]
    );
    let events = world.tell(on_cluster(least()));
    let lease = Lease { until: world.now.plus(LEAST), renew_at: world.now.plus(60_000) };
    assert_eq!(requested(&events), [Some(lease)]);
    assert_eq!(figures(&world, "cap"), (0, price(LEAST), 0));
    world.submit("second");
    assert_eq!(world.state.nodes.len(), 1, "there is no money for another");

    let mut world = World::with_cluster(0, 4);
    world.tell(on_cluster(1_000_000));
    let id = world.state.next.job;
    world.tell(Command::SubmitJob(job("rich")));
    let long = Lease { until: world.now.plus(BOUND + 600_000), renew_at: world.now.plus(600_000) };
    assert_eq!(world.node(1).lease, Some(long), "where there is plenty leases are long");
    world.tell(crate::world::cancel(id));
}

/// Lets time pass from timer to timer until the predicate is met by an event.
pub fn run_until(world: &mut World, mut met: impl FnMut(&Event) -> bool) -> Vec<Event> {
    for _ in 0..500 {
        let wake = world.wake_at.expect("something is due");
        let events = world.wait(wake.since(world.now));
        if events.iter().any(&mut met) {
            return events;
        }
    }
    panic!("it never came to that");
}

#[test]
fn leases_are_renewed_while_there_is_money_and_what_runs_is_stopped_in_time() {
    let amount = price(600_000);
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(amount));
    let id = world.submit("train");
    world.ready(1);
    world.start(id);
    let events = run_until(&mut world, |event| matches!(event, Event::AttemptStopRequested(_)));
    let reason = Some("budget 'cap' of $0.048833 in total has nothing left for its node".into());
    let deadline = world.now.plus(15_000);
    assert_eq!(
        events,
        [AttemptStopRequested { id, attempt: 1, why: StopReason::Budget, deadline, reason }.into()]
    );
    let lease = world.node(1).lease.expect("it has a lease");
    assert!(lease.until.since(world.now) >= BOUND, "there is time to be gone");
    assert!(meter::bill(world.node(1), lease.until) <= amount);
    let events = world.end(id, Exit::Stopped);
    assert_eq!(kinds(&events)[..2], ["job.requeued", "node.leaving"], "{events:?}");
    let JobState::Queued { reason: Some(reason), .. } = &world.job(id).state else { panic!() };
    assert_eq!(&**reason, "budget 'cap' of $0.048833 in total has nothing left for its node");
    assert_eq!(world.job(id).retried(Cause::Budget), 0, "it costs no try");
    world.gone(1);
    let (spent, reserved, excess) = figures(&world, "cap");
    assert!(spent <= amount && spent > amount / 3, "{spent} of {amount}");
    assert_eq!((reserved, excess), (0, 0));
    assert!(world.state.nodes.is_empty(), "and no other is asked for");
}

#[test]
fn a_node_that_nobody_can_stop_is_gone_by_the_end_of_its_lease() {
    let amount = price(400_000);
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(amount));
    let id = world.submit("deaf");
    world.ready(1);
    world.start(id);
    run_until(&mut world, |event| matches!(event, Event::AttemptStopRequested(_)));
    let until = world.node(1).lease.expect("it has a lease").until;
    run_until(&mut world, |event| matches!(event, Event::NodeLeaving(_)));
    assert!(world.now.plus(120_000) <= until, "its own lease ends before its money");
    // Nobody hears of it again; the provider says so much later.
    world.wait(until.since(world.now) + 7_000);
    world.gone(1);
    let (spent, _, excess) = figures(&world, "cap");
    assert!(excess > 0 && spent - excess <= amount, "what is beyond the lease is shown as excess");
}

#[test]
fn a_server_that_was_away_beyond_a_lease_charges_no_more_than_the_lease() {
    let amount = price(400_000);
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(amount));
    let id = world.submit("alone");
    world.ready(1);
    world.start(id);
    let until = world.node(1).lease.expect("it has a lease").until;
    world.now = until.plus(3_600_000);
    world.dirty = neap_core::plan::Dirty::all(&world.state);
    let events = world.tell(Command::Start { release: "test".into(), settings: Settings::default() });
    assert!(kinds(&events).contains(&"node.leaving"), "{events:?}");
    world.gone(1);
    let (spent, _, excess) = figures(&world, "cap");
    assert_eq!((spent, excess), (price(until.since(Millis(1_000_000))), 0));
    assert!(spent <= amount);
}

#[test]
fn an_idle_node_whose_lease_is_not_renewed_leaves_at_once() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    let events = world.tell(on_cluster(price(BOUND + 10_000) - 1));
    assert!(kinds(&events).contains(&"node.leaving"), "{events:?}");
    assert_eq!(&*world.node(1).reason, "budget 'cap' of $0.014242 in total has nothing left for its node");
    world.wait(5_000);
    world.gone(1);
    assert_eq!(figures(&world, "cap").2, price(5_000), "what it cost before it was gone is excess");
    assert!(world.state.nodes.is_empty() && !world.cpu().cuts.is_empty());
    let budget = world.state.budget("cap").unwrap().id;
    world.tell(Command::DeleteBudget { budget });
    assert_eq!(world.state.nodes.len(), 1, "without the budget the minimum is there again");
}

#[test]
fn an_amount_that_is_lowered_grants_nothing_more() {
    let mut world = World::with_cluster(0, 4);
    world.tell(on_cluster(least() * 3));
    for name in ["a", "b"] {
        world.submit(name);
    }
    assert_eq!(world.state.nodes.len(), 2);
    let (_, reserved, _) = figures(&world, "cap");
    world.tell(on_cluster(least()));
    assert_eq!(figures(&world, "cap").1, reserved, "what is held stays held");
    world.submit("c");
    assert_eq!(world.state.nodes.len(), 2);
    assert_eq!(world.state.budget("cap").unwrap().left(world.now), MicroUsd(0));
}

#[test]
fn a_new_day_has_new_money_and_a_lease_across_midnight_is_split() {
    const DAY: u64 = 86_400_000;
    let mut world = World::with_cluster(0, 1);
    world.now = Millis(DAY - 100_000);
    world.wait(0);
    world.tell(put("daily", BudgetScope::Workspace(WORKSPACE), least(), Every::Day));
    let id = world.submit("late");
    world.ready(1);
    world.start(id);
    let today = world.state.budget("daily").unwrap().figures(Millis(DAY - 1)).reserved.0;
    let tomorrow = world.state.budget("daily").unwrap().figures(Millis(DAY)).reserved.0;
    assert_eq!((today, today + tomorrow), (price(100_000), price(LEAST)));
    let events = run_until(&mut world, |event| matches!(event, Event::BudgetRenewed(_)));
    assert_eq!(world.now, Millis(DAY));
    assert!(kinds(&events).contains(&"budget.renewed"));
    assert_eq!(world.state.budget("daily").unwrap().period_ends, Some(Millis(2 * DAY)));
    world.end(id, Exit::Success);
    let spent = |at: u64| world.state.budget("daily").unwrap().figures(Millis(at)).spent.0;
    assert_eq!((spent(DAY - 1), spent(DAY)), (price(100_000), 0));
}

#[test]
fn a_user_without_money_holds_nobody_up() {
    let mut world = World::with_cluster(0, 2);
    world.tell(put("poor", BudgetScope::User("Poor".into()), least() - 1, Every::Month));
    let poor = world.submit_job(SubmitJob { owner: "poor".into(), priority: 3, ..job("first") });
    let rich = world.submit_job(SubmitJob { owner: "rich".into(), ..job("second") });
    assert_eq!(world.state.nodes.len(), 1, "a node for the second job alone");
    assert_eq!(world.node(1).caused_by.as_ref().unwrap().job, rich);
    world.ready(1);
    assert_eq!(world.attempt(rich).node, NodeId(1));
    let reasons = explain::queue_reasons(&world.state, poor);
    assert!(reasons.iter().any(|reason| reason.contains("budget 'poor'")), "{reasons:?}");
    assert_eq!(figures(&world, "poor"), (0, 0, 0), "others' nodes are none of it");
    let raise = Command::PutBudget(PutBudget {
        name: "poor".into(),
        scope: None,
        amount: Some(MicroUsd(least())),
        every: None,
        at_cap: Some(AtCap::CheckpointAndDrain),
        thresholds: Some(vec![90]),
        by: "owner".into(),
        problems: vec![],
    });
    world.tell(raise);
    assert_eq!(world.state.nodes.len(), 2, "with money it gets its node");
    world.ready(2);
    assert_eq!(world.attempt(poor).node, NodeId(2), "which was reserved for it");
}

#[test]
fn a_job_is_put_on_a_node_that_is_there_only_with_money_for_it() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    world.tell(put("mine", BudgetScope::User("me".into()), least(), Every::Total));
    assert_eq!(world.node(1).lease, None, "nobody pays for it yet");
    let events = world.tell(Command::SubmitJob(job("mine")));
    let lease = Lease { until: world.now.plus(LEAST), renew_at: world.now.plus(60_000) };
    assert!(events.contains(&MoneyLeased { node: NodeId(1), lease }.into()), "{events:?}");
    assert_eq!(figures(&world, "mine").1, price_between(&world, world.now, lease.until));
    world.start(JobId(1));
    world.wait(10_000);
    world.end(JobId(1), Exit::Success);
    let spent = figures(&world, "mine").0;
    assert!(spent > 0 && spent <= price(10_000) + 1, "{spent}");
}

fn price_between(world: &World, from: Millis, to: Millis) -> u64 {
    meter::bill(world.node(1), to) - meter::bill(world.node(1), from)
}

#[test]
fn tags_and_jobs_made_of_jobs_are_found() {
    let mut world = World::with_cluster(0, 2);
    let tag = BudgetScope::Tag { name: "team".into(), value: "red".into() };
    world.tell(put("red", tag, least() - 1, Every::Total));
    let whole = BudgetScope::Job { workspace: WORKSPACE, name: "whole".into() };
    world.tell(put("whole", whole, least() - 1, Every::Total));
    let tagged = SubmitJob { tags: vec![tag_label("Team", "red")], ..job("tagged") };
    world.submit_job(tagged);
    world.submit_family(pipeline("whole", false, &[("step", &[])]));
    assert!(world.state.nodes.is_empty(), "neither has the money");
    world.submit("free");
    assert_eq!(world.state.nodes.len(), 1);
}

#[test]
fn every_budget_that_has_not_the_money_is_named_at_once() {
    let mut world = World::with_cluster(0, 2);
    let tag = BudgetScope::Tag { name: "team".into(), value: "red".into() };
    world.tell(put("red", tag, least() - 1, Every::Total));
    world.tell(put("mine", BudgetScope::User("owner".into()), least() - 1, Every::Day));
    world.tell(on_cluster(least() - 1));
    world.tell(put("wide", BudgetScope::Workspace(WORKSPACE), least() - 1, Every::Month));
    let tagged = SubmitJob { tags: vec![tag_label("Team", "red")], owner: "owner".into(), ..job("tagged") };
    let id = world.submit_job(tagged);
    let verdict = unblock(&world.state, id, world.now).expect("it waits");
    assert_eq!(verdict.unblocking, [[Kind::Budget].into()]);
    let [only] = verdict.constraints.as_slice() else { panic!("{verdict:?}") };
    for name in ["red", "mine", "cap", "wide"] {
        assert!(only.sentence.contains(&format!("budget '{name}' of")), "{name}: {}", only.sentence);
        let reasons = explain::queue_reasons(&world.state, id).join(" ");
        assert!(
            ["red", "mine"].iter().all(|name| reasons.contains(&format!("budget '{name}' of"))),
            "{reasons}"
        );
    }
}

/// Who is asked to end, and how long it took until somebody was.
fn stopped(world: &mut World) -> (Vec<JobId>, u64) {
    let from = world.now;
    loop {
        let events = world.wait(5_000);
        let asked: Vec<JobId> = events
            .iter()
            .filter_map(|event| match event {
                Event::AttemptStopRequested(e) => Some(e.id),
                _ => None,
            })
            .collect();
        if !asked.is_empty() {
            return (asked, world.now.since(from));
        }
        assert!(world.now.since(from) < 3_600_000, "nobody is stopped");
    }
}

#[test]
fn where_several_share_a_node_the_budget_of_one_stops_that_one_alone_and_counts_its_part() {
    let mut world = World::with_cluster(0, 1);
    let tag = BudgetScope::Tag { name: "team".into(), value: "red".into() };
    world.tell(put("red", tag, least(), Every::Total));
    let tagged =
        world.submit_job(SubmitJob { tags: vec![tag_label("Team", "red")], ..share("tagged", QUARTER) });
    let others = [world.submit_job(share("one", QUARTER)), world.submit_job(share("two", QUARTER))];
    world.ready(1);
    for id in [tagged, others[0], others[1]] {
        world.start(id);
    }
    let (asked, after) = stopped(&mut world);
    assert_eq!(asked, [tagged], "the others are not its matter");
    // All of the node was reserved, and a third of it is charged: the money lasts for longer than the first lease.
    assert!(after > 120_000, "{after}");
    let (spent, reserved, excess) = figures(&world, "red");
    assert!(spent + reserved <= least() && excess == 0, "{spent} {reserved} {excess}");
    assert!(least() - spent - reserved < price(10_000), "little is left: {spent} {reserved}");
    world.end(tagged, Exit::Stopped);
    for id in others {
        assert!(world.attempt(id).stop.is_none() && world.attempt(id).number == 1);
    }
    world.wait(600_000);
    assert!(world.state.nodes.contains_key(&NodeId(1)), "nobody has to pay for it any more");
    assert!(figures(&world, "red").0 <= least());
}

#[test]
fn a_job_on_several_nodes_waits_until_there_is_money_for_all_of_them() {
    let mut world = World::with_cluster(0, 4);
    world.tell(on_cluster(least() * 3 - 1));
    world.submit_job(gang("gang", 3));
    assert!(world.state.nodes.is_empty());
    world.tell(on_cluster(least() * 3));
    assert_eq!(world.state.nodes.len(), 3);
}

#[test]
fn the_budget_of_one_job_must_be_enough_for_it_to_start() {
    let mut world = World::with_cluster(0, 1);
    let scope = BudgetScope::Job { workspace: WORKSPACE, name: "one".into() };
    world.tell(put("tiny", scope, least() - 1, Every::Total));
    assert_eq!(world.refused(Command::SubmitJob(job("one"))), [Code::BudgetTooSmall]);
    let refusal = world.ask(Command::SubmitJob(job("one"))).unwrap_err();
    assert_eq!(
        refusal.problems[0].message,
        "Budget 'tiny' on job 'one' is $0.018312 in total and starting the job on compute 'cpu' takes $0.018313 at least: it cannot start. Raise the budget with 'neap budget create --name tiny --amount', or use a cheaper size."
    );
}

#[test]
fn everything_that_is_wrong_with_a_budget_is_said_at_once() {
    let mut world = World::with_cluster(0, 1);
    let nowhere = BudgetScope::Group(GroupKey::new("s", "elsewhere"));
    let Command::PutBudget(mut wrong) = put("not valid", nowhere, 0, Every::Day) else { panic!() };
    wrong.thresholds = Some(vec![0, 101]);
    assert_eq!(
        world.refused(Command::PutBudget(wrong)),
        [Code::BadArgument, Code::BadArgument, Code::InvalidResourceName, Code::ResourceNotFound]
    );
    world.tell(on_cluster(5));
    assert_eq!(
        world.refused(put("CAP", BudgetScope::Workspace(WORKSPACE), 5, Every::Day)),
        [Code::PropertyChangeNotAllowed, Code::PropertyChangeNotAllowed]
    );
    let nobody = Command::DeleteBudget { budget: neap_core::BudgetId(9) };
    assert_eq!(world.refused(nobody), [Code::ResourceNotFound]);
}

#[test]
fn what_is_gone_has_no_budgets() {
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(5));
    world.tell(put("of-ws", BudgetScope::Workspace(WORKSPACE), 5, Every::Week));
    world.tell(put("of-me", BudgetScope::User("me".into()), 5, Every::Week));
    world.tell(Command::DeleteWorkspace { workspace: WORKSPACE });
    // A bounded plan leaves what it made dirty for the next.
    world.wait(0);
    let left: Vec<_> = world.state.budgets.values().map(|budget| budget.name.to_string()).collect();
    assert_eq!(left, ["of-me"]);
    world.tell(Command::PutWorkspace(workspace("ws")));
}

pub fn unsaid(name: &str, problems: Vec<Problem>) -> PutBudget {
    PutBudget {
        name: name.into(),
        scope: None,
        amount: None,
        every: None,
        at_cap: None,
        thresholds: None,
        by: "owner".into(),
        problems,
    }
}

#[test]
fn what_a_new_budget_lacks_is_said_and_said_once() {
    let world = World::with_cluster(0, 1);
    let targets = |problems: Vec<Problem>| -> Vec<String> {
        let refusal = world.ask(Command::PutBudget(unsaid("cap", problems))).expect_err("it is refused");
        refusal.problems.into_iter().filter_map(|problem| problem.target).collect()
    };
    let unreadable = |target: &str| vec![Problem::new(Code::BadArgument, "unreadable").at(target)];
    assert_eq!(targets(vec![]), ["amount", "scope"]);
    assert_eq!(targets(unreadable("amount")), ["amount", "scope"]);
    assert_eq!(targets(unreadable("scope")), ["scope", "amount"]);
    assert_eq!(targets(unreadable("period")), ["period", "amount", "scope"]);
}

#[test]
fn there_are_so_many_budgets_and_no_more() {
    let mut world = World::with_cluster(0, 1);
    let one = |i: usize| put(&format!("b{i}"), BudgetScope::User("me".into()), 1, Every::Total);
    world.batch((0..BUDGETS_MAX - 1).map(one));
    world.tell(one(BUDGETS_MAX));
    assert_eq!(world.refused(one(BUDGETS_MAX + 1)), [Code::LimitReached]);
    world.tell(Command::PutBudget(PutBudget { amount: Some(MicroUsd(2)), ..unsaid("b0", vec![]) }));
}

#[test]
fn the_figures_of_old_periods_go_unless_something_is_still_reserved_in_them() {
    let mut world = World::with_cluster(0, 1);
    world.tell(put("cap", BudgetScope::Cluster(CPU), 1, Every::Day));
    let budget = world.state.budget("cap").expect("it is there").clone();
    let day = |at: u64| Millis(at * 86_400_000);
    let mut state = world.state.clone();
    let kept = BUDGET_PERIODS_KEPT as u64;
    // Today is the last of them but one: the clock was set back once.
    let today = day(kept + 3);
    let periods = (0..kept + 5).map(|at| {
        let reserved = MicroUsd(u64::from(at == 1));
        (day(at), Figures { reserved, ..Figures::default() })
    });
    let changed = Budget { periods: periods.collect(), ..(*budget).clone() };
    state.budgets.insert(budget.id, changed.into());
    let renewed = BudgetRenewed { id: budget.id, period_ends: budget.period_ends };
    neap_core::apply::apply(&mut state, today.plus(1), &renewed.into());
    let left: Vec<Millis> = state.budgets[&budget.id].periods.keys().copied().collect();
    let expect: Vec<Millis> = (0..kept + 5).filter(|at| ![0, 2, 3, 4, 5].contains(at)).map(day).collect();
    assert_eq!(left, expect, "five too many went, but not the one that holds a reservation");
}

#[test]
fn somebody_is_told_at_half_at_four_fifths_and_at_all_of_it_unless_said_otherwise() {
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(5));
    assert_eq!(world.state.budget("cap").expect("it is there").thresholds, [50, 80, 100]);
    let told_at = |many: u32| {
        Command::PutBudget(PutBudget { thresholds: Some((1..=many).collect()), ..unsaid("cap", vec![]) })
    };
    let most = BUDGET_THRESHOLDS_MAX as u32;
    world.tell(told_at(most));
    assert_eq!(world.refused(told_at(most + 1)), [Code::LimitReached]);
}

#[test]
fn a_cluster_that_goes_gets_no_budget_any_more() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    world.tell(Command::DeleteCluster { cluster: CPU, reason: "asked".into() });
    assert!(world.cpu().is_deleting(), "its node is still there");
    assert_eq!(world.refused(on_cluster(5)), [Code::ResourceNotFound]);
}

#[test]
fn a_cluster_says_that_it_waits_for_somebodys_money() {
    let mut world = World::with_cluster(0, 1);
    world.tell(put("mine", BudgetScope::User("me".into()), 1, Every::Total));
    world.submit("waits");
    let said: Vec<String> = world.cpu().cuts.iter().map(|cut| cut.sentence()).collect();
    assert!(said.len() == 1 && said[0].contains("budget 'mine'"), "{said:?}");
}
