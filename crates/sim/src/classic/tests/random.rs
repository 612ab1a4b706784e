use super::*;

#[test]
fn every_feasible_node_and_gpu_comes_as_often_as_another() {
    let cluster = cluster(&[
        (9000, &[1000, 500, 400, 1000]),
        (100, &[1000; 4]),
        (9000, &[1000; 4]),
        (9000, &[500; 4]),
    ]);
    let mut policy = policy("random", &setup()).unwrap();
    let shape = Arc::new(pod(1000, 1, 500));
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..12_000 {
        let placement = policy.choose(&cluster, &shape).unwrap().placement;
        *counts.entry((placement.node.0, placement.gpus[0].gpu)).or_insert(0) += 1;
    }
    let spread = |node: u32| -> Vec<i32> {
        counts.iter().filter(|((of, _), _)| *of == node).map(|(_, count)| *count).collect()
    };
    let is_near = |count: &i32, expected: i32| (count - expected).abs() < expected / 7;
    assert!(spread(0).len() == 3 && spread(0).iter().all(|count| is_near(count, 4000 / 3)));
    assert_eq!(spread(1), [0; 0]);
    for node in [2, 3] {
        assert!(spread(node).len() == 4 && spread(node).iter().all(|count| is_near(count, 1000)));
    }
}

#[test]
fn one_seed_gives_one_run() {
    let run = |seed| {
        let mut cluster = mixed();
        let mut policy = policy("random", &Setup { seed, ..setup() }).unwrap();
        let mut nodes = Vec::new();
        while let Some(chosen) = policy.choose(&cluster, &Arc::new(pod(100, 1, 100))) {
            cluster.place(&Resources::of_pod(100, 0), &chosen.placement).unwrap();
            nodes.push((chosen.placement.node, chosen.placement.gpus[0].gpu));
        }
        nodes
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert_eq!(run(1).len(), 6 * 3 * 10);
}
