//! What a pod of a shape would do to a node in some state.

use smallvec::SmallVec;

use super::levels::{self, Levels};
use super::reserve::Places;
use super::tables::{Sheet, Tables};
use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::gpu::GpuFree;
use crate::pick::{Gpus, Level};
use crate::placement::GpuPart;
use crate::shape::{GpuDemand, Shape};

/// A way to place a pod on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// By how much the worth of the node grows; nearly always below 0.
    pub(super) gain: i64,
    /// The shapes of the reserve that lose a place.
    pub(super) losers: u64,
    /// For a single share: the level of the GPU that it is taken of.
    pub(super) level: Option<Level>,
}

/// The ways to place a pod, none of which is at least as good as another in gain and in losers.
pub(super) type Candidates = SmallVec<[Candidate; 2]>;

/// What is known of a state, whatever the shape.
#[derive(Clone, Debug)]
pub(super) struct Appraisal {
    worth: i64,
    levels: Levels,
    places: Places,
}

impl Appraisal {
    pub(super) fn of(cluster: &Cluster, tables: &Tables, sheet: &Sheet, state: &NodeState) -> Self {
        let levels = levels::levels(&state.gpus, Gpus::of_state(cluster, state).model);
        Self {
            worth: tables.worth(sheet, &state.free, &levels),
            places: tables.reserve.places(&sheet.wishes, &state.free, &levels),
            levels,
        }
    }
}

/// The candidates of a shape on a node in this state.
pub(super) fn candidates(
    cluster: &Cluster,
    tables: &Tables,
    sheet: &Sheet,
    state: &NodeState,
    appraisal: &Appraisal,
    shape: &Shape,
) -> Candidates {
    let mut all = Candidates::new();
    if !fit::fits(cluster, state, shape) {
        return all;
    }
    let gpus = Gpus::of_state(cluster, state);
    let Appraisal { worth, levels, places } = appraisal;
    let free = state.free.minus(&shape.resources);
    let mut consider = |level: Option<Level>, parts: &[GpuPart]| {
        let mut after = levels.clone();
        for part in parts {
            if let Some(level) = after.get_mut(usize::from(part.gpu)) {
                let Some(left) = level.gpu.without(part) else { return };
                *level = levels::Level::of(left, gpus.model);
            }
        }
        let gain = tables.worth(sheet, &free, &after) - worth;
        let losers = tables.reserve.losers(places, &sheet.wishes, &free, &after);
        all.push(Candidate { gain, losers, level });
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

fn distinct_levels(gpus: &[GpuFree], milli: u16, memory_mib: u32) -> SmallVec<[Level; 8]> {
    let fitting = gpus.iter().filter(|gpu| fit::share_fits(gpu, milli, memory_mib));
    let mut levels: SmallVec<[Level; 8]> = fitting.map(Level::of).collect();
    levels.sort_unstable();
    levels.dedup();
    levels
}

/// Leaves out candidates that another beats whatever is tight: it gains as much and takes places
/// of no other shapes. Of equals the first stays, which is the tightest GPU.
fn keep_best(all: &mut Candidates) {
    // Stable: equals stay in the order of their levels.
    all.sort_by_key(|one| std::cmp::Reverse(one.gain));
    let mut kept = Candidates::new();
    for one in all.iter() {
        if kept.iter().all(|better| better.losers & !one.losers != 0) {
            kept.push(*one);
        }
    }
    *all = kept;
}
