//! Points of a Sobol sequence: they fill the unit cube more evenly than random ones. A seed shifts all of them by the
//! same bits, which leaves them as even as they were.

use crate::random::Stream;

const BITS: usize = 32;

/// Of each dimension after the first: a primitive polynomial over GF(2), with its leading and last bit, and the first
/// direction numbers, in the choice of Joe and Kuo that keeps pairs of dimensions apart.
const DIRECTIONS: [(u32, &[u32]); 20] = [
    (0b11, &[1]),
    (0b111, &[1, 3]),
    (0b1011, &[1, 3, 1]),
    (0b1101, &[1, 1, 1]),
    (0b1_0011, &[1, 1, 3, 3]),
    (0b1_1001, &[1, 3, 5, 13]),
    (0b10_0101, &[1, 1, 5, 5, 17]),
    (0b10_1001, &[1, 1, 5, 5, 5]),
    (0b10_1111, &[1, 1, 7, 11, 19]),
    (0b11_0111, &[1, 1, 5, 1, 1]),
    (0b11_1011, &[1, 1, 1, 3, 11]),
    (0b11_1101, &[1, 3, 5, 5, 31]),
    (0b100_0011, &[1, 3, 3, 9, 7, 49]),
    (0b101_1011, &[1, 1, 1, 15, 21, 21]),
    (0b110_0001, &[1, 3, 1, 13, 27, 49]),
    (0b110_0111, &[1, 1, 1, 15, 7, 5]),
    (0b110_1101, &[1, 3, 1, 15, 13, 25]),
    (0b111_0011, &[1, 1, 5, 5, 19, 61]),
    (0b1000_0011, &[1, 3, 7, 11, 23, 15, 103]),
    (0b1000_1001, &[1, 3, 7, 13, 13, 15, 69]),
];

/// As many parameters as a Sobol sequence is made for here.
pub(crate) const DIMENSIONS_MAX: usize = DIRECTIONS.len() + 1;

/// The point of that number. Dimensions beyond the table are filled from the seed alone.
pub(crate) fn point(number: u32, dimensions: usize, seed: u64) -> Vec<f64> {
    let gray = number ^ (number >> 1);
    let mut rest = Stream::new(seed, u64::from(number));
    (0..dimensions)
        .map(|dimension| {
            if dimension >= DIMENSIONS_MAX {
                return rest.unit();
            }
            let directions = directions(dimension);
            let mut bits = Stream::new(!seed, dimension as u64).bits() as u32;
            for (bit, direction) in directions.iter().enumerate() {
                if gray >> bit & 1 == 1 {
                    bits ^= direction;
                }
            }
            f64::from(bits) / (1_u64 << BITS) as f64
        })
        .collect()
}

fn directions(dimension: usize) -> [u32; BITS] {
    let mut out = [0; BITS];
    let Some((polynomial, first)) = dimension.checked_sub(1).map(|at| DIRECTIONS[at]) else {
        for (bit, direction) in out.iter_mut().enumerate() {
            *direction = 1 << (BITS - 1 - bit);
        }
        return out;
    };
    let degree = first.len();
    for bit in 0..BITS {
        if bit < degree {
            out[bit] = first[bit] << (BITS - 1 - bit);
            continue;
        }
        out[bit] = out[bit - degree] ^ (out[bit - degree] >> degree);
        for term in 1..degree {
            if polynomial >> (degree - term) & 1 == 1 {
                out[bit] ^= out[bit - term];
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_sound() {
        let mut seen = BTreeSet::new();
        for (polynomial, first) in DIRECTIONS {
            assert!(seen.insert(polynomial));
            let degree = first.len() as u32;
            assert_eq!(31 - polynomial.leading_zeros(), degree);
            // Primitive: x comes back to 1 after all the other elements of the field, and not before.
            let (mut power, mut order) = (1_u32, 0);
            loop {
                power <<= 1;
                if power >> degree & 1 == 1 {
                    power ^= polynomial;
                }
                order += 1;
                if power == 1 {
                    break;
                }
            }
            assert_eq!(order, (1_u32 << degree) - 1, "{polynomial:b}");
            for (at, number) in first.iter().enumerate() {
                assert!(number % 2 == 1 && *number < 1 << (at + 1));
            }
        }
    }

    #[test]
    fn every_dimension_alone_has_one_point_per_slot() {
        for seed in [0, 1, 99] {
            for power in [1, 4, 8] {
                let count = 1_u32 << power;
                let points: Vec<_> = (0..count).map(|n| point(n, DIMENSIONS_MAX, seed)).collect();
                for dimension in 0..DIMENSIONS_MAX {
                    let slots: BTreeSet<u32> =
                        points.iter().map(|p| (p[dimension] * f64::from(count)) as u32).collect();
                    assert_eq!(slots.len(), count as usize, "seed {seed}, dimension {dimension}");
                }
            }
        }
    }

    #[test]
    fn the_first_two_dimensions_fill_every_box() {
        for (wide, high) in [(1, 64), (2, 32), (4, 16), (8, 8), (16, 4), (32, 2), (64, 1)] {
            let boxes: BTreeSet<(u32, u32)> = (0..64)
                .map(|n| point(n, 2, 5))
                .map(|p| ((p[0] * f64::from(wide)) as u32, (p[1] * f64::from(high)) as u32))
                .collect();
            assert_eq!(boxes.len(), 64, "{wide} by {high}");
        }
    }
}
