use serde_json::json;

use super::*;
use crate::scheduler::device_objects::{self, GPU_TEMPLATE};
use crate::scheduler::objects::{self, LEVELS, PodRequest};

const BLOCK: &str = LEVELS[0].0;

fn bound(name: &str, request: PodRequest, node: usize) -> Value {
    let mut pod = objects::pod(name, request, Contender::Octavo);
    pod["metadata"]["uid"] = name.into();
    pod["spec"]["nodeName"] = objects::node_name(node).into();
    // As the API server completes it.
    let limits = pod["spec"]["containers"][0]["resources"]["limits"].clone();
    for (resource, amount) in limits.as_object().into_iter().flatten() {
        pod["spec"]["containers"][0]["resources"]["requests"][resource] = amount.clone();
    }
    pod
}

fn claim(pod: &str, node: usize, gpu: usize) -> Value {
    json!({
        "metadata": {"name": format!("{pod}-claim")},
        "status": device_objects::allocated("gpu", (node, gpu), (pod, pod)),
    })
}

fn cluster(gpus: Gpus, pods: Vec<Value>, claims: Vec<Value>) -> Cluster {
    let nodes = (0..200).map(|number| objects::node(number, gpus, Contender::Octavo)).collect();
    let slices =
        (0..2).map(|number| device_objects::slices(number, Gpus::DraWithNics, Contender::Octavo));
    let slices = slices.flatten().collect();
    Cluster { nodes, pods, claims, slices }
}

fn expect(bound: &[(&str, usize)], gangs: &[(&str, TopologyRequest)]) -> Expected {
    Expected {
        bound: bound.iter().map(|(set, count)| ((*set).to_owned(), *count..=*count)).collect(),
        gangs: gangs.iter().map(|(gang, topology)| ((*gang).to_owned(), *topology)).collect(),
    }
}

