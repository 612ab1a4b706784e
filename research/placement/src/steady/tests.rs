use octavo_sim::trace::{NodeRow, PodRow, Trace};

use super::*;

fn workload() -> Workload {
    let node = |name: String| NodeRow {
        name,
        cpu_milli: 64_000,
        memory_mib: 1 << 18,
        gpus: 8,
        model: "H100".to_owned(),
    };
    let pod = |num_gpu| PodRow {
        name: "shape".to_owned(),
        cpu_milli: 1000,
        memory_mib: 1024,
        num_gpu,
        gpu_milli: 1000,
        ..PodRow::default()
    };
    let nodes = (0..20).map(|node_index| node(format!("node-{node_index:02}"))).collect();
    Workload { name: "test".to_owned(), nodes, shapes: vec![pod(1), pod(1), pod(4)] }
}

/// Wanted GPUs in the mean after the warm-up, as a ratio of all.
fn wanted(trace: &Trace) -> f64 {
    let time = |pod: &PodRow| {
        let (from, to) = (pod.creation_time.unwrap(), pod.deletion_time.unwrap());
        pod.total_gpu_milli() * to.saturating_sub(from.max(WARM_UP))
    };
    let wanted: u64 = trace.pods.iter().map(time).sum();
    float(wanted) / float(trace.capacity_gpu_milli() * (END - WARM_UP))
}

#[test]
fn demand_is_the_load_from_the_first_second() {
    let of = |seed| trace(&workload(), 1.1, seed);
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
    let wanted: Vec<f64> = (0..10).map(|seed| wanted(&of(seed))).collect();
    assert!((1.05..1.15).contains(&mean(&wanted)), "{wanted:?}");
    let first = |trace: &Trace| {
        let pods = trace.pods.iter().filter(|pod| pod.creation_time == Some(0));
        float(pods.map(PodRow::total_gpu_milli).sum()) / float(trace.capacity_gpu_milli())
    };
    let first: Vec<f64> = (0..10).map(|seed| first(&of(seed))).collect();
    assert!((1.0..1.2).contains(&mean(&first)), "{first:?}");
}

#[test]
fn given_time_is_at_most_what_there_is() {
    let trace = trace(&workload(), 1.1, 1);
    for policy in POLICIES {
        let given = given(&trace, policy).unwrap();
        assert!(given > 50.0 && given * wanted(&trace) <= 100.0, "{policy}: {given}");
    }
}
