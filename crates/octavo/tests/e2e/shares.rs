//! Shares of a GPU: memory and time in parts, from manifest to the limits beside the container.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::bed::{Bed, eventually, pod};

/// A claim for a share of one GPU.
pub(crate) fn share(name: &str, amounts: &Value) -> Value {
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

async fn pod_with_share(bed: &Bed, name: &str, amounts: &Value) {
    bed.create::<ResourceClaim>(share(name, amounts)).await;
    bed.create::<Pod>(pod(name, name)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_shares_fill_a_gpu_and_a_ninth_waits_with_its_reason() {
    let bed = Bed::up("gh200=1").await;
    let eighth = json!({"memory": "11Gi", "compute": "12500m"});
    let names: Vec<String> = (0..8).map(|index| format!("share-{index}")).collect();
    for name in &names {
        pod_with_share(&bed, name, &eighth).await;
        bed.bound(name).await;
    }
    let mut limits = Vec::new();
    for name in &names {
        let pod = bed.running(name).await;
        let container = bed.container("gh200-0", &pod, "main");
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
        assert_eq!(limits["memoryBytes"], 11_u64 << 30, "{limits}");
        assert_eq!(limits["computeMilliPercent"], 12_500, "{limits}");
    }

    pod_with_share(&bed, "ninth", &json!({"memory": "1Gi", "compute": "1"})).await;
    let told = bed.unschedulable("ninth").await;
    assert!(told.contains("cannot allocate all claims"), "{told}");
    let output = bed.octavo(&["explain", "pod", "ninth"]);
    assert_eq!(output.status.code(), Some(3), "it waits");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("gpu-0") && told.contains("compute"), "what is short is named: {told}");

    let top: Value = serde_json::from_str(&bed.octavo_ok(&["top", "--output", "json"])).unwrap();
    assert_eq!(top["totals"]["split"], 1, "{top}");
    assert_eq!(top["gpus"][0]["state"], "shared", "{top}");
    assert_eq!(top["gpus"][0]["left"]["compute"], "0", "{top}");
    assert_eq!(top["gpus"][0]["holders"].as_array().unwrap().len(), 8, "{top}");

    // One goes, the ninth comes, and nothing of the first is left.
    bed.delete_pod("share-3").await;
    bed.claims().delete("share-3", &DeleteParams::default()).await.unwrap();
    bed.running("ninth").await;
    assert_eq!(bed.share_folders("gh200-0").len(), 8);
    for name in names.iter().map(String::as_str).chain(["ninth"]).filter(|name| *name != "share-3")
    {
        bed.delete_pod(name).await;
    }
    eventually("no file is left", || async { bed.node_files("gh200-0").is_empty().then_some(()) })
        .await;
    assert!(bed.share_folders("gh200-0").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_say_what_holds_their_containers() {
    let bed = Bed::up("gh200=1").await;
    pod_with_share(&bed, "share", &json!({"memory": "20Gi", "compute": "25"})).await;
    bed.running("share").await;
    let status = eventually("the share's device status", || async {
        let claim = bed.claims().get("share").await.ok()?;
        let claim = serde_json::to_value(claim).unwrap();
        claim["status"]["devices"].as_array()?.first().cloned()
    })
    .await;
    let claim = serde_json::to_value(bed.claims().get("share").await.unwrap()).unwrap();
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    assert_eq!(status["shareID"], result["shareID"], "{claim}");
    let conditions = status["conditions"].as_array().unwrap();
    let enforced = conditions.iter().find(|condition| condition["type"] == "Enforced").unwrap();
    assert_eq!((&enforced["status"], &enforced["reason"]), (&json!("True"), &json!("Guard")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_and_whole_gpus_keep_out_of_one_anothers_way() {
    let bed = Bed::up("gh200=1").await;
    pod_with_share(&bed, "small", &json!({"memory": "10Gi"})).await;
    bed.running("small").await;
    // A claim of old says nothing of memory and takes all of it: there is no such GPU now.
    bed.pod_with_claim("whole", &json!([])).await;
    bed.unschedulable("whole").await;
    // An extended resource is a whole GPU, too, and waits for the same one.
    bed.create::<Pod>(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "extended"},
        "spec": {"containers": [{
            "name": "main", "image": "ubuntu:24.04",
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }]},
    }))
    .await;
    bed.unschedulable("extended").await;
    bed.delete_pod("small").await;
    bed.claims().delete("small", &DeleteParams::default()).await.unwrap();
    // One of them gets it, the other waits on.
    let winner = eventually("the GPU is given to one", || async {
        let pods = bed.pods();
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
    bed.unschedulable(loser).await;
    pod_with_share(&bed, "late", &json!({"memory": "1Gi"})).await;
    bed.unschedulable("late").await;
    bed.delete_pod(winner).await;
    if winner == "whole" {
        bed.claims().delete("whole", &DeleteParams::default()).await.unwrap();
    }
    eventually("one of those that wait is served", || async {
        let pods = bed.pods();
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
    let bed = Bed::up("gh200=1").await;
    let quarter = json!({"memory": "20Gi", "compute": "25"});
    bed.create::<ResourceClaim>(share("one", &quarter)).await;
    bed.create::<ResourceClaim>(share("two", &quarter)).await;
    bed.create::<Pod>(json!({
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
    let both = bed.running("both").await;
    let container = bed.container("gh200-0", &both, "main");
    assert_eq!(container.shares().len(), 2, "{container:?}");
    assert_eq!(container.device_nodes("/dev/nvidia0"), 1, "one node for one GPU: {container:?}");

    bed.create::<Pod>(pod("second", "one")).await;
    let second = bed.running("second").await;
    let second = bed.container("gh200-0", &second, "main");
    let shared = second.shares().pop().unwrap();
    assert!(container.shares().contains(&shared), "the same folder in both pods");
    // The first pod goes; its claim is still in use by the second.
    bed.delete_pod("both").await;
    assert!(bed.share_folders("gh200-0").contains(&shared.host));
    bed.delete_pod("second").await;
    eventually("no share is left", || async {
        bed.share_folders("gh200-0").is_empty().then_some(())
    })
    .await;
}
