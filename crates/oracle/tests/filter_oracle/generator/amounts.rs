//! Amounts that pods request and nodes have.

use std::collections::BTreeMap;

use octavo_dra::{ContainerKind, Quantity};
use octavo_kube_io::objects::{HostPort, PodSpec, WHOLE_POD};
use octavo_testkit::Rng;

use super::{Draft, container};

/// Resources with requests of containers and amounts of nodes.
const RESOURCES: [(&str, &[&str], &[&str]); 9] = [
    (
        "cpu",
        &["100m", "250m", "500m", "1", "1500m", "2", "333333u", "0"],
        &["500m", "1", "2", "3", "4"],
    ),
    ("memory", &["64Mi", "128Mi", "100M", "1500m", "0"], &["128Mi", "192Mi", "256Mi", "200M"]),
    ("ephemeral-storage", &["1Gi", "2Gi", "0"], &["1Gi", "2Gi", "4Gi"]),
    ("hugepages-2Mi", &["2Mi", "4Mi"], &["0", "4Mi", "8Mi"]),
    ("nvidia.com/gpu", &["1", "2", "0"], &["0", "1", "2", "4"]),
    ("kubernetes.io/batteries", &["1"], &["1", "2"]),
    ("unknown", &["1"], &["0"]),
    // Amounts for which the rounding of fractions matters.
    ("cpu", &["333333u", "333334u", "500001u"], &["667m", "1", "1001m", "1334m"]),
    ("memory", &["400m", "500m", "1500m"], &["1", "2", "3"]),
];

/// Amounts by name.
pub(crate) fn list(amounts: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    let read = |(name, amount): &(&str, &str)| ((*name).to_owned(), amount.parse().unwrap());
    amounts.iter().map(read).collect()
}

/// Requests of all kinds of containers, pod-level requests, and overhead.
pub(super) fn requests(rng: &mut Rng, draft: &mut Draft) {
    // Few resources, so that one of them decides.
    let mut known: Vec<_> = RESOURCES.iter().collect();
    rng.shuffle(&mut known);
    known.truncate(rng.between(1, 2));
    for node in &mut draft.case.nodes {
        for (name, _, has) in &known {
            if rng.chance(90) {
                node.allocatable.extend(list(&[(name, rng.word(has))]));
            } else {
                node.allocatable.remove(*name);
            }
        }
    }
    let ask = |rng: &mut Rng, percent| {
        let all = known.iter().filter(|_| rng.chance(percent)).collect::<Vec<_>>();
        list(&all.iter().map(|(name, asked, _)| (*name, rng.word(asked))).collect::<Vec<_>>())
    };
    for spec in draft.specs() {
        // Simple pods cover sums; others cover init containers and sidecars.
        if rng.chance(50) {
            kinds(rng, spec);
        }
        for container in &mut spec.containers {
            container.requests = ask(rng, 80);
        }
        if rng.chance(15) {
            spec.overhead = ask(rng, 90);
        }
        if rng.chance(15) {
            spec.pod_requests = ask(rng, 90);
        }
    }
    for (pod, spec) in draft.case.placed.iter_mut().zip(&draft.placed) {
        if !rng.chance(30) {
            continue;
        }
        // Amounts beside the requests, for resizes that go up, down, or are infeasible.
        let names = spec.containers.iter().map(|one| one.name.as_str());
        let whole = (!spec.pod_requests.is_empty()).then_some(WHOLE_POD);
        for name in names.chain(whole).filter(|_| rng.chance(70)).collect::<Vec<_>>() {
            pod.held.insert(name.to_owned(), ask(rng, 80));
        }
    }
}

fn kinds(rng: &mut Rng, spec: &mut PodSpec) {
    let mut containers = Vec::new();
    for index in 0..rng.below(4) {
        let kind = if rng.chance(50) { ContainerKind::Init } else { ContainerKind::Sidecar };
        containers.push(container(&format!("init-{index}"), kind));
    }
    containers.append(&mut spec.containers);
    if rng.chance(40) {
        containers.push(container("other", ContainerKind::Main));
    }
    spec.containers = containers;
}

/// How many pods a node allows.
pub(super) fn pods(rng: &mut Rng, draft: &mut Draft) {
    for node in &mut draft.case.nodes {
        node.allocatable.extend(list(&[("pods", rng.word(&["0", "1", "2", "3"]))]));
    }
}

/// Ports of the host.
pub(super) fn ports(rng: &mut Rng, draft: &mut Draft) {
    for spec in draft.specs() {
        if rng.chance(40) {
            kinds(rng, spec);
        }
        for container in &mut spec.containers {
            for _ in 0..rng.below(3) {
                let ip = rng.word(&["0.0.0.0", "", "10.0.0.1", "10.0.0.2", "10.0.0.2"]);
                let protocol = rng.word(&["TCP", "TCP", "UDP", ""]);
                let port = *rng.pick(&[0, 80, 80, 443, 8443, 9000]);
                let (ip, protocol) = (ip.to_owned(), protocol.to_owned());
                container.ports.push(HostPort { ip, protocol, port });
            }
        }
    }
}
