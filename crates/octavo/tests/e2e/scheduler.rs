//! Octavo's scheduler on its own nodes, with the chart's rights and the real agents.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use octavo_lab::{Component, DynamicMig};
use serde_json::{Value, json};

use crate::mig::mig_claim;
use crate::shares::share_claim;
use crate::testbed::{Testbed, claim, eventually};

const NODES: &str = "dgx-h100=2";

/// A pod for Octavo's scheduler that requests only a container.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "octavo",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "ubuntu:24.04"}],
        },
    })
}

/// The same with GPUs by `nvidia.com/gpu`.
pub(crate) fn with_gpus(name: &str, count: u32) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": count}});
    pod
}

/// The same with a claim, named directly or by its template.
pub(crate) fn with_claim(name: &str, source: &Value) -> Value {
    let mut pod = pod(name);
    let mut claim = json!({"name": "gpu"});
    claim.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    pod["spec"]["resourceClaims"] = json!([claim]);
    pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    pod
}

pub(crate) fn in_group(mut pod: Value, group: &str) -> Value {
    pod["metadata"]["labels"] = json!({"octavo.dev/pod-group": group});
    pod
}

pub(crate) fn groups(testbed: &Testbed) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("octavo.dev", "v1alpha1", "PodGroup");
    let kind = ApiResource::from_gvk_with_plural(&kind, "podgroups");
    Api::default_namespaced_with(testbed.client.clone(), &kind)
}

