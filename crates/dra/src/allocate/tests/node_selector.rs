use super::fixtures::*;
use crate::*;

fn selector(key: &str, values: &[&str]) -> NodeSelector {
    let values = values.iter().map(|&value| value.to_owned()).collect();
    let one = NodeRequirement { key: key.to_owned(), operator: NodeOperator::In, values };
    NodeSelector { terms: vec![NodeSelectorTerm { labels: vec![one], fields: Vec::new() }] }
}

fn labelled() -> Node {
    let labels = [("zone", "a"), ("fabric", "f1")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Node { labels: labels.into(), ..node("n1") }
}

/// The only slice of a pool, with one device.
fn pool(name: &str, nodes: NodeScope) -> Slice {
    let mut one = slice(name, devices(&[name]));
    one.nodes = nodes;
    one
}

fn node_selector(slices: Vec<Slice>, count: u64) -> Option<NodeSelector> {
    let world = World::new(slices);
    world.allocate_on(&labelled(), &[&gpus("c1", count)]).unwrap().remove(0).nodes
}

fn only_n1() -> NodeSelector {
    let name = NodeRequirement {
        key: "metadata.name".to_owned(),
        operator: NodeOperator::In,
        values: vec!["n1".to_owned()],
    };
    NodeSelector { terms: vec![NodeSelectorTerm { labels: Vec::new(), fields: vec![name] }] }
}

#[test]
fn a_nodes_own_device_ties_the_claim_to_the_node() {
    assert_eq!(
        node_selector(vec![pool("a", NodeScope::Node("n1".to_owned()))], 1),
        Some(only_n1())
    );
    let mixed = vec![pool("a", NodeScope::All), pool("b", NodeScope::Node("n1".to_owned()))];
    assert_eq!(node_selector(mixed, 2), Some(only_n1()));
}

#[test]
fn devices_for_all_nodes_tie_to_none() {
    assert_eq!(node_selector(vec![pool("a", NodeScope::All)], 1), None);
}

#[test]
fn what_devices_require_of_nodes_is_put_together_once() {
    let zone = || NodeScope::Selector(selector("zone", &["b", "a"]));
    let same = NodeScope::Selector(selector("zone", &["a", "b"]));
    let fabric = NodeScope::Selector(selector("fabric", &["f1"]));
    let nodes =
        node_selector(vec![pool("a", zone()), pool("b", same), pool("c", fabric)], 3).unwrap();
    let mut expected = selector("zone", &["b", "a"]);
    expected.terms[0].labels.extend(selector("fabric", &["f1"]).terms.remove(0).labels);
    assert_eq!(nodes, expected);
}

#[test]
fn a_device_that_binds_ties_the_claim_to_the_node() {
    let mut remote = pool("a", NodeScope::All);
    remote.devices[0].binds_to_node = true;
    assert_eq!(node_selector(vec![remote], 1), Some(only_n1()));
}

#[test]
fn devices_may_say_for_themselves_where_they_are() {
    let mut mixed = pool("a", NodeScope::PerDevice);
    mixed.devices = devices(&["here", "there", "everywhere", "nowhere"]);
    mixed.devices[0].nodes = Some(NodeScope::Node("n1".to_owned()));
    mixed.devices[1].nodes = Some(NodeScope::Node("n2".to_owned()));
    mixed.devices[2].nodes = Some(NodeScope::Selector(selector("zone", &["a"])));
    let world = World::new(vec![mixed]);
    let allocation = world.allocate_on(&labelled(), &[&gpus("c1", 2)]).unwrap().remove(0);
    let names: Vec<&str> = allocation.results.iter().map(|one| one.device.as_str()).collect();
    assert_eq!(names, ["here", "everywhere"]);
    assert_eq!(world.allocate_on(&labelled(), &[&gpus("c1", 3)]), Err(AllocateError::NoFit));
    let anywhere = world.allocate_on(&labelled(), &[&one("c1", ask(1))]).unwrap().remove(0);
    assert_eq!(anywhere.nodes, Some(only_n1()));
}

#[test]
fn a_selector_of_several_terms_cannot_be_carried_on() {
    let mut two = selector("zone", &["a"]);
    two.terms.extend(selector("fabric", &["f1"]).terms);
    let world = World::new(vec![pool("a", NodeScope::Selector(two))]);
    let error = world.allocate_on(&labelled(), &[&gpus("c1", 1)]).unwrap_err();
    assert_eq!(error.to_string(), "slice a-1 selects nodes with 2 terms; one is allowed");
}

#[test]
fn an_unsound_selector_is_an_error_of_its_slice() {
    let world = World::new(vec![pool("a", NodeScope::Selector(selector("zone", &[])))]);
    let error = world.allocate_on(&labelled(), &[&gpus("c1", 1)]).unwrap_err();
    assert!(error.to_string().starts_with("slice a-1: node selector requires zone In []"));
    assert!(!error.is_node_specific());
}
