//! How long things take: measured by hand, in a release build.

use std::time::{Duration, Instant};

use super::kit::{MIG, PLAIN, cluster, instances, pod, pod_ref, seen, shares, whole};

#[test]
#[ignore = "measures; run it in a release build with --nocapture"]
fn asks_and_allocations_of_five_hundred_nodes() {
    for (fixture, what, requests) in [
        (PLAIN, "whole", whole(1)),
        (PLAIN, "shares", shares(1, "12.5", "10Gi")),
        (MIG, "mig", instances(1, "1g.10gb")),
    ] {
        let names: Vec<String> = (0..500).map(|index| format!("node-{index}")).collect();
        let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), fixture)).collect();
        let start = Instant::now();
        let mut devices = cluster(&nodes);
        println!("{what}: cluster {:?}", start.elapsed());
        let pods: Vec<_> =
            (0..4000).map(|index| pod(&format!("p{index}"), requests.clone())).collect();
        for (_, claim) in &pods {
            devices.see(claim);
        }
        let start = Instant::now();
        let ask = devices.ask(&pods[0].0).unwrap();
        println!("{what}: first ask {:?} {:?} exact {}", start.elapsed(), ask.demand, ask.is_exact);
        let (mut asks, mut allocations, mut assumed, mut echoes, mut longest) =
            (Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for (index, (pod, _)) in pods.iter().enumerate() {
            let start = Instant::now();
            let ask = devices.ask(pod).unwrap();
            asks += start.elapsed();
            let start = Instant::now();
            let grant = devices.allocate(&ask, &names[index % 500], None).unwrap();
            let took = start.elapsed();
            allocations += took;
            longest = std::cmp::max(longest, took);
            let start = Instant::now();
            devices.assume(&grant);
            assumed += start.elapsed();
            let claim = seen(&grant.claims[0], &pod_ref(pod));
            let start = Instant::now();
            devices.see(&claim);
            echoes += start.elapsed();
        }
        println!(
            "{what}: ask {:?}, allocate {:?} (longest {longest:?}), assume {:?}, see {:?}",
            asks / 4000,
            allocations / 4000,
            assumed / 4000,
            echoes / 4000,
        );
    }
}
