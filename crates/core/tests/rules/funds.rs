//! Money in detail: what a budget may be on and how it is changed, what is charged to the micro-unit, and who is asked for
//! a node when there is not enough for all.

use neap_core::allowance::{Allowance, AllowanceKey, Who, Within};
use neap_core::apply::apply;
use neap_core::budget::{AtCap, Budget, BudgetScope, Every, Figures};
use neap_core::cluster::Cut;
use neap_core::command::{PutBudget, SubmitJob};
use neap_core::event::{BudgetRenewed, NodeRequested, ServerDraining, ServerStarted};
use neap_core::job::{Exit, StopReason};
use neap_core::limits::{BUDGET_MICRO_USD_MAX, BUDGET_PERIODS_KEPT};
use neap_core::node::NodeState;
use neap_core::state::GroupKey;
use neap_core::{ClusterId, Code, Command, Event, JobId, MicroUsd, Millis, NodeId, State, WorkspaceId};

use crate::budgets::{LEAST, figures, least, on_cluster, price, put, run_until, unsaid};
use crate::world::{CPU, QUARTER, WORKSPACE, World, cancel, gang, job, kinds, put_group, share};

const DAY: u64 = 86_400_000;

fn of(owner: &str, job: SubmitJob) -> SubmitJob {
    SubmitJob { owner: owner.into(), ..job }
}

fn user(name: &str) -> BudgetScope {
    BudgetScope::User(name.into())
}

fn runs(world: &World, id: JobId) -> bool {
    world.state.jobs.get(&id).is_some_and(|job| job.attempt().is_some())
}

/// For whose sake each new node is asked for.
fn causes(events: &[Event]) -> Vec<Option<JobId>> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::NodeRequested(NodeRequested { cause, .. }) => Some(*cause),
            _ => None,
        })
        .collect()
}

/// Of which budget, and for how many nodes there is no money.
fn cuts(world: &World) -> Vec<(String, u32)> {
    let of = |cut: &Cut| match cut {
        Cut::Budget { name, nodes, .. } => (name.to_string(), *nodes),
        other => panic!("{other:?}"),
    };
    world.cpu().cuts.iter().map(of).collect()
}

fn budget<'a>(world: &'a World, name: &str) -> &'a Budget {
    world.state.budget(name).expect("it is there")
}

// ---- putting and changing one

#[test]
fn a_budget_is_on_something_that_is_there_and_has_a_name() {
    let mut world = World::with_cluster(1, 1);
    world.tell(crate::world::put_workspace("going"));
    world.tell(Command::PutCluster(neap_core::command::PutCluster {
        workspace: WorkspaceId(2),
        min: Some(1),
        ..crate::world::cluster("theirs")
    }));
    world.tell(Command::DeleteWorkspace { workspace: WorkspaceId(2) });
    assert!(world.state.workspaces[&WorkspaceId(2)].deleting, "it waits for its node");
    let group = |name| BudgetScope::Group(GroupKey::new("s", name));
    let of_job = |workspace, name: &str| BudgetScope::Job { workspace, name: name.into() };
    let tag = |name: &str| BudgetScope::Tag { name: name.into(), value: "".into() };
    let (missing, unnamed) = (Some(Code::ResourceNotFound), Some(Code::BadArgument));
    for (scope, expect) in [
        (group("g"), None),
        (group("other"), missing),
        (BudgetScope::Workspace(WORKSPACE), None),
        (BudgetScope::Workspace(WorkspaceId(9)), missing),
        (BudgetScope::Workspace(WorkspaceId(2)), missing),
        (of_job(WORKSPACE, "later"), None),
        (of_job(WORKSPACE, " "), unnamed),
        (of_job(WorkspaceId(9), "later"), missing),
        (of_job(WorkspaceId(2), "later"), missing),
        (BudgetScope::Cluster(CPU), None),
        (BudgetScope::Cluster(ClusterId(9)), missing),
        (BudgetScope::Cluster(ClusterId(2)), missing),
        (user("ada"), None),
        (user(" "), unnamed),
        (tag("team"), None),
        (tag(" "), unnamed),
    ] {
        let answer = world.ask(put("new", scope.clone(), 5, Every::Day));
        let refused = answer.err().map(|refusal| refusal.code());
        assert_eq!(refused, expect, "{scope:?}");
    }
}

