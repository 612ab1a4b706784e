//! The GPUs of a member's node during the search for a gang.
//!
//! [`crate::pick::default_placement`] keeps the residual useful for other pods. For several members
//! of a shape on one node it may leave fewer slots than counted. In that case [`densest`] chooses
//! again. The exhaustive search enumerates [`all_placements`].

use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::fit;
use crate::gpu::{GpuFree, Slices, WHOLE};
use crate::node::NodeId;
use crate::placement::{GpuPart, GpuParts, Placement};
use crate::shape::{GpuDemand, Shape};

/// A placement that keeps as many further members on the node as [`fit::times`] counted. It takes
/// the GPUs with the most shares left, and the lowest placements of instances.
pub(crate) fn densest(cluster: &Cluster, node: NodeId, shape: &Shape) -> Option<Placement> {
    let state = cluster.states().state(cluster.state(node))?;
    if !fit::fits(cluster, state, shape) {
        return None;
    }
    let gpus = cluster.gpus(node);
    let parts: GpuParts = match &shape.gpus {
        GpuDemand::None | GpuDemand::Whole { .. } => {
            return crate::pick::default_placement(cluster, node, shape);
        }
        GpuDemand::Share { count, milli, memory_mib } => {
            let shares = |gpu: &GpuFree| {
                let compute = gpu.milli.checked_div(*milli).map_or(u32::MAX, u32::from);
                compute.min(gpu.memory_mib.checked_div(*memory_mib).unwrap_or(u32::MAX))
            };
            let mut order: Vec<(u16, &GpuFree)> = (0..).zip(gpus).collect();
            order.retain(|(_, gpu)| fit::share_fits(gpu, *milli, *memory_mib));
            order.sort_by_key(|(index, gpu)| (std::cmp::Reverse(shares(gpu)), *index));
            let chosen = order.get(..usize::from(*count))?.iter();
            let part = |(gpu, _): &(u16, &GpuFree)| share(*gpu, *milli, *memory_mib);
            chosen.map(part).collect()
        }
        GpuDemand::Mig { count, profile } => {
            let model = cluster.models().get(usize::from(cluster.class(node).model.0))?;
            let profile = model.profile(profile)?;
            let instances = (0..).zip(gpus).flat_map(|(gpu, free)| {
                let most = fit::instances_in(free, profile) as usize;
                let mut taken = free.slices;
                let lowest = profile.places().filter(move |place| {
                    let is_free = !place.overlaps(taken);
                    if is_free {
                        taken = taken.plus(*place);
                    }
                    is_free
                });
                lowest.take(most).map(move |slices| profile.part(gpu, slices))
            });
            let parts: GpuParts = instances.take((*count).into()).collect();
            if parts.len() < usize::from(*count) {
                return None;
            }
            parts
        }
    };
    Some(sorted(node, parts))
}

/// All placements on a node that differ in their effect on later members. `None`: too many.
pub(crate) fn all_placements(
    cluster: &Cluster,
    node: NodeId,
    shape: &Shape,
) -> Option<Vec<Placement>> {
    /// Most places that are looked at.
    const MAX_PLACEMENTS: usize = 4096;
    let fits = cluster.states().state(cluster.state(node));
    if !fits.is_some_and(|state| fit::fits(cluster, state, shape)) {
        return Some(Vec::new());
    }
    let gpus = cluster.gpus(node);
    let single: Vec<GpuPart> = match &shape.gpus {
        // Idle GPUs are equivalent for later members.
        GpuDemand::None | GpuDemand::Whole { .. } => {
            return Some(
                crate::pick::default_placement(cluster, node, shape).into_iter().collect(),
            );
        }
        GpuDemand::Share { milli, memory_mib, .. } => (0..)
            .zip(gpus)
            .filter(|(_, gpu)| fit::share_fits(gpu, *milli, *memory_mib))
            .map(|(gpu, _)| share(gpu, *milli, *memory_mib))
            .collect(),
        GpuDemand::Mig { profile, .. } => {
            let model = cluster.models().get(usize::from(cluster.class(node).model.0));
            let profile = model.and_then(|model| model.profile(profile));
            let of_gpu = |(gpu, free): (u16, &GpuFree)| {
                let (taken, is_open) = (free.slices, free.slices != Slices::NONE || free.is_idle());
                let profile = profile.filter(|_| is_open && !free.is_closed);
                let places = profile.into_iter().flat_map(|profile| {
                    profile.places().map(move |slices| profile.part(gpu, slices))
                });
                places.filter(move |part| !part.slices.overlaps(taken)).collect::<Vec<_>>()
            };
            (0..).zip(gpus).flat_map(of_gpu).collect()
        }
    };
    let is_share = matches!(shape.gpus, GpuDemand::Share { .. });
    let mut sets: Vec<GpuParts> = vec![GpuParts::new()];
    for _ in 0..shape.gpus.count() {
        let mut longer = Vec::new();
        for set in &sets {
            for part in &single {
                let is_next = set.last().is_none_or(|last| {
                    if is_share {
                        last.gpu < part.gpu
                    } else {
                        (last.gpu, last.slices.0) < (part.gpu, part.slices.0)
                    }
                });
                let is_apart = set
                    .iter()
                    .all(|other| other.gpu != part.gpu || !other.slices.overlaps(part.slices));
                if is_next && is_apart {
                    let mut set = set.clone();
                    set.push(*part);
                    longer.push(set);
                }
            }
        }
        if longer.len() > MAX_PLACEMENTS {
            return None;
        }
        sets = longer;
    }
    // Sets with the same residual are equivalent. Links between GPUs affect quality, not
    // feasibility.
    let mut seen: Vec<SmallVec<[GpuFree; 8]>> = Vec::new();
    let mut places = Vec::new();
    for set in sets {
        let mut left: SmallVec<[GpuFree; 8]> = gpus.into();
        for part in &set {
            let gpu = &mut left[usize::from(part.gpu)];
            gpu.milli = gpu.milli.saturating_sub(part.milli);
            gpu.memory_mib = gpu.memory_mib.saturating_sub(part.memory_mib);
            gpu.slices = gpu.slices.plus(part.slices);
        }
        left.sort_unstable();
        if !seen.contains(&left) {
            seen.push(left);
            places.push(sorted(node, set));
        }
    }
    Some(places)
}

fn share(gpu: u16, milli: u16, memory_mib: u32) -> GpuPart {
    debug_assert!(milli <= WHOLE);
    GpuPart { gpu, milli, slices: Slices::NONE, memory_mib }
}

fn sorted(node: NodeId, mut gpus: GpuParts) -> Placement {
    gpus.sort_unstable_by_key(|part| (part.gpu, part.slices.0));
    Placement { node, gpus }
}
