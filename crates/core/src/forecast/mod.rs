//! When things will be: the present state lived on by the real planner, several times, with times drawn from the past.
//!
//! ```text
//! state, what comes, times ─▶ course: start and end of every job, nodes, cost   (one way in which things may go)
//! 31 courses               ─▶ outlook: p50 and p95 of each                      (how certain that is)
//! ```
//!
//! Pure, and bounded by `limits.rs`: nothing here touches the state that it is asked about. [`world`] lives, [`times`] says
//! how long things take, [`course`] is what became of it. `docs/plan.md` says in words what is foreseen and what is not.

mod arrivals;
pub mod course;
pub mod times;
pub mod world;

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::command::Command;
use crate::ids::{ClusterId, JobId};
use crate::job::Job;
use crate::limits::{FORECAST_COURSES, FORECAST_COURSES_MIN, FORECAST_MOMENTS_MAX, FORECAST_STEPS_MAX};
use crate::problem::Refusal;
use crate::state::State;
use crate::units::Millis;

pub use course::{Course, End, Moment, Span};
pub use times::{Assumed, Basis, Drawn, Times, basis};
pub use world::{Question, Wanted, course};

/// How certain something is: in half of all courses it is no more than `p50`, in 95 of 100 no more than `p95`. `None` is
/// beyond what could be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range<T> {
    pub p50: Option<T>,
    pub p95: Option<T>,
}

impl<T: Copy + Ord> Range<T> {
    /// By nearest rank; what is not known counts as more than everything.
    pub fn of(values: impl IntoIterator<Item = Option<T>>) -> Self {
        let mut sorted: Vec<Option<T>> = values.into_iter().collect();
        sorted.sort_by_key(|value| (value.is_none(), *value));
        let rank =
            |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1).copied().flatten();
        Self { p50: rank(50), p95: rank(95) }
    }
}

/// Several courses of the same question.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    pub courses: Vec<Course>,
}

/// How much work an outlook may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Of all courses together.
    pub steps_max: usize,
}

/// Draws courses until there are enough, or there is no time for more. There is at least one unless `go_on` says no at once.
pub fn outlook(
    state: &State,
    now: Millis,
    asked: &Asked<'_>,
    effort: Effort,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Outlook, Refusal> {
    let mut outlook = Outlook::default();
    let least = FORECAST_COURSES_MIN as usize;
    let mut wanted = least;
    let steps_each = (effort.steps_max / least).clamp(1, FORECAST_STEPS_MAX);
    for number in 0..FORECAST_COURSES {
        if outlook.courses.len() >= wanted {
            break;
        }
        let arriving = match asked.wanted {
            Wanted::Ends => Vec::new(),
            _ if !asked.others_come => Vec::new(),
            _ => arrivals::arrivals(state, now, number),
        };
        let times = Drawn { state, assumed: asked.assumed, course: number };
        let question = Question {
            state,
            now,
            coming: asked.coming,
            arriving: &arriving,
            wanted: asked.wanted,
            watched: asked.watched,
            steps_max: steps_each,
        };
        let course = world::course(&question, &times, go_on)?;
        if outlook.courses.is_empty() {
            wanted = (effort.steps_max / course.steps.max(1)).clamp(least, FORECAST_COURSES as usize);
        }
        outlook.courses.push(course);
        if !go_on() {
            break;
        }
    }
    Ok(outlook)
}

/// What is asked of an outlook.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub assumed: &'a Assumed,
    pub coming: &'a [(Millis, Command)],
    pub wanted: Wanted<'a>,
    pub watched: Option<ClusterId>,
    /// Others come as they came before; else nobody does.
    pub others_come: bool,
}

impl Outlook {
    pub fn start(&self, job: JobId) -> Range<Millis> {
        Range::of(self.spans(job).map(|span| span.and_then(|span| span.start)))
    }

    pub fn end(&self, job: JobId) -> Range<Millis> {
        Range::of(self.spans(job).map(|span| span.and_then(|span| span.end)))
    }

    fn spans(&self, job: JobId) -> impl Iterator<Item = Option<Span>> {
        self.courses.iter().map(move |course| course.jobs.get(&job).copied())
    }

    /// Of several jobs together: the first that starts, and the last that ends.
    pub fn start_of(&self, jobs: &[JobId]) -> Range<Millis> {
        let first = |course: &Course| {
            jobs.iter().filter_map(|job| course.jobs.get(job)).filter_map(|span| span.start).min()
        };
        Range::of(self.courses.iter().map(first))
    }

    pub fn end_of(&self, jobs: &[JobId]) -> Range<Millis> {
        let last = |course: &Course| {
            // Whoever never started has no end either.
            let mut ends = jobs.iter().map(|job| course.jobs.get(job).and_then(|span| span.end));
            ends.try_fold(Millis(0), |last, end| Some(last.max(end?)))
        };
        Range::of(self.courses.iter().map(last))
    }

