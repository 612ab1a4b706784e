use serde_json::json;

use super::*;
use crate::scheduler::objects::{self, Ask, LEVELS};

const BLOCK: &str = LEVELS[0].0;

fn bound(name: &str, ask: Ask, node: usize) -> Value {
    let mut pod = objects::pod(name, ask, Contender::Octavo);
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
        "status": objects::allocated("gpu", (node, gpu), (pod, pod)),
    })
}

fn cluster(gpus: Gpus, pods: Vec<Value>, claims: Vec<Value>) -> Cluster {
    let nodes = (0..200).map(|number| objects::node(number, gpus, Contender::Octavo)).collect();
    let slices = (0..2).map(|number| objects::slice(number, Contender::Octavo)).collect();
    Cluster { nodes, pods, claims, slices }
}

fn expect(bound: &[(&str, usize)], gangs: &[(&str, Near)]) -> Expected {
    Expected {
        bound: bound.iter().map(|(set, count)| ((*set).to_owned(), *count..=*count)).collect(),
        gangs: gangs.iter().map(|(gang, near)| ((*gang).to_owned(), *near)).collect(),
    }
}

fn verdict(cluster: &Cluster, is_dra: bool, expected: &Expected) -> String {
    match cluster.check(Contender::Octavo, is_dra, expected) {
        Ok(()) => "valid".to_owned(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn a_node_with_more_gpus_taken_than_it_has_is_found() {
    let fits = vec![bound("a-0", Ask::Gpus(6), 0), bound("a-1", Ask::Gpus(2), 0)];
    let expected = expect(&[("a", 2)], &[]);
    assert_eq!(verdict(&cluster(Gpus::Plain, fits, Vec::new()), false, &expected), "valid");
    let full = vec![bound("a-0", Ask::Gpus(6), 0), bound("a-1", Ask::Gpus(3), 0)];
    let said = verdict(&cluster(Gpus::Plain, full, Vec::new()), false, &expected);
    assert!(said.contains("node-0 has 8 nvidia.com/gpu and its pods 9"), "{said}");
}

#[test]
fn a_device_that_is_given_twice_or_elsewhere_or_not_at_all_is_found() {
    let pods = || vec![bound("a-0", Ask::Template, 0), bound("a-1", Ask::Gpus(1), 0)];
    let expected = expect(&[("a", 2)], &[]);
    let said = |claims| verdict(&cluster(Gpus::Dra, pods(), claims), true, &expected);
    assert_eq!(said(vec![claim("a-0", 0, 0), claim("a-1", 0, 1)]), "valid");
    let twice = said(vec![claim("a-0", 0, 0), claim("a-1", 0, 0)]);
    assert!(twice.contains("is given twice"), "{twice}");
    let elsewhere = said(vec![claim("a-0", 0, 0), claim("a-1", 1, 0)]);
    assert!(elsewhere.contains("a-1 on node-0 has the device gpu-0 of node-1"), "{elsewhere}");
    let none = said(vec![claim("a-0", 0, 0)]);
    assert!(none.contains("a-1 has 0 devices, and asked for 1"), "{none}");
    let unknown = said(vec![claim("a-0", 0, 0), claim("a-1", 0, 9)]);
    assert!(unknown.contains("is not there"), "{unknown}");
}

#[test]
fn half_a_gang_and_a_gang_in_two_domains_are_found() {
    let gangs = [("g", Near::Required(BLOCK))];
    let whole = expect(&[("g", 2)], &gangs);
    let together = vec![bound("g-0", Ask::Plain, 0), bound("g-1", Ask::Plain, 127)];
    assert_eq!(verdict(&cluster(Gpus::Plain, together, Vec::new()), false, &whole), "valid");
    let apart = vec![bound("g-0", Ask::Plain, 0), bound("g-1", Ask::Plain, 128)];
    let said = verdict(&cluster(Gpus::Plain, apart, Vec::new()), false, &whole);
    assert!(said.contains("is in 2 of topology.octavo.dev/block"), "{said}");
    let mut half = vec![bound("g-0", Ask::Plain, 0), bound("g-1", Ask::Plain, 0)];
    half[1]["spec"]["nodeName"] = Value::Null;
    let said = verdict(&cluster(Gpus::Plain, half, Vec::new()), false, &expect(&[], &gangs));
    assert!(said.contains("1 of 2 pods of the gang g are bound"), "{said}");
}

#[test]
fn pods_that_are_missing_or_on_others_nodes_are_found() {
    let pods = vec![bound("a-0", Ask::Plain, 0)];
    let cluster = cluster(Gpus::None, pods.clone(), Vec::new());
    let said = verdict(&cluster, false, &expect(&[("a", 2)], &[]));
    assert!(said.contains("1 pods of a are bound, and not 2"), "{said}");
    let nodes = vec![objects::node(0, Gpus::None, Contender::Kube)];
    let others = Cluster { nodes, pods, claims: Vec::new(), slices: Vec::new() };
    let said = verdict(&others, false, &expect(&[("a", 1)], &[]));
    assert!(said.contains("a node of others"), "{said}");
}

#[test]
fn fewer_or_more_bound_than_was_said_are_found() {
    let pods = || vec![bound("a-0", Ask::Plain, 0), bound("a-1", Ask::Plain, 0)];
    let said = |wanted| {
        let expected =
            Expected { bound: [("a".to_owned(), wanted)].into(), gangs: BTreeMap::new() };
        verdict(&cluster(Gpus::None, pods(), Vec::new()), false, &expected)
    };
    assert_eq!((said(1..=2), said(2..=3)), ("valid".to_owned(), "valid".to_owned()));
    assert!(said(3..=4).contains("2 pods of a are bound, and not 3"), "{}", said(3..=4));
    assert!(said(0..=1).contains("2 pods of a are bound, of 1 there"), "{}", said(0..=1));
}
