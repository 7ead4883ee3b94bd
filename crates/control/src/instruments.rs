//! What counts: counters, gauges and histograms as plain atomics, and families of them under bounded sets of labels.
//!
//! Nothing here is global, nothing blocks on I/O, and nothing is ever decided by what was counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits;

/// Only ever rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn inc(&self) {
        self.add(1);
    }

    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is so now.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Never below zero.
    pub fn dec(&self) {
        let _ =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(value.saturating_sub(1)));
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of buckets, and what a unit of the observed values is.
#[derive(Debug, PartialEq, Eq)]
pub struct Scale {
    /// Ascending.
    pub bounds: &'static [u64],
    /// Observed units in one unit of the metric: 1,000,000 for microseconds shown as seconds.
    pub per_unit: u64,
}

/// From the time of a disk write to that of a stuck one.
pub static SHORT: Scale = Scale {
    bounds: &[
        100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 10_000_000,
    ],
    per_unit: 1_000_000,
};
/// From a warm start to a day.
pub static LONG: Scale = Scale {
    bounds: &[
        10_000,
        50_000,
        100_000,
        250_000,
        1_000_000,
        5_000_000,
        15_000_000,
        60_000_000,
        300_000_000,
        900_000_000,
        3_600_000_000,
        14_400_000_000,
        86_400_000_000,
    ],
    per_unit: 1_000_000,
};
/// Things in a batch.
pub static COUNTS: Scale =
    Scale { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096], per_unit: 1 };

#[derive(Debug)]
pub struct Histogram {
    scale: &'static Scale,
    /// One for each bound, and one above them all.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram at one moment: cumulative, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub scale: &'static Scale,
    /// How many were at most each bound.
    pub cumulative: Vec<u64>,
    pub count: u64,
    pub sum: u64,
}

impl Histogram {
    pub fn new(scale: &'static Scale) -> Self {
        let buckets = (0..=scale.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { scale, buckets, sum: AtomicU64::new(0) }
    }

    pub fn observe(&self, value: u64) {
        let slot = self.scale.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(slot) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// A span of whole milliseconds, on a scale of microseconds.
    pub fn observe_ms(&self, span_ms: u64) {
        self.observe(span_ms.saturating_mul(1_000));
    }

    /// The count is that of the buckets, so that a snapshot never contradicts itself.
    pub fn snapshot(&self) -> Snapshot {
        let mut count = 0;
        let mut cumulative = Vec::with_capacity(self.scale.bounds.len());
        for (slot, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Ordering::Relaxed);
            if slot < self.scale.bounds.len() {
                cumulative.push(count);
            }
        }
        Snapshot { scale: self.scale, cumulative, count, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// Instruments under labels. Holds at most [`limits::SERIES_MAX`]; what is beyond is not recorded, and counted.
#[derive(Debug)]
pub struct Family<K, M> {
    members: Mutex<BTreeMap<K, Arc<M>>>,
    left_out: Counter,
}

impl<K, M> Default for Family<K, M> {
    fn default() -> Self {
        Self { members: Mutex::new(BTreeMap::new()), left_out: Counter::default() }
    }
}

impl<K: Ord + Clone, M> Family<K, M> {
    pub fn of(&self, key: &K, make: impl FnOnce() -> M) -> Option<Arc<M>> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = members.get(key) {
            return Some(found.clone());
        }
        if members.len() >= limits::SERIES_MAX {
            self.left_out.inc();
            return None;
        }
        let made = Arc::new(make());
        members.insert(key.clone(), made.clone());
        Some(made)
    }

    pub fn get(&self, key: &K) -> Option<Arc<M>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub fn remove(&self, key: &K) {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// In the order of the keys.
    pub fn all(&self) -> Vec<(K, Arc<M>)> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.iter().map(|(key, member)| (key.clone(), member.clone())).collect()
    }

    pub fn left_out(&self) -> u64 {
        self.left_out.get()
    }
}

impl<K: Ord + Clone> Family<K, Counter> {
    pub fn inc(&self, key: &K) {
        if let Some(counter) = self.of(key, Counter::default) {
            counter.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_is_within_it() {
        let histogram = Histogram::new(&COUNTS);
        for value in [1, 2, 3, 5_000] {
            histogram.observe(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(&snapshot.cumulative[..3], &[1, 2, 3]);
        assert_eq!((snapshot.cumulative[12], snapshot.count, snapshot.sum), (3, 4, 5_006));
    }

    #[test]
    fn bounds_ascend() {
        for scale in [&SHORT, &LONG, &COUNTS] {
            assert!(scale.bounds.is_sorted_by(|a, b| a < b), "{scale:?}");
        }
    }

    #[test]
    fn a_family_is_bounded_and_says_so() {
        let family = Family::<usize, Counter>::default();
        for key in 0..limits::SERIES_MAX + 2 {
            family.inc(&key);
        }
        assert_eq!((family.all().len(), family.left_out()), (limits::SERIES_MAX, 2));
        family.inc(&0);
        assert_eq!(family.get(&0).map(|c| c.get()), Some(2), "those that are in go on counting");
    }

    #[test]
    fn a_gauge_does_not_fall_below_zero() {
        let gauge = Gauge::default();
        gauge.dec();
        gauge.inc();
        assert_eq!(gauge.get(), 1);
    }
}