fn verdict(cluster: &Cluster, is_dra: bool, expected: &Expected) -> String {
    match cluster.check(Contender::Octavo, is_dra, expected) {
        Ok(()) => "valid".to_owned(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn overcommitted_node_is_caught() {
    let fits = vec![bound("a-0", PodRequest::Gpus(6), 0), bound("a-1", PodRequest::Gpus(2), 0)];
    let expected = expect(&[("a", 2)], &[]);
    assert_eq!(verdict(&cluster(Gpus::Plain, fits, Vec::new()), false, &expected), "valid");
    let full = vec![bound("a-0", PodRequest::Gpus(6), 0), bound("a-1", PodRequest::Gpus(3), 0)];
    let verdict_text = verdict(&cluster(Gpus::Plain, full, Vec::new()), false, &expected);
    assert!(verdict_text.contains("node-0 has 8 nvidia.com/gpu and its pods 9"), "{verdict_text}");
}

#[test]
fn device_allocated_twice_elsewhere_or_not_at_all_is_caught() {
    let pods = || {
        vec![
            bound("a-0", PodRequest::Template(GPU_TEMPLATE), 0),
            bound("a-1", PodRequest::Gpus(1), 0),
        ]
    };
    let expected = expect(&[("a", 2)], &[]);
    let verdict_text = |claims| verdict(&cluster(Gpus::Dra, pods(), claims), true, &expected);
    assert_eq!(verdict_text(vec![claim("a-0", 0, 0), claim("a-1", 0, 1)]), "valid");
    let twice = verdict_text(vec![claim("a-0", 0, 0), claim("a-1", 0, 0)]);
    assert!(twice.contains("is allocated twice"), "{twice}");
    let elsewhere = verdict_text(vec![claim("a-0", 0, 0), claim("a-1", 1, 0)]);
    assert!(elsewhere.contains("a-1 on node-0 has the device gpu-0 of node-1"), "{elsewhere}");
    let none = verdict_text(vec![claim("a-0", 0, 0)]);
    assert!(none.contains("a-1 has 0 devices, and requests 1"), "{none}");
    let unknown = verdict_text(vec![claim("a-0", 0, 0), claim("a-1", 0, 9)]);
    assert!(unknown.contains("is not published"), "{unknown}");
}

#[test]
fn partial_gang_and_gang_in_two_domains_are_caught() {
    let gangs = [("g", TopologyRequest::Required(BLOCK))];
    let whole = expect(&[("g", 2)], &gangs);
    let together = vec![bound("g-0", PodRequest::Plain, 0), bound("g-1", PodRequest::Plain, 127)];
    assert_eq!(verdict(&cluster(Gpus::Plain, together, Vec::new()), false, &whole), "valid");
    let apart = vec![bound("g-0", PodRequest::Plain, 0), bound("g-1", PodRequest::Plain, 128)];
    let verdict_text = verdict(&cluster(Gpus::Plain, apart, Vec::new()), false, &whole);
    assert!(verdict_text.contains("is in 2 of topology.octavo.dev/block"), "{verdict_text}");
    let mut half = vec![bound("g-0", PodRequest::Plain, 0), bound("g-1", PodRequest::Plain, 0)];
    half[1]["spec"]["nodeName"] = Value::Null;
    let verdict_text =
        verdict(&cluster(Gpus::Plain, half, Vec::new()), false, &expect(&[], &gangs));
    assert!(verdict_text.contains("1 of 2 pods of the gang g are bound"), "{verdict_text}");
}

#[test]
fn missing_pods_and_foreign_nodes_are_caught() {
    let pods = vec![bound("a-0", PodRequest::Plain, 0)];
    let cluster = cluster(Gpus::None, pods.clone(), Vec::new());
    let verdict_text = verdict(&cluster, false, &expect(&[("a", 2)], &[]));
    assert!(verdict_text.contains("1 pods of a are bound, and at least 2"), "{verdict_text}");
    let nodes = vec![objects::node(0, Gpus::None, Contender::Kube)];
    let others = Cluster { nodes, pods, claims: Vec::new(), slices: Vec::new() };
    let verdict_text = verdict(&others, false, &expect(&[("a", 1)], &[]));
    assert!(verdict_text.contains("a node that Octavo does not own"), "{verdict_text}");
}

#[test]
fn wrong_number_of_bound_pods_is_caught() {
    let pods = || vec![bound("a-0", PodRequest::Plain, 0), bound("a-1", PodRequest::Plain, 0)];
    let verdict_text = |wanted| {
        let expected =
            Expected { bound: [("a".to_owned(), wanted)].into(), gangs: BTreeMap::new() };
        verdict(&cluster(Gpus::None, pods(), Vec::new()), false, &expected)
    };
    assert_eq!(
        (verdict_text(1..=2), verdict_text(2..=3)),
        ("valid".to_owned(), "valid".to_owned())
    );
    assert!(
        verdict_text(3..=4).contains("2 pods of a are bound, and at least 3"),
        "{}",
        verdict_text(3..=4)
    );
    assert!(
        verdict_text(0..=1).contains("2 pods of a are bound, and at most 1"),
        "{}",
        verdict_text(0..=1)
    );
}

#[test]
fn nic_of_another_root_is_caught() {
    let request = PodRequest::Template(device_objects::GPU_AND_NIC_TEMPLATE);
    let pods = || vec![bound("a-0", request, 0)];
    let with_nic = |nic: &str| {
        let mut claim = claim("a-0", 0, 3);
        claim["spec"]["devices"]["constraints"] =
            json!([{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]);
        let results = &mut claim["status"]["allocation"]["devices"]["results"];
        let nic = json!({"driver": "nic.example.com", "pool": "node-0", "device": nic});
        *results = json!([results[0].clone(), nic]);
        verdict(&cluster(Gpus::DraWithNics, pods(), vec![claim]), true, &expect(&[("a", 1)], &[]))
    };
    assert_eq!(with_nic("nic-3"), "valid");
    assert!(with_nic("nic-4").contains("have 2 values of"), "{}", with_nic("nic-4"));
}

#[test]
fn exceeded_shared_counter_is_caught() {
    let part = |name: &str| {
        json!({"name": name, "consumesCounters": [
            {"counterSet": "gpu-0", "counters": {"memory": {"value": "40Gi"}}},
        ]})
    };
    let slices = vec![json!({"spec": {
        "driver": "gpu.nvidia.com", "nodeName": "node-0", "pool": {"name": "node-0"},
        "sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}],
        "devices": [part("gpu-0"), part("gpu-1"), part("gpu-2")],
    }})];
    let verdict_text = |parts: usize| {
        let names = ["a-0", "a-1", "a-2"];
        let names = &names[..parts];
        let bound = |name: &&str| bound(name, PodRequest::Template(GPU_TEMPLATE), 0);
        let claims = names.iter().enumerate().map(|(gpu, name)| claim(name, 0, gpu));
        let claims = claims.collect();
        let pods = names.iter().map(bound).collect();
        let nodes = vec![objects::node(0, Gpus::Dra, Contender::Octavo)];
        let cluster = Cluster { nodes, pods, claims, slices: slices.clone() };
        verdict(&cluster, true, &expect(&[("a", parts)], &[]))
    };
    assert_eq!(verdict_text(2), "valid");
    assert!(verdict_text(3).contains("devices that are given out"), "{}", verdict_text(3));
}
