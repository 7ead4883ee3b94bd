//! Where money went that another setting would have saved, cluster by cluster: a pure function of the log.
//!
//! ```text
//! events of a time ─▶ Recorder ─▶ Record ─▶ rerun, once as it was and once for each other setting ─▶ findings
//! ```
//!
//! What the idle time and the minimum would have saved is found by running the work again through the planner
//! ([`rerun`]); the rest is computed from what was paid, and says so.

mod record;
mod rerun;

pub use record::{Record, Recorder, Span, Work};
pub use rerun::{Course, rerun};

use crate::cluster::{Cluster, Scale, Tier};
use crate::job::Status;
use crate::meter::Cause;
use crate::own::Offer;
use crate::units::{Capacity, many};

/// Idle times that are tried, in seconds.
const IDLE_TRIED_S: [u64; 11] = [0, 5, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600];
/// Minimums that are tried below the one there is.
const MINIMUMS_TRIED: u32 = 8;
/// Jobs that a sentence names.
const NAMED_MAX: usize = 3;

/// What is wasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Idle nodes that were kept for longer than it helped.
    Idle,
    /// Idle nodes that the minimum kept.
    Minimum,
    /// Nodes that went and came again.
    Churn,
    /// Idle nodes that a lock kept.
    Lock,
    /// Tries of jobs that failed all the same.
    Retries,
    /// Nodes larger than what ran on them.
    Size,
    /// Work that low priority could have done.
    Tier,
}

impl Kind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Minimum => "minimum",
            Self::Churn => "boot-churn",
            Self::Lock => "lock",
            Self::Retries => "failed-retries",
            Self::Size => "size",
            Self::Tier => "tier",
        }
    }
}

/// How it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The work was run again through the planner.
    Replayed,
    /// From what was paid; nothing was run again.
    Computed,
}

impl How {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Computed => "computed",
        }
    }
}

/// One setting that would have saved money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    /// As the YAML of a cluster or job has it.
    pub setting: &'static str,
    pub now: String,
    pub instead: String,
    pub saved: u64,
    /// Of a job on average, more or less than it waited; none where nobody can tell.
    pub waits_more_ms: Option<i64>,
    pub how: How,
    pub says: String,
    /// What was tried, with what came of it.
    pub tried: Vec<(String, Course)>,
}

#[derive(Clone, Debug)]
pub struct Report {
    /// What was paid in the time, by what for.
    pub spent: u64,
    /// The same work again with the settings as they were: what the others are compared with.
    pub as_it_was: Course,
    /// What would have saved most first.
    pub findings: Vec<Finding>,
}

/// Looks for everything.
pub fn report(record: &Record) -> Report {
    let as_it_was = rerun(record, |scale| scale);
    let cluster = record.opening.clusters.get(&record.cluster);
    let mut findings: Vec<Finding> = [
        idle(record, &as_it_was),
        minimum(record, &as_it_was),
        churn(record, &as_it_was),
        lock(record),
        retries(record),
        cluster.and_then(|cluster| size(record, cluster)),
        cluster.and_then(|cluster| tier(record, cluster)),
    ]
    .into_iter()
    .flatten()
    .collect();
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.saved), finding.kind));
    Report { spent: record.spent_in_all(), as_it_was, findings }
}

/// As it is declared at the end.
fn declared(record: &Record) -> Option<Scale> {
    record.scales.last().map(|(_, scale)| *scale)
}

/// The idle times that were declared, the shortest and the longest, and both in words.
fn idle_times(record: &Record) -> Option<(u64, u64, String)> {
    let times = || record.scales.iter().map(|(_, scale)| scale.idle_ms);
    let (least, most) = (times().min()?, times().max()?);
    let words = match least == most {
        true => seconds(least / 1_000),
        false => format!("{} to {}", seconds(least / 1_000), seconds(most / 1_000)),
    };
    Some((least, most, words))
}

/// What came of trying several values of one setting.
struct Best<T> {
    value: T,
    saved: u64,
    waits_more_ms: i64,
    tried: Vec<(String, Course)>,
}

