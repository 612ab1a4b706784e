//! Whether and how often a shape fits a node, by itself.

use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::gpu::{GpuFree, GpuModel, MigProfile, WHOLE};
use crate::node::NodeClass;
use crate::shape::{GpuDemand, Shape};

/// Whether pods of a shape may be on nodes of a class at all, whatever is free there.
pub fn is_allowed(class: &NodeClass, shape: &Shape) -> bool {
    class.marks.has_all(shape.needs)
        && shape.tolerates.has_all(class.refuses)
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

/// How many pods of a shape fit a node in this state together: exact for pods of this one shape.
/// At most [`Shape::resources`] allow; [`u32::MAX`] if the shape asks for nothing.
pub fn times(cluster: &Cluster, state: &NodeState, shape: &Shape) -> u32 {
    if !state.is_open {
        return 0;
    }
    let class = &cluster.classes()[state.class.0 as usize];
    if !is_allowed(class, shape) {
        return 0;
    }
    let count = u32::from(shape.gpus.count());
    // Whole GPUs are counted before anything is divided: in a cluster that is half full most nodes
    // have not enough of them, and a refusal looks at all.
    let whole = match &shape.gpus {
        GpuDemand::Whole { .. } if count > 0 => {
            let idle = state.gpus.iter().filter(|gpu| gpu.is_idle()).count();
            u32::try_from(idle).unwrap_or(u32::MAX) / count
        }
        _ => u32::MAX,
    };
    if whole == 0 {
        return 0;
    }
    let most = shape.resources.times_in(&state.free);
    match &shape.gpus {
        GpuDemand::None => most,
        _ if count == 0 || most == 0 => most,
        GpuDemand::Whole { .. } => most.min(whole),
        GpuDemand::Share { milli, memory_mib, .. } => {
            let each = |gpu: &GpuFree| shares_in(gpu, *milli, *memory_mib);
            let available: SmallVec<[u32; 8]> = state.gpus.iter().map(each).collect();
            most.min(teams(&available, count.max(1)))
        }
        GpuDemand::Mig { profile, .. } => {
            let model = cluster.models().get(usize::from(class.model.0));
            let Some(profile) = model.and_then(|model| model.profile(profile)) else { return 0 };
            let instances = state.gpus.iter().map(|gpu| instances_in(gpu, profile));
            most.min(instances.sum::<u32>() / count.max(1))
        }
    }
}

/// Whether a share can be had of a GPU. A share of no compute is one without a guarantee: it needs
/// a GPU that is not cut, and its memory; where memory is not counted, a GPU that is not given whole.
pub fn share_fits(gpu: &GpuFree, milli: u16, memory_mib: u32) -> bool {
    !gpu.is_closed
        && gpu.slices.is_empty()
        && gpu.milli >= milli.max(u16::from(memory_mib == 0))
        && (milli < WHOLE || gpu.best_effort == 0)
        && gpu.memory_mib >= memory_mib
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

/// How many equal shares a GPU has room for; a share of nothing at all has room without end.
fn shares_in(gpu: &GpuFree, milli: u16, memory_mib: u32) -> u32 {
    if !share_fits(gpu, milli, memory_mib) {
        return 0;
    }
    let compute = gpu.milli.checked_div(milli).map_or(u32::MAX, u32::from);
    let memory = gpu.memory_mib.checked_div(memory_mib).unwrap_or(u32::MAX);
    compute.min(memory)
}

/// The most teams of `size` members of different kinds, given how many there are of each kind: `n`
/// teams are possible exactly if the sum of `min(available, n)` is at least `n * size`.
fn teams(available: &[u32], size: u32) -> u32 {
    if size == 1 {
        return available.iter().fold(0, |sum, more| sum.saturating_add(*more));
    }
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
