//! Figures out of samples. Percentiles are samples that were seen (nearest rank), never in between.

use serde_json::{Value, json};

#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

/// What is told of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub n: usize,
    pub median: f64,
    pub p99: f64,
    pub min: f64,
    pub max: f64,
    /// (p90 - p10) / median: how far apart the samples lie without their outliers.
    pub spread: f64,
}

impl Samples {
    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// `None` without a sample.
    pub fn summary(&self) -> Option<Summary> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let rank = |percent: usize| {
            let at = (sorted.len() * percent).div_ceil(100).clamp(1, sorted.len());
            sorted[at - 1]
        };
        let median = rank(50);
        let spread = if median > 0.0 { (rank(90) - rank(10)) / median } else { 0.0 };
        Some(Summary { n: sorted.len(), median, p99: rank(99), min, max, spread })
    }

    pub fn median(&self) -> f64 {
        self.summary().map_or(0.0, |summary| summary.median)
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl Summary {
    pub fn json(&self) -> Value {
        json!({
            "n": self.n,
            "median": rounded(self.median),
            "p50": rounded(self.median),
            "p99": rounded(self.p99),
            "min": rounded(self.min),
            "max": rounded(self.max),
            "spread": rounded(self.spread),
        })
    }
}

/// Three decimals: more would be noise.
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::{Samples, Summary};

    #[test]
    fn percentiles_are_samples() {
        let of = |samples: &[f64]| samples.iter().copied().collect::<Samples>().summary();
        assert_eq!(of(&[]), None);
        let one = Summary { n: 1, median: 5.0, p99: 5.0, min: 5.0, max: 5.0, spread: 0.0 };
        assert_eq!(of(&[5.0]), Some(one));
        let three = Summary { n: 3, median: 2.0, p99: 4.0, min: 1.0, max: 4.0, spread: 1.5 };
        assert_eq!(of(&[4.0, 1.0, 2.0]), Some(three));
        let hundred: Vec<f64> = (1..=200).map(f64::from).collect();
        let summary = Summary { n: 200, median: 100.0, p99: 198.0, min: 1.0, max: 200.0, spread: 1.6 };
        assert_eq!(of(&hundred), Some(summary));
    }
}
