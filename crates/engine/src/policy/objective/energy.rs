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

/// Power of a GPU model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuPower {
    /// Name, as in the openb trace.
    pub name: &'static str,
    /// Power of an idle GPU in watts.
    pub idle_watts: u32,
    /// Power of a GPU at work in watts.
    pub full_watts: u32,
}

/// Power of a CPU model, for each package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPower {
    /// Name.
    pub name: &'static str,
    /// Physical cores of a package.
    pub cores: u16,
    /// Power of an idle package in watts.
    pub idle_watts: u32,
    /// Power of a package at work in watts.
    pub full_watts: u32,
    /// GPU models of the nodes that have this CPU in the openb trace; `""`: nodes without GPUs.
    pub beside: &'static [&'static str],
}

/// Power of a node's CPUs, as a [`NodeClass`] has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePower {
    /// All packages idle, in watts.
    pub idle_watts: u32,
    /// All packages at work, in watts.
    pub full_watts: u32,
    /// Cores of a package.
    pub package_cores: u16,
}

/// GPU models with power published by PWR. G2 and G3 of the openb trace are unknown; PWR takes G2
/// as an A10 and G3 as an A100.
pub const GPUS: [GpuPower; 8] = [
    gpu("T4", 10, 70),
    gpu("A10", 30, 150),
    gpu("P100", 25, 250),
    gpu("V100M16", 30, 300),
    gpu("V100M32", 30, 300),
    gpu("A100", 50, 400),
    gpu("G2", 30, 150),
    gpu("G3", 50, 400),
];

/// CPU models whose power is published with PWR.
pub const CPUS: [CpuPower; 5] = [
    cpu("Intel-Xeon-8163", 24, 20, 165, &["T4"]),
    cpu("Intel-Xeon-ES-2682-V4", 16, 15, 120, &["P100", ""]),
    cpu("Intel-Xeon-6326", 16, 20, 185, &["V100M16", "V100M32"]),
    cpu("Intel-Xeon-8369B", 32, 20, 270, &["A10", "A100", "G2", "G3"]),
    cpu("Intel-Xeon-8269CY", 26, 20, 205, &[]),
];

const fn gpu(name: &'static str, idle_watts: u32, full_watts: u32) -> GpuPower {
    GpuPower { name, idle_watts, full_watts }
}

const fn cpu(
    name: &'static str,
    cores: u16,
    idle_watts: u32,
    full_watts: u32,
    beside: &'static [&'static str],
) -> CpuPower {
    CpuPower { name, cores, idle_watts, full_watts, beside }
}

/// Power of a GPU model of that name.
pub fn gpu_named(name: &str) -> Option<GpuPower> {
    GPUS.into_iter().find(|gpu| gpu.name == name)
}

/// Power of a CPU model of that name.
pub fn cpu_named(name: &str) -> Option<CpuPower> {
    CPUS.into_iter().find(|cpu| cpu.name == name)
}

/// The CPU model of nodes with this GPU model in the openb trace; `""`: nodes without GPUs.
pub fn cpu_beside(gpu: &str) -> Option<CpuPower> {
    CPUS.into_iter().find(|cpu| cpu.beside.contains(&gpu))
}

impl CpuPower {
    /// Power of a node with `cpu_milli` of this model.
    pub fn of_node(self, cpu_milli: i64) -> NodePower {
        let packages = packages(cores(cpu_milli), self.cores);
        let packages = u32::try_from(packages).unwrap_or(u32::MAX);
        NodePower {
            idle_watts: self.idle_watts.saturating_mul(packages),
            full_watts: self.full_watts.saturating_mul(packages),
            package_cores: self.cores,
        }
    }
}

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
