//! A Gaussian process: from values seen at points to what is expected at others, and how surely.
//!
//! Matérn 5/2 kernel, one length scale per coordinate, chosen with the noise by the likelihood of what was seen. It
//! knows nothing of sweeps; points are features in [0, 1].

use crate::limits::MODEL_SCALES_MAX;

#[derive(Clone, Debug)]
pub(crate) struct Model {
    points: Vec<Vec<f64>>,
    shape: Shape,
    /// Lower triangle of the Cholesky factor, row by row.
    factor: Vec<f64>,
    /// What was seen, with the factor taken off once, and twice.
    solved: Vec<f64>,
    weights: Vec<f64>,
    mean: f64,
    deviation: f64,
}

/// What the likelihood chose.
#[derive(Clone, Debug)]
struct Shape {
    scales: Vec<f64>,
    noise: f64,
}

impl Model {
    /// `None` if nothing can be learnt: no points, or all values equal.
    pub fn fit(points: &[Vec<f64>], values: &[f64]) -> Option<Self> {
        let dimensions = points.first()?.len();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
        if !(deviation > 1e-12 * mean.abs().max(1e-300) && deviation.is_finite()) {
            return None;
        }
        let targets: Vec<f64> = values.iter().map(|value| (value - mean) / deviation).collect();
        let likelihood = |shape: &Shape| -> f64 {
            factorise(points, shape).map_or(f64::NEG_INFINITY, |factor| evidence(&factor, &targets))
        };
        let mut best = Shape { scales: vec![1.0; dimensions], noise: 1e-2 };
        let mut score = f64::NEG_INFINITY;
        for scale in [0.1, 0.2, 0.4, 0.8, 1.6] {
            for noise in [1e-5, 1e-3, 3e-2, 0.2] {
                let shape = Shape { scales: vec![scale * (dimensions as f64).sqrt(); dimensions], noise };
                let reached = likelihood(&shape);
                if reached > score {
                    (best, score) = (shape, reached);
                }
            }
        }
        // Each coordinate then finds its own scale, two sweeps of halving and doubling.
        if dimensions <= MODEL_SCALES_MAX {
            for _ in 0..2 {
                for coordinate in 0..dimensions {
                    for factor in [0.5, 2.0] {
                        let mut shape = best.clone();
                        shape.scales[coordinate] = (shape.scales[coordinate] * factor).clamp(0.03, 8.0);
                        let reached = likelihood(&shape);
                        if reached > score + 1e-9 {
                            (best, score) = (shape, reached);
                        }
                    }
                }
            }
        }
        Self::with(points.to_vec(), &targets, best, mean, deviation)
    }

    fn with(points: Vec<Vec<f64>>, targets: &[f64], shape: Shape, mean: f64, deviation: f64) -> Option<Self> {
        let factor = factorise(&points, &shape)?;
        let solved = forward(&factor, targets);
        let weights = backward(&factor, solved.clone());
        Some(Self { points, shape, factor, solved, weights, mean, deviation })
    }

    /// Mean and standard deviation at a point, in the units of the values.
    pub fn expect(&self, point: &[f64]) -> (f64, f64) {
        let row: Vec<f64> =
            self.points.iter().map(|other| kernel(point, other, &self.shape.scales)).collect();
        let mean: f64 = row.iter().zip(&self.weights).map(|(k, w)| k * w).sum();
        let solved = forward(&self.factor, &row);
        let variance = 1.0 - solved.iter().map(|v| v * v).sum::<f64>();
        (self.mean + self.deviation * mean, self.deviation * variance.max(1e-12).sqrt())
    }

    /// The model as if what it expects at a point had been seen there: it is less curious about the place, and its
    /// opinion is the same. Adds one row to the factor, so it is cheap. `None` if the point is too close to others to
    /// tell.
    pub fn believing(mut self, point: Vec<f64>) -> Option<Self> {
        let row: Vec<f64> =
            self.points.iter().map(|other| kernel(&point, other, &self.shape.scales)).collect();
        let solved = forward(&self.factor, &row);
        let left = 1.0 + self.shape.noise - solved.iter().map(|v| v * v).sum::<f64>();
        if left <= 1e-12 {
            return None;
        }
        let own = left.sqrt();
        // What is expected leaves nothing over.
        self.solved.push(0.0);
        self.factor.extend(solved);
        self.factor.push(own);
        self.points.push(point);
        self.weights = backward(&self.factor, self.solved.clone());
        Some(self)
    }
}

