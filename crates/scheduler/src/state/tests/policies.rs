use serde_json::{Value, json};

use super::claims::{claim, claiming, class, slice};
use super::fixtures::{Testbed, node, pod_group, with};
use crate::status::StatusUpdate;

fn policy(spare_nodes: u32) -> Value {
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "spares", "uid": "uid-spares", "generation": 1},
        "spec": {
            "order": [{"unit": "hops"}],
            "constraints": {"spares": [{"level": "rack", "nodes": spare_nodes}]},
        },
    })
}

/// The reasons that were reported about the policy; `None` where it is accepted.
fn reasons(testbed: &mut Testbed) -> Vec<Option<&'static str>> {
    testbed.ops();
    let reports = std::mem::take(&mut testbed.reports);
    let reasons = reports.iter().filter_map(|report| match report {
        StatusUpdate::Policy { error, .. } => Some(error.as_ref().map(|error| error.reason)),
        _ => None,
    });
    reasons.collect()
}

/// Three nodes of a rack with two GPUs each, and a default policy with these spare nodes.
fn with_spares(spares: &Value) -> Testbed {
    let mut testbed = Testbed::new();
    testbed.class(&class());
    for name in ["a", "b", "c"] {
        testbed.node(&with(
            node(name, 64),
            "/metadata/labels/topology.octavo.dev~1rack",
            json!("r1"),
        ));
        testbed.slice(&slice(name, 2));
    }
    let spec = json!({
        "isDefault": true, "order": [{"unit": "podsDisturbed"}, {"unit": "hops"}],
        "constraints": {"spares": [spares]},
    });
    testbed.object(&with(policy(1), "/spec", spec));
    testbed
}

fn create(testbed: &mut Testbed, name: &str, priority: i32, index: Option<u32>) {
    testbed.claim(&claim(&format!("{name}-gpu"), name));
    let pod = with(claiming(name), "/spec/priority", json!(priority));
    let labels = index.map_or_else(
        || json!({}),
        |index| {
            json!({
                "octavo.dev/pod-group": "g",
                "batch.kubernetes.io/job-completion-index": index.to_string(),
            })
        },
    );
    testbed.pod(&with(pod, "/metadata/labels", labels));
}

#[test]
fn spare_nodes_stay_free_until_a_gang_is_repaired() {
    let mut testbed = with_spares(&json!({"level": "rack", "nodes": 1}));
    testbed.object(&pod_group("g", 4, json!({})));
    for index in 0..4 {
        create(&mut testbed, &format!("m{index}"), 0, Some(index));
    }
    let bound = testbed.settle();
    let used: std::collections::BTreeSet<_> = bound.iter().map(|(_, node)| node.clone()).collect();
    assert_eq!((bound.len(), used.len()), (4, 2), "a node is spare");
    create(&mut testbed, "other", 0, None);
    assert_eq!(testbed.settle(), [], "another pod does not get it");
    testbed.drop_pod("other");
    testbed.drop_claim("other-gpu");
    // The first member's GPU is fenced, and it comes back.
    let (_, at) = bound.iter().find(|(name, _)| name == "m0").expect("it is bound").clone();
    let device =
        &testbed.claims["m0-gpu"]["status"]["allocation"]["devices"]["results"][0]["device"];
    let number = i32::from(device != "gpu-0");
    let taint = json!([{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]);
    let fenced = with(slice(&at, 2), &format!("/spec/devices/{number}/taints"), taint);
    testbed.slice(&with(fenced, "/spec/pool/generation", json!(2)));
    testbed.drop_pod("m0");
    testbed.drop_claim("m0-gpu");
    create(&mut testbed, "m0-again", 0, Some(0));
    testbed.time(2_000);
    let repaired = testbed.settle();
    assert_eq!(repaired.len(), 1);
    assert!(repaired[0].0 == "m0-again" && !used.contains(&repaired[0].1), "{repaired:?}");
}

#[test]
fn spare_nodes_are_lent_to_pods_of_low_priority() {
    let spares = json!({"level": "rack", "nodes": 1, "lendBelowPriority": 0});
    let mut testbed = with_spares(&spares);
    for number in 0..4 {
        create(&mut testbed, &format!("p{number}"), 10, None);
    }
    assert_eq!(testbed.settle().len(), 4);
    create(&mut testbed, "high", 10, None);
    create(&mut testbed, "low", -1, None);
    let bound = testbed.settle();
    assert_eq!(bound.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["low"]);
}

#[test]
fn the_number_of_spare_nodes_is_computed() {
    // Three nodes with two GPUs each: within 30 days one fails with a probability of 6%, two with less than 1%.
    let spares = json!({"level": "rack", "nodes": "auto", "refillSeconds": 30 * 86_400});
    let mut testbed = with_spares(&spares);
    for number in 0..6 {
        create(&mut testbed, &format!("p{number}"), 0, None);
    }
    assert_eq!(testbed.settle().len(), 4, "a node is spare");
    let mut testbed = with_spares(&json!({"level": "rack", "nodes": "auto", "refillSeconds": 60}));
    for number in 0..6 {
        create(&mut testbed, &format!("p{number}"), 0, None);
    }
    assert_eq!(testbed.settle().len(), 6, "within a minute none fails");
}

#[test]
fn limits_that_the_cluster_cannot_keep_are_reported_until_it_can() {
    let mut testbed = Testbed::new();
    let label = "/metadata/labels/topology.octavo.dev~1rack";
    let gpu_node = |name: &str| with(super::fixtures::plugin_node(name), label, json!("r1"));
    testbed.node(&node("a", 4));
    testbed.object(&policy(2));
    assert_eq!(reasons(&mut testbed).last(), Some(&Some("LimitsNotKept")), "there is no rack");
    testbed.node(&gpu_node("b"));
    assert_eq!(reasons(&mut testbed), [Some("LimitsNotKept")], "the rack has one node");
    testbed.node(&gpu_node("c"));
    assert_eq!(reasons(&mut testbed), [None]);
    testbed.node(&gpu_node("d"));
    assert_eq!(reasons(&mut testbed), [], "nothing has changed for it");
}
