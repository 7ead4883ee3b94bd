//! The driver: everything that comes ends, nothing is counted twice, and order is kept.

use neap_core::job::Need;
use neap_core::{Capacity, invariants};

use super::scene::{NodeTimes, Pool, Task};
use super::standstill::{Moment, Standstill};
use super::{Error, Replay, shapes, synthetic};

const SIZE: &str = "STANDARD_ND40RS_V2";
const NODE: Capacity = Capacity { cpus_milli: 40_000, memory_mb: 688_128, gpus: 8 };

fn pool(min: u32, max: u32, idle_ms: u64) -> Pool {
    Pool { name: "pool".into(), size: SIZE.into(), min, max, idle_ms }
}

fn task(submit_ms: u64, run_ms: u64, need: Need) -> Task {
    Task {
        pool: "pool".into(),
        owner: "me".into(),
        submit_ms,
        run_ms,
        need,
        nodes: 1,
        priority: 1,
        timeout_ms: None,
        like: None,
    }
}

#[test]
fn one_node_does_one_job_after_the_other() {
    // Given in disorder: what counts is when they come.
    let tasks = [task(30, 500, Need::Whole), task(0, 1_000, Need::Whole), task(10, 200, Need::Whole)];
    let times = NodeTimes { boot_ms: 250, leave_ms: 50 };
    let course = Replay::run(&[pool(0, 1, 0)], &tasks, times).unwrap();
    let spans: Vec<(u64, u64)> = course.spans.iter().map(|span| (span.placed_ms, span.end_ms)).collect();
    assert_eq!(spans, [(1_450, 1_950), (250, 1_250), (1_250, 1_450)]);
    assert_eq!(course.end_ms, 1_950);
    assert_eq!((course.nodes.boot_ms, course.nodes.busy_ms, course.nodes.idle_ms), (250, 1_700, 0));
    assert_eq!((course.nodes.made, course.nodes.most), (1, 1));
}

#[test]
fn a_node_stays_for_its_idle_time_and_is_used_again_within_it() {
    let tasks = [task(0, 100, Need::Whole), task(600, 100, Need::Whole), task(5_000, 100, Need::Whole)];
    let times = NodeTimes { boot_ms: 1_000, leave_ms: 10 };
    let course = Replay::run(&[pool(0, 4, 2_000)], &tasks, times).unwrap();
    let waits: Vec<u64> = course.spans.iter().map(|span| span.waited_ms()).collect();
    // The second finds the node of the first before its own has booted; both are gone when the third comes.
    assert_eq!(waits, [1_000, 500, 1_000]);
    assert_eq!(course.nodes.made, 3);
    assert_eq!(course.nodes.boot_ms, 3_000);
    assert_eq!(course.nodes.leave_ms, 20);
}

#[test]
fn everything_ends_and_time_is_conserved() {
    let trace = synthetic::synthetic(7, 400, 2);
    let work = trace.on("pool", NODE);
    for (pool, boot_ms) in [(pool(0, 8, 0), 250), (pool(0, 8, 600_000), 300_000), (pool(6, 6, 0), 0)] {
        let course =
            Replay::run(std::slice::from_ref(&pool), &work.tasks, NodeTimes { boot_ms, leave_ms: 0 })
                .unwrap();
        let nodes = course.nodes;
        for (span, task) in course.spans.iter().zip(&work.tasks) {
            assert!(span.placed_ms >= task.submit_ms);
            assert_eq!(span.end_ms, span.placed_ms + task.run_ms);
        }
        assert_eq!(course.placements, work.tasks.len() as u64);
        assert!(nodes.most <= pool.max && nodes.made >= nodes.most);
        assert!(nodes.total_ms() <= u64::from(pool.max) * course.end_ms);
        // A node is busy while anything is on it, and carries no more GPUs than it has.
        assert!(u128::from(nodes.busy_ms) * u128::from(NODE.gpus) >= trace.gpu_ms());
        if pool.min == pool.max {
            assert_eq!(nodes.total_ms(), u64::from(pool.max) * course.end_ms);
        }
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let wide = Need::Share(Capacity { cpus_milli: 50_000, memory_mb: 0, gpus: 0 });
    let refused = Replay::run(&[pool(0, 1, 0)], &[task(0, 1, wide)], NodeTimes::default()).unwrap_err();
    assert!(matches!(&refused, Error::Task { task: 0, .. }), "{refused}");
    let stuck = Replay::run(&[pool(0, 0, 0)], &[task(0, 1, Need::Whole)], NodeTimes::default()).unwrap_err();
    assert!(matches!(stuck, Error::Stuck { left: 1, tasks: 1 }), "{stuck}");
}

#[test]
fn the_machine_holds_its_promises_all_along() {
    let trace = synthetic::synthetic(8, 60, 1);
    let work = trace.on("pool", NODE);
    let times = NodeTimes { boot_ms: 30_000, leave_ms: 1_000 };
    let mut replay = Replay::new(&[pool(0, 3, 60_000)], &work.tasks, times).unwrap();
    while replay.step().unwrap() {
        assert_eq!(invariants::check(replay.state()), []);
    }
}

#[test]
fn the_published_shapes_have_the_published_counts() {
    for (shape, workloads) in [(shapes::BASELINE, 15_000), (shapes::LARGE_SCALE, 50_000)] {
        let tasks = shape.tasks();
        assert_eq!((shape.pools().len(), tasks.len()), (shape.queues as usize, workloads));
    }
    let small = shapes::Shape { queues: 2, ..shapes::BASELINE };
    let course = Replay::run(&small.pools(), &small.tasks(), NodeTimes::default()).unwrap();
    let admissions = small.admissions(&course);
    let counts: Vec<(&str, usize)> = admissions.iter().map(|a| (a.class, a.workloads)).collect();
    assert_eq!(counts, [("small", 700), ("medium", 200), ("large", 100)]);
    // The more important a class, the sooner it runs; no queue uses more than its quota.
    assert!(admissions.is_sorted_by(|a, b| a.waiting.mean_ms > b.waiting.mean_ms), "{admissions:?}");
    assert!((0.5..=1.0).contains(&small.usage(&course)));
}

#[test]
fn at_a_standstill_every_node_gets_work_and_each_end_makes_room_for_one() {
    let share = Need::Share(Capacity { cpus_milli: 20_000, memory_mb: 0, gpus: 0 });
    for (need, room) in [(Need::Whole, 5), (share, 10)] {
        let moment = Moment { nodes: 5, jobs: 12, size: SIZE.into(), need };
        let mut world = Standstill::new(&moment).unwrap().begin();
        assert_eq!(world.plan_all(), room);
        for turn in 0..12 {
            let ended = world.choose(turn).unwrap();
            assert_eq!(world.change(ended).unwrap(), u64::from(turn < 12 - room as usize));
            assert_eq!(invariants::check(world.state()), []);
        }
        assert!(world.choose(0).is_none());
    }
}
