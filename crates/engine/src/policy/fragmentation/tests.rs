mod openb;

use super::*;
use crate::cluster::Cluster;
use crate::gpu::{GpuModel, MigProfile, ModelId, ModelSet, Slices};
use crate::node::{NodeClass, NodeId, NodeSpec};
use crate::placement::Placement;
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use openb::{cluster, pod, typical};

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.0006
}

/// The figures come from a separate program over the authors' list and code.
#[test]
fn typical_pods_of_the_paper_are_those_of_the_authors() {
    let shapes: std::collections::BTreeSet<_> = openb::shapes().into_iter().collect();
    assert_eq!(shapes.len(), 91);
    let typical = typical();
    let shown = |at: usize| {
        let TypicalShape { shape, popularity, .. } = &typical.shapes()[at];
        (shape.resources.cpu_milli, shape.gpus.milli(), shape.gpus.count(), *popularity)
    };
    assert_eq!(typical.shapes().len(), 35);
    assert_eq!([shown(0), shown(1)], [(3152, 810, 1, 1047), (11300, 1000, 1, 874)]);
    assert_eq!([shown(2), shown(3)], [(11400, 1000, 1, 599), (3152, 1000, 1, 470)]);
    assert_eq!([shown(4), shown(34)], [(11908, 470, 1, 388), (4152, 810, 1, 31)]);
    assert_eq!(typical.popularity(), 7766);
    let cpu_only: Vec<f64> = typical
        .shapes()
        .iter()
        .filter(|typical| !typical.shape.gpus.is_some())
        .map(|typical| typical.weight)
        .collect();
    assert_eq!(cpu_only.len(), 5);
    assert!((cpu_only.iter().sum::<f64>() - 0.1360).abs() < 0.000_05);
}

#[test]
fn fragments_of_nodes_are_those_of_the_authors() {
    let idle = [1000; 8];
    let used = [540, 190, 0, 1000, 1000, 0, 0, 0];
    let cases: [(i64, &[u16], f64); 10] = [
        (96_000, &idle, 1087.819),
        (90_000, &[540, 1000, 1000, 1000, 1000, 1000, 1000, 1000], 1391.991),
        (84_000, &[0, 1000, 1000, 1000, 1000, 1000, 1000, 1000], 951.841),
        (104_000, &[1000, 1000], 271.955),
        (98_000, &[540, 1000], 576.127),
        (50_000, &used, 900.783),
        (44_000, &[80, 190, 0, 1000, 1000, 0, 0, 0], 540.634),
        (44_000, &[540, 190, 0, 540, 1000, 0, 0, 0], 1204.955),
        (4000, &idle, 5731.651),
        (0, &idle, 8000.0),
    ];
    let typical = typical();
    for (cpu_milli, left, expected) in cases {
        let cluster = cluster(&[(cpu_milli, left)]);
        let left = NodeResidual::of_node(&cluster, NodeId(0));
        let found = typical.fragment(&left);
        assert!(is_near(found, expected), "{cpu_milli} {:?}: {found}", left.gpus);
        let amounts = typical.amounts(&left);
        assert!((amounts.fragment_milli() - found).abs() < 1e-9);
    }
}

#[test]
fn amounts_classify_why_typical_pods_cannot_use_free_gpus() {
    let pods = [
        (pod(1000, 1, 400), 3),
        (pod(9000, 1, 400), 2),
        (pod(1000, 2, 1000), 1),
        (pod(9000, 1, 1000), 1),
        (pod(1000, 0, 0), 2),
        (pod(9000, 0, 0), 1),
        (Shape { models: ModelSet(2), ..pod(1000, 1, 400) }, 1),
    ];
    let typical =
        TypicalPods::new(&[openb::model()], pods.iter().map(|(shape, count)| (shape, *count)));
    // All are needed: without the last of ten kinds it would be less than 95 of 100.
    assert_eq!((typical.shapes().len(), typical.popularity()), (7, 11));
    let cluster = cluster(&[(4000, &[300, 600, 0])]);
    let amounts = typical.amounts(&NodeResidual::of_node(&cluster, NodeId(0)));
    // Of 900 free: q1 1 pod; q2 1 pod, and 300 of the usable GPU's node for 3; q3 600 for 3; q4 2;
    // xl 2; xr 1; no access 1.
    let parts = Usability::ALL.map(|class| format!("{:.0}", amounts.milli(class) * 11.0));
    assert_eq!(parts, ["900", "1800", "1800", "1800", "1800", "900", "900"]);
    assert!(is_near(amounts.free_milli(), 900.0));
    assert!(is_near(amounts.percent(), 100.0 * (9900.0 - 1800.0) / 9900.0));
}

