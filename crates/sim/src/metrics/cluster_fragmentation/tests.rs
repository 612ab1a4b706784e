use octavo_engine::gpu::{GpuModel, Slices};
use octavo_engine::node::{NodeClass, NodeSpec};
use octavo_engine::{GpuDemand, GpuPart, Placement, Resources, Shape};
use proptest::prelude::*;

use super::*;

fn pod(cpu_milli: i64, milli: u16) -> Shape {
    Shape::new(Resources::of_pod(cpu_milli, 0), GpuDemand::of(1, milli))
}

/// Three nodes of four GPUs.
fn cluster() -> Cluster {
    let model = GpuModel {
        name: "G2".to_owned(),
        memory_mib: 0,
        idle_watts: 0,
        full_watts: 0,
        mig: Vec::new(),
    };
    let capacity = Resources { cpu_milli: 64_000, memory_mib: 0, pods: 100 };
    let class = NodeClass { capacity, gpus: 4, ..NodeClass::default() };
    let node = |name: &str| NodeSpec { name: name.into(), class: class.clone(), labels: [].into() };
    Cluster::new(vec![model], ["a", "b", "c"].map(node).into()).unwrap()
}

proptest! {
    /// The kept sum equals a recomputed one.
    #[test]
    fn the_sum_over_a_cluster_is_kept_as_nodes_change(
        steps in prop::collection::vec((0_u32..3, 0_u16..4, 1_u16..=10, 0_i64..12, 0..9_u8), 1..60),
    ) {
        let shapes = [pod(3000, 810), pod(11_000, 1000), pod(1000, 300)];
        let typical = TypicalPods::new(&[], shapes.iter().map(|shape| (shape, 1)));
        let mut cluster = cluster();
        let mut kept = ClusterFragmentation::new(Arc::new(typical.clone()));
        let mut placed: Vec<(Shape, Placement)> = Vec::new();
        for (node, gpu, tenths, cores, kind) in steps {
            match kind {
                0 => cluster.set_gpu_open(NodeId(node), gpu, tenths > 5).unwrap(),
                1..3 if !placed.is_empty() => {
                    let (shape, placement) = placed.remove(0);
                    cluster.release(&shape.resources, &placement).unwrap();
                }
                _ => {
                    let shape = pod(cores * 1000, tenths * 100);
                    let milli = shape.gpus.milli();
                    let part = GpuPart { gpu, milli, slices: Slices::NONE, memory_mib: 0 };
                    let gpus = [part].as_slice().into();
                    let placement = Placement { node: NodeId(node), gpus };
                    if cluster.place(&shape.resources, &placement).is_ok() {
                        placed.push((shape, placement));
                    }
                }
            }
            let recomputed = cluster.nodes().fold(typical.nothing(), |sum, node| {
                sum.plus(&typical.amounts(&NodeResidual::of_node(&cluster, node)))
            });
            prop_assert_eq!(kept.total(&cluster), recomputed);
        }
    }
}
