//! When the next look comes, and when it must be a walk. Pure: times and sizes come in.

use neap_protocol::DiskTerms;

/// The fastest that a disk (or memory in its place) is expected to take bytes.
const BYTES_PER_MS_MAX: u64 = 8_000_000;
const PAUSE_MS_MIN: u64 = 5;
const PAUSE_MS_MAX: u64 = 1_000;
/// The shortest pause while nobody writes, and for how long that must have been so: a job that rests near its quota
/// costs nothing either.
const STILL_PAUSE_MS_MIN: u64 = 20;
const STILL_MS: u64 = 1_000;
/// Free space moves a little on every machine.
const STILL_BYTES: u64 = 1024 * 1024;
/// Walks when the disk moves, and when it does not.
const WALK_MS_MIN: u64 = 1_000;
const STILL_WALK_MS_MIN: u64 = 30_000;
/// A walk is followed by at least so many times its own duration without one: where it could be over its quota, where
/// the disk moves, and where it does not.
const URGENT_REST: u64 = 3;
const REST: u64 = 50;
const STILL_REST: u64 = 500;

/// What one look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// Of the disk, before the folders were walked.
    pub free_bytes: u64,
    pub named_bytes: u64,
    /// In files that have no name any more.
    pub hidden_bytes: u64,
    /// Free and named bytes when files without a name were last looked for.
    pub explained_at: (u64, u64),
}

impl Look {
    pub(super) fn used_bytes(&self) -> u64 {
        self.named_bytes.saturating_add(self.hidden_bytes)
    }
}

#[derive(Debug)]
pub(super) struct Gate {
    terms: DiskTerms,
    /// What was there when the attempt began.
    first_bytes: u64,
    last: Look,
    walked_at_ms: u64,
    walk_ms: u64,
    /// At the last look.
    free_bytes: u64,
    /// When the free space last moved, and what it was then.
    still_since_ms: u64,
    still_free_bytes: u64,
    is_still: bool,
}

impl Gate {
    pub(super) fn new(terms: DiskTerms, first: Look, now_ms: u64) -> Self {
        Self {
            terms,
            first_bytes: first.used_bytes(),
            last: first,
            walked_at_ms: now_ms,
            walk_ms: 0,
            free_bytes: first.free_bytes,
            still_since_ms: now_ms,
            still_free_bytes: first.free_bytes,
            is_still: false,
        }
    }

    pub(super) fn last(&self) -> Look {
        self.last
    }

    pub(super) fn grown_bytes(&self) -> u64 {
        self.last.used_bytes().saturating_sub(self.first_bytes)
    }

    /// What the last walk found, if it is too much.
    pub(super) fn over_quota(&self) -> Option<u64> {
        let used = self.last.used_bytes();
        (self.terms.bytes_max > 0 && used > self.terms.bytes_max).then_some(used)
    }

    /// Whether the disk has less room than jobs must leave.
    pub(super) fn is_short(&self, free_bytes: u64) -> bool {
        free_bytes < self.terms.free_bytes_min
    }

    /// At most as much as this was written: nobody else is known to have written the rest.
    fn estimate(&self) -> u64 {
        self.last.used_bytes().saturating_add(self.last.free_bytes.saturating_sub(self.free_bytes))
    }

    /// How long whatever writes fastest needs for the room that is left.
    pub(super) fn pause_ms(&self) -> u64 {
        let quota = match self.terms.bytes_max {
            0 => u64::MAX,
            most => most.saturating_sub(self.estimate()),
        };
        let room = quota.min(self.free_bytes.saturating_sub(self.terms.free_bytes_min));
        // A disk that is short already is not worth a hurry: only the quota is.
        let room = if self.is_short(self.free_bytes) { quota } else { room };
        let least = if self.is_still { STILL_PAUSE_MS_MIN } else { PAUSE_MS_MIN };
        (room / BYTES_PER_MS_MAX).clamp(least, PAUSE_MS_MAX)
    }

