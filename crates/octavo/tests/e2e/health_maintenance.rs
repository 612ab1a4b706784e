//! Work on nodes on a real API server: refusals, the taint, pods that leave, notices, and the end.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use octavo_api::names::{CONDITION_ACCEPTED, CONDITION_DRAINED, TAINT_MAINTENANCE};
use octavo_api::{Condition, Maintenance};
use serde_json::{Value, json};

use crate::health::{lab, parsed, pod_with_gpu, sick_node};
use crate::testbed::eventually;

/// A time so many hours from now, in whole seconds.
pub(crate) fn hours(hours: i64) -> String {
    let at = Timestamp::now() + SignedDuration::from_hours(hours);
    Timestamp::from_second(at.as_second()).unwrap().to_string()
}

/// A window that is open.
fn with_window(mut spec: Value) -> Value {
    let all = spec.as_object_mut().unwrap();
    all.entry("startTime").or_insert_with(|| hours(-1).into());
    all.entry("endTime").or_insert_with(|| hours(1).into());
    spec
}

/// Creates a `Maintenance`. Its window is open now unless the spec says otherwise.
pub(crate) async fn create(client: &Client, name: &str, spec: Value) -> Result<(), String> {
    let object = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "Maintenance",
        "metadata": {"name": name}, "spec": with_window(spec),
    });
    let request =
        http::Request::post("/apis/octavo.dev/v1alpha1/maintenances?fieldValidation=Strict")
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
    client.request::<Value>(request).await.map(drop).map_err(|error| error.to_string())
}

async fn condition(client: &Client, name: &str, type_: &str) -> Option<Condition> {
    let works: Api<Maintenance> = Api::all(client.clone());
    let status = works.get(name).await.ok()?.status?;
    status.conditions.into_iter().find(|condition| condition.type_ == type_)
}

async fn is_tainted(client: &Client, name: &str) -> bool {
    let nodes: Api<Node> = Api::all(client.clone());
    let taints = nodes.get(name).await.unwrap().spec.unwrap_or_default().taints;
    taints.into_iter().flatten().any(|taint| taint.key == TAINT_MAINTENANCE)
}

/// Whether an object of some name has an event of some reason.
async fn has_event(client: &Client, of: &str, reason: &str) -> Option<()> {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let found = events.list(&ListParams::default()).await.ok()?;
    let is_it = |event: &Event| {
        event.reason.as_deref() == Some(reason) && event.involved_object.name.as_deref() == Some(of)
    };
    found.items.iter().any(is_it).then_some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_is_wrong_is_refused_with_field_and_reason() {
    let testbed = lab().await;
    let client = &testbed.client;
    for (field, spec) in [
        ("spec.nodeSelector", json!({"nodeSelector": {}})),
        ("nodeSelector and nodeNames are both empty", json!({})),
        ("spec.nodeNames", json!({"nodeNames": []})),
        ("endTime must be after startTime", json!({"nodeNames": ["n"], "endTime": hours(-2)})),
        ("spec.startTime", json!({"nodeNames": ["n"], "startTime": "tomorrow"})),
        ("spec.noticeSeconds", json!({"nodeNames": ["n"], "noticeSeconds": -1})),
        ("spec.drain", json!({"nodeNames": ["n"], "drain": "Gently"})),
        ("spec.colour", json!({"nodeNames": ["n"], "colour": "red"})),
    ] {
        let error = create(client, "wrong", spec).await.unwrap_err();
        assert!(error.contains(field), "wanted {field}: {error}");
    }
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/health/maintenance.yaml");
    let example: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(example).unwrap()).unwrap();
    let works: Api<Maintenance> = Api::all(client.clone());
    works.create(&PostParams::default(), &parsed(&example)).await.unwrap();
    let past = json!({"nodeNames": ["t4-0"], "startTime": hours(-2), "endTime": hours(-1)});
    create(client, "past", past).await.unwrap();
    let accepted = eventually("the controller refuses what is over", || async {
        condition(client, "past", CONDITION_ACCEPTED).await
    })
    .await;
    assert_eq!((&*accepted.status, &*accepted.reason), ("False", "WindowInPast"));
    assert!(!is_tainted(client, "t4-0").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_in_maintenance_take_no_pods_and_are_drained_until_the_end() {
    let testbed = lab().await;
    let client = &testbed.client;
    sick_node(client, "rack-a", true).await;
    sick_node(client, "rack-b", true).await;
    pod_with_gpu(client, "rack-a").await;

    // An owner of a pod gets an event in time.
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    // Of a kind that no controller of Kubernetes looks after.
    let owners: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let owner = json!({"metadata": {"name": "serve"}});
    let owner = owners.create(&PostParams::default(), &parsed(&owner)).await.unwrap();
    let owner = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "serve", "uid": owner.metadata.uid, "controller": true,
    }]);
    let limits = json!({"nvidia.com/gpu": "1"});
    let owned = json!({
        "metadata": {"name": "owned", "ownerReferences": owner},
        "spec": {"nodeName": "rack-b", "containers": [
            {"name": "main", "image": "octavo.dev/test", "resources": {"limits": limits}},
        ]},
    });
    pods.create(&PostParams::default(), &parsed(&owned)).await.unwrap();
    let later = json!({
        "nodeNames": ["rack-b"], "startTime": hours(2), "endTime": hours(3), "noticeSeconds": 10_800,
    });
    create(client, "later", later).await.unwrap();
    eventually("the owner has an event", || has_event(client, "serve", "MaintenancePlanned")).await;
    assert!(!is_tainted(client, "rack-b").await, "its time has not come");

    create(client, "now", json!({"nodeNames": ["rack-a"]})).await.unwrap();
    eventually("the node has the taint", || async {
        is_tainted(client, "rack-a").await.then_some(())
    })
    .await;
    eventually("the pod leaves", || async {
        let pod = pods.get_opt("sick").await.ok()?;
        pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(())
    })
    .await;
    eventually("an event says why", || has_event(client, "sick", "NodeInMaintenance")).await;
    let well = pods.get("well").await.unwrap();
    assert!(well.metadata.deletion_timestamp.is_none(), "it has no GPU");
    // No kubelet ends it.
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let _ = pods.delete("sick", &now).await;
    eventually("the node is drained", || async {
        condition(client, "now", CONDITION_DRAINED).await.filter(|found| found.status == "True")
    })
    .await;
    let shown = testbed.octavo_ok(&["health"]);
    assert!(shown.contains("Maintenance now is in progress"), "{shown}");
    assert!(shown.contains("Maintenance later is planned"), "{shown}");

    let works: Api<Maintenance> = Api::all(client.clone());
    let end = json!({"spec": {"endTime": hours(0)}});
    works.patch("now", &PatchParams::default(), &Patch::Merge(&end)).await.unwrap();
    eventually("the taint is gone", || async {
        (!is_tainted(client, "rack-a").await).then_some(())
    })
    .await;
    assert!(pods.get("owned").await.unwrap().metadata.deletion_timestamp.is_none());
}
