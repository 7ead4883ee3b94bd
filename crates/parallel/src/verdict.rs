//! Whether a parallel job goes on, is done, or has had too many failures. Pure.

use crate::settings::Parallel;

/// How far a parallel job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub total: u64,
    pub free: u64,
    pub claimed: u64,
    pub done: u64,
    /// Given up, after all retries.
    pub failed: u64,
    /// Files (rows of a table) without a result: what `run` returned too little, and all of the failed mini-batches'.
    pub items_failed: u64,
}

impl Counts {
    /// Nothing is left to do.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.total > 0 && self.done + self.failed == self.total
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    GoOn,
    Done,
    /// Too much has failed; why.
    Over(String),
}

#[must_use]
pub fn verdict(counts: &Counts, settings: &Parallel) -> Verdict {
    let over = |count: u64, limit: i64| u64::try_from(limit).is_ok_and(|limit| count > limit);
    let so_far = format!("{} of {} mini-batches failed", counts.failed, counts.total);
    if over(counts.failed, settings.mini_batch_error_threshold) {
        let limit = settings.mini_batch_error_threshold;
        return Verdict::Over(format!("{so_far}, and mini_batch_error_threshold allows {limit}"));
    }
    if over(counts.items_failed, settings.error_threshold) {
        return Verdict::Over(format!(
            "{} items have no result ({so_far}), and error_threshold allows {}",
            counts.items_failed, settings.error_threshold
        ));
    }
    if let Some(percent) = settings.allowed_failed_percent
        && counts.failed * 100 > u64::from(percent) * counts.total
    {
        return Verdict::Over(format!("{so_far}, and allowed_failed_percent allows {percent} %"));
    }
    if counts.settled() { Verdict::Done } else { Verdict::GoOn }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(counts: (u64, u64, u64, u64), limits: (i64, i64, Option<u32>), expect: &str) {
        let (total, done, failed, items_failed) = counts;
        let counts = Counts { total, done, failed, items_failed, free: total - done - failed, claimed: 0 };
        let settings = Parallel {
            mini_batch_error_threshold: limits.0,
            error_threshold: limits.1,
            allowed_failed_percent: limits.2,
            ..Parallel::default()
        };
        let got = match verdict(&counts, &settings) {
            Verdict::GoOn => "go on".to_owned(),
            Verdict::Done => "done".to_owned(),
            Verdict::Over(why) => why,
        };
        assert_eq!(got, expect, "{counts:?} {limits:?}");
    }

    #[test]
    fn thresholds() {
        check((10, 5, 0, 0), (-1, -1, None), "go on");
        check((10, 5, 5, 50), (-1, -1, None), "done");
        check((10, 8, 2, 2), (2, 2, Some(20)), "done");
        check(
            (10, 0, 1, 1),
            (0, -1, None),
            "1 of 10 mini-batches failed, and mini_batch_error_threshold allows 0",
        );
        check(
            (10, 4, 1, 3),
            (1, 2, None),
            "3 items have no result (1 of 10 mini-batches failed), and error_threshold allows 2",
        );
        check(
            (10, 0, 3, 3),
            (-1, -1, Some(29)),
            "3 of 10 mini-batches failed, and allowed_failed_percent allows 29 %",
        );
        check((0, 0, 0, 0), (0, 0, Some(0)), "go on");
    }
}
