//! The cost of a decision in each term.
//!
//! | term | counted | rounding |
//! | --- | --- | --- |
//! | podsDisturbed | pods moved and pods evicted | none |
//! | hops | hops from each member to the next by rank, and from the last to the first | none |
//! | preferencesMissed | points that each member's node misses ([`crate::gang::Group::penalties`]) | none |
//! | gpuRisk | by GPU that members get, its hazard above that of a usual one, in parts per million an hour | by class |
//! | gpuMilliStranded | increase of fragmentation, summed over the changed nodes ([`crate::fragmentation`]) | by node |
//! | packingPrice | the same in millionths of GPUs; for a single pod the packing policy's own price | by node |
//! | watts | increase of the nodes' power ([`crate::objective::energy`]) | none |
//! | centsPerHour | increase of the nodes' spend ([`cents`]) | up, by node |
//! | fairnessDeficit | sum of all tenants' deficits afterwards ([`crate::objective::fairness`]) | none |
//! | expectedLostGpuSeconds | per hour: hazard of each node, and gpuRisk, times compute of the gang times seconds at risk | to the nearest, once |
//!
//! All except hops, preferences, risk, the deficit and the expected loss are differences. They may be negative if
//! resources are released.

mod change;
mod policy_cost_model;
mod spare_nodes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use change::Change;
pub use policy_cost_model::PolicyCostModel;

use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::gang::Gang;
use crate::node::NodeId;
use crate::placement::Placement;
use crate::plan::Placed;

/// Parts per million.
const MILLION: i128 = 1_000_000;

/// Spend on a node in this state, in cents per hour, rounded up. It is the node's price times the
/// larger of the allocated parts of its GPUs and of its CPU. For a GPU the larger of compute and
/// memory counts, since either blocks other pods.
///
/// The allocations of a node therefore never cost more than the node. A pod that uses CPU beside
/// paid GPUs adds no cost.
pub fn cents(cluster: &Cluster, state: &NodeState) -> i64 {
    let class = &cluster.classes()[state.class.0 as usize];
    let memory =
        cluster.models().get(usize::from(class.model.0)).map_or(0, |model| model.memory_mib);
    let whole = i128::from(crate::gpu::WHOLE);
    // Taken and all there is, each as a fraction; compared crosswise.
    let gpu = |gpu: &crate::gpu::GpuFree| {
        let milli = whole - i128::from(gpu.milli);
        let taken = i128::from(memory.saturating_sub(gpu.memory_mib));
        milli.max((taken * whole).checked_div(i128::from(memory)).unwrap_or(0))
    };
    let gpus: i128 = state.gpus.iter().map(gpu).sum();
    let all_gpus = whole * i128::from(class.gpus);
    let all_cpu = i128::from(class.capacity.cpu_milli.max(0));
    let cpu = (all_cpu - i128::from(state.free.cpu_milli)).clamp(0, all_cpu);
    let (taken, all) = if gpus * all_cpu >= cpu * all_gpus && all_gpus > 0 {
        (gpus, all_gpus)
    } else {
        (cpu, all_cpu)
    };
    if all == 0 {
        return 0;
    }
    let parts = i128::from(class.cents_per_hour) * taken;
    i64::try_from(parts / all + i128::from(parts % all > 0)).unwrap_or(i64::MAX)
}

/// Expected loss of a gang in GPU-seconds per hour, rounded to the nearest. When one of its nodes or
/// GPUs fails, all members lose `seconds_at_risk`. A node or GPU with several members counts once.
pub fn expected_loss<'a>(
    cluster: &Cluster,
    placements: impl IntoIterator<Item = &'a Placement, IntoIter: Clone>,
    gang_milli: i64,
    seconds_at_risk: u32,
) -> i64 {
    let placements = placements.into_iter();
    let risk = gpu_risk(cluster, placements.clone());
    let nodes: BTreeSet<NodeId> = placements.map(|placement| placement.node).collect();
    let hazard: i128 = nodes.iter().map(|node| i128::from(cluster.class(*node).hazard_ppm)).sum();
    let hazard = hazard + i128::from(risk);
    let loss = hazard * i128::from(gang_milli) * i128::from(seconds_at_risk);
    let unit = MILLION * i128::from(crate::gpu::WHOLE);
    i64::try_from((loss + unit / 2) / unit).unwrap_or(i64::MAX)
}

/// The chance that a GPU of these placements fails within an hour beyond that of usual GPUs, in parts
/// per million. A GPU with several members counts once.
pub fn gpu_risk<'a>(cluster: &Cluster, placements: impl IntoIterator<Item = &'a Placement>) -> i64 {
    if cluster.risky_nodes().is_empty() {
        return 0;
    }
    let risky =
        placements.into_iter().filter(|placement| cluster.risky_nodes().contains(&placement.node));
    let gpus: BTreeSet<(NodeId, u16)> = risky
        .flat_map(|placement| placement.gpus.iter().map(|part| (placement.node, part.gpu)))
        .collect();
    let excess = |(node, gpu): &(NodeId, u16)| {
        let gpu = cluster.gpus(*node).get(usize::from(*gpu));
        i64::from(gpu.map_or(0, crate::gpu::GpuFree::excess_hazard_ppm))
    };
    gpus.iter().map(excess).sum()
}

/// Points of preferences that placed members miss.
fn preferences_missed(gang: &Gang, placed: &[Placed]) -> i64 {
    let penalty = |placed: &Placed| {
        let group = gang.groups.get(placed.group as usize)?;
        Some(i64::from(group.penalty(placed.placement.node)))
    };
    placed.iter().filter_map(penalty).sum()
}

/// Whether a node in this state is spare: open, with GPUs, and all of them idle. Pods without GPUs
/// are ignored, because every node runs some.
pub fn is_spare(cluster: &Cluster, state: &NodeState) -> bool {
    let class = &cluster.classes()[state.class.0 as usize];
    state.is_open && class.gpus > 0 && state.gpus.iter().all(crate::gpu::GpuFree::is_idle)
}
