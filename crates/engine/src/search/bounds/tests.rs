use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::bounds::relaxation::RelaxedFit;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::gang::Segment;
use crate::gpu::{GpuFree, GpuModel, Slices};
use crate::node::{FeatureMask, NodeClass, NodeId, NodeSpec};
use crate::placement::{GpuPart, Placement};
use crate::resources::Resources;
use crate::shape::GpuDemand;
use crate::topology::{DomainId, Level, LevelId};

const PATHS: [&[(&str, &str)]; 5] = [
    &[("block", "b1"), ("rack", "r1")],
    &[("block", "b1"), ("rack", "r2")],
    &[("block", "b2"), ("rack", "r1")],
    &[("block", "b2")],
    &[],
];

/// Nodes of four GPUs at these paths.
fn parts(paths: &[usize]) -> (Cluster, Topology) {
    let model = GpuModel {
        name: "G".to_owned(),
        memory_mib: 0,
        idle_watts: 0,
        full_watts: 0,
        mig: Vec::new(),
    };
    let capacity = Resources { cpu_milli: 16_000, memory_mib: 100, pods: 10 };
    let class = NodeClass { capacity, gpus: 4, ..NodeClass::default() };
    let labels = |path: &usize| -> BTreeMap<String, String> {
        PATHS[*path].iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let spec = |(number, path): (usize, &usize)| NodeSpec {
        name: format!("n{number:02}").into(),
        class: class.clone(),
        labels: labels(path),
    };
    let specs: Vec<_> = paths.iter().enumerate().map(spec).collect();
    let levels = ["block", "rack"].map(|name| Level {
        name: name.into(),
        label: name.into(),
        is_unique: false,
    });
    let topology = Topology::from_labels(&levels, specs.iter().map(|spec| &spec.labels)).unwrap();
    (Cluster::new(vec![model], specs).unwrap(), topology)
}

fn shape(count: u16, milli: u16) -> Arc<Shape> {
    Arc::new(Shape::new(Resources::of_pod(1000, 0), GpuDemand::of(count, milli)))
}

fn give(cluster: &mut Cluster, node: u32, gpu: u16, milli: u16) {
    let part = GpuPart { gpu, milli, slices: Slices::NONE, memory_mib: 0 };
    let placement = Placement { node: NodeId(node), gpus: [part].as_slice().into() };
    // A placement that does not fit is skipped.
    let _ = cluster.place(&Resources::of_pod(1000, 0), &placement);
}

/// Pods of a shape that fit the nodes of a domain.
fn count(
    bounds: &mut Bounds,
    cluster: &Cluster,
    topology: &Topology,
    shape: &Arc<Shape>,
    domain: DomainId,
) -> u64 {
    bounds.set_topology(topology);
    bounds.column(cluster, topology, shape).sums().get(domain.0 as usize).copied().unwrap_or(0)
}

#[test]
fn domains_sum_up_what_their_nodes_hold() {
    let (mut cluster, topology) = parts(&[0, 0, 1, 2, 3, 4]);
    let mut bounds = Bounds::default();
    let two = shape(2, 1000);
    let mut count =
        |cluster: &Cluster, domain| self::count(&mut bounds, cluster, &topology, &two, domain);
    assert_eq!(count(&cluster, Topology::ROOT), 12);
    let (rack, _) = topology.at(LevelId(2)).next().unwrap();
    assert_eq!((topology.path(rack), count(&cluster, rack)), ("b1/r1".to_owned(), 4));
    give(&mut cluster, 0, 0, 100);
    give(&mut cluster, 1, 0, 100);
    cluster.set_open(NodeId(1), false).unwrap();
    assert_eq!(count(&cluster, rack), 1);
    assert_eq!(count(&cluster, Topology::ROOT), 9);
}

#[test]
fn segments_do_not_join_over_domains_and_loose_nodes_have_none() {
    let (cluster, topology) = parts(&[0, 0, 1, 2, 3, 4]);
    let mut bounds = Bounds::default();
    bounds.set_topology(&topology);
    let column = bounds.column(&cluster, &topology, &shape(1, 1000));
    let whole = |size, level| {
        let segment = Segment { size, level: LevelId(level) };
        let whole = column::segments(&topology, column.sums(), segment);
        topology
            .domains()
            .map(|(id, _)| (topology.path(id), whole[id.0 as usize]))
            .collect::<Vec<_>>()
    };
    let named =
        |names: [(&str, u64); 6]| names.map(|(name, count)| (name.to_owned(), count)).to_vec();
    assert_eq!(
        whole(3, 2),
        named([("cluster", 4), ("b1", 3), ("b2", 1), ("b1/r1", 2), ("b1/r2", 1), ("b2/r1", 1)])
    );
    assert_eq!(
        whole(3, 1),
        named([("cluster", 6), ("b1", 4), ("b2", 2), ("b1/r1", 2), ("b1/r2", 1), ("b2/r1", 1)])
    );
}

#[test]
fn the_shape_that_was_asked_for_least_recently_goes() {
    let (cluster, topology) = parts(&[0, 1]);
    let mut bounds = Bounds::new(2);
    for gpus in [1, 2, 1, 3, 1] {
        let room = count(&mut bounds, &cluster, &topology, &shape(gpus, 1000), Topology::ROOT);
        assert_eq!(room, u64::from(8 / gpus / 2 * 2).max(2));
    }
    assert_eq!(bounds.columns.len(), 2);
    assert!(bounds.columns.contains_key(&shape(1, 1000)));
    assert!(!bounds.columns.contains_key(&shape(2, 1000)));
}

#[test]
fn another_topology_is_noticed() {
    let (cluster, topology) = parts(&[0, 1]);
    let mut bounds = Bounds::default();
    let one = shape(1, 1000);
    assert_eq!(count(&mut bounds, &cluster, &topology, &one, crate::DomainId(1)), 8);
    assert_eq!(count(&mut bounds, &cluster, &Topology::flat(2), &one, Topology::ROOT), 8);
    assert_eq!(count(&mut bounds, &cluster, &Topology::flat(2), &one, crate::DomainId(1)), 0);
}

#[test]
fn added_node_counts_once_it_is_in_the_topology() {
    let (mut cluster, _) = parts(&[0, 1]);
    let mut bounds = Bounds::default();
    let one = shape(1, 1000);
    assert_eq!(count(&mut bounds, &cluster, &Topology::flat(2), &one, Topology::ROOT), 8);
    let class = cluster.class(NodeId(0)).clone();
    let node = NodeSpec { name: "new".into(), class, labels: BTreeMap::new() };
    cluster.add_node(&node).unwrap();
    assert_eq!(count(&mut bounds, &cluster, &Topology::flat(2), &one, Topology::ROOT), 8);
    assert_eq!(count(&mut bounds, &cluster, &Topology::flat(3), &one, Topology::ROOT), 12);
}

proptest! {
    /// Incremental sums equal recounted ones in any order of changes and lookups.
    #[test]
    fn kept_sums_equal_new_ones(
        paths in prop::collection::vec(0_usize..5, 1..8),
        changes in prop::collection::vec((0_u32..8, 0_u16..4, 1_u16..=1000, 0_u8..4), 0..60),
    ) {
        let (mut cluster, topology) = parts(&paths);
        let count = u32::try_from(paths.len()).unwrap();
        let mut bounds = Bounds::new(2);
        let shapes = [shape(1, 1000), shape(2, 300), shape(0, 0)];
        for (node, gpu, milli, kind) in changes {
            let node = node % count;
            match kind {
                0 => {
                    let is_open = cluster.is_open(NodeId(node));
                    cluster.set_open(NodeId(node), !is_open).unwrap();
                }
                1 => cluster.set_gpu_open(NodeId(node), gpu, milli % 2 == 0).unwrap(),
                _ => give(&mut cluster, node, gpu, milli),
            }
            let shape = &shapes[usize::from(gpu) % 3];
            bounds.set_topology(&topology);
            let column = bounds.column(&cluster, &topology, shape);
            for (id, _) in topology.domains() {
                let times = topology.nodes(id).iter().map(|node| {
                    let state = cluster.states().state(cluster.state(*node)).unwrap();
                    u64::from(fit::times(&cluster, state, shape))
                });
                prop_assert_eq!(column.sums()[id.0 as usize], times.sum::<u64>());
            }
        }
    }

    /// Relaxed counts per node equal those of the node states.
    #[test]
    fn yardsticks_say_what_states_would_hold(
        changes in prop::collection::vec((0_u32..6, 0_u16..4, 1_u16..=1000, 0_u8..6), 0..40),
    ) {
        let (mut cluster, topology) = parts(&[0, 1, 1, 2, 3, 4]);
        for (node, gpu, milli, kind) in changes {
            let id = NodeId(node);
            let mut class = cluster.class(id).clone();
            match kind {
                0 => cluster.set_open(id, milli % 3 != 0).unwrap(),
                1 => cluster.set_gpu_open(id, gpu, milli % 2 == 0).unwrap(),
                2 => {
                    class.capacity.cpu_milli = i64::from(milli) * 20;
                    class.taints = FeatureMask(u64::from(milli % 4 == 0));
                    cluster.set_class(id, &class).unwrap();
                }
                _ => give(&mut cluster, node, gpu, if milli % 2 == 0 { 1000 } else { milli }),
            }
        }
        for shape in [shape(1, 1000), shape(2, 1000), shape(1, 300), shape(2, 300), shape(0, 0)] {
            let pods = |resources| Shape { resources, ..(*shape).clone() };
            let no_gpus = Shape { gpus: GpuDemand::None, ..(*shape).clone() };
            let mut measures = [Relaxation::Empty, Relaxation::GpusOnly, Relaxation::PlainResourcesOnly]
                .map(|relaxation| RelaxedFit::new(&cluster, &shape, relaxation));
            for node in topology.order() {
                let state = cluster.states().state(cluster.state(*node)).unwrap();
                let class = cluster.class(*node);
                let idle = |gpu: &GpuFree| {
                    let idle = GpuFree::idle(&cluster.models()[0]);
                    GpuFree { is_closed: gpu.is_closed, ..idle }
                };
                let gpus = state.gpus.iter().map(idle).collect();
                let empty = NodeState { free: class.capacity, gpus, ..state.clone() };
                let counted = measures.each_mut().map(|relaxed_fit| relaxed_fit.times(*node));
                let expected = [
                    fit::times(&cluster, &empty, &shape),
                    fit::times(&cluster, state, &pods(Resources::default())),
                    fit::times(&cluster, state, &no_gpus),
                ];
                prop_assert_eq!(counted, expected);
            }
        }
    }
}
