//! Invalid objects: each gets a specific reason to wait, and other pods are served meanwhile.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Error};
use serde_json::{Value, json};

use super::{
    check_invariants, nodes, nodes_of_pods, numbered, start_testbed, wait_for_reason,
    wait_until_all_bound,
};
use crate::scheduler::{create_group, group_status, in_group, with_claim, with_gpus};
use crate::testbed::{Testbed, claim, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_objects_wait_with_a_reason_and_others_are_placed() {
    // Kubernetes' own PodGroup, which is off by default.
    let arguments = [
        "--feature-gates=GenericWorkload=true,GangScheduling=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ];
    let testbed = start_testbed("dgx-h100=2", &arguments, json!({})).await;
    selectors_that_fail_or_cost_too_much(&testbed).await;
    unservable_claims(&testbed).await;
    groups_that_are_too_large_or_ask_for_what_is_not_there(&testbed).await;
    labels_of_the_topology_that_contradict_one_another(&testbed).await;
    the_native_group_is_placed_whole_or_not_at_all(&testbed).await;
    // After all of it the cluster has capacity for valid pods.
    let left = numbered("sound", 8);
    for name in &left {
        testbed.create::<Pod>(with_gpus(name, 1)).await;
    }
    wait_until_all_bound(&testbed, &left).await;
}

/// A claim for a GPU that an expression selects.
fn selecting(name: &str, expression: &str) -> Value {
    let mut claim = claim(name, &json!([]));
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] =
        json!([{"cel": {"expression": expression}}]);
    claim
}

async fn ask_for(testbed: &Testbed, claim: Value) {
    let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
    testbed.create::<ResourceClaim>(claim).await;
    testbed.create::<Pod>(with_claim(&name, &json!({"resourceClaimName": name}))).await;
}

/// An expression that loops over `10^depth` combinations, all of which match.
fn loops(depth: u32) -> String {
    (0..depth).fold("true".to_owned(), |inner, level| {
        format!("[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(n{level}, {inner})")
    })
}

async fn selectors_that_fail_or_cost_too_much(testbed: &Testbed) {
    let no_key = "device.attributes['gpu.nvidia.com'].nobody == 'x'";
    ask_for(testbed, selecting("no-key", no_key)).await;
    ask_for(
        testbed,
        selecting("no-overload", "device.attributes['gpu.nvidia.com'].productName > 5"),
    )
    .await;
    let class = json!({
        "metadata": {"name": "broken"},
        "spec": {"selectors": [{"cel": {"expression": "device.attributes['none.example.com'].x"}}]},
    });
    let classes: Api<DeviceClass> = Api::all(testbed.client.clone());
    let class = serde_json::from_value(class).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
    let mut of_broken = claim("class", &json!([]));
    of_broken["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "broken".into();
    ask_for(testbed, of_broken).await;
    // The API server rejects an expression that is too costly; one that is nearly as costly is
    // served.
    let too_much: ResourceClaim = serde_json::from_value(selecting("too-much", &loops(6))).unwrap();
    let refused = testbed.claims().create(&PostParams::default(), &too_much).await;
    assert!(matches!(&refused, Err(Error::Api(status)) if status.code == 422), "{refused:?}");
    ask_for(testbed, selecting("much", &loops(4))).await;
    testbed.create::<Pod>(with_gpus("beside", 1)).await;

    wait_until_all_bound(testbed, &["beside", "much"].map(str::to_owned)).await;
    wait_for_reason(
        testbed,
        "no-key",
        "Unschedulable",
        &["claim default/no-key, request gpu", "no such key: nobody"],
    )
    .await;
    wait_for_reason(
        testbed,
        "no-overload",
        "Unschedulable",
        &["claim default/no-overload, request gpu"],
    )
    .await;
    wait_for_reason(
        testbed,
        "class",
        "Unschedulable",
        &["claim default/class, request gpu", "broken"],
    )
    .await;
    for name in ["beside", "much"] {
        testbed.delete_pod(name).await;
    }
}

async fn unservable_claims(testbed: &Testbed) {
    let mut unknown = claim("unknown", &json!([]));
    unknown["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "nothing".into();
    ask_for(testbed, unknown).await;
    let mut countless = claim("countless", &json!([]));
    countless["spec"]["devices"]["requests"][0]["exactly"]["count"] = 1_000_000.into();
    ask_for(testbed, countless).await;
    testbed.create::<Pod>(with_gpus("million", 1_000_000)).await;
    let missing = json!({"resourceClaimName": "nobody"});
    testbed.create::<Pod>(with_claim("missing", &missing)).await;
    wait_for_reason(testbed, "unknown", "WaitingForClaims", &["there is no device class nothing"])
        .await;
    wait_for_reason(testbed, "countless", "Unschedulable", &["too small even when empty"]).await;
    wait_for_reason(testbed, "million", "Unschedulable", &["too small even when empty"]).await;
    wait_for_reason(
        testbed,
        "missing",
        "WaitingForClaims",
        &["there is no ResourceClaim default/nobody"],
    )
    .await;
}

async fn groups_that_are_too_large_or_ask_for_what_is_not_there(testbed: &Testbed) {
    // The largest allowed group: it waits for pods that are never created.
    create_group(testbed, "vast", &json!({"minMember": 100_000})).await;
    testbed.create::<Pod>(in_group(with_gpus("vast-0", 1), "vast")).await;
    // All pods exist, but the cluster is too small.
    create_group(testbed, "large", &json!({"minMember": 17})).await;
    for name in numbered("large", 17) {
        testbed.create::<Pod>(in_group(with_gpus(&name, 1), "large")).await;
    }
    create_group(testbed, "level", &json!({"minMember": 1, "topology": {"required": "galaxy"}}))
        .await;
    testbed.create::<Pod>(in_group(with_gpus("level-0", 1), "level")).await;
    testbed.create::<Pod>(in_group(with_gpus("alone-0", 1), "nobody")).await;
    testbed.create::<Pod>(with_gpus("beside", 1)).await;

    wait_until_all_bound(testbed, &["beside".to_owned()]).await;
    eventually("the status of the vast group", || async {
        let status = group_status(testbed, "vast").await;
        (status["phase"] == "Gathering" && status["min"] == 100_000).then_some(())
    })
    .await;
    wait_for_reason(testbed, "large-0", "Unschedulable", &["too few places"]).await;
    wait_for_reason(testbed, "large-16", "Unschedulable", &["too few places"]).await;
    wait_for_reason(testbed, "level-0", "TopologyLevelNotFound", &["\"galaxy\""]).await;
    wait_for_reason(testbed, "alone-0", "PodGroupNotFound", &["default/nobody"]).await;
    let placed = nodes_of_pods(testbed).await.unwrap();
    let placed: Vec<_> = placed.iter().filter(|(_, node)| node.is_some()).collect();
    assert_eq!(placed.len(), 1, "{placed:?}");
    testbed.delete_pod("beside").await;
}

async fn labels_of_the_topology_that_contradict_one_another(testbed: &Testbed) {
    // One clique in two racks, one of which has an empty name.
    for (node, rack) in [("dgx-h100-0", "a"), ("dgx-h100-1", "")] {
        let labels = Patch::Merge(json!({"metadata": {"labels": {
            "topology.octavo.dev/rack": rack, "nvidia.com/gpu.clique": "cluster.1",
        }}}));
        nodes(testbed).patch_metadata(node, &PatchParams::default(), &labels).await.unwrap();
    }
    create_group(testbed, "racks", &json!({"minMember": 2, "topology": {"required": "rack"}}))
        .await;
    for name in numbered("racks", 2) {
        testbed.create::<Pod>(in_group(with_gpus(&name, 4), "racks")).await;
    }
    wait_until_all_bound(testbed, &numbered("racks", 2)).await;
    let placed = nodes_of_pods(testbed).await.unwrap();
    assert_eq!(placed["racks-0"], placed["racks-1"], "in one rack");
    // The pods need both nodes, which share no rack.
    create_group(testbed, "apart", &json!({"minMember": 2, "topology": {"required": "rack"}}))
        .await;
    for name in numbered("apart", 2) {
        testbed.create::<Pod>(in_group(with_gpus(&name, 8), "apart")).await;
    }
    wait_for_reason(testbed, "apart-1", "Unschedulable", &["too few places", "all in one rack"])
        .await;
    for name in numbered("racks", 2).iter().chain(&numbered("apart", 2)) {
        testbed.delete_pod(name).await;
    }
}

/// `PodGroup` of `scheduling.k8s.io`.
fn native(testbed: &Testbed) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("scheduling.k8s.io", "v1alpha2", "PodGroup");
    Api::default_namespaced_with(
        testbed.client.clone(),
        &ApiResource::from_gvk_with_plural(&kind, "podgroups"),
    )
}

async fn create_native(testbed: &Testbed, name: &str, count: u32) {
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
    });
    let group = serde_json::from_value(group).unwrap();
    native(testbed).create(&PostParams::default(), &group).await.unwrap();
}