#[test]
fn amounts_and_thresholds_have_their_limits() {
    let world = World::with_cluster(0, 1);
    for (amount, good) in
        [(0, false), (1, true), (BUDGET_MICRO_USD_MAX, true), (BUDGET_MICRO_USD_MAX + 1, false)]
    {
        assert_eq!(world.ask(on_cluster(amount)).is_ok(), good, "{amount}");
    }
    for (percent, good) in [(0, false), (1, true), (100, true), (101, false)] {
        let Command::PutBudget(put) = on_cluster(5) else { panic!() };
        let put = PutBudget { thresholds: Some(vec![percent]), ..put };
        assert_eq!(world.ask(Command::PutBudget(put)).is_ok(), good, "{percent} %");
    }
}

#[test]
fn a_budget_keeps_what_is_not_said_anew_and_what_was_spent() {
    let mut world = World::with_cluster(0, 1);
    let created = world.now;
    let Command::PutBudget(first) = on_cluster(1_000_000) else { panic!() };
    world.tell(Command::PutBudget(PutBudget {
        at_cap: Some(AtCap::CheckpointAndDrain),
        thresholds: Some(vec![90, 10, 90]),
        ..first
    }));
    assert_eq!(budget(&world, "cap").thresholds, [10, 90], "in order, and each once");
    assert_eq!(budget(&world, "cap").period_ends, None, "of a total no period ends");
    world.submit("costs");
    world.wait(30_000);
    world.ready(1);
    assert_eq!(figures(&world, "cap").0, price(30_000));

    let amount = Some(MicroUsd(2_000_000));
    world.tell(Command::PutBudget(PutBudget { amount, ..unsaid("CAP", vec![]) }));
    let cap = budget(&world, "cap");
    assert_eq!((cap.amount, cap.at_cap), (MicroUsd(2_000_000), AtCap::CheckpointAndDrain));
    assert_eq!((&cap.thresholds[..], &*cap.name), (&[10, 90][..], "cap"));
    assert_eq!((cap.created, cap.modified), (created, created.plus(30_000)));
    assert_eq!(figures(&world, "cap").0, price(30_000), "what was spent is spent");

    let (at_cap, thresholds) = (Some(AtCap::StopNew), Some(vec![75]));
    world.tell(Command::PutBudget(PutBudget { at_cap, thresholds, ..unsaid("cap", vec![]) }));
    let cap = budget(&world, "cap");
    assert_eq!((cap.amount, cap.at_cap), (MicroUsd(2_000_000), AtCap::StopNew));
    assert_eq!((cap.thresholds.as_slice(), cap.every), (&[75][..], Every::Total));
}

#[test]
fn leases_that_are_there_count_for_a_new_budget_and_for_no_other() {
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(1_000_000));
    world.submit("costs");
    world.wait(30_000);
    let before = figures(&world, "cap");
    world.tell(put("whole", BudgetScope::Workspace(WORKSPACE), 1_000_000, Every::Total));
    let until = world.node(1).lease.expect("it has a lease").until;
    let bill = |at: Millis| neap_core::meter::bill(world.node(1), at);
    assert_eq!(figures(&world, "whole"), (0, bill(until) - bill(world.now), 0), "from now on");
    assert_eq!(figures(&world, "cap"), before);
}

#[test]
fn what_is_gone_takes_its_own_budgets_with_it() {
    let mut world = World::new();
    world.batch(["one", "two"].map(|name| put_group(name, "westus")));
    for name in ["one", "two"] {
        world.tell(put(name, BudgetScope::Group(GroupKey::new("s", name)), 5, Every::Day));
    }
    world.tell(Command::DeleteGroup { subscription: "s".into(), name: "one".into() });
    let left: Vec<&str> = world.state.budgets.values().map(|budget| &*budget.name).collect();
    assert_eq!(left, ["two"]);
}

// ---- charging

#[test]
fn a_single_micro_unit_is_charged() {
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(1_000_000));
    world.submit("costs");
    assert_eq!(price(13), 1);
    world.wait(13);
    world.ready(1);
    assert_eq!(figures(&world, "cap").0, 1);
}

#[test]
fn a_slice_across_midnight_is_charged_to_each_day_in_step_with_the_bill() {
    let mut world = World::with_cluster(0, 1);
    world.now = Millis(DAY - 100_000);
    world.wait(0);
    world.tell(put("daily", BudgetScope::Workspace(WORKSPACE), 1_000_000, Every::Day));
    let id = world.submit("late");
    world.wait(40_000);
    world.ready(1);
    world.start(id);
    world.wait(120_000);
    world.end(id, Exit::Success);
    let spent = |at: u64| budget(&world, "daily").figures(Millis(at)).spent.0;
    assert_eq!((spent(DAY - 1), spent(DAY)), (price(100_000), price(160_000) - price(100_000)));
}

