//! What is foreseen: the smallest worlds that show what is known, what is not, and how far is looked.

use neap_core::command::{PutCluster, SubmitJob};
use neap_core::forecast::{
    Asked, Assumed, Basis, Course, Drawn, Effort, End, Outlook, Question, Span, Wanted, basis, course,
    outlook,
};
use neap_core::history::{Closeness, Like};
use neap_core::job::Exit;
use neap_core::limits::{FORECAST_COURSES, HISTORY_SAMPLES_ENOUGH};
use neap_core::{Command, JobId, Millis};

use crate::world::{CPU, World, cluster, gang, job, settings};

fn like(name: &str, work: &str) -> SubmitJob {
    SubmitJob { like: Some(Like::of("e", work, "")), ..job(name) }
}

fn assumed(runs: &[(JobId, u64)], boot_ms: Option<u64>) -> Assumed {
    Assumed { runs_ms: runs.iter().copied().collect(), boot_ms }
}

fn one(world: &World, assumed: &Assumed, coming: &[(Millis, Command)], steps_max: usize) -> Course {
    let state = &world.state;
    let wanted = Wanted::Ends;
    let question =
        Question { state, now: world.now, coming, arriving: &[], wanted, watched: Some(CPU), steps_max };
    course(&question, &Drawn { state, assumed, course: 0 }, &mut || true).unwrap()
}

fn all(world: &World, wanted: Wanted<'_>, coming: &[(Millis, Command)]) -> Outlook {
    let assumed = Assumed::default();
    let asked = Asked { assumed: &assumed, coming, wanted, watched: None, others_come: false };
    outlook(&world.state, world.now, &asked, Effort { steps_max: 1_000_000 }, &mut || true).unwrap()
}

/// Runs a job to its end.
fn ran(world: &mut World, submit: SubmitJob, ms: u64) {
    let id = world.submit_job(submit);
    world.start(id);
    world.wait(ms);
    world.end(id, Exit::Success);
}

#[test]
fn one_node_does_one_after_the_other_and_goes() {
    let mut world = World::with_cluster(0, 1);
    let (a, b) = (world.submit("a"), world.submit("b"));
    let before = world.state.clone();
    let course = one(&world, &assumed(&[(a, 60_000), (b, 30_000)], Some(20_000)), &[], 1_000);
    let span = |from: u64, to: u64| Span { start: Some(world.now.plus(from)), end: Some(world.now.plus(to)) };
    assert_eq!((course.jobs[&a], course.jobs[&b]), (span(20_000, 80_000), span(80_000, 110_000)));
    let nodes: Vec<_> = course.nodes.iter().map(|m| (m.at.since(world.now), m.live, m.busy)).collect();
    assert_eq!(nodes, [(0, 1, 0), (20_000, 1, 1), (110_000, 1, 0), (120_000, 0, 0)]);
    // The first pays for the boot and its run, the second for its run and the idle time after it.
    let price = u128::from(world.cpu().shape.price.0);
    let cost = |ms: u128| price * ms / 3_600_000;
    assert!(
        course.paid[&a].abs_diff(cost(80_000)) <= 2 && course.paid[&b].abs_diff(cost(40_000)) <= 2,
        "{course:?}"
    );
    assert_eq!(course.end, End::Known);
    assert_eq!(world.state, before, "nothing is changed");
}

#[test]
fn what_nobody_knows_is_not_made_up() {
    let mut world = World::with_cluster(0, 1);
    let (a, b) = (world.submit("a"), world.submit("b"));
    let blank = one(&world, &assumed(&[], None), &[], 1_000);
    assert_eq!((blank.end, blank.jobs.get(&a)), (End::Still, None), "no node has ever started");
    let booted = one(&world, &assumed(&[], Some(1_000)), &[], 1_000);
    assert_eq!(booted.end, End::Still);
    assert_eq!(booted.jobs[&a], Span { start: Some(world.now.plus(1_000)), end: None });
    assert_eq!(booted.jobs.get(&b), None, "it waits for one that takes nobody knows how long");
    assert_eq!(basis(&world.state, &Assumed::default(), world.job(a)), Basis::Unknown);
}

#[test]
fn a_time_limit_is_the_longest_it_can_be() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    let a = world.submit_job(SubmitJob { timeout_ms: Some(50_000), ..job("a") });
    let b = world.submit("b");
    assert_eq!(basis(&world.state, &Assumed::default(), world.job(a)), Basis::Timeout);
    let course = one(&world, &assumed(&[], None), &[], 1_000);
    assert_eq!(course.jobs[&a].end, Some(world.now.plus(50_000)));
    assert_eq!(course.jobs[&b].start, Some(world.now.plus(50_000)));
}

#[test]
fn the_past_of_like_jobs_is_gone_by() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    ran(&mut world, like("other", "x"), 500_000);
    for (number, ms) in [(1, 10_000), (2, 20_000), (3, 30_000)] {
        ran(&mut world, like(&format!("j{number}"), "y"), ms);
    }
    let running = world.submit_job(like("again", "y"));
    let same = |world: &World| basis(&world.state, &Assumed::default(), world.job(running));
    assert_eq!(same(&world), Basis::Like { closeness: Closeness::Work, jobs: 3 });
    let waits = world.submit_job(like("new", "z"));
    let other = basis(&world.state, &Assumed::default(), world.job(waits));
    assert_eq!(other, Basis::Like { closeness: Closeness::Experiment, jobs: 4 });
    let range = all(&world, Wanted::Starts, &[]).start(waits);
    assert_eq!((range.p50, range.p95), (Some(world.now.plus(20_000)), Some(world.now.plus(30_000))));
    // After 15 s it is one of those that took longer.
    world.start(running);
    world.wait(15_000);
    let range = all(&world, Wanted::Starts, &[]).start(waits);
    assert_eq!((range.p50, range.p95), (Some(world.now.plus(15_000)), Some(world.now.plus(15_000))));
    assert_eq!(all(&world, Wanted::Starts, &[]).courses.len(), FORECAST_COURSES as usize);
    // Where there is enough of a coarser kind, it goes before too little of a closer one.
    world.end(running, Exit::Success);
    assert_eq!(HISTORY_SAMPLES_ENOUGH, 5, "as many of the experiment there are now");
    assert_eq!(
        basis(&world.state, &Assumed::default(), world.job(waits)),
        Basis::Like { closeness: Closeness::Experiment, jobs: 5 }
    );
}

