//! A small world, policies and shapes for tests of decisions about one pod.

use std::sync::Arc;

use serde_json::json;

use crate::World;
use crate::cluster::Cluster;
use crate::gpu::{GpuModel, MigProfile, ModelId, Slices};
use crate::node::{Links, NodeClass, NodeId, NodeSpec};
use crate::objective::policy::PlacementPolicy;
use crate::placement::{GpuPart, Placement};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::topology::{Level, Topology};
use crate::workload::Workloads;

/// Racks of two nodes: even ones with four GPUs each, odd ones with one cheap GPU each.
pub(in crate::search) fn world(nodes: u32) -> World {
    let model = |name: &str, idle_watts, full_watts| GpuModel {
        name: name.to_owned(),
        memory_mib: 16_000,
        idle_watts,
        full_watts,
        mig: vec![
            MigProfile {
                name: "1g".to_owned(),
                milli: 250,
                memory_mib: 4000,
                size: 2,
                starts: vec![0, 2, 4, 6],
                has_media: false,
            },
            MigProfile {
                name: "2g".to_owned(),
                milli: 500,
                memory_mib: 8000,
                size: 4,
                starts: vec![0, 4],
                has_media: false,
            },
        ],
    };
    let node = |number: u32| {
        let is_large = (number / 2).is_multiple_of(2);
        let class = NodeClass {
            capacity: Resources { cpu_milli: 16_000, memory_mib: 64_000, pods: 8 },
            gpus: if is_large { 4 } else { 1 },
            model: ModelId(u8::from(!is_large)),
            links: Links(if number == 1 { vec![vec![0, 0, 1, 1]] } else { Vec::new() }),
            cents_per_hour: if is_large { 400 } else { 80 },
            idle_watts: 40,
            full_watts: 200,
            package_cores: 4,
            hazard_ppm: 100 * number,
            ..NodeClass::default()
        };
        let labels = [("rack".to_owned(), format!("r{}", number / 2))].into();
        NodeSpec { name: format!("n{number}").into(), class, labels }
    };
    let nodes: Vec<_> = (0..nodes).map(node).collect();
    let levels = [Level { name: "rack".into(), label: "rack".to_owned(), is_unique: false }];
    let topology = Topology::from_labels(&levels, nodes.iter().map(|node| &node.labels)).unwrap();
    let models = vec![model("big", 50, 400), model("small", 10, 70)];
    let cluster = Cluster::new(models, nodes).unwrap();
    World { cluster, topology, workloads: Workloads::default() }
}

pub(in crate::search) fn at(node: u32, parts: &[(u16, u16)]) -> Placement {
    let part = |&(gpu, milli)| GpuPart { gpu, milli, slices: Slices::NONE, memory_mib: 0 };
    Placement { node: NodeId(node), gpus: parts.iter().map(part).collect() }
}

pub(in crate::search) fn policy(
    order: &serde_json::Value,
    constraints: &serde_json::Value,
) -> PlacementPolicy {
    let value = json!({ "name": "test", "order": order, "constraints": constraints });
    serde_json::from_value(value).unwrap()
}

pub(in crate::search) fn shape(cpu_milli: i64, gpus: GpuDemand) -> Arc<Shape> {
    Arc::new(Shape::new(Resources::of_pod(cpu_milli, 0), gpus))
}
