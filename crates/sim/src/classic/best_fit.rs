//! Best fit: the node with the least free capacity after the pod, with CPU and GPUs weighted
//! equally.

use super::ranked::{Candidate, Rule, float, truncated};

/// The largest node of the paper's cluster: CPU and GPUs in thousandths.
pub(super) const LARGEST: (f64, f64) = (128_000.0, 8_000.0);

/// The rule of `BestFitScore`. The source then scales the scores of feasible nodes to 0 to 100.
/// This changes neither the best node nor the ties, so it is omitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct BestFit;

impl Rule for BestFit {
    fn name(&self) -> &'static str {
        "best-fit"
    }

    fn score(&mut self, candidate: &Candidate<'_>) -> i32 {
        let left = candidate.left();
        let cpu = left.cpu_milli - candidate.shape.resources.cpu_milli;
        let gpus = left.gpu_milli() - candidate.total_milli();
        let mut sum = 0.0;
        sum += float(cpu) / LARGEST.0 * 0.5;
        sum += float(gpus) / LARGEST.1 * 0.5;
        truncated((1.0 - sum) * 100.0)
    }
}
