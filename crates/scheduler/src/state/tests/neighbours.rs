//! Pods with rules about other pods: affinity, anti-affinity, and topology spread.

use serde_json::{Value, json};

use super::fixtures::{Testbed, member, node, pod, pod_group, with};

const HOST: &str = "kubernetes.io/hostname";

fn zoned(name: &str, cpu: u32, zone: &str) -> Value {
    with(node(name, cpu), "/metadata/labels/zone", json!(zone))
}

fn labelled(pod: Value, app: &str) -> Value {
    with(pod, "/metadata/labels/app", json!(app))
}

fn term(app: &str, topology_key: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": topology_key, "labelSelector": {"matchLabels": {"app": app}},
    }]})
}

fn near(pod: Value, app: &str, topology_key: &str) -> Value {
    with(pod, "/spec/affinity/podAffinity", term(app, topology_key))
}

fn apart(pod: Value, app: &str, topology_key: &str) -> Value {
    with(pod, "/spec/affinity/podAntiAffinity", term(app, topology_key))
}

fn spread(pod: Value, app: &str, topology_key: &str) -> Value {
    with(
        pod,
        "/spec/topologySpreadConstraints",
        json!([{
            "topologyKey": topology_key, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1,
            "labelSelector": {"matchLabels": {"app": app}},
        }]),
    )
}

/// Two nodes in zone `east` and one in `west`.
fn zones() -> Testbed {
    let mut testbed = Testbed::new();
    for (name, zone) in [("a", "east"), ("b", "east"), ("c", "west")] {
        testbed.node(&zoned(name, 8, zone));
    }
    testbed
}

fn nodes_of(bound: &[(String, String)]) -> Vec<&str> {
    let mut nodes: Vec<_> = bound.iter().map(|(_, node)| node.as_str()).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn pods_apart_by_host_get_a_node_each() {
    let mut testbed = zones();
    for name in ["p", "q", "r", "s"] {
        testbed.pod(&apart(labelled(pod(name, "1"), "web"), "web", HOST));
    }
    assert_eq!(nodes_of(&testbed.settle()), ["a", "b", "c"]);
    let (reason, message) = testbed.reason("s").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    assert!(message.contains("node(s) didn't match pod anti-affinity rules"), "{message}");
    testbed.drop_pod("q");
    assert_eq!(testbed.settle().len(), 1, "its place is free");
}

#[test]
fn a_pod_with_affinity_waits_for_its_friend_and_follows_it() {
    let mut testbed = zones();
    testbed.pod(&near(pod("follower", "1"), "friend", "zone"));
    assert_eq!(testbed.settle(), []);
    let (_, message) = testbed.reason("follower").expect("a reason");
    assert_eq!(message, "no node is feasible: node(s) didn't match pod affinity rules");
    let there = json!({HOST: "c"});
    testbed.pod(&with(labelled(pod("friend", "1"), "friend"), "/spec/nodeSelector", there));
    let bound = testbed.settle();
    assert_eq!(
        bound,
        [("follower".to_owned(), "c".to_owned()), ("friend".to_owned(), "c".to_owned())]
    );
}

#[test]
fn a_running_pod_that_gets_the_label_is_a_friend() {
    let mut testbed = zones();
    let there = json!({HOST: "c"});
    testbed.pod(&with(pod("friend", "1"), "/spec/nodeSelector", there));
    testbed.settle();
    testbed.pod(&near(pod("follower", "1"), "friend", "zone"));
    assert_eq!(testbed.settle(), []);
    testbed.pod(&labelled(testbed.pods["friend"].clone(), "friend"));
    testbed.time(1000);
    assert_eq!(testbed.settle(), [("follower".to_owned(), "c".to_owned())]);
}

#[test]
fn the_first_of_pods_that_want_each_other_goes_anywhere() {
    let mut testbed = zones();
    for number in 0..4 {
        let pod = pod(&format!("p{number}"), "5");
        testbed.pod(&near(labelled(pod, "web"), "web", "zone"));
    }
    let bound = testbed.settle();
    let nodes = nodes_of(&bound);
    assert!(nodes == ["a", "b"] || nodes == ["c"], "all in one zone: {bound:?}");
}

#[test]
fn spread_pods_are_even_and_wait_for_the_emptier_domain() {
    let mut testbed = zones();
    for number in 0..4 {
        let pod = pod(&format!("p{number}"), "4");
        testbed.pod(&spread(labelled(pod, "web"), "web", "zone"));
    }
    let bound = testbed.settle();
    assert_eq!(bound.len(), 4);
    assert_eq!(bound.iter().filter(|(_, node)| node == "c").count(), 2, "{bound:?}");
    // Zone `west` is full, and `east` may have one more pod than it.
    for name in ["fifth", "sixth"] {
        testbed.pod(&spread(labelled(pod(name, "4"), "web"), "web", "zone"));
    }
    assert_eq!(testbed.settle().len(), 1);
    let (_, message) = testbed.reason("sixth").expect("a reason");
    assert!(message.contains("node(s) didn't match pod topology spread constraints"), "{message}");
    testbed.node(&zoned("d", 4, "west"));
    testbed.time(1000);
    assert_eq!(testbed.settle(), [("sixth".to_owned(), "d".to_owned())]);
}

#[test]
fn a_gang_with_anti_affinity_gets_a_node_for_each_member() {
    let mut testbed = Testbed::new();
    for number in 0..12 {
        testbed.node(&zoned(&format!("n{number:02}"), 8, "east"));
    }
    testbed.object(&pod_group("g", 10, json!({})));
    for number in 0..10 {
        let member = member("g", &format!("g{number}"), "1");
        testbed.pod(&apart(labelled(member, "web"), "web", HOST));
    }
    let bound = testbed.settle();
    let mut nodes = nodes_of(&bound);
    nodes.dedup();
    assert_eq!((bound.len(), nodes.len()), (10, 10), "{bound:?}");
}

#[test]
fn a_gang_whose_members_cannot_be_apart_takes_nothing() {
    let mut testbed = zones();
    testbed.object(&pod_group("g", 4, json!({})));
    for number in 0..4 {
        let member = member("g", &format!("g{number}"), "1");
        testbed.pod(&apart(labelled(member, "web"), "web", HOST));
    }
    assert_eq!(testbed.settle(), []);
    let (reason, message) = testbed.reason("g0").expect("a reason");
    assert_eq!(reason, "Unschedulable", "{message}");
    testbed.pod(&pod("other", "8"));
    assert_eq!(testbed.settle().len(), 1, "nothing is reserved");
    testbed.node(&zoned("d", 8, "west"));
    testbed.time(1000);
    assert_eq!(testbed.settle(), [], "three nodes have room");
    testbed.node(&zoned("e", 8, "west"));
    testbed.time(1000);
    assert_eq!(testbed.settle().len(), 4);
}

#[test]
fn a_preemptor_stays_away_from_those_that_remain() {
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&zoned(name, 4, "east"));
        let low = labelled(pod(&format!("low-{name}"), "3"), "low");
        testbed.pod(&with(low, "/spec/nodeSelector", json!({HOST: name})));
    }
    let web = labelled(pod("web", "1"), "web");
    testbed.pod(&with(web, "/spec/nodeSelector", json!({HOST: "a"})));
    assert_eq!(testbed.settle().len(), 3);
    let high = with(pod("high", "2"), "/spec/priority", json!(100));
    testbed.pod(&apart(high, "web", HOST));
    let evicted = super::fixtures::evicted(&testbed.ops());
    assert_eq!(evicted, ["low-b"]);
}

