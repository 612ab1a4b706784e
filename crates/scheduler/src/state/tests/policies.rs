use serde_json::{Value, json};

use super::fixtures::{Testbed, node, with};
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
