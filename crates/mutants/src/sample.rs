//! Draws a sample that anybody can draw again: the same seed and the same list give the same mutants.

/// `count` of `items`, in their order; all of them if there are no more.
pub fn draw<T: Clone>(items: &[T], count: usize, seed: u64) -> Vec<T> {
    let mut indices: Vec<usize> = (0..items.len()).collect();
    let mut state = seed;
    let count = count.min(indices.len());
    for at in 0..count {
        let left = (indices.len() - at) as u64;
        let pick = at + (next(&mut state) % left) as usize;
        indices.swap(at, pick);
    }
    indices.truncate(count);
    indices.sort_unstable();
    indices.into_iter().map(|index| items[index].clone()).collect()
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::draw;

    #[test]
    fn a_seed_draws_the_same_again_and_each_item_once() {
        let items: Vec<u32> = (0..1000).collect();
        let one = draw(&items, 300, 1);
        assert_eq!(one, draw(&items, 300, 1));
        assert_ne!(one, draw(&items, 300, 2));
        assert_eq!(one.len(), 300);
        assert!(one.is_sorted_by(|a, b| a < b), "in the order of the list, none twice");
        assert_eq!(draw(&items, 5000, 1), items, "no more than there are");
    }
}