    /// What these pay in micro-units. Of a course that was not looked at to the end it is not known.
    pub fn paid(&self, jobs: &[JobId]) -> Range<u128> {
        let sum = |course: &Course| {
            let sum = jobs.iter().filter_map(|job| course.paid.get(job)).sum();
            (course.end == End::Known).then_some(sum)
        };
        Range::of(self.courses.iter().map(sum))
    }

    pub fn paid_by_all(&self) -> Range<u128> {
        Range::of(self.courses.iter().map(|c| (c.end == End::Known).then(|| c.paid.values().sum())))
    }

    /// Why the courses did not go further, at worst.
    pub fn end_reason(&self) -> End {
        self.courses.iter().map(|course| course.end).max().unwrap_or(End::Bound)
    }

    /// The earliest moment up to which all courses looked.
    pub fn looked_until(&self) -> Option<Millis> {
        self.courses.iter().filter(|course| course.end == End::Bound).map(|course| course.until).min()
    }

    /// A course with the middle of its kind, for showing one in full: the one whose end of these jobs is in the middle.
    pub fn typical(&self, jobs: &[JobId]) -> Option<&Course> {
        let key = |course: &&Course| {
            jobs.iter()
                .filter_map(|job| course.jobs.get(job))
                .map(|s| (s.end.is_none(), s.end, s.start))
                .max()
        };
        let mut sorted: Vec<&Course> = self.courses.iter().collect();
        sorted.sort_by_key(key);
        sorted.get(sorted.len().saturating_sub(1) / 2).copied()
    }

    /// Whose start moves from one outlook to the other, course by course, in milliseconds: later is more than nothing.
    /// Both must have been drawn from the same state.
    pub fn moved(&self, without: &Self, state: &State) -> BTreeMap<JobId, Range<i64>> {
        let courses = self.courses.iter().chain(&without.courses);
        let jobs: BTreeSet<JobId> = courses.flat_map(|course| course.jobs.keys().copied()).collect();
        // Those who only may come are nobody.
        let known = |job: &JobId| job.0 < state.next.job.0;
        let mut out = BTreeMap::new();
        for job in jobs.into_iter().filter(known) {
            let pairs = self.courses.iter().zip(&without.courses);
            let by = pairs.map(|(with, without)| {
                let start = |course: &Course| course.jobs.get(&job).and_then(|span| span.start);
                let (with, without) = (start(with)?, start(without)?);
                Some(i64::try_from(with.0).ok()? - i64::try_from(without.0).ok()?)
            });
            let by: Vec<Option<i64>> = by.collect();
            if by.iter().any(|ms| *ms != Some(0)) && by.iter().any(Option::is_some) {
                out.insert(job, Range::of(by));
            }
        }
        out
    }
}

impl Outlook {
    /// Jobs that are interrupted in more than half of the courses, and were not without what was asked about.
    pub fn interrupted(&self, without: &Self, state: &State) -> BTreeSet<JobId> {
        let often = |outlook: &Self, job: &JobId| {
            let of = outlook.courses.iter().filter(|course| course.interrupted.contains(job)).count();
            of * 2 > outlook.courses.len()
        };
        let all: BTreeSet<JobId> =
            self.courses.iter().flat_map(|course| course.interrupted.iter().copied()).collect();
        let known = |job: &JobId| job.0 < state.next.job.0;
        all.into_iter().filter(|job| known(job) && often(self, job) && !often(without, job)).collect()
    }
}

/// Jobs of a cluster whose times nobody knows, and for which others may wait: of those that run and of the first in the queue.
pub fn unknown<'a>(
    state: &'a State,
    assumed: &'a Assumed,
    cluster: &'a Cluster,
) -> impl Iterator<Item = &'a Job> {
    let first = cluster.queue.iter().take(FORECAST_MOMENTS_MAX).map(|key| key.job);
    let jobs = cluster.active.iter().copied().chain(first).filter_map(|id| state.jobs.get(&id));
    jobs.map(|job| &**job).filter(move |job| basis(state, assumed, job) == Basis::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen_and_the_unknown_is_beyond() {
        let of = |values: &[Option<u64>]| Range::of(values.iter().copied());
        assert_eq!(of(&[]), Range { p50: None, p95: None });
        assert_eq!(of(&[Some(3)]), Range { p50: Some(3), p95: Some(3) });
        assert_eq!(of(&[Some(3), None, Some(1), Some(2)]), Range { p50: Some(2), p95: None });
        let many: Vec<Option<u64>> = (1..=31).map(Some).collect();
        assert_eq!(of(&many), Range { p50: Some(16), p95: Some(30) });
    }
}
