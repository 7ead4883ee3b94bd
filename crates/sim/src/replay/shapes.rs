//! The load shapes of Kueue's own scheduler performance gate, as numbers, and how they lie on Neap.
//!
//! A queue becomes a cluster with one node of as many units as the queue's nominal quota, which is there from the
//! beginning; a workload asks for so many units of it. Kueue's queues may also borrow from their cohort and preempt;
//! Neap has neither, so each queue lives on its own quota. Neap keeps strict order (priority, then submission), Kueue
//! lets smaller workloads pass.

use std::sync::Arc;

use neap_core::Capacity;
use neap_core::catalogue::{self, Size};
use neap_core::job::Need;

use super::course::{Course, Waiting};
use super::scene::{OWNER, Pool, Task};

/// The size of a queue's node. Only its cores matter: a unit is a share of them.
const NODE_SIZE: &str = "STANDARD_DS2_V2";

/// One of the published shapes, and what Kueue's own runs of it came to.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub name: &'static str,
    pub queues: u32,
    /// Units of each queue.
    pub quota: u32,
    pub classes: &'static [Class],
    /// The mean time that Kueue takes for all of it, and the mean share of the quota in use.
    pub kueue_wall_ms: u64,
    pub kueue_usage: f64,
}

/// Workloads of a kind, in every queue.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    pub name: &'static str,
    pub count: u32,
    pub every_ms: u64,
    pub run_ms: u64,
    pub priority: u8,
    pub units: u32,
    /// The mean time from creation to admission in Kueue's own runs.
    pub kueue_admission_ms: u64,
}

/// 5 cohorts of 6 queues.
pub const BASELINE: Shape = Shape {
    name: "baseline",
    queues: 30,
    quota: 20,
    classes: &[
        Class {
            name: "small",
            count: 350,
            every_ms: 100,
            run_ms: 200,
            priority: 50,
            units: 1,
            kueue_admission_ms: 215_468,
        },
        Class {
            name: "medium",
            count: 100,
            every_ms: 500,
            run_ms: 500,
            priority: 100,
            units: 5,
            kueue_admission_ms: 76_768,
        },
        Class {
            name: "large",
            count: 50,
            every_ms: 1_200,
            run_ms: 1_000,
            priority: 200,
            units: 20,
            kueue_admission_ms: 16_501,
        },
    ],
    kueue_wall_ms: 351_116,
    kueue_usage: 0.559,
};

/// 10 cohorts of 100 queues.
pub const LARGE_SCALE: Shape = Shape {
    name: "large-scale",
    queues: 1_000,
    quota: 20,
    classes: &[
        Class {
            name: "small",
            count: 35,
            every_ms: 60,
            run_ms: 150,
            priority: 50,
            units: 1,
            kueue_admission_ms: 700_379,
        },
        Class {
            name: "medium",
            count: 11,
            every_ms: 300,
            run_ms: 350,
            priority: 100,
            units: 5,
            kueue_admission_ms: 256_413,
        },
        Class {
            name: "large",
            count: 4,
            every_ms: 700,
            run_ms: 700,
            priority: 200,
            units: 20,
            kueue_admission_ms: 105_604,
        },
    ],
    kueue_wall_ms: 1_179_411,
    kueue_usage: 0.3864,
};

/// What a class came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub class: &'static str,
    pub workloads: usize,
    /// From creation to placement.
    pub waiting: Waiting,
    pub kueue_mean_ms: u64,
}

impl Shape {
    pub fn pools(&self) -> Vec<Pool> {
        let pool =
            |queue| Pool { name: queue_name(queue), size: NODE_SIZE.into(), min: 1, max: 1, idle_ms: 0 };
        (0..self.queues).map(pool).collect()
    }

    /// Queue by queue, and class by class within each.
    pub fn tasks(&self) -> Vec<Task> {
        let node = catalogue::size(NODE_SIZE).map(Size::capacity).unwrap_or_default();
        let unit_milli = node.cpus_milli / self.quota;
        let owner: Arc<str> = OWNER.into();
        let mut tasks = Vec::new();
        for queue in 0..self.queues {
            let pool = queue_name(queue);
            for class in self.classes {
                let share = Capacity { cpus_milli: unit_milli * class.units, memory_mb: 0, gpus: 0 };
                tasks.extend((0..class.count).map(|number| Task {
                    pool: pool.clone(),
                    owner: owner.clone(),
                    submit_ms: u64::from(number) * class.every_ms,
                    run_ms: class.run_ms,
                    need: Need::Share(share),
                    priority: class.priority,
                    nodes: 1,
                    timeout_ms: None,
                    like: None,
                }));
            }
        }
        tasks
    }

    /// Time to admission by class, of the course of [`Self::tasks`].
    pub fn admissions(&self, course: &Course) -> Vec<Admission> {
        let mut waits_ms: Vec<Vec<u64>> = vec![Vec::new(); self.classes.len()];
        let mut spans = course.spans.iter();
        for _ in 0..self.queues {
            for (class, waits_ms) in self.classes.iter().zip(&mut waits_ms) {
                waits_ms.extend(spans.by_ref().take(class.count as usize).map(|span| span.waited_ms()));
            }
        }
        let admission = |(class, waits_ms): (&Class, Vec<u64>)| Admission {
            class: class.name,
            workloads: waits_ms.len(),
            waiting: Waiting::of(waits_ms),
            kueue_mean_ms: class.kueue_admission_ms,
        };
        self.classes.iter().zip(waits_ms).map(admission).collect()
    }

    /// How long all of it takes at least: the work of a queue by its quota.
    pub fn least_ms(&self) -> u64 {
        let work = |class: &Class| u64::from(class.units) * u64::from(class.count) * class.run_ms;
        self.classes.iter().map(work).sum::<u64>() / u64::from(self.quota)
    }

    /// How much of all quotas was in use, over the whole time.
    pub fn usage(&self, course: &Course) -> f64 {
        self.least_ms() as f64 / course.end_ms.max(1) as f64
    }
}

fn queue_name(queue: u32) -> Arc<str> {
    format!("queue{queue}").into()
}
