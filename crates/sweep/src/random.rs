//! Numbers that look random and are computed from a seed: a stream of them, and an order of shuffled indices.

/// A good mix of all 64 bits (the finaliser of SplitMix64).
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// One stream per seed and lane; a trial's lane is its number.
#[derive(Clone, Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    pub fn new(seed: u64, lane: u64) -> Self {
        Self(mix(mix(seed) ^ lane.wrapping_mul(0xD6E8_FEB8_6659_FD93)))
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// In [0, 1), a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }
}

pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Where `index` goes in a shuffle of `0..size`. A small Feistel network permutes the next power of four; what lands
/// outside is sent through again, so nothing of the shuffle is ever kept.
pub(crate) fn shuffled(index: u64, size: u64, seed: u64) -> u64 {
    if size < 2 {
        return 0;
    }
    let bits = 64 - (size - 1).leading_zeros();
    let half = bits.div_ceil(2);
    let mask = (1_u64 << half) - 1;
    let mut at = index;
    loop {
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 0..6_u64 {
            (left, right) = (right, left ^ (mix(mix(seed ^ round) ^ right) & mask));
        }
        at = (left << half) | right;
        if at < size {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_shuffle_has_every_index_once_and_depends_on_the_seed() {
        for size in [1, 2, 3, 5, 16, 17, 100, 1000] {
            for seed in 0..5 {
                let order: Vec<u64> = (0..size).map(|index| shuffled(index, size, seed)).collect();
                assert_eq!(
                    order.iter().copied().collect::<BTreeSet<_>>(),
                    (0..size).collect(),
                    "{size} {seed}"
                );
                if size >= 100 {
                    assert_ne!(order, (0..size).map(|i| shuffled(i, size, seed + 1)).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn the_first_of_a_shuffle_is_evenly_spread() {
        let mut seen = [0_u32; 10];
        for seed in 0..10_000 {
            seen[shuffled(0, 10, mix(seed)) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
    }

    #[test]
    fn streams_of_neighbours_differ_and_are_even() {
        let mut sum = 0.0;
        for lane in 0..10_000 {
            sum += Stream::new(7, lane).unit();
        }
        assert!((sum / 10_000.0 - 0.5).abs() < 0.01, "{sum}");
        assert_ne!(Stream::new(7, 0).bits(), Stream::new(8, 0).bits());
    }
}