/// Runs the work again for each value, and picks the cheapest of those that are cheaper than it was and good enough. It
/// saves no more than was truly spent on what it would save: the past need not have gone as its like does.
fn try_out<T: Copy>(
    record: &Record,
    (as_it_was, spent): (&Course, u64),
    is_good: impl Fn(&Course) -> bool,
    values: impl Iterator<Item = T>,
    word: impl Fn(T) -> String,
    change: impl Fn(Scale, T) -> Scale,
) -> Option<Best<T>> {
    let courses: Vec<(T, Course)> =
        values.map(|value| (value, rerun(record, |scale| change(scale, value)))).collect();
    let best = courses
        .iter()
        .filter(|(_, course)| !course.cut_short && !as_it_was.cut_short && course.cost() < as_it_was.cost())
        .filter(|(_, course)| is_good(course))
        .min_by_key(|(_, course)| (course.cost(), course.waited_ms))?;
    let saved = (as_it_was.cost() - best.1.cost()).min(spent);
    if saved == 0 {
        return None;
    }
    let waits_more_ms = signed(best.1.mean_wait_ms()) - signed(as_it_was.mean_wait_ms());
    let value = best.0;
    let tried = courses.into_iter().map(|(value, course)| (word(value), course)).collect();
    Some(Best { value, saved, waits_more_ms, tried })
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn idle(record: &Record, as_it_was: &Course) -> Option<Finding> {
    let now = declared(record)?;
    let kept = record.spent.get(&Cause::Idle).copied().unwrap_or(0).saturating_sub(record.idle_by_minimum);
    if kept == 0 {
        return None;
    }
    let (_, most, was) = idle_times(record)?;
    let shorter = IDLE_TRIED_S.into_iter().filter(|s| s * 1_000 < most);
    let with = |scale, s| Scale { idle_ms: s * 1_000, ..scale };
    let Best { value: best, saved, waits_more_ms: more, tried } =
        try_out(record, (as_it_was, kept), |_| true, shorter, seconds, with)?;
    Some(Finding {
        kind: Kind::Idle,
        setting: "idle_time_before_scale_down",
        now: seconds(now.idle_ms / 1_000),
        instead: seconds(best),
        saved,
        waits_more_ms: Some(more),
        how: How::Replayed,
        says: format!(
            "Idle nodes cost {} USD. With an idle time of {} in place of {} the same work would have cost {} USD less; jobs would have waited {} on average.",
            usd(kept),
            seconds(best),
            was,
            usd(saved),
            longer(more)
        ),
        tried,
    })
}

fn minimum(record: &Record, as_it_was: &Course) -> Option<Finding> {
    let now = declared(record)?;
    if now.min == 0 || record.idle_by_minimum == 0 {
        return None;
    }
    let fewer = (0..now.min).take(MINIMUMS_TRIED as usize);
    let nodes = |n: u32| n.to_string();
    let with = |scale: Scale, min| Scale { min: scale.min.min(min), ..scale };
    let Best { value: best, saved, waits_more_ms: more, tried } =
        try_out(record, (as_it_was, record.idle_by_minimum), |_| true, fewer, nodes, with)?;
    Some(Finding {
        kind: Kind::Minimum,
        setting: "min_instances",
        now: now.min.to_string(),
        instead: best.to_string(),
        saved,
        waits_more_ms: Some(more),
        how: How::Replayed,
        says: format!(
            "Nodes that min_instances kept idle cost {} USD. With min_instances {best} in place of {} the same work would have cost {} USD less; jobs would have waited {} on average.",
            usd(record.idle_by_minimum),
            now.min,
            usd(saved),
            longer(more)
        ),
        tried,
    })
}

fn churn(record: &Record, as_it_was: &Course) -> Option<Finding> {
    let now = declared(record)?;
    let (least, _, was) = idle_times(record)?;
    let longer_ones = IDLE_TRIED_S.into_iter().filter(|s| s * 1_000 > least);
    if as_it_was.boots < 2 {
        return None;
    }
    let with = |scale, s| Scale { idle_ms: s * 1_000, ..scale };
    let fewer_boots = |course: &Course| course.boots < as_it_was.boots;
    let Best { value: best, saved, waits_more_ms: more, tried } =
        try_out(record, (as_it_was, record.spent_in_all()), fewer_boots, longer_ones, seconds, with)?;
    let boots =
        |word: &str| tried.iter().find(|(tried, _)| tried == word).map_or(0, |(_, course)| course.boots);
    Some(Finding {
        kind: Kind::Churn,
        setting: "idle_time_before_scale_down",
        now: seconds(now.idle_ms / 1_000),
        instead: seconds(best),
        saved,
        waits_more_ms: Some(more),
        how: How::Replayed,
        says: format!(
            "{} nodes were started, and gone again before the next job came. With an idle time of {} in place of {} there would have been {}, at {} USD less; jobs would have waited {} on average.",
            as_it_was.boots,
            seconds(best),
            was,
            boots(&seconds(best)),
            usd(saved),
            longer(more)
        ),
        tried,
    })
}

fn lock(record: &Record) -> Option<Finding> {
    let saved = record.spent.get(&Cause::Lock).copied().filter(|cost| *cost > 0)?;
    let locks: Vec<String> = record.locks.iter().cloned().collect();
    let locks = if locks.is_empty() { "a lock".to_owned() } else { locks.join(", ") };
    Some(Finding {
        kind: Kind::Lock,
        setting: "lock",
        now: locks.clone(),
        instead: "none on what scales".into(),
        saved,
        waits_more_ms: None,
        how: How::Computed,
        says: format!(
            "Idle nodes that {locks} kept from going cost {} USD. Lock the single resources instead of what a cluster is in.",
            usd(saved)
        ),
        tried: Vec::new(),
    })
}

/// Every try but the first of jobs that failed in the end.
fn retries(record: &Record) -> Option<Finding> {
    let failed = |work: &Work| matches!(work.ended, Some((_, Status::Failed))) && work.spans.len() > 1;
    let costs = record.work.iter().filter(|(_, work)| failed(work)).map(|(id, work)| {
        let tries = record.attempts.iter().filter(|(attempt, _)| attempt.job == *id && attempt.number > 1);
        (tries.map(|(_, cost)| cost).sum::<u64>(), work.name.clone())
    });
    let mut costs: Vec<_> = costs.filter(|(cost, _)| *cost > 0).collect();
    costs.sort_by(|a, b| b.cmp(a));
    let saved = costs.iter().map(|(cost, _)| cost).sum();
    if saved == 0 {
        return None;
    }
    let named: Vec<String> = costs.iter().take(NAMED_MAX).map(|(_, name)| format!("'{name}'")).collect();
    Some(Finding {
        kind: Kind::Retries,
        setting: "resources.properties.neap.retry",
        now: format!("{} failed after several tries", many(costs.len() as u64, "job")),
        instead: "exit codes that another try can help, or none".into(),
        saved,
        waits_more_ms: None,
        how: How::Computed,
        says: format!(
            "Tries after the first of jobs that failed in the end cost {} USD, most of it {}.",
            usd(saved),
            named.join(", ")
        ),
        tried: Vec::new(),
    })
}

/// A size that would have held the most that was in use of a node at once.
fn size(record: &Record, cluster: &Cluster) -> Option<Finding> {
    let peak = record.peak.filter(|peak| *peak != Capacity::default())?;
    let shape = &cluster.shape;
    let price = |offer: &Offer| match shape.tier {
        Tier::Dedicated => offer.dedicated_price,
        Tier::LowPriority => offer.low_priority_price.filter(|_| offer.low_priority_capable),
    };
    let offers = record.opening.settings.offers_in(&cluster.location);
    let fitting = offers.into_iter().filter(|offer| {
        offer.family == shape.family
            && offer.capacity.fits(peak)
            && crate::retired::retired(&offer.name).is_none()
    });
    let best = fitting
        .filter_map(|offer| Some((price(&offer)?, offer)))
        .filter(|(price, _)| price.0 < shape.price.0)
        .min_by_key(|(price, _)| price.0)?;
    let saved = part(record.spent_in_all(), shape.price.0 - best.0.0, shape.price.0);
    if saved == 0 {
        return None;
    }
    Some(Finding {
        kind: Kind::Size,
        setting: "size",
        now: shape.size.to_string(),
        instead: best.1.name.to_string(),
        saved,
        waits_more_ms: None,
        how: How::Computed,
        says: format!(
            "No more than {peak} of a node were in use (cores on average over a job), of {}. Nodes of size {} would have held it for {} USD less, if as many of them were enough.",
            shape.nominal,
            best.1.name,
            usd(saved)
        ),
        tried: Vec::new(),
    })
}

fn tier(record: &Record, cluster: &Cluster) -> Option<Finding> {
    if cluster.shape.tier != Tier::Dedicated {
        return None;
    }
    let offer = record.opening.settings.offer_in(&cluster.location, &cluster.shape.size)?;
    let low = offer.low_priority_price.filter(|_| offer.low_priority_capable)?;
    let price = cluster.shape.price.0;
    let saved = part(record.spent_in_all(), price.checked_sub(low.0)?, price);
    if saved == 0 {
        return None;
    }
    Some(Finding {
        kind: Kind::Tier,
        setting: "tier",
        now: "dedicated".into(),
        instead: "low_priority".into(),
        saved,
        waits_more_ms: None,
        how: How::Computed,
        says: format!(
            "At the low-priority price the same nodes would have cost {} USD less. They can be taken back at any time: it is for jobs that save checkpoints or are short.",
            usd(saved)
        ),
        tried: Vec::new(),
    })
}

fn part(whole: u64, of: u64, all: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(of) / u128::from(all.max(1))).unwrap_or(u64::MAX)
}

fn seconds(s: u64) -> String {
    format!("{s} s")
}

fn usd(micro: u64) -> String {
    format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000)
}

/// `1.250 s longer`.
fn longer(ms: i64) -> String {
    let word = if ms < 0 { "less" } else { "longer" };
    let ms = ms.unsigned_abs();
    format!("{}.{:03} s {word}", ms / 1_000, ms % 1_000)
}