#[test]
fn of_equally_popular_shapes_the_larger_is_typical() {
    let t4 = GpuModel { name: "T4".to_owned(), ..openb::model() };
    let of = |model| Shape { models: ModelSet(0).with(ModelId(model)), ..pod(10, 1, 500) };
    let shapes = [pod(9, 1, 500), pod(10, 1, 400), of(0), pod(10, 1, 500), of(1)];
    let counts = shapes.iter().map(|shape| (shape, 1)).chain([(&shapes[0], 40)]);
    let typical = TypicalPods::new(&[openb::model(), t4], counts);
    let order: Vec<_> = typical.shapes().iter().map(|typical| typical.shape.clone()).collect();
    let expected = [0, 4, 2].map(|at| {
        let mut shape = shapes[at].clone();
        shape.resources.pods = 0;
        shape
    });
    // 43 of 45 are enough. The model name breaks the last tie; a request for any model comes before
    // named ones.
    assert_eq!(order, expected);
    let mut memory = pod(1, 1, 500);
    memory.resources.memory_mib = 7;
    let same = TypicalPods::new(&[], [(&memory, 1), (&pod(1, 1, 500), 1)]);
    assert_eq!(same.shapes().len(), 1);
    assert_eq!(TypicalPods::new(&[], []), TypicalPods::default());
}

#[test]
fn partitioned_gpu_serves_only_instances_and_closed_gpu_serves_none() {
    let profile = |name: &str, milli, size, starts: &[u8]| {
        let (name, starts) = (name.to_owned(), starts.to_vec());
        MigProfile { name, milli, memory_mib: 0, size, starts, has_media: false }
    };
    let mig = vec![profile("1g", 142, 1, &[0, 1, 2, 3, 4, 5, 6]), profile("7g", 1000, 8, &[0])];
    let model = GpuModel { mig, ..openb::model() };
    let class = NodeClass { gpus: 3, ..NodeClass::default() };
    let node = NodeSpec { name: "n".into(), class, labels: [].into() };
    let mut cluster = Cluster::new(vec![model], vec![node]).unwrap();
    let slices = Slices::range(6, 1);
    let cut = GpuPart { gpu: 0, milli: 142, slices, memory_mib: 0 };
    let placement = Placement { node: NodeId(0), gpus: [cut].as_slice().into() };
    cluster.place(&Resources::default(), &placement).unwrap();
    cluster.set_gpu_open(NodeId(0), 2, false).unwrap();
    let fragment = |demand: GpuDemand| {
        let shape = Shape::new(Resources::default(), demand);
        let typical = TypicalPods::new(&[], [(&shape, 1)]);
        typical.amounts(&NodeResidual::of_node(&cluster, NodeId(0))).rounded_fragment()
    };
    let mig = |count, profile: &str| GpuDemand::Mig { count, profile: profile.into() };
    assert_eq!(fragment(GpuDemand::of(1, 300)), 858);
    assert_eq!(fragment(GpuDemand::of(2, 300)), 1858);
    assert_eq!(fragment(mig(13, "1g")), 0);
    assert_eq!(fragment(mig(14, "1g")), 1858);
    assert_eq!(fragment(mig(1, "7g")), 858);
    assert_eq!(fragment(mig(1, "9g")), 1858);
}

#[test]
fn placement_that_uses_a_fragment_has_a_negative_cost() {
    let before = cluster(&[(50_000, &[540, 190, 0, 1000, 1000, 0, 0, 0])]);
    let typical = typical();
    let amounts = |cluster: &Cluster| typical.amounts(&NodeResidual::of_node(cluster, NodeId(0)));
    let at = |gpu| {
        let part = GpuPart { gpu, milli: 460, slices: Slices::NONE, memory_mib: 0 };
        let placement = Placement { node: NodeId(0), gpus: [part].as_slice().into() };
        let mut after = before.clone();
        after.place(&Resources::of_pod(6000, 0), &placement).unwrap();
        amounts(&after).minus(&amounts(&before)).rounded_fragment()
    };
    assert_eq!((at(0), at(3)), (-360, 304));
    let none = TypicalPods::default();
    assert_eq!(none.amounts(&NodeResidual::of_node(&before, NodeId(0))).rounded_fragment(), 0);
}
