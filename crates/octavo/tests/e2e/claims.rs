//! What becomes of claims that go wrong: refused configs, overlaps, reused names, lost objects.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use octavo_lab::Component;
use serde_json::{Value, json};

use crate::bed::{Bed, claim, eventually, pod};

fn config(parameters: &Value) -> Value {
    json!([{"requests": ["gpu"], "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_that_cannot_act_yet_is_refused_in_status_and_event() {
    let bed = Bed::up("gh200=1").await;
    let parameters = json!({
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}},
    });
    bed.pod_with_claim("mps", &config(&parameters)).await;
    let condition = refusal(&bed, "mps").await;
    assert_eq!(condition["reason"], "NotYetSupported", "{condition}");
    assert!(condition["message"].as_str().unwrap().contains("MPS"), "{condition}");
    assert!(event(&bed, "mps", "NotYetSupported").await.contains("MPS"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_field_of_a_config_is_refused_by_name() {
    let bed = Bed::up("gh200=1").await;
    let parameters = json!({
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"intervall": "Long"}},
    });
    bed.pod_with_claim("typo", &config(&parameters)).await;
    let condition = refusal(&bed, "typo").await;
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("sharing.timeSlicingConfig") && message.contains("intervall"));
    // The good claim beside it is served: the refused one holds its GPU, so it goes first.
    bed.delete_pod("typo").await;
    bed.claims().delete("typo", &DeleteParams::default()).await.unwrap();
    bed.pod_with_claim("good", &json!([])).await;
    bed.running("good").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_that_two_claims_were_given_is_prepared_for_one() {
    let bed = Bed::up("gh200=1").await;
    bed.pod_with_claim("first", &json!([])).await;
    bed.running("first").await;
    let first = bed.claims().get("first").await.unwrap();

    // Another scheduler's mistake: the API server does not check it.
    let mut second: ResourceClaim = bed.create(claim("second", &json!([]))).await;
    let mut status = first.status.clone().unwrap();
    status.reserved_for = None;
    second.status = Some(status);
    let claims = bed.claims();
    claims.replace_status("second", &PostParams::default(), &second).await.unwrap();
    bed.create::<Pod>(pod("second", "second")).await;

    let condition = refusal(&bed, "second").await;
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("default/first"), "{message}");
    bed.running("first").await;

    // The holder goes, the second is served without anybody's help.
    bed.delete_pod("first").await;
    bed.running("second").await;
    eventually("the refusal is taken back", || async {
        let claim = serde_json::to_value(bed.claims().get("second").await.ok()?).unwrap();
        let devices = claim["status"]["devices"].as_array().cloned().unwrap_or_default();
        let conditions = devices.iter().filter_map(|device| device["conditions"].as_array());
        (!conditions.flatten().any(|condition| condition["status"] == "False")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_vanished_without_unprepare_frees_its_gpu() {
    let bed = Bed::up("gh200=1").await;
    bed.pod_with_claim("lost", &json!([])).await;
    bed.running("lost").await;
    // The kubelet is away while pod and claim are removed by force.
    bed.lab.kill(Component::Kubelets).await;
    let now = DeleteParams::default().grace_period(0);
    bed.pods().delete("lost", &now).await.unwrap();
    let no_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    bed.claims().delete("lost", &DeleteParams::default()).await.unwrap();
    let _ = bed.claims().patch("lost", &PatchParams::default(), &no_finalizers).await;
    eventually("the claim is gone", || async {
        bed.claims().get_opt("lost").await.unwrap().is_none().then_some(())
    })
    .await;
    // What it remembers of the claim is lost with it.
    let _ = std::fs::remove_file(bed.node("gh200-0").join("kubelet/dra_state.json"));
    bed.lab.start(Component::Kubelets).await.unwrap();
    bed.pod_with_claim("next", &json!([])).await;
    bed.running("next").await;
    bed.delete_pod("next").await;
    eventually("no file is left", || async { bed.node_files("gh200-0").is_empty().then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_used_again_is_another_claim() {
    let bed = Bed::up("gh200=1").await;
    let mut uids = Vec::new();
    for _ in 0..5 {
        bed.pod_with_claim("again", &json!([])).await;
        bed.running("again").await;
        let claim = bed.claims().get("again").await.unwrap();
        let uid = claim.uid().unwrap();
        let named = bed.node_files("gh200-0");
        assert!(
            named.iter().all(|path| path.to_string_lossy().contains(&uid)) && named.len() == 2,
            "one checkpoint and one CDI spec, of this claim: {named:?}"
        );
        uids.push(uid);
        bed.delete_pod("again").await;
        bed.claims().delete("again", &DeleteParams::default()).await.unwrap();
        eventually("the claim is gone", || async {
            bed.claims().get_opt("again").await.unwrap().is_none().then_some(())
        })
        .await;
    }
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), 5);
}

/// Waits for the agent's condition in the claim's device status that says no.
async fn refusal(bed: &Bed, claim: &str) -> Value {
    eventually(&format!("a refusal in the status of claim {claim}"), || async {
        let claim = bed.claims().get(claim).await.ok()?;
        let claim = serde_json::to_value(claim).unwrap();
        let devices = claim["status"]["devices"].as_array()?;
        let conditions = devices.iter().filter_map(|device| device["conditions"].as_array());
        conditions.flatten().find(|condition| condition["status"] == "False").cloned()
    })
    .await
}

/// Waits for an event about the claim with this reason and returns its note.
async fn event(bed: &Bed, claim: &str, reason: &str) -> String {
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::default_namespaced(bed.client.clone());
    eventually(&format!("an event {reason} about claim {claim}"), || async {
        let events = events.list(&ListParams::default()).await.ok()?;
        events.into_iter().find_map(|event| {
            let about = event.regarding.as_ref()?.name.as_deref()? == claim;
            let wanted = about && event.reason.as_deref() == Some(reason);
            event.note.filter(|_| wanted)
        })
    })
    .await
}