#[test]
fn a_gang_with_spread_constraints_uses_large_nodes_several_times() {
    let mut testbed = Testbed::new();
    for (name, zone) in [("a", "east"), ("b", "north"), ("c", "west")] {
        testbed.node(&zoned(name, 16, zone));
    }
    testbed.object(&pod_group("g", 6, json!({})));
    for number in 0..6 {
        let member = member("g", &format!("g{number}"), "1");
        testbed.pod(&spread(labelled(member, "web"), "web", "zone"));
    }
    assert_eq!(nodes_of(&testbed.settle()), ["a", "a", "b", "b", "c", "c"]);
}

#[test]
fn a_gang_whose_members_want_each_other_finds_the_zone_with_room() {
    let mut testbed = Testbed::new();
    // The fullest node that fits is in the zone that is too small.
    for (name, cpu, zone) in [("a", 2, "east"), ("b", 4, "west"), ("c", 4, "west")] {
        testbed.node(&zoned(name, cpu, zone));
    }
    testbed.object(&pod_group("g", 4, json!({})));
    for number in 0..4 {
        let member = member("g", &format!("g{number}"), "2");
        testbed.pod(&near(labelled(member, "web"), "web", "zone"));
    }
    assert_eq!(nodes_of(&testbed.settle()), ["b", "b", "c", "c"]);
}

#[test]
fn the_pod_that_a_preemptor_needs_is_no_victim() {
    let mut testbed = Testbed::new();
    testbed.node(&zoned("a", 4, "east"));
    testbed.pod(&labelled(pod("cache", "3"), "cache"));
    assert_eq!(testbed.settle().len(), 1);
    let high = with(pod("high", "2"), "/spec/priority", json!(100));
    testbed.pod(&near(high, "cache", HOST));
    assert_eq!(super::fixtures::evicted(&testbed.ops()), [""; 0]);
}

#[test]
fn no_pod_is_evicted_for_members_that_exclude_each_other() {
    let mut testbed = zones();
    for name in ["a", "b", "c"] {
        let low = with(pod(&format!("low-{name}"), "7"), "/spec/nodeName", json!(name));
        testbed.pod(&with(low, "/status/phase", json!("Running")));
    }
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["g0", "g1"] {
        let member = with(member("g", name, "4"), "/spec/priority", json!(100));
        testbed.pod(&apart(labelled(member, "web"), "web", HOST));
    }
    let evicted = super::fixtures::evicted(&testbed.ops());
    // Either both members fit afterwards, or no pod leaves.
    assert!(evicted.is_empty() || evicted.len() == 2, "{evicted:?}");
}

#[test]
fn a_gang_waits_for_the_friend_of_its_leader() {
    let mut testbed = zones();
    testbed.object(&pod_group("g", 20, json!({})));
    for number in 0..20 {
        let member = member("g", &format!("g{number:02}"), "1");
        let is_leader = number == 19;
        testbed.pod(&if is_leader { near(member, "friend", "zone") } else { member });
    }
    assert_eq!(testbed.settle(), []);
    testbed.pod(&labelled(pod("friend", "1"), "friend"));
    assert_eq!(testbed.settle().len(), 21);
}

#[test]
fn pods_with_and_without_rules_do_not_wait_as_one() {
    let mut testbed = Testbed::new();
    testbed.node(&zoned("a", 4, "east"));
    let never = |pod| with(pod, "/spec/preemptionPolicy", json!("Never"));
    testbed.pod(&labelled(pod("loud", "1"), "loud"));
    testbed.pod(&pod("full", "3"));
    assert_eq!(testbed.settle().len(), 2);
    testbed.pod(&never(apart(pod("0-apart", "2"), "loud", HOST)));
    testbed.pod(&never(pod("1-plain", "2")));
    assert_eq!(testbed.settle(), []);
    testbed.drop_pod("full");
    assert_eq!(testbed.settle(), [("1-plain".to_owned(), "a".to_owned())]);
}
