//! The default list of openb, the trace of the paper, for tests that compare with the authors' code.

use crate::cluster::Cluster;
use crate::fragmentation::{TypicalPods, without};
use crate::gpu::{GpuFree, GpuModel, Slices};
use crate::node::{NodeClass, NodeId, NodeSpec};
use crate::placement::{GpuPart, GpuParts, Placement};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};

const PODS: &str = include_str!("../../../../../sim/data/openb/openb_pod_list_default.csv");

/// Shapes of the list's pods.
pub(super) fn shapes() -> Vec<Shape> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<i64>().unwrap();
        pod(number(1), u16::try_from(number(3)).unwrap(), u16::try_from(number(4)).unwrap())
    };
    PODS.lines().skip(1).map(row).collect()
}

/// A pod without memory, which is irrelevant here.
pub(super) fn pod(cpu_milli: i64, count: u16, milli: u16) -> Shape {
    Shape::new(Resources::of_pod(cpu_milli, 0), GpuDemand::of(count, milli))
}

pub(super) fn typical() -> TypicalPods {
    let shapes = shapes();
    TypicalPods::new(&[model()], shapes.iter().map(|shape| (shape, 1)))
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
