//! Power of nodes, by the model of PWR (Lettich et al., "Power- and Fragmentation-aware Online
//! Scheduling for GPU Datacenters", arXiv 2412.17484).
//!
//! * A GPU draws full power as soon as any part of it is allocated, and idle power otherwise. The
//!   model overstates lightly used shares: it tells which GPUs and packages are awake, not how hard
//!   they work.
//! * A CPU package draws power the same way. Pods fill the cores of a node package by package. A
//!   core is two thousand milli-CPU (two threads).
//! * Closed nodes and GPUs draw power too.
//!
//! Watts are whole numbers.

#[cfg(test)]
mod tests;

use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::gpu::{GpuFree, GpuModel};
use crate::node::NodeClass;
use crate::resources::Resources;

/// Milli-CPU of a physical core.
const MILLI_CPU_PER_CORE: i64 = 2000;

/// Cores that a node has; a core begun counts.
fn cores(cpu_milli: i64) -> i64 {
    let cpu_milli = cpu_milli.max(0);
    cpu_milli / MILLI_CPU_PER_CORE + i64::from(cpu_milli % MILLI_CPU_PER_CORE > 0)
}

/// Packages for this number of cores; a partly used package counts.
fn packages(cores: i64, package_cores: u16) -> i64 {
    match i64::from(package_cores) {
        0 => i64::from(cores > 0),
        each => cores / each + i64::from(cores % each > 0),
    }
}

/// Power of a node's CPUs in watts, given its free resources.
pub fn cpu_watts(class: &NodeClass, free: &Resources) -> i64 {
    let all = cores(class.capacity.cpu_milli);
    let at_work = all - (free.cpu_milli.max(0) / MILLI_CPU_PER_CORE).min(all);
    let (idle, full) = (i64::from(class.idle_watts), i64::from(class.full_watts));
    let count = packages(all, class.package_cores);
    if count == 0 {
        return idle;
    }
    let awake = packages(at_work, class.package_cores);
    (idle * (count - awake) + full * awake) / count
}

/// Power of GPUs of a model in watts; 0 for an unknown model.
pub fn gpu_watts(model: Option<&GpuModel>, gpus: &[GpuFree]) -> i64 {
    let Some(model) = model else { return 0 };
    let watts = |gpu: &GpuFree| if gpu.is_unused() { model.idle_watts } else { model.full_watts };
    gpus.iter().map(|gpu| i64::from(watts(gpu))).sum()
}

/// Power of a node in this state, in watts.
pub fn watts(cluster: &Cluster, state: &NodeState) -> i64 {
    let class = &cluster.classes()[state.class.0 as usize];
    let model = cluster.models().get(usize::from(class.model.0));
    cpu_watts(class, &state.free) + gpu_watts(model, &state.gpus)
}

/// Power of all nodes if nothing ran, in watts.
pub fn idle_watts(cluster: &Cluster) -> i64 {
    let idle = |class: &NodeClass| {
        let model = cluster.models().get(usize::from(class.model.0));
        let gpus = i64::from(class.gpus) * model.map_or(0, |model| i64::from(model.idle_watts));
        i64::from(class.idle_watts) + gpus
    };
    cluster.nodes().map(|node| idle(cluster.class(node))).sum()
}
