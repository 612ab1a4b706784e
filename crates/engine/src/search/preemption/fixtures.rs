//! Small worlds for tests: racks of equal nodes, and workloads on given nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::World;
use crate::cluster::Cluster;
use crate::gang::Gang;
use crate::gpu::GpuModel;
use crate::node::{NodeClass, NodeId, NodeSpec};
use crate::pick;
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::topology::{Level, LevelId, Topology};
use crate::workload::{Coupling, Member, Profile, Workload, WorkloadId};

/// The level of racks.
pub(crate) const RACK: LevelId = LevelId(1);

/// Racks with these numbers of nodes, and `gpus` GPUs on each node. Node ids follow the racks.
pub(crate) fn world(racks: &[u32], gpus: u16) -> World {
    let model = GpuModel {
        name: "H".to_owned(),
        memory_mib: 80_000,
        idle_watts: 0,
        full_watts: 0,
        mig: Vec::new(),
    };
    let capacity = Resources { cpu_milli: 64_000, memory_mib: 640_000, pods: 64 };
    let class = NodeClass { capacity, gpus, ..NodeClass::default() };
    let mut nodes = Vec::new();
    for (rack, count) in racks.iter().enumerate() {
        for _ in 0..*count {
            nodes.push(NodeSpec {
                name: format!("n{:02}", nodes.len()).into(),
                class: class.clone(),
                labels: [("rack".to_owned(), format!("r{rack}"))].into(),
            });
        }
    }
    let labels: Vec<BTreeMap<String, String>> =
        nodes.iter().map(|node| node.labels.clone()).collect();
    // The input order is irrelevant: ids follow names.
    nodes.reverse();
    let level = Level { name: "rack".into(), label: "rack".to_owned(), is_unique: true };
    World {
        cluster: Cluster::new(vec![model], nodes).unwrap(),
        topology: Topology::from_labels(&[level], &labels).unwrap(),
        workloads: crate::Workloads::default(),
    }
}

/// A pod with whole GPUs.
pub(crate) fn whole(count: u16) -> Shape {
    Shape::new(Resources::of_pod(1000, 1000), GpuDemand::of(count, 1000))
}

/// A pod with a share of one GPU.
pub(crate) fn share(milli: u16) -> Shape {
    Shape::new(Resources::of_pod(1000, 1000), GpuDemand::of(1, milli))
}

/// A gang that must be in one rack.
pub(crate) fn in_a_rack(name: &str, gpus: u16, count: u32) -> Gang {
    let mut gang = Gang::new(name, whole(gpus), count);
    gang.profile.topology.required = Some(RACK);
    gang
}

/// Runs a workload with a member on each of these nodes.
pub(crate) fn run(
    world: &mut World,
    profile: Profile,
    min_members: u32,
    shape: &Shape,
    nodes: &[u32],
) -> WorkloadId {
    let shape = Arc::new(shape.clone());
    let mut members = Vec::new();
    for node in nodes {
        let placement = pick::default_placement(&world.cluster, NodeId(*node), &shape).unwrap();
        world.cluster.place(&shape.resources, &placement).unwrap();
        members.push(Some(Member { shape: Arc::clone(&shape), placement, limit: None }));
    }
    let coupling = Coupling::default();
    world.workloads.add(Workload { profile, min_members, coupling, members }).unwrap()
}

/// Runs a single pod with a priority.
pub(crate) fn pod(
    world: &mut World,
    name: &str,
    priority: i32,
    gpus: u16,
    node: u32,
) -> WorkloadId {
    let profile = Profile { priority, ..Profile::new(name) };
    run(world, profile, 1, &whole(gpus), &[node])
}

/// The nodes of a workload's members, by rank.
pub(crate) fn nodes_of(world: &World, id: WorkloadId) -> Vec<Option<u32>> {
    let members = &world.workloads.workload(id).unwrap().members;
    members.iter().map(|one| one.as_ref().map(|one| one.placement.node.0)).collect()
}

/// Free capacity and running workloads as text, to detect changes.
pub(crate) fn snapshot(world: &World) -> String {
    let nodes: Vec<_> = world
        .cluster
        .nodes()
        .map(|node| (world.cluster.free(node), world.cluster.gpus(node).to_vec()))
        .collect();
    format!("{nodes:?} {:?}", world.workloads)
}
