//! What pods prefer: node affinity, pod affinity, soft spread and soft taints.

use octavo_kube_io::objects::ObjectName;
use serde_json::{Value, json};

use super::claims::{claim, claiming, slice, testbed as claims_testbed};
use super::fixtures::{Testbed, member, node, pod, pod_group, with};

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Three nodes of eight CPUs, in zones of their own.
fn zones() -> Testbed {
    let mut testbed = Testbed::new();
    for (name, zone) in [("a", "east"), ("b", "middle"), ("c", "west")] {
        testbed.node(&with(node(name, 8), "/metadata/labels/zone", json!(zone)));
    }
    testbed
}

fn prefers_zone(pod: Value, weight: u32, zone: &str) -> Value {
    let requirement = json!({"key": "zone", "operator": "In", "values": [zone]});
    let preferred = json!({PREFERRED: [
        {"weight": weight, "preference": {"matchExpressions": [requirement]}}
    ]});
    with(pod, "/spec/affinity/nodeAffinity", preferred)
}

fn app(pod: Value, name: &str) -> Value {
    with(pod, "/metadata/labels/app", json!(name))
}

/// Points that a pod's place misses.
fn missed(testbed: &Testbed, pod: &str) -> i64 {
    let name = ObjectName::new("team", pod);
    let explained = testbed.scheduler.explain_pod(&name).expect("the pod");
    let decision = serde_json::to_value(explained.decision.expect("a decision")).expect("JSON");
    let cost = decision["cost"].as_array().expect("costs").iter();
    let of_unit = cost.filter(|one| one["unit"] == "preferencesMissed");
    of_unit.filter_map(|one| one["value"].as_i64()).sum()
}

fn nodes_of(bound: &[(String, String)]) -> Vec<&str> {
    bound.iter().map(|(_, node)| node.as_str()).collect()
}

#[test]
fn pods_fill_the_preferred_zone_first_and_then_go_elsewhere() {
    for zone in ["east", "middle", "west"] {
        let mut testbed = zones();
        testbed.pod(&prefers_zone(pod("p", "5"), 10, zone));
        let liked = match zone {
            "east" => "a",
            "middle" => "b",
            _ => "c",
        };
        assert_eq!(nodes_of(&testbed.settle()), [liked]);
        assert_eq!(missed(&testbed, "p"), 0);
        // It is full: a preference is no requirement.
        testbed.pod(&prefers_zone(pod("q", "5"), 10, zone));
        let bound = testbed.settle();
        assert_eq!(bound.len(), 1);
        assert_ne!(bound[0].1, liked);
        assert_eq!(missed(&testbed, "q"), 200);
    }
}

#[test]
fn a_soft_spread_puts_replicas_on_different_nodes() {
    let mut testbed = zones();
    let replica = |name: &str| {
        let spread = json!([{
            "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1,
            "labelSelector": {"matchLabels": {"app": "web"}},
        }]);
        with(app(pod(name, "1"), "web"), "/spec/topologySpreadConstraints", spread)
    };
    let mut nodes = Vec::new();
    for name in ["p", "q", "r"] {
        testbed.pod(&replica(name));
        nodes.extend(testbed.settle().into_iter().map(|(_, node)| node));
    }
    nodes.sort_unstable();
    assert_eq!(nodes, ["a", "b", "c"]);
    testbed.pod(&replica("s"));
    assert_eq!(testbed.settle().len(), 1, "the spread is soft");
}

#[test]
fn a_node_with_a_soft_taint_is_the_last_choice() {
    let mut testbed = Testbed::new();
    let taint = json!([{"key": "slow", "value": "", "effect": "PreferNoSchedule"}]);
    testbed.node(&with(node("a", 8), "/spec/taints", taint));
    testbed.node(&node("b", 8));
    for name in ["p", "q"] {
        testbed.pod(&pod(name, "4"));
    }
    assert_eq!(nodes_of(&testbed.settle()), ["b", "b"]);
    testbed.pod(&pod("r", "4"));
    assert_eq!(nodes_of(&testbed.settle()), ["a"]);
}

