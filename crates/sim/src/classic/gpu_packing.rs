//! Packing: a used GPU before an idle one on a used node before an unused node.

use super::ranked::{Candidate, Rule};
use octavo_engine::gpu::GpuFree;

/// The rule of `GpuPackingScore`.
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuPacking;

impl Rule for GpuPacking {
    fn name(&self) -> &'static str {
        "packing"
    }

    fn score(&mut self, candidate: &Candidate<'_>) -> i32 {
        let gpus = candidate.gpus();
        if !candidate.shape.gpus.is_some() {
            return 0;
        }
        let all = count(gpus.free.len());
        let idle = count(gpus.free.iter().filter(|gpu| gpu.is_idle()).count());
        if idle == all {
            return (33 - idle).max(idle);
        }
        // The tightest GPUs. Several MIG instances may be on one GPU, which then counts once.
        let parts = gpus.demanded(&candidate.shape.gpus).unwrap_or_default();
        let mut taken: Vec<u16> = parts.iter().map(|part| part.gpu).collect();
        taken.dedup();
        let taken = || taken.iter().filter_map(|gpu| gpus.free.get(usize::from(*gpu)));
        let opened = count(taken().filter(|gpu| gpu.is_unused()).count());
        if opened > 0 {
            return (50 - opened).max(33);
        }
        let percent = |gpu: &GpuFree| i32::from(gpu.milli) * 100 / 1000;
        (100 - taken().map(percent).sum::<i32>() / 10).max(50)
    }
}

fn count(gpus: usize) -> i32 {
    i32::try_from(gpus).unwrap_or(i32::MAX)
}
