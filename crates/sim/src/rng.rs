//! The only source of chance in the simulated world: xoshiro256**, seeded by splitmix64. The same seed, the same world.

#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    pub fn new(seed: u64) -> Self {
        let mut z = seed;
        Self(std::array::from_fn(|_| {
            z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut x = z;
            x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            x ^ (x >> 31)
        }))
    }

    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// From 0 up to, not with, `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64 }
    }

    /// Both ends may come.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, among: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(among.len() as u64)).ok()?;
        among.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_course_and_every_value_comes() {
        let (mut one, mut other) = (Rng::new(7), Rng::new(7));
        let mut seen = [0; 5];
        for _ in 0..1000 {
            assert_eq!(one.bits(), other.bits());
            seen[usize::try_from(one.below(5)).unwrap()] += 1;
            other.below(5);
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        assert_ne!(Rng::new(1).bits(), Rng::new(2).bits());
    }
}
