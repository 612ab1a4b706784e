//! Candidate sets of GPUs for a pod on one node.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::fit;
use crate::gpu::GpuFree;
use crate::node::NodeId;
use crate::pick::{FreeLevel, Gpus};
use crate::placement::{GpuPart, GpuParts};
use crate::shape::GpuDemand;

/// The maximum number of candidates for several shares on one node; the tightest come first.
const MAX_CANDIDATES: usize = 256;

/// Candidate sets of GPUs on a node, one of each equivalent kind:
///
/// * whole GPUs: one candidate, since idle GPUs differ only in their position;
/// * one share: each free level; several shares: each distribution over free levels;
/// * one MIG instance: each placement on each distinct GPU; several: one candidate, by
///   [`crate::pick`].
///
/// Empty if the GPUs do not fit. CPU, memory and pods are not checked.
pub(super) fn of(cluster: &Cluster, node: NodeId, demand: &GpuDemand) -> Vec<GpuParts> {
    let gpus = Gpus::of_node(cluster, node);
    match demand {
        GpuDemand::Share { count, milli, memory_mib } => {
            shares(&gpus, usize::from(*count), *milli, *memory_mib)
        }
        GpuDemand::Mig { count: 1, profile } => instances(&gpus, profile),
        _ => gpus.demanded(demand).into_iter().collect(),
    }
}

fn shares(gpus: &Gpus<'_>, count: usize, milli: u16, memory_mib: u32) -> Vec<GpuParts> {
    let mut levels: BTreeMap<FreeLevel, Vec<u16>> = BTreeMap::new();
    for (index, gpu) in (0..).zip(gpus.free) {
        if fit::share_fits(gpu, milli, memory_mib) {
            levels.entry(FreeLevel::of(gpu)).or_default().push(index);
        }
    }
    let levels: Vec<Vec<u16>> = levels.into_values().collect();
    let mut candidates = Vec::new();
    spread(&levels, count, &mut Vec::new(), &mut candidates);
    let part = |gpu: u16| GpuPart { gpu, milli, slices: crate::gpu::Slices::NONE, memory_mib };
    let parts = |mut way: Vec<u16>| {
        way.sort_unstable();
        way.into_iter().map(part).collect()
    };
    candidates.into_iter().map(parts).collect()
}

/// All selections of `count` GPUs from these levels, preferring the first levels.
fn spread(levels: &[Vec<u16>], count: usize, taken: &mut Vec<u16>, candidates: &mut Vec<Vec<u16>>) {
    if count == 0 {
        candidates.push(taken.clone());
        return;
    }
    let Some((level, rest)) = levels.split_first() else { return };
    let in_rest: usize = rest.iter().map(Vec::len).sum();
    for here in (0..=level.len().min(count)).rev() {
        if count - here > in_rest || candidates.len() >= MAX_CANDIDATES {
            return;
        }
        let before = taken.len();
        taken.extend(&level[..here]);
        spread(rest, count - here, taken, candidates);
        taken.truncate(before);
    }
}

fn instances(gpus: &Gpus<'_>, profile: &str) -> Vec<GpuParts> {
    let mut candidates: Vec<GpuParts> = gpus.mig(1, profile).into_iter().collect();
    let Some(profile) = gpus.model.and_then(|model| model.profile(profile)) else {
        return candidates;
    };
    let mut seen: Vec<GpuFree> = Vec::new();
    for (index, gpu) in (0_u16..).zip(gpus.free) {
        let is_new = !seen.contains(gpu);
        seen.push(*gpu);
        let has_room = fit::instances_in(gpu, profile) > 0
            && gpu.milli >= profile.milli
            && gpu.memory_mib >= profile.memory_mib;
        if !is_new || !has_room {
            continue;
        }
        for place in profile.places().filter(|place| !place.overlaps(gpu.slices)) {
            let (milli, memory_mib) = (profile.milli, profile.memory_mib);
            let part = GpuPart { gpu: index, milli, slices: place, memory_mib };
            let way: GpuParts = [part].as_slice().into();
            if !candidates.contains(&way) {
                candidates.push(way);
            }
        }
    }
    candidates
}