fn kernel(one: &[f64], other: &[f64], scales: &[f64]) -> f64 {
    let squared: f64 =
        one.iter().zip(other).zip(scales).map(|((a, b), scale)| ((a - b) / scale).powi(2)).sum();
    let distance = (5.0 * squared).sqrt();
    (1.0 + distance + 5.0 * squared / 3.0) * (-distance).exp()
}

fn at(row: usize, column: usize) -> usize {
    row * (row + 1) / 2 + column
}

fn factorise(points: &[Vec<f64>], shape: &Shape) -> Option<Vec<f64>> {
    let count = points.len();
    let mut factor = vec![0.0; count * (count + 1) / 2];
    for row in 0..count {
        for column in 0..=row {
            let mut sum = kernel(&points[row], &points[column], &shape.scales);
            if row == column {
                sum += shape.noise;
            }
            let (start, other) = (at(row, 0), at(column, 0));
            for k in 0..column {
                sum -= factor[start + k] * factor[other + k];
            }
            factor[start + column] = if row == column {
                if sum <= 1e-12 {
                    return None;
                }
                sum.sqrt()
            } else {
                sum / factor[other + column]
            };
        }
    }
    Some(factor)
}

fn forward(factor: &[f64], values: &[f64]) -> Vec<f64> {
    let mut out = values.to_vec();
    for row in 0..out.len() {
        let start = at(row, 0);
        let sum: f64 = (0..row).map(|k| factor[start + k] * out[k]).sum();
        out[row] = (out[row] - sum) / factor[start + row];
    }
    out
}

fn backward(factor: &[f64], mut values: Vec<f64>) -> Vec<f64> {
    let count = values.len();
    for row in (0..count).rev() {
        let sum: f64 = (row + 1..count).map(|below| factor[at(below, row)] * values[below]).sum();
        values[row] = (values[row] - sum) / factor[at(row, row)];
    }
    values
}

/// The logarithm of the likelihood, less what is the same for all shapes.
fn evidence(factor: &[f64], targets: &[f64]) -> f64 {
    let solved = forward(factor, targets);
    let fit: f64 = solved.iter().map(|v| v * v).sum();
    let volume: f64 = (0..targets.len()).map(|row| factor[at(row, row)].ln()).sum();
    -0.5 * fit - volume
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> (Vec<Vec<f64>>, Vec<f64>) {
        (0..9).map(|n| f64::from(n) / 8.0).map(|x| (vec![x], (6.0 * x).sin() * 10.0 + 100.0)).unzip()
    }

    #[test]
    fn what_was_seen_is_expected_and_what_is_far_is_unsure() {
        let (points, values) = line();
        let model = Model::fit(&points, &values).unwrap();
        for (point, value) in points.iter().zip(&values) {
            let (mean, deviation) = model.expect(point);
            assert!((mean - value).abs() < 0.2, "{point:?}: {mean} for {value}");
            assert!(deviation < 0.5, "{deviation}");
        }
        let (between, _) = model.expect(&[0.3]);
        assert!((between - ((1.8_f64).sin() * 10.0 + 100.0)).abs() < 0.5, "{between}");
        assert!(model.expect(&[3.0]).1 > 3.0);
    }

    #[test]
    fn believing_a_point_makes_it_sure_and_changes_no_opinion() {
        let (points, values) = line();
        let model = Model::fit(&points, &values).unwrap();
        let (mean, deviation) = model.expect(&[1.4]);
        let after = model.clone().believing(vec![1.4]).unwrap();
        let (same, surer) = after.expect(&[1.4]);
        assert!((mean - same).abs() < 0.1 * model.deviation, "{mean} {same}");
        assert!(surer < deviation / 2.0, "{surer} {deviation}");
        // Elsewhere too: what is believed is what was expected anyway.
        for x in [0.1, 0.55, 1.1] {
            assert!((model.expect(&[x]).0 - after.expect(&[x]).0).abs() < 1e-6, "{x}");
            assert!(after.expect(&[x]).1 <= model.expect(&[x]).1 + 1e-9, "{x}");
        }
    }

    #[test]
    fn a_coordinate_that_does_not_matter_gets_a_long_scale() {
        let mut points = Vec::new();
        let mut values = Vec::new();
        for n in 0..40_u32 {
            let point = crate::sobol::point(n, 2, 1);
            values.push((8.0 * point[0]).sin());
            points.push(point);
        }
        let model = Model::fit(&points, &values).unwrap();
        assert!(model.shape.scales[1] > 2.0 * model.shape.scales[0], "{:?}", model.shape);
    }

    #[test]
    fn nothing_is_learnt_from_equal_values() {
        assert!(Model::fit(&[vec![0.0], vec![1.0]], &[2.0, 2.0]).is_none());
        assert!(Model::fit(&[], &[]).is_none());
    }
}