#[test]
fn the_period_of_now_is_kept_however_many_come_after_it() {
    let mut world = World::with_cluster(0, 1);
    world.tell(put("cap", BudgetScope::Cluster(CPU), 1, Every::Day));
    let put = budget(&world, "cap").clone();
    let mut state = world.state.clone();
    // The clock was set back: all but the first are yet to come.
    let days = (1..BUDGET_PERIODS_KEPT as u64 + 4).map(|day| (Millis(day * DAY), Figures::default()));
    let changed = Budget { periods: days.collect(), ..put.clone() };
    let many = changed.periods.len();
    state.budgets.insert(put.id, changed.into());
    let renewed = BudgetRenewed { id: put.id, period_ends: put.period_ends };
    apply(&mut state, Millis(DAY + 1), &renewed.clone().into());
    assert_eq!(state.budgets[&put.id].periods.len(), many);
    apply(&mut state, Millis(2 * DAY), &renewed.into());
    assert_eq!(state.budgets[&put.id].periods.len(), many - 1, "a day later it is over");
}

/// A node with a lease, and a server that starts again after its log ended at one moment and it came back at another.
fn costs_until(last: impl Fn(Millis) -> Millis, back: impl Fn(Millis) -> Millis) -> (Millis, Option<Millis>) {
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(1_000_000));
    world.submit("alone");
    let until = world.node(1).lease.expect("it has a lease").until;
    let mut state: State = world.state.clone();
    apply(&mut state, last(until), &ServerDraining { deadline: last(until) }.into());
    let started = ServerStarted { release: "next".into(), settings: state.settings.clone() };
    apply(&mut state, back(until), &started.into());
    (until, state.nodes[&NodeId(1)].costs_until)
}

#[test]
fn a_node_costs_until_its_lease_ended_where_the_server_was_away_then() {
    let before = |until: Millis| Millis(until.0 - 1);
    let at = |until: Millis| until;
    let after = |until: Millis| until.plus(1);
    let ends = |last: fn(Millis) -> Millis, back: fn(Millis) -> Millis| {
        let (until, costs_until) = costs_until(last, back);
        assert!(costs_until.is_none_or(|at| at == until));
        costs_until.is_some()
    };
    assert!(ends(before, after) && ends(before, at));
    assert!(!ends(before, before), "it was back in time");
    assert!(!ends(at, after), "it was there at the end, and saw to it");
    assert!(!ends(after, after));
}

// ---- leases that end

#[test]
fn a_node_whose_lease_ended_while_the_server_was_away_is_let_go_once() {
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(1_000_000));
    let id = world.submit("alone");
    world.ready(1);
    world.start(id);
    world.now = world.node(1).lease.expect("it has a lease").until.plus(1);
    world.dirty = neap_core::plan::Dirty::all(&world.state);
    let settings = world.state.settings.clone();
    let events = world.tell(Command::Start { release: "test".into(), settings });
    let of_node = |kind: &&&str| ["node.leaving", "money.leased"].contains(*kind);
    assert_eq!(kinds(&events).iter().filter(of_node).collect::<Vec<_>>(), [&"node.leaving"]);
    assert_eq!(&*world.node(1).reason, "its money lease ended while the server was away");
}

#[test]
fn a_broken_node_is_shown_only_as_long_as_its_lease() {
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(price(600_000)));
    let id = world.submit("waits");
    world.report_failed(1);
    world.tell(cancel(id));
    assert!(matches!(world.node(1).state, NodeState::Unusable { .. }));
    let lease = world.node(1).lease.expect("it has a lease");
    assert_eq!(lease.until, world.now.plus(LEAST));
    let events = run_until(&mut world, |event| matches!(event, Event::NodeLeaving(_)));
    assert_eq!(world.now, lease.renew_at);
    assert!(!kinds(&events).contains(&"money.leased"));
    assert_eq!(&*world.node(1).reason, "no room");
}

