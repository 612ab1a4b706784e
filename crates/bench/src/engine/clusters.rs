//! Synthetic clusters: nodes of eight GPUs in racks of 16 and blocks of 8 racks, partly allocated
//! by a fixed rule.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use octavo_engine::gpu::{Slices, WHOLE};
use octavo_engine::node::{FeatureMask, NodeClass, NodeSet, NodeSpec};
use octavo_engine::topology::Level;
use octavo_engine::workload::{Coupling, Member, Profile};
use octavo_engine::{
    Cluster, Gang, GpuDemand, GpuModel, GpuPart, NodeId, Placement, Resources, Shape, Topology,
    Workload, Workloads, World,
};
use octavo_health::risk::RiskClass;

use crate::split_mix::SplitMix64;

/// GPUs of a node.
pub(super) const GPUS: u16 = 8;
/// Tenants of the running workloads.
const TENANTS: u32 = 50;
/// Gangs that wait beside the one that is decided on.
const WAITING_GANGS: u32 = 64;
/// Memory of a GPU in MiB.
const GPU_MEMORY: u32 = 81_559;

/// An empty cluster of `nodes` nodes, `per_rack` of them in a rack.
pub(super) fn empty(nodes: u32, per_rack: u32) -> anyhow::Result<World> {
    world((0..nodes).collect(), per_rack, FeatureMask::NONE)
}

/// What a node must have for a pod that neither ends nor yields before work on nodes, as the live scheduler marks it.
pub(super) const NO_WORK_AHEAD: FeatureMask = FeatureMask(1);

/// The same cluster, on one in ten of whose nodes work is ahead: all others have [`NO_WORK_AHEAD`]. Returns those nodes, too.
pub(super) fn with_work_ahead(nodes: u32, per_rack: u32) -> anyhow::Result<(World, NodeSet)> {
    let world = world((0..nodes).collect(), per_rack, NO_WORK_AHEAD)?;
    let ahead = world.cluster.nodes().filter(|node| is_ahead(node.0)).collect();
    Ok((world, ahead))
}

/// Whole racks: a rack of ten.
fn is_ahead(number: u32) -> bool {
    number / 16 % 10 == 3
}

/// Gives one GPU of twenty more than the usual risk.
pub(super) fn add_risks(world: &mut World) -> anyhow::Result<()> {
    let mut random = SplitMix64(5);
    let risks = [RiskClass::Raised, RiskClass::Raised, RiskClass::High, RiskClass::Extreme];
    for node in world.cluster.nodes() {
        for gpu in 0..GPUS {
            if random.below(20) == 0 {
                let risk = risks[usize::try_from(random.below(4))?];
                world.cluster.set_gpu_risk(node, gpu, risk)?;
            }
        }
    }
    Ok(())
}

/// The same cluster, with the nodes added in another order.
pub(super) fn shuffled(
    nodes: u32,
    per_rack: u32,
    random: &mut SplitMix64,
) -> anyhow::Result<World> {
    let mut numbers: Vec<u32> = (0..nodes).collect();
    for last in (1..numbers.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1))?;
        numbers.swap(last, other);
    }
    world(numbers, per_rack, FeatureMask::NONE)
}

/// A cluster whose nodes without work ahead have these features.
fn world(numbers: Vec<u32>, per_rack: u32, features: FeatureMask) -> anyhow::Result<World> {
    let model = GpuModel {
        name: "H100".to_owned(),
        memory_mib: GPU_MEMORY,
        idle_watts: 70,
        full_watts: 700,
        mig: Vec::new(),
    };
    let class = NodeClass {
        capacity: Resources { cpu_milli: 192_000, memory_mib: 2_000_000, pods: 110 },
        gpus: GPUS,
        cents_per_hour: 3_200,
        hazard_ppm: 30,
        ..NodeClass::default()
    };
    let spec = |number: u32| NodeSpec {
        name: format!("n{number:05}").into(),
        class: NodeClass {
            features: if is_ahead(number) { FeatureMask::NONE } else { features },
            ..class.clone()
        },
        labels: [
            ("block".to_owned(), format!("b{:03}", number / per_rack / 8)),
            ("rack".to_owned(), format!("r{:04}", number / per_rack)),
        ]
        .into(),
    };
    let specs: Vec<_> = numbers.into_iter().map(spec).collect();
    let labels: BTreeMap<_, _> =
        specs.iter().map(|node| (Arc::clone(&node.name), node.labels.clone())).collect();
    let cluster = Cluster::new(vec![model], specs)?;
    let levels = ["block", "rack"].map(|name| Level {
        name: name.into(),
        label: name.to_owned(),
        is_unique: true,
    });
    // By name, as the cluster gives ids.
    let topology = Topology::from_labels(&levels, labels.values())?;
    Ok(World { cluster, topology, workloads: Workloads::default() })
}

