use proptest::prelude::*;

use super::log::{Changes, Cursor};
use super::*;
use crate::gpu::Slices;
use crate::node::Links;
use crate::transaction::Transaction;

fn model() -> GpuModel {
    GpuModel {
        name: "T4".to_owned(),
        memory_mib: 16_000,
        idle_watts: 10,
        full_watts: 70,
        mig: Vec::new(),
    }
}

fn node(name: &str, gpus: u16) -> NodeSpec {
    let capacity = Resources { cpu_milli: 8000, memory_mib: 32_000, pods: 10 };
    let class = NodeClass { capacity, gpus, ..NodeClass::default() };
    NodeSpec { name: name.into(), class, labels: [].into() }
}

fn cluster() -> Cluster {
    Cluster::new(vec![model()], vec![node("b", 2), node("c", 2), node("a", 4)]).unwrap()
}

fn at(node: u32, parts: &[(u16, u16)]) -> Placement {
    let part = |&(gpu, milli)| GpuPart { gpu, milli, slices: Slices::NONE, memory_mib: 0 };
    Placement { node: NodeId(node), gpus: parts.iter().map(part).collect() }
}

#[test]
fn ids_follow_names_not_the_order_of_discovery() {
    let cluster = cluster();
    let names: Vec<_> = cluster.nodes().map(|node| cluster.name(node).to_owned()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(cluster.node_named("c"), Some(NodeId(2)));
    assert_eq!(cluster.totals().gpus, 8);
}

#[test]
fn nodes_that_are_alike_share_a_state_whichever_gpu_is_taken() {
    let mut cluster = cluster();
    assert_eq!(cluster.state(NodeId(1)), cluster.state(NodeId(2)));
    let pod = Resources::of_pod(1000, 1000);
    cluster.place(&pod, &at(1, &[(0, 300)])).unwrap();
    assert_ne!(cluster.state(NodeId(1)), cluster.state(NodeId(2)));
    cluster.place(&pod, &at(2, &[(1, 300)])).unwrap();
    assert_eq!(cluster.state(NodeId(1)), cluster.state(NodeId(2)));
    let nodes: Vec<_> = cluster.states().nodes(cluster.state(NodeId(1))).collect();
    assert_eq!(nodes, [NodeId(1), NodeId(2)]);
}

#[test]
fn where_gpus_are_not_equally_near_it_matters_which_is_taken() {
    let mut linked = node("a", 2);
    linked.class.links = Links(vec![vec![0, 1]]);
    let other = NodeSpec { name: "b".into(), ..linked.clone() };
    let mut cluster = Cluster::new(vec![model()], vec![linked, other]).unwrap();
    let pod = Resources::of_pod(0, 0);
    cluster.place(&pod, &at(0, &[(0, 300)])).unwrap();
    cluster.place(&pod, &at(1, &[(1, 300)])).unwrap();
    assert_ne!(cluster.state(NodeId(0)), cluster.state(NodeId(1)));
}

#[test]
fn what_does_not_fit_changes_nothing_and_says_why() {
    let mut cluster = cluster();
    let before = format!("{cluster:?}");
    let pod = Resources::of_pod(9000, 0);
    let error = cluster.place(&pod, &at(0, &[])).unwrap_err();
    assert!(matches!(error, ClusterError::Resources { .. }), "{error}");
    let pod = Resources::of_pod(1000, 0);
    for parts in [&[(0, 600), (0, 600)][..], &[(1, 100), (4, 100)]] {
        let error = cluster.place(&pod, &at(0, parts)).unwrap_err();
        assert!(matches!(error, ClusterError::Gpu { verb: "allocate", .. }), "{error}");
    }
    let error = cluster.release(&pod, &at(0, &[(0, 1)])).unwrap_err();
    assert!(matches!(error, ClusterError::Gpu { verb: "release", .. }), "{error}");
    assert_eq!(cluster.place(&pod, &at(7, &[])), Err(ClusterError::NoNode(NodeId(7))));
    assert_eq!(format!("{cluster:?}"), before);
    let twice = Cluster::new(vec![model()], vec![node("a", 1), node("a", 1)]);
    assert_eq!(twice.unwrap_err(), ClusterError::DuplicateNode("a".into()));
}

#[test]
fn a_node_may_change_under_what_runs_there() {
    let mut cluster = cluster();
    cluster.place(&Resources::of_pod(6000, 0), &at(1, &[(0, 300)])).unwrap();
    let old = cluster.class(NodeId(1)).clone();
    let capacity = Resources { cpu_milli: 4000, ..old.capacity };
    let taints = crate::node::FeatureMask(1);
    cluster.set_class(NodeId(1), &NodeClass { capacity, taints, ..old.clone() }).unwrap();
    assert_eq!(cluster.free(NodeId(1)).cpu_milli, -2000);
    check(&cluster);
    let other = cluster.set_class(NodeId(1), &NodeClass { gpus: 1, ..old });
    assert_eq!(other, Err(ClusterError::OtherGpus("b".into())));
    check(&cluster);
    cluster.release(&Resources::of_pod(6000, 0), &at(1, &[(0, 300)])).unwrap();
    assert_eq!(cluster.free(NodeId(1)), capacity);
}

#[test]
fn unused_gpus_of_a_node_may_change() {
    let mut cluster = cluster();
    let last = NodeId(u32::try_from(cluster.node_count() - 1).unwrap());
    let part = Placement { node: last, ..at(0, &[(0, 300)]) };
    cluster.place(&Resources::of_pod(1, 0), &part).unwrap();
    let class = cluster.class(NodeId(0)).clone();
    let after = cluster.gpus(last).to_vec();
    for gpus in [0, 5, 1, class.gpus] {
        cluster.set_class(NodeId(0), &NodeClass { gpus, ..class.clone() }).unwrap();
        assert_eq!(cluster.gpus(NodeId(0)).len(), usize::from(gpus));
        assert_eq!(cluster.gpus(last), after, "those of other nodes stay");
        check(&cluster);
    }
    let unknown = NodeClass { model: crate::gpu::ModelId(9), ..class.clone() };
    let refused = cluster.set_class(NodeId(0), &unknown);
    assert!(matches!(refused, Err(ClusterError::UnknownModel { .. })), "{refused:?}");
    let many = cluster.set_class(NodeId(0), &NodeClass { gpus: MAX_GPUS + 1, ..class });
    assert!(matches!(many, Err(ClusterError::TooMany { .. })), "{many:?}");
    check(&cluster);
}

#[test]
fn models_that_would_miscount_are_refused() {
    let profile = |milli, size, starts: &[u8]| MigProfile {
        name: "p".to_owned(),
        milli,
        memory_mib: 1,
        size,
        starts: starts.to_vec(),
        has_media: false,
    };
    for wrong in [
        profile(300, 1, &[0, 1, 2, 3]),
        profile(0, 1, &[0]),
        profile(100, 0, &[0]),
        profile(100, 2, &[14]),
        profile(100, 1, &[1, 0]),
    ] {
        let model = GpuModel { mig: vec![wrong], ..model() };
        let error = Cluster::new(vec![model], Vec::new()).unwrap_err();
        assert!(matches!(error, ClusterError::Profile { .. }), "{error}");
    }
    let twice = Cluster::new(vec![model(), model()], Vec::new()).unwrap_err();
    assert_eq!(twice, ClusterError::DuplicateModel("T4".to_owned()));
}

#[test]
fn best_effort_share_blocks_whole_and_mig_use_of_its_gpu() {
    let mut cluster = cluster();
    let pod = Resources::of_pod(0, 0);
    let part = |milli, slices| GpuPart { gpu: 0, milli, slices, memory_mib: 1000 };
    let give = |part: GpuPart| Placement { node: NodeId(0), gpus: [part].as_slice().into() };
    let share = give(part(0, Slices::NONE));
    for _ in 0..2 {
        cluster.place(&pod, &share).unwrap();
        assert!(!cluster.gpus(NodeId(0))[0].is_idle());
    }
    assert_eq!(cluster.totals().unused_gpus, 7);
    assert!(cluster.place(&pod, &give(part(142, Slices::range(0, 1)))).is_err());
    for _ in 0..2 {
        cluster.release(&pod, &share).unwrap();
    }
    assert!(cluster.gpus(NodeId(0))[0].is_idle());
    assert!(cluster.release(&pod, &share).is_err());
}

#[test]
fn a_reader_of_the_log_sees_each_change_once() {
    let mut cluster = cluster();
    let mut cursor = Cursor::default();
    assert_eq!(cluster.log().read(&mut cursor), Changes::All);
    assert_eq!(cluster.log().read(&mut cursor), Changes::Nodes(&[]));
    cluster.place(&Resources::of_pod(1, 1), &at(2, &[])).unwrap();
    assert_eq!(cluster.log().read(&mut cursor), Changes::Nodes(&[NodeId(2)]));
    let mut slow = cursor;
    for _ in 0..140_000 {
        cluster.set_open(NodeId(0), true).unwrap();
    }
    assert_eq!(cluster.log().read(&mut slow), Changes::All);
    assert_eq!(cluster.log().read(&mut slow), Changes::Nodes(&[]));
}

#[test]
fn a_reader_of_another_cluster_has_missed_everything() {
    let mut first = cluster();
    let mut cursor = Cursor::default();
    first.log().read(&mut cursor);
    // The same number of changes, but different ones.
    let mut second = first.clone();
    first.set_open(NodeId(0), false).unwrap();
    second.set_open(NodeId(1), false).unwrap();
    let mut of_second = cursor;
    assert_eq!(second.log().read(&mut of_second), Changes::All);
    assert_eq!(second.log().read(&mut of_second), Changes::Nodes(&[]));
    assert_eq!(first.log().read(&mut cursor), Changes::Nodes(&[NodeId(0)]));
    assert_eq!(cluster().log().read(&mut cursor), Changes::All);
}

/// Invariants after any change.
fn check(cluster: &Cluster) {
    let mut totals = Totals::default();
    for node in cluster.nodes() {
        let state = cluster.states().state(cluster.state(node)).unwrap();
        assert_eq!(*state, cluster.state_now(node));
        assert!(cluster.states().nodes(cluster.state(node)).any(|other| other == node));
        let gpus = cluster.gpus(node);
        let idle = gpus.iter().filter(|gpu| gpu.is_idle()).count();
        assert_eq!(usize::from(cluster.idle_gpus(node)), idle);
        for (gpu, bit) in gpus.iter().zip(0..) {
            assert_eq!(cluster.closed_gpus(node) >> bit & 1 == 1, gpu.is_closed);
            totals.gpus += 1;
            totals.gpu_milli += 1000;
            totals.used_milli += i64::from(1000 - gpu.milli);
            totals.unused_gpus += i64::from(gpu.milli == 1000);
        }
        totals.capacity = totals.capacity.plus(&cluster.class(node).capacity);
        totals.free = totals.free.plus(&cluster.free(node));
    }
    assert_eq!(totals, *cluster.totals());
    let nodes: usize = cluster.states().iter().map(|(_, _, nodes)| nodes.len()).sum();
    assert_eq!(nodes, cluster.node_count());
}

proptest! {
    #[test]
    fn a_trial_that_is_dropped_leaves_no_trace(
        steps in prop::collection::vec((0_u32..3, 0_u16..4, 1_u16..=1000, any::<bool>()), 0..40),
    ) {
        let mut cluster = cluster();
        let pod = Resources::of_pod(100, 100);
        let mut placed = Vec::new();
        for (node, gpu, milli, _) in steps.iter().take(10) {
            let place = at(*node, &[(*gpu, *milli)]);
            if cluster.place(&pod, &place).is_ok() {
                placed.push(place);
            }
        }
        check(&cluster);
        let states = |cluster: &Cluster| -> Vec<NodeState> {
            cluster.nodes().map(|node| cluster.state_now(node)).collect()
        };
        let before = (states(&cluster), *cluster.totals());
        let mut txn = Transaction::new(&mut cluster);
        for (node, gpu, milli, is_release) in &steps {
            if *is_release && let Some(place) = placed.pop() {
                txn.release(&pod, &place).unwrap();
            } else {
                drop(txn.place(&pod, &at(*node, &[(*gpu, *milli)])));
            }
        }
        check(txn.target());
        drop(txn);
        check(&cluster);
        prop_assert_eq!(before, (states(&cluster), *cluster.totals()));
    }
}
