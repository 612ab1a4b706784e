//! Settings of a node that decide what a share may have, from the manifest to the claim's conditions.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};

use crate::shares::share_claim;
use crate::testbed::{Testbed, eventually, pod};

const NODE: &str = "gh200-0";

/// A pod with a share that may have more memory than its request.
async fn create(testbed: &Testbed, name: &str) {
    let mut claim = share_claim(name, &json!({"memory": "2Gi", "compute": "10"}));
    claim["spec"]["devices"]["config"] = json!([{"opaque": {
        "driver": "gpu.nvidia.com",
        "parameters": {
            "apiVersion": "octavo.dev/v1alpha1", "kind": "GpuShareConfig", "memoryLimit": "40Gi",
        },
    }}]);
    testbed.create::<ResourceClaim>(claim).await;
    testbed.create::<Pod>(pod(name, name)).await;
}

/// Reason and message of each condition of a claim's only device, by type.
async fn conditions(testbed: &Testbed, claim: &str) -> Option<BTreeMap<String, (String, String)>> {
    let devices = testbed.claims().get(claim).await.ok()?.status?.devices?;
    let conditions = devices.first()?.conditions.clone()?.into_iter();
    Some(conditions.map(|it| (it.type_, (it.reason, it.message))).collect())
}

/// Waits until a condition has a reason; returns its message.
async fn wait_for(testbed: &Testbed, claim: &str, kind: &str, reason: &str) -> String {
    eventually(&format!("{claim} says {kind}, {reason}"), || async {
        let (found, message) = conditions(testbed, claim).await?.get(kind)?.clone();
        (found == reason).then_some(message)
    })
    .await
}

/// Waits until the node says whether shares are held to their time.
async fn wait_until_time_enforced(testbed: &Testbed, is_enforced: bool) {
    eventually("the GPU has the attribute", || async {
        let attributes = testbed.device(NODE, "gpu-0").await?.attributes?;
        (attributes["octavo.dev/timeEnforced"].bool == Some(is_enforced)).then_some(())
    })
    .await;
}

fn limits(testbed: &Testbed, pod: &Pod) -> Value {
    testbed.container(NODE, pod, "main").shares()[0].limits()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_lends_memory_gives_leases_and_exempts_namespaces_by_its_settings() {
    let testbed = Testbed::up("gh200=1").await;
    wait_until_time_enforced(&testbed, false).await;
    create(&testbed, "refused").await;
    let message = wait_for(&testbed, "refused", "Ready", "EnforcementNotReady").await;
    assert!(message.contains("memorySwap: processes"), "{message}");

    // The kubelet tries again, and the node can serve it now.
    testbed.configure_agent(NODE, "timeEnforcement: leases\nmemorySwap: processes").await;
    let running = testbed.wait_until_running("refused").await;
    wait_until_time_enforced(&testbed, true).await;
    wait_for(&testbed, "refused", "Enforced", "Guard").await;
    wait_for(&testbed, "refused", "TimeEnforced", "Leases").await;
    assert!(conditions(&testbed, "refused").await.unwrap().contains_key("MemorySwap"));
    // Of 147,456 MiB the driver reserves 608, and each share bears its part.
    let found = limits(&testbed, &running);
    let [request, limit] = [2_039_u64 << 20, 40_791 << 20];
    assert_eq!(
        (&found["memoryBytes"], &found["memoryRequestBytes"]),
        (&json!(limit), &json!(request))
    );

    testbed.configure_agent(NODE, "exemptNamespaces: [default]").await;
    create(&testbed, "exempt").await;
    let running = testbed.wait_until_running("exempt").await;
    wait_for(&testbed, "exempt", "Enforced", "Exempt").await;
    wait_for(&testbed, "exempt", "TimeEnforced", "Exempt").await;
    assert!(!conditions(&testbed, "exempt").await.unwrap().contains_key("MemorySwap"));
    assert_eq!(limits(&testbed, &running)["memoryBytes"], request);
    wait_for(&testbed, "refused", "Enforced", "Guard").await;
}
