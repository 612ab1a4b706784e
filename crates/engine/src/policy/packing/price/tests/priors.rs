//! A learning policy expects unseen pods.

use super::*;
use crate::packing::price::prior;
use crate::packing::price::reserve::Reserve;

/// Nodes with eight GPUs and these amounts of CPU and memory.
fn nodes(capacities: &[(i64, i64)]) -> Cluster {
    let name = "A".to_owned();
    let model = GpuModel { name, memory_mib: 0, idle_watts: 0, full_watts: 0, mig: Vec::new() };
    let node = |(number, (cpu_milli, memory_mib)): (usize, &(i64, i64))| {
        let capacity = Resources { cpu_milli: *cpu_milli, memory_mib: *memory_mib, pods: 100 };
        let class = NodeClass { capacity, gpus: 8, ..NodeClass::default() };
        NodeSpec { name: format!("n{number:02}").into(), class, labels: [].into() }
    };
    Cluster::new(vec![model], capacities.iter().enumerate().map(node).collect()).unwrap()
}

/// The expected shapes of a cluster's reserve, with the slots of each.
fn reserve(cluster: &Cluster) -> Vec<(i64, u32)> {
    let sizes = prior::sizes(cluster);
    let reserve = Reserve::new(prior::unseen(&sizes, 1_000_000));
    let all = cluster.nodes().map(|node| reserve.allowed(cluster.class(node), None).mask);
    let places = |shape: &Shape| {
        let fits = |node: &crate::NodeId| shape.resources.fits(&cluster.free(*node));
        u32::try_from(cluster.nodes().filter(fits).count()).unwrap()
    };
    let places = reserve.reserved_shapes.iter().map(|reserved_shape| places(&reserved_shape.shape));
    reserve.rates(all).into_iter().zip(places).collect()
}

#[test]
fn nodes_that_differ_a_bit_have_the_reserve_of_equal_ones() {
    let equal = reserve(&nodes(&[(96_000, 1_000_000); 12]));
    assert_eq!(equal, [(1_500, 12)]);
    let unequal: Vec<(i64, i64)> =
        (0..12).map(|number| (96_000 - 80 * (number % 3), 1_000_000 - 4_000 * number)).collect();
    assert_eq!(reserve(&nodes(&unequal)), equal);
}

#[test]
fn unequal_memory_changes_no_decision() {
    let small = shape(9_000, 1, 1000);
    let run = |step: i64| {
        let capacities: Vec<(i64, i64)> =
            (0..12).map(|number| (96_000, 800_000 - step * number)).collect();
        let arrivals = vec![Arc::clone(&small); 90];
        replay(&mut nodes(&capacities), PricePolicy::learned(), &arrivals)
    };
    assert_eq!(run(1), run(0));
}

#[test]
fn sizes_that_differ_much_are_several() {
    let sizes = [(128_000, 800_000), (96_000, 800_000), (96_000, 400_000), (95_000, 410_000)];
    let cluster = nodes(&sizes);
    let sizes = prior::sizes(&cluster);
    let sizes: Vec<_> = sizes.iter().map(|size| (size.cpu_milli, size.memory_mib)).collect();
    assert_eq!(sizes, [(128_000, 800_000), (96_000, 800_000), (95_000, 400_000)]);
}

#[test]
fn every_node_is_of_a_size_that_is_expected() {
    let capacities: Vec<(i64, i64)> = (0..40)
        .map(|number| (96_000 - 700 * (number % 7), 300_000 + 9_000 * ((number * 7) % 40)))
        .collect();
    let cluster = nodes(&capacities);
    let sizes = prior::sizes(&cluster);
    assert!((2..=14).contains(&sizes.len()), "{sizes:?}");
    for node in cluster.nodes() {
        assert!(prior::covers(&sizes, cluster.class(node)), "{:?}", cluster.class(node));
    }
}

#[test]
fn a_model_counts_by_its_gpus_and_not_by_its_classes() {
    let model = |name: &str| {
        let name = name.to_owned();
        GpuModel { name, memory_mib: 0, idle_watts: 0, full_watts: 0, mig: Vec::new() }
    };
    // Three classes of one node each of `A`, ten nodes of one class of `B`.
    let node = |number: u32| {
        let cpu_milli = if number < 3 { 10_000 + i64::from(number) } else { 20_000 };
        let capacity = Resources { cpu_milli, memory_mib: 1000, pods: 10 };
        let model = crate::ModelId(u8::from(number >= 3));
        let class = NodeClass { capacity, gpus: 4, model, ..NodeClass::default() };
        NodeSpec { name: format!("n{number:02}").into(), class, labels: [].into() }
    };
    let cluster = Cluster::new(vec![model("A"), model("B")], (0..13).map(node).collect()).unwrap();
    assert_eq!(crate::packing::price::gpu_counts::gpus_by_model(&cluster), [12, 40]);
}
