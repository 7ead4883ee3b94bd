//! Who waits, and in which order: priority, then whose share is smallest, then the order of submission.
//!
//! A share is what somebody used of a cluster, in core-milliseconds; what is long past counts less. Whoever gets
//! something placed is charged a minute of it in advance, so that two people who come at the same time alternate.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use imbl::OrdSet;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Tier};
use crate::ids::JobId;
use crate::job::{Job, Need};
use crate::limits::{SHARE_ADVANCE_MS, SHARE_HALF_LIFE_MS};
use crate::state::State;
use crate::units::{Capacity, Millis};

/// Jobs of one owner at one priority, of one choice of tier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lane {
    /// 255 minus the priority, so that the natural order is the right one.
    pub behind: u8,
    pub owner: Arc<str>,
    /// The tier that their nodes must be of, if any.
    pub tier: Option<Tier>,
}

impl Lane {
    pub fn of(job: &Job) -> Self {
        Self { behind: u8::MAX - job.priority, owner: job.owner.clone(), tier: job.tier() }
    }
}

/// What one owner has used of a cluster, and has on it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Of attempts that are over, as it counted at `at`.
    used: u64,
    at: Millis,
    /// Of attempts that are there.
    pub attempts: u32,
    pub cores_milli: u64,
    /// The sum over those of cores times start: what they have used follows from it.
    started: u128,
}

impl Share {
    /// In core-milliseconds.
    pub fn score(&self, now: Millis) -> u64 {
        let running = (u128::from(self.cores_milli) * u128::from(now.0)).saturating_sub(self.started);
        let running = u64::try_from(running / 1000).unwrap_or(u64::MAX);
        let advance = self.cores_milli.saturating_mul(SHARE_ADVANCE_MS) / 1000;
        decayed(self.used, now.since(self.at)).saturating_add(running).saturating_add(advance)
    }

    pub(crate) fn begins(&mut self, cores_milli: u64, at: Millis) {
        self.attempts += 1;
        self.cores_milli += cores_milli;
        self.started += u128::from(cores_milli) * u128::from(at.0);
    }

    pub(crate) fn ends(&mut self, cores_milli: u64, began: Millis, at: Millis) {
        self.attempts = self.attempts.saturating_sub(1);
        self.cores_milli = self.cores_milli.saturating_sub(cores_milli);
        self.started = self.started.saturating_sub(u128::from(cores_milli) * u128::from(began.0));
        self.used = decayed(self.used, at.since(self.at))
            .saturating_add(cores_milli.saturating_mul(at.since(began)) / 1000);
        self.at = at;
    }

    /// Nothing is known of its owner that is worth keeping.
    pub(crate) fn is_blank(&self) -> bool {
        self.attempts == 0 && self.used == 0
    }
}

/// Halved with every half-life, and in a straight line in between.
fn decayed(used: u64, elapsed_ms: u64) -> u64 {
    let halvings = u32::try_from(elapsed_ms / SHARE_HALF_LIFE_MS).unwrap_or(u32::MAX);
    let used = used.checked_shr(halvings).unwrap_or(0);
    let rest =
        u128::from(used) * u128::from(elapsed_ms % SHARE_HALF_LIFE_MS) / u128::from(2 * SHARE_HALF_LIFE_MS);
    used - u64::try_from(rest).unwrap_or(0)
}

/// How many cores a job takes, on all of its nodes.
pub fn cores_milli(job: &Job, nominal: Capacity) -> u64 {
    match job.need {
        Need::Whole => u64::from(nominal.cpus_milli) * u64::from(job.nodes),
        Need::Share(share) => share.cpus_milli.into(),
    }
}

/// The waiting jobs of a cluster in the order in which they would be placed, if each found room at once.
///
/// Explaining one of many goes through all that are ahead of it, so a step looks up nothing but the job.
#[allow(missing_debug_implementations, reason = "the iterators of imbl have none")]
pub struct Order<'a> {
    state: &'a State,
    cluster: &'a Cluster,
    /// Priorities that are yet to come begin here.
    next_level: Option<u8>,
    lanes: Vec<Ahead<'a>>,
    /// Of each lane its owner's score and first job, the smallest on top.
    heads: BinaryHeap<Reverse<(u64, JobId, usize)>>,
    owners: Vec<Owner>,
    /// Where an owner is among them.
    numbers: BTreeMap<&'a str, usize>,
    /// Those who chose these are passed over.
    closed: Vec<Option<Tier>>,
    /// Whoever's turn it is is charged, as if everything that comes were placed.
    charges: bool,
    /// The job that came last, and its lane.
    last: Option<(&'a Arc<Job>, usize)>,
}

/// What is left of one lane.
struct Ahead<'a> {
    jobs: imbl::ordset::Iter<'a, JobId, imbl::shared_ptr::DefaultSharedPtr>,
    owner: usize,
    tier: Option<Tier>,
}

struct Owner {
    /// With what was charged on the way.
    score: u64,
    passed_over: bool,
}

impl<'a> Order<'a> {
    pub fn new(state: &'a State, cluster: &'a Cluster) -> Self {
        Self {
            state,
            cluster,
            next_level: Some(0),
            lanes: Vec::new(),
            heads: BinaryHeap::new(),
            owners: Vec::new(),
            numbers: BTreeMap::new(),
            closed: Vec::new(),
            charges: true,
            last: None,
        }
    }

