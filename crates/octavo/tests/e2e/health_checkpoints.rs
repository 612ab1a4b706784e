//! Pods that save their work before they leave a GPU that fails: controller and agent do their parts, and the test is the program.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::PostParams;
use octavo_api::checkpoint::CheckpointOutcome;
use octavo_api::{HealthPolicy, NodeHealth};
use octavo_lab::Component;
use serde_json::json;

use crate::health::{lab, parsed};
use crate::testbed::{Testbed, claim, eventually, pod};

const NODE: &str = "t4-0";

/// A pod with a GPU that saves its work when a file appears; returns its UID.
async fn pod_with_file(testbed: &Testbed, name: &str) -> String {
    testbed.create::<ResourceClaim>(claim(name, &json!([]))).await;
    let mut object = pod(name, name);
    object["metadata"]["annotations"] = json!({
        "checkpoint.octavo.dev/file": "control/checkpoint",
        "checkpoint.octavo.dev/deadline-seconds": "600",
    });
    object["spec"]["volumes"] = json!([{"name": "control", "emptyDir": {}}]);
    testbed.create::<Pod>(object).await;
    testbed.wait_until_running(name).await.metadata.uid.unwrap()
}

async fn outcome(healths: &Api<NodeHealth>, uid: &str) -> Option<CheckpointOutcome> {
    let status = healths.get(NODE).await.ok()?.status?;
    status.checkpoints.iter().find(|report| report.uid == uid).map(|report| report.outcome)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_leaves_a_gpu_that_fails_once_it_has_saved_its_work() {
    let testbed = lab().await;
    let client = &testbed.client;
    let healths: Api<NodeHealth> = Api::all(client.clone());
    let policies: Api<HealthPolicy> = Api::all(client.clone());
    let policy = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": "act"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": NODE}, "mode": "Act", "evict": true,
            "budget": {"evictionsPercent": 100, "remediesPercent": 100},
            "times": {"shortTestSeconds": 2},
        },
    });
    policies.create(&PostParams::default(), &parsed(&policy)).await.unwrap();
    let uid = pod_with_file(&testbed, "train").await;
    // The kubelet of the lab makes no volumes of this kind.
    let volume = format!("kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/control");
    let volume = testbed.node(NODE).join(volume);
    std::fs::create_dir_all(&volume).unwrap();
    let file = volume.join("checkpoint");

    testbed.octavo_ok(&["lab", "gpu", NODE, "0", "fail", "--xid", "95"]);
    eventually("the pod is asked", || async { file.exists().then_some(()) }).await;
    eventually("the agent reports it", || async {
        (outcome(&healths, &uid).await? == CheckpointOutcome::Running).then_some(())
    })
    .await;
    // Another controller goes on, and the pod stays until it has saved its work.
    testbed.lab.kill(Component::OctavoController).await;
    testbed.lab.start(Component::OctavoController).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let running = testbed.pods().get("train").await.unwrap();
    assert_eq!(running.metadata.deletion_timestamp, None, "it has not saved its work yet");
    let requests = healths.get(NODE).await.unwrap().spec.checkpoints;
    assert_eq!(requests.iter().map(|request| &request.uid).collect::<Vec<_>>(), [&uid]);

    std::fs::remove_file(&file).unwrap();
    eventually("the pod has left", || async {
        let found = testbed.pods().get_opt("train").await.unwrap();
        found.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(())
    })
    .await;
    testbed.wait_until_event("GpuOutOfService", "the work of the pod is saved").await;
    assert!(!file.exists(), "a pod is asked once");
    eventually("request and report have left, and the GPU returns", || async {
        let health = healths.get(NODE).await.ok()?;
        let status = health.status?;
        let is_back = status.devices.iter().any(|device| device.state == "Probation");
        let are_gone = health.spec.checkpoints.is_empty() && status.checkpoints.is_empty();
        (is_back && are_gone).then_some(())
    })
    .await;
}
