//! Faulty claims: rejected configs, overlaps, reused names, lost objects.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use octavo_lab::Component;
use serde_json::{Value, json};

use crate::testbed::{Testbed, claim, eventually, pod};

fn config(parameters: &Value) -> Value {
    json!([{"requests": ["gpu"], "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_field_of_a_config_is_refused_by_name() {
    let testbed = Testbed::up("gh200=1").await;
    let parameters = json!({
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"intervall": "Long"}},
    });
    testbed.pod_with_claim("typo", &config(&parameters)).await;
    let condition = refusal(&testbed, "typo").await;
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("sharing.timeSlicingConfig") && message.contains("intervall"));
    // A valid claim is served beside it. The rejected one holds its GPU, so it is deleted first.
    testbed.delete_pod("typo").await;
    testbed.claims().delete("typo", &DeleteParams::default()).await.unwrap();
    testbed.pod_with_claim("good", &json!([])).await;
    testbed.wait_until_running("good").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_that_two_claims_were_given_is_prepared_for_one() {
    let testbed = Testbed::up("gh200=1").await;
    testbed.pod_with_claim("first", &json!([])).await;
    testbed.wait_until_running("first").await;
    let first = testbed.claims().get("first").await.unwrap();

    // A mistake of another scheduler, which the API server does not check.
    let mut second: ResourceClaim = testbed.create(claim("second", &json!([]))).await;
    let mut status = first.status.clone().unwrap();
    status.reserved_for = None;
    second.status = Some(status);
    let claims = testbed.claims();
    claims.replace_status("second", &PostParams::default(), &second).await.unwrap();
    testbed.create::<Pod>(pod("second", "second")).await;

    let condition = refusal(&testbed, "second").await;
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("default/first"), "{message}");
    testbed.wait_until_running("first").await;

    // Once the holder is gone, the second claim is served without intervention.
    testbed.delete_pod("first").await;
    testbed.wait_until_running("second").await;
    eventually("the refusal is taken back", || async {
        let claim = serde_json::to_value(testbed.claims().get("second").await.ok()?).unwrap();
        let devices = claim["status"]["devices"].as_array().cloned().unwrap_or_default();
        let conditions = devices.iter().filter_map(|device| device["conditions"].as_array());
        (!conditions.flatten().any(|condition| condition["status"] == "False")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_vanished_without_unprepare_frees_its_gpu() {
    let testbed = Testbed::up("gh200=1").await;
    testbed.pod_with_claim("lost", &json!([])).await;
    testbed.wait_until_running("lost").await;
    // Pod and claim are removed by force while the kubelet is down.
    testbed.lab.kill(Component::Kubelets).await;
    let now = DeleteParams::default().grace_period(0);
    testbed.pods().delete("lost", &now).await.unwrap();
    let no_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    testbed.claims().delete("lost", &DeleteParams::default()).await.unwrap();
    let _ = testbed.claims().patch("lost", &PatchParams::default(), &no_finalizers).await;
    eventually("the claim is gone", || async {
        testbed.claims().get_opt("lost").await.unwrap().is_none().then_some(())
    })
    .await;
    // The kubelet's record of the claim is lost, too.
    let _ = std::fs::remove_file(testbed.node("gh200-0").join("kubelet/dra_state.json"));
    testbed.lab.start(Component::Kubelets).await.unwrap();
    testbed.pod_with_claim("next", &json!([])).await;
    testbed.wait_until_running("next").await;
    testbed.delete_pod("next").await;
    eventually("no file is left", || async {
        testbed.node_files("gh200-0").is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_used_again_is_another_claim() {
    let testbed = Testbed::up("gh200=1").await;
    let mut uids = Vec::new();
    for _ in 0..5 {
        testbed.pod_with_claim("again", &json!([])).await;
        testbed.wait_until_running("again").await;
        let claim = testbed.claims().get("again").await.unwrap();
        let uid = claim.uid().unwrap();
        let named = testbed.node_files("gh200-0");
        assert!(
            named.iter().all(|path| path.to_string_lossy().contains(&uid)) && named.len() == 2,
            "one checkpoint and one CDI spec, of this claim: {named:?}"
        );
        uids.push(uid);
        testbed.delete_pod("again").await;
        testbed.claims().delete("again", &DeleteParams::default()).await.unwrap();
        eventually("the claim is gone", || async {
            testbed.claims().get_opt("again").await.unwrap().is_none().then_some(())
        })
        .await;
    }
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), 5);
}

/// Waits for the agent's negative condition in the claim's device status.
async fn refusal(testbed: &Testbed, claim: &str) -> Value {
    eventually(&format!("a refusal in the status of claim {claim}"), || async {
        let claim = testbed.claims().get(claim).await.ok()?;
        let claim = serde_json::to_value(claim).unwrap();
        let devices = claim["status"]["devices"].as_array()?;
        let conditions = devices.iter().filter_map(|device| device["conditions"].as_array());
        conditions.flatten().find(|condition| condition["status"] == "False").cloned()
    })
    .await
}
