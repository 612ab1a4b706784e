//! MIG instances: the capacity that they spoil counts, by profile.

use super::*;
use crate::gpu::{MigProfile, Slices};
use crate::placement::{GpuPart, Placement};

fn profile(name: &str, milli: u16, size: u8, starts: &[u8]) -> MigProfile {
    let (memory_mib, has_media) = (10_000 * u32::from(size), false);
    let (name, starts) = (name.to_owned(), starts.to_vec());
    MigProfile { name, milli, memory_mib, size, starts, has_media }
}

fn model() -> GpuModel {
    let mig = vec![
        profile("1g", 142, 1, &[0, 1, 2, 3, 4, 5, 6]),
        profile("3g", 428, 4, &[0, 4]),
        profile("7g", 1000, 8, &[0]),
    ];
    GpuModel { name: "A".to_owned(), memory_mib: 80_000, idle_watts: 0, full_watts: 0, mig }
}

/// Nodes with cores and GPUs, by name.
fn nodes(nodes: &[(&str, i64, u16)]) -> Cluster {
    let node = |(name, cores, gpus): &(&str, i64, u16)| {
        let capacity = Resources { cpu_milli: 1000 * cores, memory_mib: 1_000_000, pods: 100 };
        let class = NodeClass { capacity, gpus: *gpus, ..NodeClass::default() };
        NodeSpec { name: (*name).into(), class, labels: [].into() }
    };
    Cluster::new(vec![model()], nodes.iter().map(node).collect()).unwrap()
}

/// Places instances of one slice at these slices of a node's first GPU.
fn cut(cluster: &mut Cluster, node: &str, slices: &[u8]) {
    let node = cluster.node_named(node).unwrap();
    for slice in slices {
        let slices = Slices::range(*slice, 1);
        let part = GpuPart { gpu: 0, milli: 142, slices, memory_mib: 10_000 };
        let placement = Placement { node, gpus: [part].into_iter().collect() };
        cluster.place(&Resources::of_pod(1000, 1000), &placement).unwrap();
    }
}

fn instances(cores: i64, count: u16, profile: &str) -> Arc<Shape> {
    let gpus = GpuDemand::Mig { count, profile: profile.into() };
    Arc::new(Shape::new(Resources::of_pod(1000 * cores, 1000), gpus))
}

fn chosen(policy: &mut PricePolicy, cluster: &Cluster, shape: &Arc<Shape>) -> String {
    policy.arrived(shape);
    let choice = policy.choose(cluster, shape).expect("there is room");
    cluster.name(choice.placement.node).to_owned()
}

/// Node `a` has the last placement of a `3g`; on `b` it is spoilt already.
fn one_last_place() -> Cluster {
    let mut cluster = nodes(&[("a", 64, 1), ("b", 64, 1)]);
    cut(&mut cluster, "a", &[0, 1, 2, 3]);
    cut(&mut cluster, "b", &[0, 1, 2, 4]);
    cluster
}

#[test]
fn a_small_instance_goes_where_no_larger_one_loses_its_last_place() {
    let small = instances(1, 1, "1g");
    let mut cluster = one_last_place();
    let counts = [(Arc::clone(&small), 90), (instances(1, 1, "3g"), 10)];
    let mut policy = PricePolicy::known(DemandStats::of(counts));
    for _ in 0..3 {
        let choice = policy.choose(&cluster, &small).unwrap();
        assert_eq!(cluster.name(choice.placement.node), "b");
        cluster.place(&small.resources, &choice.placement).unwrap();
    }
    assert!(policy.choose(&cluster, &instances(1, 1, "3g")).is_some());
}

#[test]
fn larger_instances_may_come_that_never_came() {
    let small = instances(1, 1, "1g");
    assert_eq!(chosen(&mut PricePolicy::learned(), &one_last_place(), &small), "b");
}

#[test]
fn two_instances_of_one_gpu_are_two() {
    // Two `3g` fit the one GPU of either node, but the CPU of `b` is too small for them.
    let cluster = nodes(&[("a", 64, 1), ("b", 8, 1)]);
    let (small, pair) = (instances(1, 1, "1g"), instances(16, 2, "3g"));
    let counts = [(Arc::clone(&small), 50), (pair, 50)];
    assert_eq!(chosen(&mut PricePolicy::known(DemandStats::of(counts)), &cluster, &small), "b");
}

#[test]
fn pods_of_a_profile_that_is_misspelt_change_nothing() {
    let cluster = nodes(&[("a", 64, 2), ("b", 64, 4), ("c", 64, 4)]);
    let wrong = instances(1, 1, "3gg");
    let run = |wrong: &[(Arc<Shape>, u64)]| {
        let counts = [(instances(1, 1, "1g"), 40), (instances(2, 1, "3g"), 20)];
        let mut cluster = cluster.clone();
        let counts = counts.into_iter().chain(wrong.iter().cloned());
        let mut policy = PricePolicy::known(DemandStats::of(counts));
        let mut scores = Vec::new();
        let shapes = [instances(1, 1, "1g"), instances(2, 1, "3g"), shape(500, 1, 330)];
        for shape in shapes.iter().cycle().take(12) {
            let choice = policy.choose(&cluster, shape).unwrap();
            cluster.place(&shape.resources, &choice.placement).unwrap();
            scores.push((choice.score, choice.placement.node));
        }
        scores
    };
    assert_eq!(run(&[]), run(&[(wrong, 500)]));
}

#[test]
fn instance_size_comes_from_the_model_with_the_most_gpus() {
    use crate::packing::price::gpu_counts::GpuCounts;
    // One profile name for a seventh of one model and half of another.
    let other =
        GpuModel { name: "B".to_owned(), mig: vec![profile("1g", 500, 4, &[0, 4])], ..model() };
    let models = [model(), other];
    let shape = instances(1, 1, "1g");
    assert_eq!(GpuCounts { models: &models, gpus: &[8, 4] }.usual(&shape), Some((0, 142)));
    assert_eq!(GpuCounts { models: &models, gpus: &[8, 40] }.usual(&shape), Some((1, 500)));
    assert_eq!(GpuCounts { models: &models, gpus: &[8, 40] }.usual(&instances(1, 1, "9g")), None);
}
