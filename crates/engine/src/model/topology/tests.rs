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