    /// Nobody is charged but for what is said to be placed.
    #[must_use]
    pub fn charging_only_what_is_placed(mut self) -> Self {
        self.charges = false;
        self
    }

    /// The job that came last is placed.
    pub fn placed(&mut self) {
        if let Some((job, lane)) = self.last {
            self.charge(job, lane);
        }
    }

    fn charge(&mut self, job: &Job, lane: usize) {
        let cores = cores_milli(job, self.cluster.shape.nominal);
        let advance = cores.saturating_mul(SHARE_ADVANCE_MS) / 1000;
        let owner = &mut self.owners[self.lanes[lane].owner];
        owner.score = owner.score.saturating_add(advance);
    }

    /// The lane of the job that came last goes on with the next in it.
    fn go_on(&mut self) {
        let Some((job, lane)) = self.last.take() else { return };
        if self.charges {
            self.charge(job, lane);
        }
        let ahead = &mut self.lanes[lane];
        if let Some(next) = ahead.jobs.next().copied() {
            self.heads.push(Reverse((self.owners[ahead.owner].score, next, lane)));
        }
    }

    /// No more of whoever's job came last.
    pub fn pass_over(&mut self) {
        if let Some((_, lane)) = self.last.take() {
            self.owners[self.lanes[lane].owner].passed_over = true;
        }
    }

    /// No more of those who made this choice of tier.
    pub fn close(&mut self, choice: Option<Tier>) {
        if !self.closed.contains(&choice) {
            self.closed.push(choice);
        }
    }

    /// Goes on to the next priority that somebody waits with. False if there is none.
    fn descend(&mut self) -> bool {
        let Some(from) = self.next_level else { return false };
        let first = Lane { behind: from, owner: "".into(), tier: None };
        let mut level = self.cluster.lanes.range(first..).peekable();
        let Some(behind) = level.peek().map(|(lane, _)| lane.behind) else {
            self.next_level = None;
            return false;
        };
        self.next_level = behind.checked_add(1);
        self.lanes.clear();
        for (lane, jobs) in level.take_while(|(lane, _)| lane.behind == behind) {
            let mut jobs = jobs.iter();
            let Some(first) = jobs.next() else { continue };
            let owner = self.number(&lane.owner);
            self.heads.push(Reverse((self.owners[owner].score, *first, self.lanes.len())));
            self.lanes.push(Ahead { jobs, owner, tier: lane.tier });
        }
        true
    }

    fn number(&mut self, owner: &'a str) -> usize {
        let owners = &mut self.owners;
        *self.numbers.entry(owner).or_insert_with(|| {
            let share = self.cluster.shares.get(owner);
            let score = share.map_or(0, |share| share.score(self.cluster.shares_at));
            owners.push(Owner { score, passed_over: false });
            owners.len() - 1
        })
    }
}

impl<'a> Iterator for Order<'a> {
    type Item = &'a Arc<Job>;

    fn next(&mut self) -> Option<Self::Item> {
        self.go_on();
        loop {
            let Some(Reverse((score, id, lane))) = self.heads.pop() else {
                if self.descend() {
                    continue;
                }
                return None;
            };
            let Ahead { owner, tier, .. } = &self.lanes[lane];
            let owner = &self.owners[*owner];
            if owner.passed_over || self.closed.contains(tier) {
                continue;
            }
            // Something of the same owner came from another lane meanwhile.
            if owner.score != score {
                self.heads.push(Reverse((owner.score, id, lane)));
                continue;
            }
            // Whatever is in a lane is there.
            let Some(job) = self.state.jobs.get(&id) else { continue };
            self.last = Some((job, lane));
            return Some(job);
        }
    }
}

/// Whether the lanes say what the queue says.
pub(crate) fn lanes_of(cluster: &Cluster) -> usize {
    cluster.lanes.values().map(OrdSet::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_past_counts_half_as_much_with_every_half_life() {
        assert_eq!(decayed(1_000, 0), 1_000);
        assert_eq!(decayed(1_000, SHARE_HALF_LIFE_MS / 2), 750);
        assert_eq!(decayed(1_000, SHARE_HALF_LIFE_MS), 500);
        assert_eq!(decayed(1_000, 3 * SHARE_HALF_LIFE_MS), 125);
        assert_eq!(decayed(u64::MAX, 1_000 * SHARE_HALF_LIFE_MS), 0);
    }

    #[test]
    fn a_share_is_what_was_used_and_what_is_in_use() {
        let mut share = Share::default();
        share.begins(4_000, Millis(10_000));
        assert_eq!(share.score(Millis(10_000)), 4 * SHARE_ADVANCE_MS);
        assert_eq!(share.score(Millis(15_000)), 4 * SHARE_ADVANCE_MS + 20_000);
        share.begins(2_000, Millis(15_000));
        share.ends(4_000, Millis(10_000), Millis(15_000));
        assert_eq!(share.score(Millis(15_000)), 2 * SHARE_ADVANCE_MS + 20_000);
        share.ends(2_000, Millis(15_000), Millis(16_000));
        assert!(share.score(Millis(16_000)) <= 22_000 && !share.is_blank());
    }
}
