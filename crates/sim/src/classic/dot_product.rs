//! Dot product: the smallest product of requested and free amounts wins, as in the source. This is
//! the opposite of Tetris's alignment.

use super::best_fit::LARGEST;
use super::ranked::{Candidate, Rule, float, truncated};

/// The rule of `DotProductScore` with dimensions `merge` and norm `max`, as in the published runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct DotProduct;

impl Rule for DotProduct {
    fn name(&self) -> &'static str {
        "dot-product"
    }

    fn score(&mut self, candidate: &Candidate<'_>) -> i32 {
        let left = candidate.left();
        let free = (float(left.cpu_milli) / LARGEST.0, float(left.gpu_milli()) / LARGEST.1);
        let cpu = float(candidate.shape.resources.cpu_milli) / LARGEST.0;
        let gpus = float(candidate.total_milli()) / LARGEST.1;
        let product = f64::midpoint(free.0 * cpu, free.1 * gpus);
        truncated(100.0 * (1.0 - product))
    }
}
