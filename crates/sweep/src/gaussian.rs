//! The normal distribution: density, distribution function and its inverse, without tables of coefficients.

use std::f64::consts::PI;

pub(crate) fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// The probability of a value below `x`.
pub(crate) fn below(x: f64) -> f64 {
    if x > 0.0 { 1.0 - tail(x) } else { tail(-x) }
}

/// The probability of a value above `x >= 0`, with its relative precision kept far out.
fn tail(x: f64) -> f64 {
    if x < 3.0 {
        // x + x³/3 + x⁵/(3·5) + …
        let (mut term, mut sum, mut k) = (x, x, 1.0);
        while term > sum * 1e-17 && k < 400.0 {
            k += 2.0;
            term *= x * x / k;
            sum += term;
        }
        return 0.5 - sum * density(x);
    }
    // 1/(x + 1/(x + 2/(x + 3/(x + …
    let mut fraction = x;
    for k in (1..=60).rev() {
        fraction = x + f64::from(k) / fraction;
    }
    density(x) / fraction
}

/// The value that a share of `u` lies below. `u` is held within what 53 bits can tell from 0 and 1.
pub(crate) fn quantile(u: f64) -> f64 {
    let u = u.clamp(1e-16, 1.0 - 1.2e-16);
    let (mut low, mut high) = (-9.0, 9.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if below(middle) < u {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        for (x, expect) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (-1.96, 0.024_997_895_148_220_435),
            (2.999_999, 0.998_650_097_5),
            (3.000_001, 0.998_650_106_4),
            (-6.0, 9.865_876_450_376_98e-10),
        ] {
            assert!((below(x) - expect).abs() < 1e-10 * f64::max(1.0, expect), "{x}: {}", below(x));
        }
        assert!((below(-6.0) / 9.865_876_450_376_98e-10 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_inverse_is_one() {
        for n in 1..200 {
            let u = f64::from(n) / 200.0;
            assert!((below(quantile(u)) - u).abs() < 1e-13, "{u}");
        }
        assert!(quantile(0.0) < -8.0 && quantile(0.0).is_finite());
        assert!(quantile(1.0) > 8.0 && quantile(1.0).is_finite());
    }
}
