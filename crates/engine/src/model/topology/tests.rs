use std::collections::BTreeMap;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn levels() -> [Level; 2] {
    ["block", "rack"].map(|name| Level { name: name.into(), label: name.into(), is_unique: false })
}

#[test]
fn a_domain_is_one_range_and_loose_nodes_come_last_in_it() {
    let nodes = [
        labels(&[("block", "b2"), ("rack", "r1")]),
        labels(&[("block", "b1")]),
        labels(&[("block", "b1"), ("rack", "r2")]),
        labels(&[]),
        labels(&[("block", "b1"), ("rack", "r1")]),
    ];
    let topology = Topology::from_labels(&levels(), &nodes).unwrap();
    assert_eq!(topology.order(), [4, 2, 1, 0, 3].map(NodeId));
    let paths: Vec<_> = topology.domains().map(|(id, _)| topology.path(id)).collect();
    assert_eq!(paths, ["cluster", "b1", "b2", "b1/r1", "b1/r2", "b2/r1"]);
    assert_eq!(topology.nodes(DomainId(1)), [4, 2, 1].map(NodeId));
    assert_eq!(topology.loose_nodes(DomainId(1)), [NodeId(1)]);
    assert_eq!(topology.loose_nodes(Topology::ROOT), [NodeId(3)]);
    assert_eq!(topology.domain_of(NodeId(1), LevelId(2)), None);
    assert_eq!(topology.domain_of(NodeId(2), LevelId(1)), Some(DomainId(1)));
    for node in (0..5).map(NodeId) {
        assert_eq!(topology.order()[topology.position(node) as usize], node);
    }
}

#[test]
fn hops_grow_with_each_level_that_is_climbed() {
    let nodes = [("b1", "r1"), ("b1", "r1"), ("b1", "r2"), ("b2", "r1")]
        .map(|(block, rack)| labels(&[("block", block), ("rack", rack)]));
    let topology = Topology::from_labels(&levels(), &nodes).unwrap();
    let hops: Vec<_> = (0..4).map(|other| topology.hops(NodeId(0), NodeId(other))).collect();
    assert_eq!(hops, [0, 2, 4, 6]);
    assert_eq!(Topology::flat(2).hops(NodeId(0), NodeId(1)), 2);
}

#[test]
fn a_clique_in_two_racks_is_refused_with_both() {
    let [rack, mut clique] = levels();
    clique.is_unique = true;
    let nodes = [("r1", "c1"), ("r2", "c1")]
        .map(|(rack, clique)| labels(&[("block", rack), ("rack", clique)]));
    let error = Topology::from_labels(&[rack, clique], &nodes).unwrap_err();
    assert!(error.to_string().contains("lies in r1 and in r2"), "{error}");
}

fn tree(domains: &[(&str, &str, Option<&str>, &[&str])]) -> Result<Topology, TopologyError> {
    let tree: Vec<_> = domains
        .iter()
        .map(|(name, level, parent, nodes)| TreeDomain {
            name: (*name).to_owned(),
            level: (*level).to_owned(),
            parent: parent.map(str::to_owned),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        })
        .collect();
    let names = ["n0", "n1", "n2"];
    let named = |name: &str| {
        let index = names.iter().position(|known| *known == name)?;
        Some(NodeId(u32::try_from(index).unwrap()))
    };
    Topology::from_tree(&["block".to_owned(), "rack".to_owned()], &tree, 3, named)
}

#[test]
fn a_tree_makes_the_same_topology_as_labels() {
    let written = tree(&[
        ("r2", "rack", Some("b1"), &["n0"]),
        ("b1", "block", None, &[]),
        ("r1", "rack", Some("b1"), &["n2", "n1"]),
    ]);
    let nodes = [("b1", "r2"), ("b1", "r1"), ("b1", "r1")]
        .map(|(block, rack)| labels(&[("block", block), ("rack", rack)]));
    assert_eq!(written, Topology::from_labels(&levels(), &nodes));
}

#[test]
fn a_tree_that_is_none_is_refused_by_name() {
    let error = |domains: &[(&str, &str, Option<&str>, &[&str])]| tree(domains).unwrap_err();
    let circle = error(&[("a", "rack", Some("b"), &["n0"]), ("b", "rack", Some("a"), &[])]);
    assert_eq!(circle, TopologyError::Cycle(["a", "b", "a"].map(str::to_owned).into()));
    let wrong = error(&[("a", "rack", None, &["n0"])]);
    assert!(matches!(wrong, TopologyError::WrongLevel { .. }), "{wrong}");
    let parent = error(&[("a", "rack", Some("b"), &["n0"])]);
    assert!(matches!(parent, TopologyError::UnknownParent { .. }), "{parent}");
    let level = error(&[("a", "row", None, &["n0"])]);
    assert!(level.to_string().contains("none of: block, rack"), "{level}");
    let node = error(&[("a", "block", None, &["n7"])]);
    assert!(matches!(node, TopologyError::UnknownNode { .. }), "{node}");
    let twice = error(&[("a", "block", None, &["n0"]), ("b", "block", None, &["n0"])]);
    assert!(matches!(twice, TopologyError::NodeTwice { .. }), "{twice}");
    let name = error(&[("a", "block", None, &[]), ("a", "block", None, &[])]);
    assert!(matches!(name, TopologyError::DuplicateDomain(_)), "{name}");
}