#[test]
fn of_those_on_a_node_without_money_only_who_was_not_told_before_is_told() {
    let mut world = World::with_cluster(0, 1);
    world.tell(on_cluster(price(600_000)));
    let [told, other] = ["told", "other"].map(|name| world.submit_job(share(name, QUARTER)));
    world.ready(1);
    world.start(told);
    world.start(other);
    // Told to end shortly before there is no more money.
    let mut ahead = world.clone();
    run_until(&mut ahead, |event| matches!(event, Event::AttemptStopRequested(_)));
    while world.wake_at.is_some_and(|at| at < ahead.now) {
        world.wait(world.wake_at.expect("something is due").since(world.now));
    }
    world.tell(cancel(told));
    let events = run_until(&mut world, |event| matches!(event, Event::AttemptStopRequested(_)));
    assert_eq!(kinds(&events), ["attempt.stop_requested"], "{events:?}");
    assert_eq!(world.attempt(told).stop.as_ref().map(|stop| stop.why), Some(StopReason::Cancel));
    assert_eq!(world.attempt(other).stop.as_ref().map(|stop| stop.why), Some(StopReason::Budget));
}

// ---- placing

#[test]
fn a_gang_without_money_is_promised_nothing() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    world.submit_job(of("rich", job("runs")));
    world.tell(put("poor", user("poor"), 1, Every::Total));
    let pair = world.submit_job(of("poor", gang("pair", 2)));
    let behind = world.submit_job(of("rich", job("behind")));
    assert!(!runs(&world, pair) && runs(&world, behind));
}

/// Two nodes; on the first runs a share whose payer's money has just run out, so that it is on its way out.
fn one_runs_out() -> (World, JobId) {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    world.tell(put("poor", user("poor"), price(600_000), Every::Total));
    let last = world.submit_job(of("poor", share("last", QUARTER)));
    assert_eq!(world.attempt(last).node, NodeId(1));
    world.start(last);
    run_until(&mut world, |event| matches!(event, Event::AttemptStopRequested(_)));
    (world, last)
}

#[test]
fn a_share_goes_beside_a_node_whose_money_ends() {
    let (mut world, _) = one_runs_out();
    let beside = world.submit_job(of("rich", share("beside", QUARTER)));
    assert_eq!(world.attempt(beside).node, NodeId(2), "the first has room, and is on its way out");
}

#[test]
fn nobody_is_put_on_a_node_whose_money_ends_and_that_is_charged_to_nobody() {
    let (mut world, last) = one_runs_out();
    let taken = world.submit_job(of("rich", job("taken")));
    assert_eq!(world.attempt(taken).node, NodeId(2));
    let key = AllowanceKey { within: Within::Cluster(CPU), who: Who::User("other".into()) };
    let allowance = Some(Allowance { jobs: Some(1), cores: None });
    world.tell(Command::SetAllowance { key, allowance, by: "me".into() });
    let beside = of("other", share("beside", QUARTER));
    world.batch([beside, of("other", share("second", QUARTER))].map(Command::SubmitJob));
    let [beside, second] = [last.0 + 2, last.0 + 3].map(JobId);
    assert!(!runs(&world, beside) && !runs(&world, second), "node 1 is on its way out");
    world.start(taken);
    world.end(taken, Exit::Success);
    assert!(runs(&world, beside) && !runs(&world, second), "what did not run did not count as running");
}

// ---- asking for nodes

#[test]
fn what_keeps_several_jobs_from_a_node_is_named_once_and_some_of_the_names_are_told() {
    let mut world = World::with_cluster(0, 9);
    for name in ["ann", "bob", "cem", "dora"] {
        world.tell(put(name, user(name), 1, Every::Total));
    }
    for name in ["a1", "a2"] {
        world.submit_job(of("ann", job(name)));
    }
    assert_eq!(cuts(&world), [("ann".into(), 1)]);
    for name in ["bob", "cem", "dora"] {
        world.submit_job(of(name, job(name)));
    }
    assert_eq!(cuts(&world).len(), 3);
    assert!(world.state.nodes.is_empty());
}

#[test]
fn who_has_no_more_money_does_not_keep_others_from_their_nodes() {
    let jobs = [("poor", "p1"), ("poor", "p2"), ("poor", "p3"), ("rich", "r1")];
    let submit = || jobs.map(|(owner, name)| Command::SubmitJob(of(owner, job(name))));
    let mut world = World::with_cluster(0, 9);
    world.tell(put("poor", user("poor"), least(), Every::Total));
    let mut scarce = world.clone();
    assert_eq!(causes(&world.batch(submit())), [Some(JobId(1)), Some(JobId(4))]);
    assert_eq!(cuts(&world), [("poor".into(), 1)], "though two of his jobs wait");
    // Also where there is money for one more node and not for two.
    scarce.tell(on_cluster(2 * least()));
    assert_eq!(causes(&scarce.batch(submit())), [Some(JobId(1)), Some(JobId(4))]);
}