/// Running workloads of a half-full cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// Whole GPUs and halves with proportional CPU: many nodes are equal.
    Alike,
    /// Shares of ten sizes with their own CPU and memory: hardly any two nodes are equal.
    Varied,
}

/// Gives about half of the GPUs to running workloads: zero to eight of each node, one in five of them
/// shared. Each workload is a pod of one of [`TENANTS`] tenants.
pub(super) fn fill_half(world: &mut World, mix: Mix) -> anyhow::Result<()> {
    let mut random = SplitMix64(7);
    for node in world.cluster.nodes() {
        let taken = u16::try_from(random.below(u64::from(GPUS) + 1))?;
        for gpu in 0..taken {
            let tenths = match mix {
                Mix::Alike if random.below(5) == 0 => 5,
                Mix::Alike => 10,
                Mix::Varied => 1 + u16::try_from(random.below(10))?,
            };
            let (milli, memory_mib) = (100 * tenths, GPU_MEMORY / 10 * u32::from(tenths));
            let memory_mib = if milli == WHOLE { GPU_MEMORY } else { memory_mib };
            let resources = match mix {
                Mix::Alike => Resources::of_pod(8_000, 64_000),
                Mix::Varied => {
                    let cores = i64::try_from(1 + random.below(15))?;
                    Resources::of_pod(1_000 * cores, 8_000 * cores)
                }
            };
            let gpus = if milli == WHOLE {
                GpuDemand::Whole { count: 1 }
            } else {
                GpuDemand::Share { count: 1, milli, memory_mib }
            };
            let part = GpuPart { gpu, milli, slices: Slices::NONE, memory_mib };
            run_pod(world, node, part, Arc::new(Shape::new(resources, gpus)))?;
        }
    }
    Ok(())
}

/// Runs a workload of one pod on a GPU of a node.
pub(super) fn run_pod(
    world: &mut World,
    node: NodeId,
    part: GpuPart,
    shape: Arc<Shape>,
) -> anyhow::Result<()> {
    let mut profile = Profile::new(format!("job-{}-{}", node.0, part.gpu));
    profile.tenant = format!("team-{}", node.0 % TENANTS).into();
    let placement = Placement { node, gpus: [part].as_slice().into() };
    world.cluster.place(&shape.resources, &placement).context("fill the cluster")?;
    let (coupling, members) =
        (Coupling::default(), vec![Some(Member { shape, placement, limit: None })]);
    let job = Workload { profile, min_members: 1, coupling, members };
    anyhow::ensure!(world.workloads.add(job).is_some(), "two workloads of one name");
    Ok(())
}

/// Other gangs that wait, of different sizes and tenants: as many as the live scheduler considers.
pub(super) fn waiting_gangs() -> Vec<Gang> {
    let gang = |number: u32| {
        let count = 1 + u16::try_from(number % u32::from(GPUS)).unwrap_or_default();
        let shape = pod(GpuDemand::Whole { count });
        let mut gang = Gang::new(format!("waiting-{number}"), (*shape).clone(), 1 + number);
        gang.profile.tenant = format!("team-{}", number % TENANTS).into();
        gang
    };
    (0..WAITING_GANGS).map(gang).collect()
}

/// A pod of some GPUs with CPU and memory in proportion.
pub(super) fn pod(gpus: GpuDemand) -> Arc<Shape> {
    let eighths = (gpus.total_milli() / 1000).max(1);
    Arc::new(Shape::new(Resources::of_pod(8_000 * eighths, 64_000 * eighths), gpus))
}

/// Gives some GPUs of each node to running workloads, by random draws.
pub(super) fn fill_some(world: &mut World, random: &mut SplitMix64) -> anyhow::Result<()> {
    let shape = pod(GpuDemand::Whole { count: 1 });
    for node in world.cluster.nodes() {
        for gpu in 0..u16::try_from(random.below(u64::from(GPUS) + 1))? {
            run_pod(world, node, whole_gpu(gpu), Arc::clone(&shape))?;
        }
    }
    Ok(())
}

/// A whole GPU of a node.
pub(super) fn whole_gpu(gpu: u16) -> GpuPart {
    GpuPart { gpu, milli: WHOLE, slices: Slices::NONE, memory_mib: GPU_MEMORY }
}
