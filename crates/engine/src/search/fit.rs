//! Whether and how often a shape fits a node, by itself.

use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::gpu::{GpuFree, GpuModel, MigProfile, WHOLE};
use crate::node::{NodeClass, NodeId};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};

/// Whether nodes of a class allow pods of a shape, whatever is free.
pub fn is_allowed(class: &NodeClass, shape: &Shape) -> bool {
    class.features.has_all(shape.needs)
        && shape.tolerates.has_all(class.taints)
        && (!shape.gpus.is_some() || (class.gpus > 0 && shape.models.has(class.model)))
}

/// Whether a pod fits a node in this state now.
pub fn fits(cluster: &Cluster, state: &NodeState, shape: &Shape) -> bool {
    if !state.is_open || !shape.resources.fits(&state.free) {
        return false;
    }
    let class = &cluster.classes()[state.class.0 as usize];
    if !is_allowed(class, shape) {
        return false;
    }
    let count = usize::from(shape.gpus.count());
    match &shape.gpus {
        GpuDemand::None => true,
        GpuDemand::Whole { .. } => has(count, &state.gpus, GpuFree::is_idle),
        GpuDemand::Share { milli, memory_mib, .. } => {
            has(count, &state.gpus, |gpu| share_fits(gpu, *milli, *memory_mib))
        }
        GpuDemand::Mig { .. } => times(cluster, state, shape) > 0,
    }
}

/// The number of pods of a shape that fit a node in this state together: exact for this one shape.
/// [`u32::MAX`] if the shape requests nothing.
pub fn times(cluster: &Cluster, state: &NodeState, shape: &Shape) -> u32 {
    let class = &cluster.classes()[state.class.0 as usize];
    if !state.is_open || !is_allowed(class, shape) {
        return 0;
    }
    times_by_all(&state.free, shape, || match &shape.gpus {
        GpuDemand::Whole { count } => {
            let idle = state.gpus.iter().filter(|gpu| gpu.is_idle()).count();
            sets_of_identical(u32::try_from(idle).unwrap_or(u32::MAX), *count)
        }
        demand => times_by_parts(cluster, class, &state.gpus, demand),
    })
}

/// As [`times`], for the current state of a node. Scans over many nodes use this: free amounts of
/// nodes are contiguous in memory, and states are not.
pub fn times_on(cluster: &Cluster, node: NodeId, shape: &Shape) -> u32 {
    if !cluster.is_open(node) || !is_allowed(cluster.class(node), shape) {
        return 0;
    }
    times_by_all(&cluster.free(node), shape, || times_by_gpus(cluster, node, &shape.gpus))
}

/// How often a request fits the open GPUs of a node, ignoring constraints. [`u32::MAX`] for a
/// request without GPUs.
pub(crate) fn times_by_gpus(cluster: &Cluster, node: NodeId, demand: &GpuDemand) -> u32 {
    match demand {
        GpuDemand::Whole { count } => sets_of_identical(cluster.idle_gpus(node).into(), *count),
        demand => times_by_parts(cluster, cluster.class(node), cluster.gpus(node), demand),
    }
}

/// How many fit by plain resources and by GPUs.
fn times_by_all(free: &Resources, shape: &Shape, by_gpus: impl Fn() -> u32) -> u32 {
    // Idle GPUs are compared before any division. In a half-full cluster most nodes have too few of
    // them, and a refusal reads all nodes.
    if matches!(shape.gpus, GpuDemand::Whole { .. }) {
        let whole = by_gpus();
        return if whole == 0 { 0 } else { whole.min(shape.resources.times_in(free)) };
    }
    let most = shape.resources.times_in(free);
    if most == 0 { 0 } else { most.min(by_gpus()) }
}