#[test]
fn each_job_is_the_cause_of_the_nodes_that_it_lacks() {
    let mut world = World::with_cluster(0, 9);
    let both = [of("ann", gang("trio", 3)), of("bob", job("one"))].map(Command::SubmitJob);
    let [trio, one] = [1, 2].map(|id| Some(JobId(id)));
    assert_eq!(causes(&world.batch(both)), [trio, trio, trio, one]);
    let next = Command::SubmitJob(of("cem", job("next")));
    assert_eq!(causes(&world.tell(next)), [Some(JobId(3))], "those of the others are on their way");
}

#[test]
fn a_gang_that_can_just_be_paid_for_has_all_its_nodes_asked_for() {
    for fifths in 0..20 {
        let mut world = World::with_cluster(0, 30);
        world.tell(on_cluster(27 * least() + fifths * least() / 5));
        let events = world.tell(Command::SubmitJob(gang("large", 27)));
        assert_eq!(causes(&events).len(), 27, "no lease is so long that another has none ({fifths})");
    }
}

#[test]
fn jobs_on_one_node_are_asked_for_as_far_as_the_money_goes() {
    let mut world = World::with_cluster(0, 9);
    world.tell(on_cluster(2 * least()));
    let events = world.batch(["a", "b", "c"].map(|name| Command::SubmitJob(job(name))));
    assert_eq!(causes(&events).len(), 2);
    assert_eq!(cuts(&world), [("cap".into(), 1)], "for the next one");
    let demand = events.iter().find_map(|event| match event {
        Event::ClusterTarget(target) => Some((target.target, target.demand)),
        _ => None,
    });
    assert_eq!(demand, Some((2, 3)));
}

#[test]
fn a_gang_asks_for_nothing_before_there_is_money_for_what_it_lacks() {
    for nodes in [2, 3] {
        let mut world = World::with_cluster(0, 9);
        world.tell(on_cluster(u64::from(nodes) * least() - 1));
        world.submit_job(gang("gang", nodes));
        assert!(world.state.nodes.is_empty(), "{nodes} nodes");
        assert_eq!(cuts(&world), [("cap".into(), nodes)]);
    }
    // One node is there: money for the two that are missing is enough.
    let mut world = World::with_cluster(1, 9);
    world.ready(1);
    world.tell(on_cluster(3 * least() + price(LEAST)));
    assert!(world.node(1).lease.is_some(), "it is paid for");
    world.submit_job(gang("gang", 3));
    assert_eq!(world.state.nodes.len(), 3);
}

#[test]
fn a_node_that_nobody_hears_of_is_one_that_a_gang_lacks() {
    let mut world = World::with_cluster(2, 9);
    world.ready(1);
    world.ready(2);
    world.scale(1, 9);
    world.tell(on_cluster(4 * least()));
    world.report(neap_core::command::Report::NodeSilent { node: NodeId(2) });
    assert_eq!((world.cpu().live, world.cpu().unheard), (2, 1));
    let left = budget(&world, "cap").left(world.now).0;
    assert!(left >= least() && left < 3 * least(), "for one or two more, of {left}");
    let wanted = u32::try_from(left / least()).unwrap() + 2;
    world.submit_job(gang("gang", wanted));
    assert_eq!(world.state.nodes.len(), 2, "one more than there is money for");
}

#[test]
fn each_user_is_charged_for_his_own_nodes() {
    let mut world = World::with_cluster(0, 2);
    for name in ["ann", "bob"] {
        world.tell(put(name, user(name), 1_000_000, Every::Total));
    }
    world.submit_job(of("ann", job("a")));
    world.wait(30_000);
    world.ready(1);
    assert_eq!((figures(&world, "ann").0, figures(&world, "bob")), (price(30_000), (0, 0, 0)));
}

#[test]
fn a_gang_whose_nodes_are_all_paid_for_is_waited_for() {
    let mut world = World::with_cluster(0, 2);
    world.tell(on_cluster(2 * least()));
    let [stays, ends] = ["stays", "ends"].map(|name| world.submit(name));
    world.ready(1);
    world.ready(2);
    world.start(stays);
    world.end(ends, Exit::Success);
    let pair = world.submit_job(gang("pair", 2));
    let behind = world.submit("behind");
    assert!(!runs(&world, pair) && !runs(&world, behind), "it needs both, and no money beside");
}