async fn create_member(testbed: &Testbed, name: &str, group: &str, gpus: u32) {
    let mut pod = with_gpus(name, gpus);
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
    // As a dynamic object, because the typed one may lack the field.
    let kind = ApiResource::erase::<Pod>(&());
    let pods: Api<DynamicObject> = Api::default_namespaced_with(testbed.client.clone(), &kind);
    let pod = serde_json::from_value(pod).unwrap();
    let made = pods.create(&PostParams::default(), &pod).await.unwrap();
    assert_eq!(made.data["spec"]["schedulingGroup"]["podGroupName"], group, "the field is kept");
}

/// Waits until a native group has its condition with these words, and returns the reason.
async fn scheduled(testbed: &Testbed, name: &str, status: &str, words: &str) -> String {
    eventually(&format!("PodGroupScheduled of {name} is {status}"), || async {
        let group = native(testbed).get(name).await.ok()?;
        let conditions = group.data["status"]["conditions"].as_array()?.clone();
        let found =
            conditions.into_iter().find(|condition| condition["type"] == "PodGroupScheduled")?;
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        let is_it = found["status"] == status && text("message").contains(words);
        is_it.then(|| text("reason"))
    })
    .await
}

async fn the_native_group_is_placed_whole_or_not_at_all(testbed: &Testbed) {
    create_native(testbed, "native", 3).await;
    for name in numbered("native", 2) {
        create_member(testbed, &name, "native", 4).await;
    }
    assert_eq!(scheduled(testbed, "native", "False", "2 of 3").await, "Unschedulable");
    let placed = nodes_of_pods(testbed).await.unwrap();
    assert!(numbered("native", 2).iter().all(|name| placed[name].is_none()), "{placed:?}");
    create_member(testbed, "native-2", "native", 4).await;
    wait_until_all_bound(testbed, &numbered("native", 3)).await;
    assert_eq!(scheduled(testbed, "native", "True", "").await, "Scheduled");
    // Eight more GPUs do not fit beside it.
    create_native(testbed, "more", 2).await;
    for name in numbered("more", 2) {
        create_member(testbed, &name, "more", 4).await;
    }
    assert_eq!(scheduled(testbed, "more", "False", "at most 1").await, "Unschedulable");
    wait_for_reason(testbed, "more-0", "Unschedulable", &["too few places"]).await;
    check_invariants(testbed).await;
    for name in numbered("native", 3).iter().chain(&numbered("more", 2)) {
        testbed.delete_pod(name).await;
    }
}