pub(crate) async fn create_group(testbed: &Testbed, name: &str, spec: &Value) {
    let object = serde_json::from_value(json!({
        "apiVersion": "octavo.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }))
    .unwrap();
    groups(testbed).create(&PostParams::default(), &object).await.unwrap();
}

pub(crate) async fn group_status(testbed: &Testbed, name: &str) -> Value {
    groups(testbed).get(name).await.unwrap().data["status"].clone()
}

/// All allocated whole devices by claim; fails on a device that is allocated twice.
pub(crate) async fn allocated_devices(
    testbed: &Testbed,
) -> BTreeMap<String, BTreeSet<(String, String)>> {
    let claims = testbed.claims().list(&ListParams::default()).await.unwrap().items;
    let mut all = BTreeSet::new();
    let mut by_claim = BTreeMap::new();
    for claim in claims {
        let name = claim.name_any();
        let claim = serde_json::to_value(claim).unwrap();
        let results = claim["status"]["allocation"]["devices"]["results"].as_array().cloned();
        let devices: BTreeSet<(String, String)> = results
            .into_iter()
            .flatten()
            .map(|result| {
                let text = |key: &str| result[key].as_str().unwrap().to_owned();
                (text("pool"), text("device"))
            })
            .collect();
        for device in &devices {
            assert!(all.insert(device.clone()), "{device:?} is given twice, also to {name}");
        }
        by_claim.insert(name, devices);
    }
    by_claim
}

async fn gpus_of(testbed: &Testbed, name: &str) -> usize {
    let pod = testbed.wait_until_running(name).await;
    let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap();
    testbed.container(&node, &pod, "main").gpus().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_get_gpus_by_template_and_by_extended_resource() {
    let testbed = Testbed::up_octavo(NODES).await;
    testbed.create::<Pod>(pod("plain")).await;
    let mut template = claim("one-gpu", &json!([]));
    template["kind"] = "ResourceClaimTemplate".into();
    template["spec"] = json!({"spec": template["spec"]});
    testbed.create::<ResourceClaimTemplate>(template).await;
    let source = json!({"resourceClaimTemplateName": "one-gpu"});
    testbed.create::<Pod>(with_claim("template", &source)).await;
    testbed.create::<Pod>(with_gpus("resource", 1)).await;
    testbed.create::<Pod>(with_gpus("four", 4)).await;

    assert_eq!(gpus_of(&testbed, "plain").await, 0);
    assert_eq!(gpus_of(&testbed, "template").await, 1);
    assert_eq!(gpus_of(&testbed, "resource").await, 1);
    assert_eq!(gpus_of(&testbed, "four").await, 4);
    let count: usize = allocated_devices(&testbed).await.values().map(BTreeSet::len).sum();
    assert_eq!(count, 6);

    // A deleted pod's devices are free again: sixteen GPUs.
    for name in ["template", "resource", "four"] {
        testbed.delete_pod(name).await;
    }
    testbed.create::<Pod>(with_gpus("whole-0", 8)).await;
    testbed.create::<Pod>(with_gpus("whole-1", 8)).await;
    assert_eq!(gpus_of(&testbed, "whole-0").await, 8);
    assert_eq!(gpus_of(&testbed, "whole-1").await, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarters_of_a_gpu_share_one_gpu_and_have_their_limits() {
    let testbed = Testbed::up_octavo(NODES).await;
    // Four of them fill a GPU of 79.6 GiB.
    let quarter = json!({"memory": "19Gi", "compute": "25"});
    let names = ["share-0", "share-1", "share-2"];
    for name in names {
        testbed.create::<ResourceClaim>(share_claim(name, &quarter)).await;
        testbed.create::<Pod>(with_claim(name, &json!({"resourceClaimName": name}))).await;
    }
    let mut devices = BTreeSet::new();
    for name in names {
        let pod = testbed.wait_until_running(name).await;
        let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap();
        let folders = testbed.container(&node, &pod, "main").shares();
        assert_eq!(folders.len(), 1, "{name} has {folders:?}");
        // 19 GiB less the portion of what driver and firmware reserve.
        assert_eq!(folders[0].limits()["memoryBytes"], 19_324_u64 << 20, "{name}");
        let claim = serde_json::to_value(testbed.claims().get(name).await.unwrap()).unwrap();
        let result = &claim["status"]["allocation"]["devices"]["results"][0];
        devices.insert((result["pool"].to_string(), result["device"].to_string()));
    }
    assert_eq!(devices.len(), 1, "they break one GPU and not more: {devices:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mig_device_is_made_for_its_pod() {
    let cut = DynamicMig::Some([("dgx-h100-0".to_owned(), [7].into())].into());
    let testbed = Testbed::up_octavo_with_mig(NODES, cut).await;
    testbed.create::<ResourceClaim>(mig_claim("slice", &["1g.10gb"])).await;
    testbed.create::<Pod>(with_claim("slice", &json!({"resourceClaimName": "slice"}))).await;
    let pod = testbed.wait_until_running("slice").await;
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("dgx-h100-0"));
    assert_eq!(testbed.mig_instances("dgx-h100-0"), 1);
    testbed.delete_pod("slice").await;
    eventually("the instance is gone", || async {
        (testbed.mig_instances("dgx-h100-0") == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_waits_for_its_last_pod_and_is_then_bound_whole() {
    let testbed = Testbed::up_octavo(NODES).await;
    create_group(&testbed, "train", &json!({"minMember": 4})).await;
    for number in 0..3 {
        testbed.create::<Pod>(in_group(with_gpus(&format!("train-{number}"), 4), "train")).await;
    }
    // An unrelated pod shows that the scheduler has seen the three before it.
    testbed.create::<Pod>(pod("other")).await;
    testbed.wait_until_running("other").await;
    for number in 0..3 {
        let pod = testbed.pods().get(&format!("train-{number}")).await.unwrap();
        assert_eq!(pod.spec.unwrap().node_name, None, "three of four are no gang");
    }
    testbed.create::<Pod>(in_group(with_gpus("train-3", 4), "train")).await;
    for number in 0..4 {
        assert_eq!(gpus_of(&testbed, &format!("train-{number}")).await, 4);
    }
    let devices: usize = allocated_devices(&testbed).await.values().map(BTreeSet::len).sum();
    assert_eq!(devices, 16);
    let status = eventually("the gang's status says that it is placed", || async {
        let status = group_status(&testbed, "train").await;
        (status["phase"] == "Scheduled" && status["bound"] == 4).then_some(status)
    })
    .await;
    let conditions = status["conditions"].as_array().unwrap();
    let is_true = |found: &&Value| found["type"] == "Scheduled" && found["status"] == "True";
    assert!(conditions.iter().any(|found| is_true(&found)), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn infeasible_gang_has_a_reason_and_holds_nothing() {
    let testbed = Testbed::up_octavo(NODES).await;
    create_group(&testbed, "large", &json!({"minMember": 3})).await;
    for number in 0..3 {
        testbed.create::<Pod>(in_group(with_gpus(&format!("large-{number}"), 8), "large")).await;
    }
    // A node may have its taint of the start for a moment. Then the first reason names that.
    let proof = "3 wanted at least, at most 2 are possible";
    let why = eventually("why the gang waits, on its object: the bound that fails", || async {
        let status = group_status(&testbed, "large").await;
        let conditions = status["conditions"].as_array().cloned()?;
        let waits = |found: &Value| found["type"] == "Scheduled" && found["status"] == "False";
        let found = conditions.into_iter().find(waits)?;
        let is_proof = found["message"].as_str().is_some_and(|message| message.contains(proof));
        (status["phase"] != "Gathering" && is_proof).then_some(found)
    })
    .await;
    assert!(!why["reason"].as_str().unwrap().is_empty(), "{why}");
    let message = testbed.wait_until_unschedulable("large-0").await;
    assert!(!message.is_empty());
    // Nothing is reserved for the gang or allocated to it.
    testbed.create::<Pod>(with_gpus("small-0", 8)).await;
    testbed.create::<Pod>(with_gpus("small-1", 8)).await;
    assert_eq!(gpus_of(&testbed, "small-0").await, 8);
    assert_eq!(gpus_of(&testbed, "small-1").await, 8);
    for number in 0..3 {
        let pod = testbed.pods().get(&format!("large-{number}")).await.unwrap();
        assert_eq!(pod.spec.unwrap().node_name, None, "a part of the gang is bound");
    }
    allocated_devices(&testbed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatedly_killed_scheduler_completes_its_binds() {
    let testbed = Testbed::up_octavo(NODES).await;
    // Each pod takes several writes: a claim, its finalizer, its allocation, a status and a
    // binding. The scheduler is killed somewhere between them.
    for number in 0..16 {
        testbed.create::<Pod>(with_gpus(&format!("pod-{number}"), 1)).await;
        if number % 4 == 1 {
            testbed.lab.kill(Component::OctavoScheduler).await;
        }
        if number % 4 == 3 {
            testbed.lab.start(Component::OctavoScheduler).await.unwrap();
        }
    }
    for number in 0..16 {
        assert_eq!(gpus_of(&testbed, &format!("pod-{number}")).await, 1);
    }
    // Interrupted work is completed or rolled back: sixteen GPUs, sixteen claims with one each.
    eventually("every claim is one of a pod that runs", || async {
        let by_claim = allocated_devices(&testbed).await;
        (by_claim.len() == 16 && by_claim.values().all(|devices| devices.len() == 1)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_scheduler_gives_devices_of_its_own_nodes_only() {
    let testbed = Testbed::up_octavo("dgx-h100=1").await;
    // Kubernetes' own scheduler finds every device tainted.
    testbed.create::<ResourceClaim>(claim("theirs", &json!([]))).await;
    testbed.create::<Pod>(crate::testbed::pod("theirs", "theirs")).await;
    // The first message may name the taint of a node that is not ready yet.
    eventually("kube-scheduler finds no devices for its pod", || async {
        let message = testbed.wait_until_unschedulable("theirs").await;
        message.contains("cannot allocate all claims").then_some(())
    })
    .await;
    testbed.create::<Pod>(with_gpus("ours", 8)).await;
    assert_eq!(gpus_of(&testbed, "ours").await, 8);
}
