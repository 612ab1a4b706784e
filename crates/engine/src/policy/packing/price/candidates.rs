//! The effect of a pod of a shape on a node in some state.

use smallvec::SmallVec;

use super::gpu_residual::{self, GpuResiduals};
use super::price_model::{NodeClassModel, PriceModel};
use super::reserve::Places;
use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::gpu::GpuFree;
use crate::pick::{FreeLevel, Gpus};
use crate::placement::GpuPart;
use crate::shape::{GpuDemand, Shape};

/// A candidate placement of a pod on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Increase of the node's worth; nearly always negative.
    pub(super) gain: i64,
    /// The reserved shapes that lose a slot, as a mask.
    pub(super) losers: u64,
    /// How much more often the GPUs fail than usual ones, in parts per million an hour.
    pub(super) risk: u32,
    /// For a single share: the free level of the GPU to use.
    pub(super) level: Option<FreeLevel>,
}

/// Candidates without dominated ones: none is at least as good as another in gain, losers and risk.
pub(super) type Candidates = SmallVec<[Candidate; 2]>;

/// Figures of a state that are independent of the shape.
#[derive(Clone, Debug)]
pub(super) struct Appraisal {
    worth: i64,
    residuals: GpuResiduals,
    places: Places,
}

impl Appraisal {
    pub(super) fn of(
        cluster: &Cluster,
        price_model: &PriceModel,
        class_model: &NodeClassModel,
        state: &NodeState,
    ) -> Self {
        let residuals = gpu_residual::residuals(&state.gpus, Gpus::of_state(cluster, state).model);
        Self {
            worth: price_model.worth(class_model, &state.free, &residuals),
            places: price_model.reserve.places(
                &class_model.reserved_shapes,
                &state.free,
                &residuals,
            ),
            residuals,
        }
    }
}

/// The candidates of a shape on a node in this state.
pub(super) fn candidates(
    cluster: &Cluster,
    price_model: &PriceModel,
    class_model: &NodeClassModel,
    state: &NodeState,
    appraisal: &Appraisal,
    shape: &Shape,
) -> Candidates {
    let mut all = Candidates::new();
    if !fit::fits(cluster, state, shape) {
        return all;
    }
    let gpus = Gpus::of_state(cluster, state);
    let Appraisal { worth, residuals, places } = appraisal;
    let free = state.free.minus(&shape.resources);
    let mut consider = |level: Option<FreeLevel>, parts: &[GpuPart]| {
        let mut after = residuals.clone();
        for part in parts {
            if let Some(level) = after.get_mut(usize::from(part.gpu)) {
                let Some(left) = level.gpu.without(part) else { return };
                *level = gpu_residual::GpuResidual::of(left, gpus.model);
            }
        }
        let gain = price_model.worth(class_model, &free, &after) - worth;
        let losers =
            price_model.reserve.losers(places, &class_model.reserved_shapes, &free, &after);
        all.push(Candidate { gain, losers, risk: risk(gpus.free, parts), level });
    };
    if let GpuDemand::Share { count: 1, milli, memory_mib } = shape.gpus {
        for level in distinct_levels(&state.gpus, milli, memory_mib) {
            if let Some(parts) = gpus.share_at(milli, memory_mib, level) {
                consider(Some(level), &parts);
            }
        }
    } else if let Some(parts) = gpus.demanded(&shape.gpus) {
        consider(None, &parts);
    }
    keep_best(&mut all);
    all
}

fn distinct_levels(gpus: &[GpuFree], milli: u16, memory_mib: u32) -> SmallVec<[FreeLevel; 8]> {
    let fitting = gpus.iter().filter(|gpu| fit::share_fits(gpu, milli, memory_mib));
    let mut residuals: SmallVec<[FreeLevel; 8]> = fitting.map(FreeLevel::of).collect();
    residuals.sort_unstable();
    residuals.dedup();
    residuals
}

/// The risk of the GPUs of these parts, which are ordered by GPU.
fn risk(gpus: &[GpuFree], parts: &[GpuPart]) -> u32 {
    let of = |parts: &[GpuPart]| {
        gpus.get(usize::from(parts[0].gpu)).map_or(0, GpuFree::excess_hazard_ppm)
    };
    parts.chunk_by(|part, next| part.gpu == next.gpu).map(of).fold(0, u32::saturating_add)
}

/// Drops dominated candidates: another gains as much, takes slots from no other shapes and has no
/// more risk. Of equals the first stays, which is the tightest GPU.
fn keep_best(all: &mut Candidates) {
    // Stable: equals stay in the order of their levels.
    all.sort_by_key(|candidate| std::cmp::Reverse(candidate.gain));
    let mut kept = Candidates::new();
    for candidate in all.iter() {
        let is_beaten = |better: &Candidate| {
            better.losers & !candidate.losers == 0 && better.risk <= candidate.risk
        };
        if !kept.iter().any(is_beaten) {
            kept.push(*candidate);
        }
    }
    *all = kept;
}