    /// Takes the free space as it is now, and says whether the folders are to be walked.
    pub(super) fn wants_walk(&mut self, free_bytes: u64, now_ms: u64) -> bool {
        self.free_bytes = free_bytes;
        if self.still_free_bytes.abs_diff(free_bytes) >= STILL_BYTES {
            (self.still_free_bytes, self.still_since_ms) = (free_bytes, now_ms);
        }
        self.is_still = now_ms.saturating_sub(self.still_since_ms) >= STILL_MS;
        let since = now_ms.saturating_sub(self.walked_at_ms);
        let could_be_over = self.terms.bytes_max > 0 && self.estimate() > self.terms.bytes_max;
        if could_be_over {
            return since >= self.walk_ms * URGENT_REST;
        }
        let moved = self.last.free_bytes.abs_diff(free_bytes) >= STILL_BYTES;
        let (least, rest) = match moved {
            true => (WALK_MS_MIN, REST),
            false => (STILL_WALK_MS_MIN, STILL_REST),
        };
        since >= least.max(self.walk_ms.saturating_mul(rest))
    }

    pub(super) fn walked(&mut self, look: Look, began_ms: u64, now_ms: u64) {
        self.last = look;
        self.walked_at_ms = now_ms;
        self.walk_ms = now_ms.saturating_sub(began_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn gate(used: u64, quota: u64) -> Gate {
        let first = Look { free_bytes: 1 << 40, named_bytes: used, ..Look::default() };
        Gate::new(DiskTerms { bytes_max: quota, free_bytes_min: MB }, first, 0)
    }

    #[test]
    fn the_next_look_comes_before_the_room_can_be_used_up() {
        for (used, quota, expect_ms) in [
            (0, 100 << 30, 1_000),
            (0, 0, 1_000),
            (0, 4_000 * 1_000_000, 500),
            (0, 32 * MB, 5),
            (31 * MB, 32 * MB, 5),
            (40 * MB, 32 * MB, 5),
        ] {
            assert_eq!(gate(used, quota).pause_ms(), expect_ms, "{used} of {quota}");
        }
    }

    #[test]
    fn the_folders_are_walked_only_where_it_may_matter() {
        let free = 1_u64 << 40;
        for (free_now, now_ms, expect, why) in [
            (free, 29_999, false, "nothing moves"),
            (free, 30_000, true, "now and then all the same"),
            (free - 33 * MB, 1, true, "it may have written all of it"),
            (free - 31 * MB, 999, false, "not yet too much"),
            (free - 31 * MB, 1_000, true, "the disk moves"),
            (free + 31 * MB, 1_000, true, "also upwards: somebody else's room may hide its own"),
        ] {
            assert_eq!(gate(0, 32 * MB).wants_walk(free_now, now_ms), expect, "{why}");
        }
    }

    #[test]
    fn a_job_at_rest_near_its_quota_is_looked_at_less_often() {
        let mut gate = gate(31 * MB, 32 * MB);
        let free = 1_u64 << 40;
        gate.wants_walk(free, 999);
        assert_eq!(gate.pause_ms(), 5);
        gate.wants_walk(free, 1_000);
        assert_eq!(gate.pause_ms(), 20);
        gate.wants_walk(free - MB, 1_020);
        assert_eq!(gate.pause_ms(), 5, "it writes again");
    }

    #[test]
    fn long_walks_come_less_often() {
        let mut gate = gate(0, 32 * MB);
        gate.walked(gate.last(), 0, 400);
        let free = 1_u64 << 40;
        assert!(!gate.wants_walk(free - 31 * MB, 20_399) && gate.wants_walk(free - 31 * MB, 20_400));
        assert!(!gate.wants_walk(free, 200_399) && gate.wants_walk(free, 200_400));
        assert!(!gate.wants_walk(free - 40 * MB, 1_599) && gate.wants_walk(free - 40 * MB, 1_600));
    }

    #[test]
    fn what_is_over_is_said_with_how_much() {
        assert_eq!(gate(32 * MB, 32 * MB).over_quota(), None);
        assert_eq!(gate(33 * MB, 32 * MB).over_quota(), Some(33 * MB));
        assert_eq!(gate(33 * MB, 0).over_quota(), None);
    }
}
