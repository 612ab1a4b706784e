//! The labels of GPU feature discovery on the Node, under the chart's admission policy.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::testbed::{Testbed, eventually};

const NODE: &str = "dgx-h100-0";

/// The node's labels that NVIDIA's programs write. That of its clique is left out: agents write it at any time.
async fn labels(testbed: &Testbed) -> BTreeMap<String, String> {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let mut labels = nodes.get(NODE).await.unwrap().metadata.labels.unwrap_or_default();
    labels.retain(|key, _| key.starts_with("nvidia.com/") && key != "nvidia.com/gpu.clique");
    labels
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_labels_its_node_as_gpu_feature_discovery_does_and_removes_its_labels() {
    let testbed = Testbed::up("dgx-h100=1").await;
    eventually("the node publishes", || testbed.device(NODE, "gpu-0")).await;
    let before = labels(&testbed).await;
    testbed.configure_agent(NODE, "featureLabels: node").await;
    let found = eventually("the labels are written", || async {
        let found = labels(&testbed).await;
        found.contains_key("nvidia.com/gpu.product").then_some(found)
    })
    .await;
    for (key, value) in [
        ("gpu.product", "NVIDIA-H100-80GB-HBM3"),
        ("gpu.count", "8"),
        ("gpu.replicas", "1"),
        ("gpu.family", "hopper"),
        ("gpu.memory", "81559"),
        ("mig.capable", "true"),
        ("vgpu.present", "false"),
    ] {
        assert_eq!(
            found.get(&format!("nvidia.com/{key}")).map(String::as_str),
            Some(value),
            "{key}"
        );
    }
    assert!(before.iter().all(|(key, value)| found.get(key) == Some(value)), "{before:?}");

    testbed.configure_agent(NODE, "featureLabels: none").await;
    eventually("the labels are gone", || async {
        (labels(&testbed).await == before).then_some(())
    })
    .await;

    // The values of another program stay.
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let other = json!({"metadata": {"labels": {"nvidia.com/gpu.product": "of-another"}}});
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    testbed.configure_agent(NODE, "featureLabels: node").await;
    testbed.wait_until_event("FeatureLabelsNotWritten", "another program writes").await;
    let found = labels(&testbed).await;
    assert_eq!(found["nvidia.com/gpu.product"], "of-another");
    assert_eq!(found.get("nvidia.com/gpu.count"), None);
}