/// How often a request for shares or instances fits these GPUs, in any order. [`u32::MAX`] for
/// other requests.
fn times_by_parts(
    cluster: &Cluster,
    class: &NodeClass,
    gpus: &[GpuFree],
    demand: &GpuDemand,
) -> u32 {
    let count = u32::from(demand.count());
    if count == 0 {
        return u32::MAX;
    }
    match demand {
        GpuDemand::None | GpuDemand::Whole { .. } => u32::MAX,
        GpuDemand::Share { milli, memory_mib, .. } => {
            let each = |gpu: &GpuFree| shares_in(gpu, *milli, *memory_mib);
            if count == 1 {
                return gpus.iter().map(each).fold(0, u32::saturating_add);
            }
            let available: SmallVec<[u32; 8]> = gpus.iter().map(each).collect();
            sets_of_distinct(&available, count)
        }
        GpuDemand::Mig { profile, .. } => {
            let model = cluster.models().get(usize::from(class.model.0));
            let Some(profile) = model.and_then(|model| model.profile(profile)) else { return 0 };
            let instances = gpus.iter().map(|gpu| instances_in(gpu, profile));
            instances.sum::<u32>() / count
        }
    }
}

/// Whether a share fits a GPU. A share without compute is best effort: it needs an unpartitioned
/// GPU and its memory. If memory is not counted, the GPU must not be allocated whole.
pub fn share_fits(gpu: &GpuFree, milli: u16, memory_mib: u32) -> bool {
    is_shareable(gpu, milli)
        && gpu.milli >= milli.max(u16::from(memory_mib == 0))
        && gpu.memory_mib >= memory_mib
}

/// Whether a GPU accepts a share with this compute, if enough is left.
fn is_shareable(gpu: &GpuFree, milli: u16) -> bool {
    !gpu.is_closed && gpu.slices.is_empty() && (milli < WHOLE || gpu.best_effort == 0)
}

/// How many instances of a profile a GPU can still have.
pub fn instances_in(gpu: &GpuFree, profile: &MigProfile) -> u32 {
    // A GPU of which shares are given out cannot be cut.
    let is_shared = gpu.slices.is_empty() && !gpu.is_unused();
    if gpu.is_closed || is_shared { 0 } else { profile.times_in(gpu.slices) }
}

impl GpuModel {
    /// The profile of that name.
    pub fn profile(&self, name: &str) -> Option<&MigProfile> {
        self.mig.iter().find(|profile| profile.name == name)
    }
}

fn has(count: usize, gpus: &[GpuFree], is_fit: impl Fn(&GpuFree) -> bool) -> bool {
    gpus.iter().filter(|gpu| is_fit(gpu)).take(count).count() == count
}

/// The number of equal shares that fit a GPU; unlimited for a share of nothing.
fn shares_in(gpu: &GpuFree, milli: u16, memory_mib: u32) -> u32 {
    let Some(by_compute) = u32::from(gpu.milli).checked_div(milli.into()) else {
        let by_memory = gpu.memory_mib.checked_div(memory_mib).unwrap_or(u32::MAX);
        return if share_fits(gpu, milli, memory_mib) { by_memory } else { 0 };
    };
    if !is_shareable(gpu, milli) {
        return 0;
    }
    // Whether one share fits is not tested first: the branch is unpredictable, and the quotient
    // gives the answer too. Memory is mostly in proportion, which saves the second division.
    if u64::from(by_compute) * u64::from(memory_mib) <= gpu.memory_mib.into() {
        return by_compute;
    }
    gpu.memory_mib.checked_div(memory_mib).map_or(by_compute, |by_memory| by_memory.min(by_compute))
}

/// The number of sets of `size` among `available` items; unlimited for empty sets.
fn sets_of_identical(available: u32, size: u16) -> u32 {
    match u32::from(size) {
        0 => u32::MAX,
        // Sparing the division, which is most of the cost.
        size if available < size => 0,
        size => available / size,
    }
}

/// The maximum number of sets of `size` distinct items, given the available number of each item.
/// `n` sets are possible exactly if the sum of `min(available, n)` is at least `n * size`.
fn sets_of_distinct(available: &[u32], size: u32) -> u32 {
    let is_possible = |n: u32| {
        let sum: u64 = available.iter().map(|have| u64::from(*have.min(&n))).sum();
        sum >= u64::from(n) * u64::from(size)
    };
    let sum = available.iter().fold(0_u32, |sum, more| sum.saturating_add(*more));
    let (mut possible, mut impossible) = (0, (sum / size).saturating_add(1));
    while impossible - possible > 1 {
        let middle = possible + (impossible - possible) / 2;
        if is_possible(middle) { possible = middle } else { impossible = middle }
    }
    possible
}

#[cfg(test)]
mod tests;
