//! Mean and spread of figures over seeds.

use serde::Serialize;

/// Mean and spread of a figure over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of a sample; 0 of one run.
    pub sd: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// Runs that have the figure.
    pub runs: usize,
}

impl Spread {
    /// The spread of the figures that are present; `None` without any.
    pub fn of(figures: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let figures: Vec<f64> = figures.into_iter().flatten().collect();
        let count = count(figures.len());
        let mean = figures.iter().sum::<f64>() / count;
        let squares: f64 = figures.iter().map(|figure| (figure - mean) * (figure - mean)).sum();
        let sd = if figures.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let min = figures.iter().copied().reduce(f64::min)?;
        let max = figures.iter().copied().reduce(f64::max)?;
        Some(Self { mean, sd, min, max, runs: figures.len() })
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are never 2^53 runs")]
fn count(runs: usize) -> f64 {
    runs as f64
}
