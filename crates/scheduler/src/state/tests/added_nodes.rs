//! Nodes that come while others run: the engine cache grows and is not rebuilt.

use octavo_engine::NodeId;
use serde_json::{Value, json};

use super::claims::{claim, claiming, slice, testbed};
use super::fixtures::{Testbed, node, plugin_node, pod, with};

const RACK: &str = "/metadata/labels/topology.octavo.dev~1rack";

fn number(testbed: &mut Testbed, name: &str) -> Option<NodeId> {
    testbed.settle();
    testbed.scheduler.cache.engine().node(name)
}

fn on(pod: &str, node: &str) -> (String, String) {
    (pod.to_owned(), node.to_owned())
}

#[test]
fn an_added_node_gets_the_next_number_and_serves_at_once() {
    let mut testbed = Testbed::new();
    testbed.node(&node("m", 2));
    assert_eq!(number(&mut testbed, "m"), Some(NodeId(0)));
    testbed.pod(&pod("p", "4"));
    assert_eq!(testbed.settle(), [], "no room");
    // A rebuild would number it by its name.
    testbed.node(&node("a", 4));
    assert_eq!(testbed.settle(), [on("p", "a")]);
    assert_eq!(number(&mut testbed, "a"), Some(NodeId(1)));
    testbed.scheduler.drop_node(&"m".into());
    assert_eq!(number(&mut testbed, "a"), Some(NodeId(0)), "after a rebuild");
}

#[test]
fn pods_that_were_observed_before_their_node_use_it() {
    let mut testbed = Testbed::new();
    testbed.node(&node("m", 2));
    testbed.settle();
    testbed.pod(&with(pod("early", "3"), "/spec/nodeName", json!("a")));
    testbed.settle();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("p", "2"));
    assert_eq!(testbed.settle(), [on("p", "m")]);
    testbed.pod(&pod("q", "1"));
    assert_eq!(testbed.settle(), [on("q", "a")]);
}

#[test]
fn gpus_that_are_published_after_their_node_are_added_to_it() {
    let mut testbed = testbed(&["m"], 1);
    testbed.settle();
    let own =
        |name: &str| with(node(name, 8), "/metadata/labels/octavo.dev~1scheduler", json!("octavo"));
    testbed.node(&own("b"));
    testbed.node(&own("a"));
    assert_eq!(number(&mut testbed, "a"), Some(NodeId(2)));
    for name in ["p", "q", "r", "s"] {
        testbed.claim(&claim(&format!("{name}-gpu"), name));
        testbed.pod(&claiming(name));
    }
    assert_eq!(testbed.settle(), [on("p", "m")]);
    testbed.slice(&slice("b", 2));
    testbed.slice(&slice("a", 1));
    let mut placed = testbed.settle();
    placed.sort_by(|x, y| x.1.cmp(&y.1));
    let nodes: Vec<&str> = placed.iter().map(|(_, node)| &**node).collect();
    assert_eq!(nodes, ["a", "b", "b"]);
    assert_eq!(number(&mut testbed, "a"), Some(NodeId(2)), "without a rebuild");
}

#[test]
fn a_level_that_no_node_had_and_a_model_that_none_had_rebuild() {
    let rack = |node: Value| with(node, RACK, json!("r1"));
    let mut testbed = Testbed::new();
    testbed.node(&node("m", 2));
    testbed.settle();
    testbed.node(&rack(node("b", 2)));
    assert_eq!(number(&mut testbed, "b"), Some(NodeId(0)), "the level is new");
    testbed.node(&rack(node("a", 2)));
    assert_eq!(number(&mut testbed, "a"), Some(NodeId(2)), "the level is known");
    let world = &testbed.scheduler.cache.engine().world;
    let level = world.topology.level_named("rack").expect("the level");
    let (_, domain) = world.topology.at(level).next().expect("a rack");
    assert_eq!(domain.nodes.len(), 2);
    testbed.node(&plugin_node("g"));
    assert_eq!(number(&mut testbed, "a"), Some(NodeId(0)), "the model is new");
}
