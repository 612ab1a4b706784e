//! Pods of a `ComputeDomain`: they keep to one NVLink clique, without rules of their own.

use serde_json::{Value, json};

use super::claims::{class as gpu_class, slice as gpu_slice};
use super::fixtures::{Testbed, member, node, pod, pod_group, with};

const CLASS: &str = "compute-domain-default-channel.nvidia.com";
const DRIVER: &str = "compute-domain.nvidia.com";

fn class() -> Value {
    let expression =
        format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'channel'");
    json!({
        "metadata": {"name": CLASS, "uid": "uid-channel-class"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    })
}

/// Trays with GPUs and a channel: two a clique, in this order.
fn trays(names: &[&str]) -> Testbed {
    let mut testbed = Testbed::new();
    testbed.class(&gpu_class());
    testbed.class(&class());
    for (index, name) in names.iter().enumerate() {
        let clique = json!(format!("c.{}", index / 2));
        testbed.node(&with(node(name, 64), "/metadata/labels/nvidia.com~1gpu.clique", clique));
        testbed.slice(&gpu_slice(name, 4));
        testbed.slice(&json!({
            "metadata": {"name": format!("channel-{name}"), "uid": format!("uid-channel-{name}")},
            "spec": {
                "driver": DRIVER, "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{
                    "name": "channel-0",
                    "attributes": {"type": {"string": "channel"}, "id": {"int": 0}},
                }],
            },
        }));
    }
    testbed
}

/// A claim of a domain on a channel and, beside it, on GPUs of the other driver.
fn claim(pod: &str, domain: &str) -> Value {
    let request = |name: &str, class: &str, count: u32| {
        json!({"name": name, "exactly": {
            "deviceClassName": class, "allocationMode": "ExactCount", "count": count,
        }})
    };
    json!({
        "metadata": {
            "name": format!("{pod}-all"), "namespace": "team", "uid": format!("uid-{pod}-all"),
            "resourceVersion": "1",
            "labels": {"resource.nvidia.com/computeDomain": domain},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": format!("uid-{pod}"),
                "controller": true,
            }],
        },
        "spec": {"devices": {"requests": [
            request("channel", CLASS, 1), request("gpus", "gpu.nvidia.com", 4),
        ]}},
        "status": {},
    })
}

/// The pod with this claim.
fn claiming(pod: Value) -> Value {
    let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
    let claims = json!([{"name": "all", "resourceClaimTemplateName": "job"}]);
    let pod = with(pod, "/spec/resourceClaims", claims);
    let pod = with(pod, "/spec/containers/0/resources/claims", json!([{"name": "all"}]));
    let statuses = json!([{"name": "all", "resourceClaimName": format!("{name}-all")}]);
    with(pod, "/status/resourceClaimStatuses", statuses)
}

fn nodes(bound: &[(String, String)]) -> Vec<&str> {
    let mut nodes: Vec<&str> = bound.iter().map(|(_, node)| node.as_str()).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn a_gang_goes_to_one_clique() {
    // A gang of two would fit any two of the trays.
    for taken in ["a", "b"] {
        let mut testbed = trays(&["a", "b", "c", "d"]);
        testbed.claim(&claim("other", "domain-0"));
        let other = json!({"kubernetes.io/hostname": taken});
        testbed.pod(&claiming(with(pod("other", "1"), "/spec/nodeSelector", other)));
        assert_eq!(nodes(&testbed.settle()), [taken]);
        testbed.object(&pod_group("g", 2, json!({})));
        for name in ["m0", "m1"] {
            testbed.claim(&claim(name, "domain-1"));
            testbed.pod(&claiming(member("g", name, "1")));
        }
        assert_eq!(nodes(&testbed.settle()), ["c", "d"]);
    }
}

#[test]
fn a_gang_too_large_for_a_clique_is_placed_all_the_same() {
    let mut testbed = trays(&["a", "b", "c", "d"]);
    testbed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        testbed.claim(&claim(name, "domain-1"));
        testbed.pod(&claiming(member("g", name, "1")));
    }
    assert_eq!(testbed.settle().len(), 3);
}

#[test]
fn single_pods_follow_their_domain() {
    for first in ["a", "c", "d"] {
        let mut testbed = trays(&["a", "b", "c", "d"]);
        testbed.claim(&claim("w0", "domain-1"));
        let there = json!({"kubernetes.io/hostname": first});
        testbed.pod(&claiming(with(pod("w0", "1"), "/spec/nodeSelector", there)));
        assert_eq!(nodes(&testbed.settle()), [first]);
        testbed.claim(&claim("w1", "domain-1"));
        testbed.pod(&claiming(pod("w1", "1")));
        let neighbour = match first {
            "a" => "b",
            "c" => "d",
            _ => "c",
        };
        assert_eq!(nodes(&testbed.settle()), [neighbour]);
        // The clique is full: the domain goes on elsewhere.
        testbed.claim(&claim("w2", "domain-1"));
        testbed.pod(&claiming(pod("w2", "1")));
        assert_eq!(testbed.settle().len(), 1);
    }
}

#[test]
fn wishes_of_the_user_take_precedence() {
    let mut trays = trays(&["a", "b", "c", "d"]);
    // Racks lie across cliques here.
    for (name, rack) in [("a", "r0"), ("b", "r1"), ("c", "r0"), ("d", "r1")] {
        let clique = if matches!(name, "a" | "b") { "c.0" } else { "c.1" };
        let labelled =
            with(node(name, 64), "/metadata/labels/nvidia.com~1gpu.clique", json!(clique));
        trays.node(&with(labelled, "/metadata/labels/topology.octavo.dev~1rack", json!(rack)));
    }
    trays.object(&pod_group("g", 2, json!({"required": "rack"})));
    for name in ["m0", "m1"] {
        trays.claim(&claim(name, "domain-1"));
        trays.pod(&claiming(member("g", name, "1")));
    }
    let bound = trays.settle();
    assert!(matches!(nodes(&bound)[..], ["a", "c"] | ["b", "d"]), "{bound:?}");
}
