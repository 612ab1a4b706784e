//! Clusters and pods for tests that compare with the authors' code.

use std::path::Path;

use octavo_engine::cluster::Cluster;
use octavo_engine::fragmentation::{TypicalPods, without};
use octavo_engine::gpu::{GpuFree, GpuModel, Slices};
use octavo_engine::node::{NodeClass, NodeId, NodeSpec};
use octavo_engine::placement::{GpuPart, GpuParts, Placement};
use octavo_engine::resources::Resources;
use octavo_engine::shape::{GpuDemand, Shape};

use crate::trace::Trace;
use crate::trace_cluster;

/// A pod without memory, which is irrelevant here.
pub(super) fn pod(cpu_milli: i64, count: u16, milli: u16) -> Shape {
    Shape::new(Resources::of_pod(cpu_milli, 0), GpuDemand::of(count, milli))
}

/// The typical pods of openb's default list, without memory.
pub(super) fn typical() -> TypicalPods {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/openb");
    let [nodes, pods] = ["openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"];
    let trace = Trace::read(&folder.join(nodes), &folder.join(pods)).unwrap();
    trace_cluster::typical(&trace, &trace_cluster::shapes(&trace))
}

pub(super) fn model() -> GpuModel {
    let name = "G2".to_owned();
    GpuModel { name, memory_mib: 0, idle_watts: 0, full_watts: 0, mig: Vec::new() }
}

/// Nodes by their free CPU and the free thousandths of their GPUs.
pub(super) fn cluster(nodes: &[(i64, &[u16])]) -> Cluster {
    let spec = |(number, (cpu_milli, left)): (usize, &(i64, &[u16]))| {
        let capacity = Resources { cpu_milli: *cpu_milli, memory_mib: 0, pods: 1000 };
        let gpus = u16::try_from(left.len()).unwrap();
        let class = NodeClass { capacity, gpus, ..NodeClass::default() };
        NodeSpec { name: format!("n{number:03}").into(), class, labels: [].into() }
    };
    let specs = nodes.iter().enumerate().map(spec).collect();
    let mut cluster = Cluster::new(vec![model()], specs).unwrap();
    for (node, (_, left)) in (0..).map(NodeId).zip(nodes) {
        let part = |(gpu, left): (u16, &u16)| GpuPart {
            gpu,
            milli: 1000 - left,
            slices: Slices::NONE,
            memory_mib: 0,
        };
        let gpus: GpuParts = (0..).zip(*left).map(part).collect();
        let before: Vec<GpuFree> = cluster.gpus(node).to_vec();
        assert!(without(&before, &gpus).iter().zip(*left).all(|(gpu, left)| gpu.milli == *left));
        cluster.place(&Resources::default(), &Placement { node, gpus }).unwrap();
    }
    cluster
}
