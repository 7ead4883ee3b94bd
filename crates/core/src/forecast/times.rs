//! How long things will take: given, or drawn from what is known of the past. `None` is what nobody knows.

use std::collections::BTreeMap;

use crate::history::{Closeness, Sample};
use crate::ids::{ClusterId, JobId};
use crate::job::Job;
use crate::limits::FORECAST_COURSES;
use crate::node::Node;
use crate::state::State;

/// All spans count from the beginning, and are longer than what is over already.
pub trait Times {
    /// From the placing of an attempt to its end.
    fn run_ms(&self, job: &Job, elapsed_ms: u64) -> Option<u64>;
    /// From the wish for a node to its being ready.
    fn boot_ms(&self, node: &Node, elapsed_ms: u64) -> Option<u64>;
    /// From the order to go to its absence.
    fn leave_ms(&self, node: &Node, elapsed_ms: u64) -> Option<u64>;
}

/// What somebody says instead of what the past says.
#[derive(Clone, Debug, Default)]
pub struct Assumed {
    pub runs_ms: BTreeMap<JobId, u64>,
    pub boot_ms: Option<u64>,
}

/// One of several courses, each with other draws. The draws of a job or node are the same whatever else is asked, so that
/// two forecasts differ by what was asked and not by luck.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'a> {
    pub state: &'a State,
    pub assumed: &'a Assumed,
    /// Below [`FORECAST_COURSES`].
    pub course: u32,
}

/// What a job's time was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Somebody said so.
    Given,
    /// Like jobs that ended: how like, and how many.
    Like {
        closeness: Closeness,
        jobs: usize,
    },
    /// There are none; it is ended by then.
    Timeout,
    Unknown,
}

pub fn basis(state: &State, assumed: &Assumed, job: &Job) -> Basis {
    if assumed.runs_ms.contains_key(&job.id) {
        return Basis::Given;
    }
    match (state.history.of_job(job), job.timeout_ms) {
        (Some(known), _) => Basis::Like { closeness: known.closeness, jobs: known.sample.spans_ms.len() },
        (None, Some(_)) => Basis::Timeout,
        (None, None) => Basis::Unknown,
    }
}

impl Times for Drawn<'_> {
    fn run_ms(&self, job: &Job, elapsed_ms: u64) -> Option<u64> {
        if let Some(given) = self.assumed.runs_ms.get(&job.id) {
            return Some((*given).max(elapsed_ms));
        }
        match (self.state.history.of_job(job), job.timeout_ms) {
            (Some(known), _) => Some(self.draw(known.sample, elapsed_ms, key(&job.name))),
            (None, timeout_ms) => timeout_ms.map(|ms| ms.max(elapsed_ms)),
        }
    }

    fn boot_ms(&self, node: &Node, elapsed_ms: u64) -> Option<u64> {
        if let Some(given) = self.assumed.boot_ms {
            return Some(given.max(elapsed_ms));
        }
        self.of_nodes(node.cluster, elapsed_ms, node.id.0)
    }

    fn leave_ms(&self, node: &Node, elapsed_ms: u64) -> Option<u64> {
        let known = self.state.history.leaves(node.cluster);
        // That a node goes is certain; where none has gone yet, it goes at once.
        Some(known.map_or(elapsed_ms, |sample| self.draw(sample, elapsed_ms, !node.id.0)))
    }
}

impl Drawn<'_> {
    fn of_nodes(&self, cluster: ClusterId, elapsed_ms: u64, of: u64) -> Option<u64> {
        self.state.history.boots(cluster).map(|sample| self.draw(sample, elapsed_ms, of << 1 | 1))
    }

    /// One of the sample, among those that are longer than what is over already. Over all courses every part of the sample
    /// is drawn equally often, and which is drawn for one says nothing about another.
    fn draw(&self, sample: &Sample, elapsed_ms: u64, of: u64) -> u64 {
        let strata = u64::from(FORECAST_COURSES);
        let luck = scattered(of);
        let stratum = (u64::from(self.course) * (1 + luck % (strata - 1)) + (luck >> 32)) % strata;
        let mut longer: Vec<u64> = sample.spans_ms.iter().copied().filter(|ms| *ms > elapsed_ms).collect();
        longer.sort_unstable();
        if longer.is_empty() {
            // It takes longer than any did: as much again as it has taken, give or take.
            return elapsed_ms + elapsed_ms * (2 * stratum + 1) / strata;
        }
        let at = (2 * stratum + 1) * longer.len() as u64 / (2 * strata);
        usize::try_from(at).ok().and_then(|at| longer.get(at)).copied().unwrap_or(elapsed_ms)
    }
}

/// A name as a number: ids depend on what else comes.
fn key(name: &str) -> u64 {
    let add = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, add)
}

/// Numbers that lie beside each other end up anywhere.
pub(super) const fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_courses_together_draw_the_whole_sample() {
        let state = State::default();
        let assumed = Assumed::default();
        let sample = Sample { spans_ms: (1..=FORECAST_COURSES.into()).collect(), ..Sample::default() };
        let drawn = |of, elapsed_ms| {
            let mut all: Vec<u64> = (0..FORECAST_COURSES)
                .map(|course| {
                    Drawn { state: &state, assumed: &assumed, course }.draw(&sample, elapsed_ms, of)
                })
                .collect();
            all.sort_unstable();
            all
        };
        for of in [0, 1, 7, 1_000_003] {
            assert_eq!(drawn(of, 0), sample.spans_ms);
            assert!(drawn(of, 20).iter().all(|ms| *ms > 20));
        }
        let overdue = drawn(3, 1_000);
        assert_eq!((overdue[0] / 100, overdue[15] / 100, overdue[30] / 100), (10, 20, 29));
    }
}
