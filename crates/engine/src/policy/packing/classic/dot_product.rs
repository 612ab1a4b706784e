//! Dot product: the node of whose kind of resources the pod asks for the least is free. The smallest
//! product of demand and free amounts wins, the opposite of Tetris's alignment, as in the source.

use super::best_fit::LARGEST;
use super::ranked::{Candidate, Rule, float, truncated};

/// The rule of `DotProductScore` with dimensions `merge` and norm `max`, as it was run.
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