#[test]
fn a_pod_goes_where_a_running_pod_wants_it() {
    let mut testbed = zones();
    let wants = json!({PREFERRED: [{"weight": 5, "podAffinityTerm": {
        "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "friend"}},
    }}]});
    let host = with(pod("host", "1"), "/spec/affinity/podAffinity", wants);
    testbed.pod(&with(host, "/spec/nodeSelector", json!({"zone": "west"})));
    assert_eq!(nodes_of(&testbed.settle()), ["c"]);
    testbed.pod(&app(pod("friend", "1"), "friend"));
    assert_eq!(nodes_of(&testbed.settle()), ["c"]);
}

#[test]
fn members_of_a_gang_go_to_the_zone_that_they_prefer() {
    for zone in ["east", "west"] {
        let mut testbed = zones();
        testbed.object(&pod_group("g", 2, json!({})));
        for name in ["p", "q"] {
            testbed.pod(&prefers_zone(member("g", name, "3"), 1, zone));
        }
        let bound = testbed.settle();
        let liked = if zone == "east" { "a" } else { "c" };
        assert_eq!(nodes_of(&bound), [liked, liked]);
    }
}

/// A slice whose GPUs are of another product.
fn product_slice(node: &str, product: &str) -> Value {
    with(slice(node, 1), "/spec/devices/0/attributes/productName/string", json!(product))
}

/// A claim for an H100, or else for an L4.
fn h100_or_l4(name: &str, pod: &str) -> Value {
    let alternative = |product: &str| {
        json!({
            "name": product.to_lowercase(), "deviceClassName": "gpu.nvidia.com",
            "allocationMode": "ExactCount", "count": 1,
            "selectors": [{"cel": {"expression":
                format!("device.attributes['gpu.nvidia.com'].productName == '{product}'")}}],
        })
    };
    let requests =
        json!([{"name": "gpu", "firstAvailable": [alternative("H100"), alternative("L4")]}]);
    with(claim(name, pod), "/spec/devices/requests", requests)
}

#[test]
fn the_first_alternative_of_a_claim_is_preferred_across_nodes() {
    for (first, second) in [("H100", "L4"), ("L4", "H100")] {
        let mut testbed = claims_testbed(&[], 0);
        for (name, product) in [("a", first), ("b", second)] {
            testbed.node(&node(name, 64));
            testbed.slice(&product_slice(name, product));
        }
        for name in ["p", "q"] {
            testbed.claim(&h100_or_l4(&format!("{name}-gpu"), name));
        }
        let with_h100 = if first == "H100" { "a" } else { "b" };
        let with_l4 = if first == "H100" { "b" } else { "a" };
        testbed.pod(&claiming("p"));
        assert_eq!(testbed.settle(), [("p".to_owned(), with_h100.to_owned())], "{first} on a");
        testbed.pod(&claiming("q"));
        assert_eq!(testbed.settle(), [("q".to_owned(), with_l4.to_owned())], "what is left");
    }
}

#[test]
fn members_of_a_gang_get_their_first_alternatives_too() {
    let mut testbed = claims_testbed(&[], 0);
    for (name, product) in [("a", "L4"), ("b", "H100"), ("c", "L4"), ("d", "H100")] {
        testbed.node(&node(name, 64));
        testbed.slice(&product_slice(name, product));
    }
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["p", "q"] {
        testbed.claim(&h100_or_l4(&format!("{name}-gpu"), name));
        let labels = json!({"octavo.dev/pod-group": "g"});
        testbed.pod(&with(claiming(name), "/metadata/labels", labels));
    }
    let mut nodes: Vec<String> = testbed.settle().into_iter().map(|(_, node)| node).collect();
    nodes.sort();
    assert_eq!(nodes, ["b", "d"]);
}