#[test]
fn canceled_jobs_are_no_measure() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    let id = world.submit_job(like("a", "y"));
    world.start(id);
    world.wait(1_000);
    world.tell(Command::CancelJob { job: id, reason: "not wanted".into() });
    world.end(id, Exit::Stopped);
    let next = world.submit_job(like("b", "y"));
    assert_eq!(basis(&world.state, &Assumed::default(), world.job(next)), Basis::Unknown);
}

#[test]
fn a_newcomer_is_seen_with_those_it_delays() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    ran(&mut world, like("past", "y"), 60_000);
    let running = world.submit_job(like("running", "y"));
    world.start(running);
    let waits = world.submit_job(like("waits", "y"));
    let urgent = Command::SubmitJob(SubmitJob { priority: 9, ..like("urgent", "y") });
    let mine = [world.state.next.job];
    let coming = [(world.now, urgent)];
    let with = all(&world, Wanted::StartsAndEndsOf(&mine), &coming);
    let without = all(&world, Wanted::Starts, &[]);
    assert_eq!(with.start_of(&mine).p50, Some(world.now.plus(60_000)));
    let moved = with.moved(&without, &world.state);
    assert_eq!(moved.keys().copied().collect::<Vec<_>>(), [waits]);
    assert_eq!((moved[&waits].p50, moved[&waits].p95), (Some(60_000), Some(60_000)));
    assert!(with.paid(&mine).p50.is_some_and(|paid| paid > 0));
}

#[test]
fn the_end_of_several_is_not_known_while_one_of_them_has_none() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    let [ends, never, behind] = ["ends", "never", "behind"].map(|name| world.submit(name));
    let assumed = Assumed { runs_ms: [(ends, 60_000), (behind, 1)].into(), boot_ms: None };
    let asked =
        Asked { assumed: &assumed, coming: &[], wanted: Wanted::Ends, watched: None, others_come: false };
    let seen = outlook(&world.state, world.now, &asked, Effort { steps_max: 1_000 }, &mut || true).unwrap();
    assert_eq!(seen.end_of(&[ends]).p50, Some(world.now.plus(60_000)));
    assert_eq!(
        (seen.start(never).p50.is_some(), seen.end(never).p50),
        (true, None),
        "nobody knows how long it runs"
    );
    assert_eq!(seen.end_of(&[ends, never]).p50, None);
    assert_eq!(seen.end_of(&[ends, behind]).p50, None, "it never starts");
}

#[test]
fn what_would_be_refused_is_refused() {
    let world = World::with_cluster(0, 1);
    let wide = Command::SubmitJob(gang("wide", 9));
    let asked = Asked {
        assumed: &Assumed::default(),
        coming: &[(world.now, wide)],
        wanted: Wanted::Starts,
        watched: None,
        others_come: false,
    };
    let refused = outlook(&world.state, world.now, &asked, Effort { steps_max: 100 }, &mut || true);
    assert_eq!(refused.unwrap_err().code(), neap_core::Code::ResourceTooLarge);
}

#[test]
fn it_is_said_how_far_was_looked() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    ran(&mut world, like("past", "y"), 60_000);
    let ids: Vec<JobId> = (0..50).map(|n| world.submit_job(like(&format!("j{n}"), "y"))).collect();
    let few = one(&world, &Assumed::default(), &[], 10);
    assert_eq!((few.end, few.steps), (End::Bound, 10));
    assert!(few.jobs.len() < ids.len() && few.until > world.now);
    let mut left = 5;
    let asked = Asked {
        assumed: &Assumed::default(),
        coming: &[],
        wanted: Wanted::Starts,
        watched: None,
        others_come: false,
    };
    let mut go_on = || {
        left -= 1;
        left > 0
    };
    let cut = outlook(&world.state, world.now, &asked, Effort { steps_max: 1_000_000 }, &mut go_on).unwrap();
    assert_eq!((cut.courses.len(), cut.end_reason()), (1, End::Bound));
    assert_eq!(cut.start(ids[49]).p50, None);
    assert!(cut.looked_until().is_some());
}

#[test]
fn whose_nodes_would_be_taken_back_is_foreseen() {
    let mut world = World::new();
    world.tell(Command::Start { release: "test".into(), settings: settings(|s| s.provider.nodes_max = 1) });
    world.tell(Command::PutCluster(PutCluster { max: Some(1), ..cluster("cpu") }));
    world.tell(Command::PutCluster(PutCluster {
        tier: Some("low_priority".into()),
        max: Some(1),
        ..cluster("spot")
    }));
    let spot = world.submit_job(SubmitJob { cluster: "spot".into(), ..like("spot", "y") });
    world.ready(1);
    world.start(spot);
    let mine = [world.state.next.job];
    let coming = [(world.now, Command::SubmitJob(like("dedicated", "y")))];
    let with = all(&world, Wanted::StartsAndEndsOf(&mine), &coming);
    let without = all(&world, Wanted::Starts, &[]);
    assert_eq!(with.interrupted(&without, &world.state), [spot].into());
    assert!(without.interrupted(&with, &world.state).is_empty());
}
