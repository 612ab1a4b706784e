//! Shares of a GPU's memory and compute, from the manifest to the limits beside the container.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::testbed::{Testbed, claim, eventually, pod};

const NODE: &str = "gh200-0";

/// A claim for a share of one GPU.
pub(crate) fn share_claim(name: &str, amounts: &Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{
            "name": "gpu",
            "exactly": {"deviceClassName": "gpu.nvidia.com", "capacity": {"requests": amounts}},
        }]}},
    })
}

async fn pod_with_share(testbed: &Testbed, name: &str, amounts: &Value) {
    testbed.create::<ResourceClaim>(share_claim(name, amounts)).await;
    testbed.create::<Pod>(pod(name, name)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_shares_fill_a_gpu_and_a_ninth_waits_with_its_reason() {
    let testbed = Testbed::up("gh200=1").await;
    let eighth = json!({"memory": "11Gi", "compute": "12500m"});
    let names: Vec<String> = (0..8).map(|index| format!("share-{index}")).collect();
    for name in &names {
        pod_with_share(&testbed, name, &eighth).await;
        testbed.wait_until_bound(name).await;
    }
    let mut limits = Vec::new();
    for name in &names {
        let pod = testbed.wait_until_running(name).await;
        let container = testbed.container("gh200-0", &pod, "main");
        let folders = container.shares();
        assert_eq!(folders.len(), 1, "one share, one folder: {container:?}");
        assert_eq!(container.device_nodes("/dev/nvidia0"), 1, "{container:?}");
        limits.push(folders[0].limits());
    }
    let mut ids: Vec<&str> =
        limits.iter().map(|limits| limits["shareId"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8, "every share has an identity of its own: {limits:?}");
    for limits in &limits {
        // Of 147,456 MiB the driver reserves 608, and each share bears its part.
        assert_eq!(limits["memoryBytes"], 11_217_u64 << 20, "{limits}");
        assert_eq!(limits["computeMilliPercent"], 12_500, "{limits}");
    }

    pod_with_share(&testbed, "ninth", &json!({"memory": "1Gi", "compute": "1"})).await;
    let message = testbed.wait_until_unschedulable("ninth").await;
    assert!(message.contains("cannot allocate all claims"), "{message}");
    let output = testbed.octavo(&["explain", "pod", "ninth"]);
    assert_eq!(output.status.code(), Some(3), "it waits");
    let explanation = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(explanation.contains("gpu-0") && explanation.contains("compute"), "{explanation}");

    let top: Value =
        serde_json::from_str(&testbed.octavo_ok(&["top", "--output", "json"])).unwrap();
    assert_eq!(top["totals"]["split"], 1, "{top}");
    assert_eq!(top["gpus"][0]["state"], "shared", "{top}");
    assert_eq!(top["gpus"][0]["left"]["compute"], "0", "{top}");
    assert_eq!(top["gpus"][0]["holders"].as_array().unwrap().len(), 8, "{top}");

    // One share is freed, the ninth is placed, and nothing of the first remains.
    testbed.delete_pod("share-3").await;
    testbed.claims().delete("share-3", &DeleteParams::default()).await.unwrap();
    testbed.wait_until_running("ninth").await;
    assert_eq!(testbed.share_folders("gh200-0").len(), 8);
    for name in names.iter().map(String::as_str).chain(["ninth"]).filter(|name| *name != "share-3")
    {
        testbed.delete_pod(name).await;
    }
    eventually("no file is left", || async {
        testbed.node_files("gh200-0").is_empty().then_some(())
    })
    .await;
    assert!(testbed.share_folders("gh200-0").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_say_what_holds_their_containers() {
    let testbed = Testbed::up("gh200=1").await;
    pod_with_share(&testbed, "share", &json!({"memory": "20Gi", "compute": "25"})).await;
    testbed.wait_until_running("share").await;
    let status = eventually("the share's device status", || async {
        let claim = testbed.claims().get("share").await.ok()?;
        let claim = serde_json::to_value(claim).unwrap();
        claim["status"]["devices"].as_array()?.first().cloned()
    })
    .await;
    let claim = serde_json::to_value(testbed.claims().get("share").await.unwrap()).unwrap();
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    assert_eq!(status["shareID"], result["shareID"], "{claim}");
    let conditions = status["conditions"].as_array().unwrap();
    let enforced = conditions.iter().find(|condition| condition["type"] == "Enforced").unwrap();
    assert_eq!((&enforced["status"], &enforced["reason"]), (&json!("True"), &json!("Guard")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_and_whole_gpus_exclude_one_another() {
    let testbed = Testbed::up("gh200=1").await;
    pod_with_share(&testbed, "small", &json!({"memory": "10Gi"})).await;
    testbed.wait_until_running("small").await;
    // A claim without capacity requests takes all memory, and no GPU has all of it free.
    testbed.pod_with_claim("whole", &json!([])).await;
    testbed.wait_until_unschedulable("whole").await;
    // An extended resource is a whole GPU, too, and waits for the same one.
    testbed
        .create::<Pod>(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "extended"},
            "spec": {"containers": [{
                "name": "main", "image": "ubuntu:24.04",
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }]},
        }))
        .await;
    testbed.wait_until_unschedulable("extended").await;
    testbed.delete_pod("small").await;
    testbed.claims().delete("small", &DeleteParams::default()).await.unwrap();
    // One of them gets it, the other keeps waiting.
    let winner = eventually("the GPU is given to one", || async {
        let pods = testbed.pods();
        let mut running = Vec::new();
        for name in ["whole", "extended"] {
            let phase = pods.get(name).await.ok()?.status?.phase?;
            if phase == "Running" {
                running.push(name);
            }
        }
        (running.len() == 1).then(|| running[0])
    })
    .await;
    let loser = if winner == "whole" { "extended" } else { "whole" };
    testbed.wait_until_unschedulable(loser).await;
    pod_with_share(&testbed, "late", &json!({"memory": "1Gi"})).await;
    testbed.wait_until_unschedulable("late").await;
    testbed.delete_pod(winner).await;
    if winner == "whole" {
        testbed.claims().delete("whole", &DeleteParams::default()).await.unwrap();
    }
    eventually("one of those that wait is served", || async {
        let pods = testbed.pods();
        for name in [loser, "late"] {
            if pods.get(name).await.ok()?.status?.phase? == "Running" {
                return Some(());
            }
        }
        None
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_may_have_two_shares_and_two_pods_one() {
    let testbed = Testbed::up("gh200=1").await;
    let quarter = json!({"memory": "20Gi", "compute": "25"});
    testbed.create::<ResourceClaim>(share_claim("one", &quarter)).await;
    testbed.create::<ResourceClaim>(share_claim("two", &quarter)).await;
    testbed
        .create::<Pod>(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "both"},
            "spec": {
                "resourceClaims": [
                    {"name": "one", "resourceClaimName": "one"},
                    {"name": "two", "resourceClaimName": "two"},
                ],
                "containers": [{
                    "name": "main", "image": "ubuntu:24.04",
                    "resources": {"claims": [{"name": "one"}, {"name": "two"}]},
                }],
            },
        }))
        .await;
    let both = testbed.wait_until_running("both").await;
    let container = testbed.container("gh200-0", &both, "main");
    assert_eq!(container.shares().len(), 2, "{container:?}");
    assert_eq!(container.device_nodes("/dev/nvidia0"), 1, "one node for one GPU: {container:?}");

    testbed.create::<Pod>(pod("second", "one")).await;
    let second = testbed.wait_until_running("second").await;
    let second = testbed.container("gh200-0", &second, "main");
    let shared = second.shares().pop().unwrap();
    assert!(container.shares().contains(&shared), "the same folder in both pods");
    // The first pod is deleted; the second still uses its claim.
    testbed.delete_pod("both").await;
    assert!(testbed.share_folders("gh200-0").contains(&shared.host));
    testbed.delete_pod("second").await;
    eventually("no share is left", || async {
        testbed.share_folders("gh200-0").is_empty().then_some(())
    })
    .await;
}

/// The condition of a claim's only device.
async fn is_enforced(testbed: &Testbed, claim: &str) -> String {
    eventually("the claim's device has the condition Enforced", || async {
        let status = testbed.claims().get(claim).await.unwrap().status?;
        let conditions = status.devices?.first()?.conditions.clone()?;
        conditions.into_iter().find(|it| it.type_ == "Enforced").map(|it| it.status)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_counts_shares_or_shares_its_gpus_without_limit() {
    let testbed = Testbed::up("gh200=1").await;
    testbed.configure_agent(NODE, "gpuShares: 4").await;
    eventually("the GPU has shares", || async {
        testbed.device(NODE, "gpu-0").await?.capacity?.contains_key("shares").then_some(())
    })
    .await;
    for name in ["count-0", "count-1", "count-2", "count-3"] {
        testbed.create::<ResourceClaim>(claim(name, &json!([]))).await;
        testbed.create::<Pod>(pod(name, name)).await;
        let pod = testbed.wait_until_running(name).await;
        let limits = testbed.container(NODE, &pod, "main").shares()[0].limits();
        // A quarter of 147,456 MiB, less the share's part of the 608 that the driver reserves.
        assert_eq!(limits["memoryBytes"], 36_712_u64 << 20, "{limits}");
    }
    testbed.create::<ResourceClaim>(claim("count-4", &json!([]))).await;
    testbed.create::<Pod>(pod("count-4", "count-4")).await;
    testbed.wait_until_unschedulable("count-4").await;
    for name in ["count-0", "count-1", "count-2", "count-3", "count-4"] {
        testbed.delete_pod(name).await;
        testbed.claims().delete(name, &DeleteParams::default()).await.unwrap();
    }

    testbed.configure_agent(NODE, "gpuShares: unlimited").await;
    eventually("the GPU has no shares", || async {
        (!testbed.device(NODE, "gpu-0").await?.capacity?.contains_key("shares")).then_some(())
    })
    .await;
    for index in 0..6 {
        let name = format!("free-{index}");
        testbed.create::<ResourceClaim>(claim(&name, &json!([]))).await;
        testbed.create::<Pod>(pod(&name, &name)).await;
        let pod = testbed.wait_until_running(&name).await;
        assert_eq!(testbed.container(NODE, &pod, "main").shares().len(), 0);
        assert_eq!(is_enforced(&testbed, &name).await, "False");
    }
}
