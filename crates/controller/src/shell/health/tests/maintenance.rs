//! Taints, visits and notices against a server.

use std::collections::BTreeSet;

use octavo_api::names::TAINT_MAINTENANCE;
use tokio::sync::mpsc;

use super::*;
use crate::health::maintenance::{Notice, Visit};

/// The time in the tests is 1970-01-12T13:46:40Z.
pub(super) fn maintenance(draining: &Value) -> Value {
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "Maintenance",
        "metadata": {"name": "m", "uid": "m", "resourceVersion": "1", "creationTimestamp": "1970-01-10T00:00:00Z"},
        "spec": {
            "nodeNames": ["n"],
            "startTime": "1970-01-12T13:00:00Z", "endTime": "1970-01-12T14:00:00Z",
        },
        "status": {"draining": draining},
    })
}

fn node(taints: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": taints}})
}

/// Patches of a node's taints, from those that it has. The server answers them so.
async fn taint(found: Value, is_wanted: bool, answer: u16) -> (Vec<Value>, bool) {
    let api = ScriptedApi::new(move |request: &Request| match request.method().as_str() {
        "GET" => (200, node(&found)),
        _ if answer != 200 => failure(answer, "the server rejected our request"),
        _ => (200, node(&json!([]))),
    });
    let write = Write::Taint("n".to_owned(), is_wanted);
    let change = send(&api.client(), &leader(true), write).await.unwrap();
    let requests = api.requests();
    let patches = requests.iter().filter(|request| request.method() == "PATCH");
    let patches = patches.map(|request| serde_json::from_slice(request.body()).unwrap());
    (patches.collect(), change.is_some())
}

#[tokio::test]
async fn the_taint_comes_and_goes_and_those_of_others_stay() {
    // One of a person with the same key, and another effect.
    let others = json!([{"key": TAINT_MAINTENANCE, "effect": "NoExecute"}]);
    let (patches, is_done) = taint(others.clone(), true, 200).await;
    let with = json!([others[0], {"key": TAINT_MAINTENANCE, "effect": "NoSchedule"}]);
    let test = |value: &Value| json!({"op": "test", "path": "/spec/taints", "value": value});
    let add = |value: &Value| json!({"op": "add", "path": "/spec/taints", "value": value});
    assert_eq!((patches, is_done), (vec![json!([test(&others), add(&with)])], true));
    let (patches, _) = taint(with.clone(), false, 200).await;
    assert_eq!(patches, [json!([test(&with), add(&others)])]);
    let (patches, is_done) = taint(Value::Null, true, 422).await;
    assert_eq!(patches[0][0], test(&Value::Null));
    assert!(!is_done, "another taint came meanwhile");
}

/// A visit of a node with a pod that has a GPU by claim, one by extended resource, one that tolerates the taint and one without.
async fn visit(is_drained: bool, draining: Value, leads: bool) -> (Vec<String>, Vec<Finding>) {
    let api = ScriptedApi::new(move |request: &Request| {
        let path = request.uri().path();
        if path.ends_with("/nodehealths/n") {
            return failure(404, "no agent");
        }
        if path.ends_with("/nodes/n") {
            return (200, node(&json!([])));
        }
        if path.ends_with("/maintenances/m") {
            return (200, maintenance(&draining));
        }
        let pod = |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": spec, "status": {"phase": "Running"}});
        let limits = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]);
        if path.ends_with("/pods") {
            let claims = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
            let tolerations = json!([{"key": TAINT_MAINTENANCE, "operator": "Exists"}]);
            let items = json!([
                pod("claim", json!({"containers": [], "resourceClaims": claims})),
                pod("extended", json!({"containers": limits})),
                pod("stays", json!({"containers": limits, "tolerations": tolerations})),
                pod("none", json!({"containers": []})),
            ]);
            return (200, pod_list(&json!(items)));
        }
        if path.ends_with("/resourceclaims/gpu") {
            return (200, gpu_claim("gpu-0"));
        }
        if path.contains("/events") {
            return (201, serde_json::from_slice(request.body()).unwrap());
        }
        assert!(path.ends_with("/eviction"), "{path}");
        (201, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}))
    });
    let (reader, mut found) = reader(&api, leads);
    let visit = Visit {
        node: "n".to_owned(),
        maintenance: "m".to_owned(),
        note: "work".to_owned(),
        is_drained,
    };
    let departures = Departures { visit: Some(visit), ..Departures::default() };
    let _ = reader.look("n", &departures, now()).await;
    drop(reader);
    let mut findings = Vec::new();
    while let Some(finding) = found.recv().await {
        findings.push(finding);
    }
    let requests = api.requests();
    let evictions = requests.iter().map(|request| request.uri().path().to_owned());
    (evictions.filter(|path| path.ends_with("/eviction")).collect(), findings)
}

#[tokio::test]
async fn pods_with_gpus_are_counted_and_leave_in_their_turn() {
    let draining = json!([{"name": "n", "since": "1970-01-12T13:40:00Z"}]);
    let (evictions, findings) = visit(true, draining.clone(), true).await;
    assert_eq!(findings, [Finding::Pods("n".to_owned(), 2)]);
    let path = |pod: &str| format!("/api/v1/namespaces/team/pods/{pod}/eviction");
    assert_eq!(evictions, [path("claim"), path("extended")]);
    let (evictions, findings) = visit(false, draining.clone(), true).await;
    assert_eq!((evictions.len(), findings.len()), (0, 1), "it is not its turn");
    let (evictions, _) = visit(true, json!([]), true).await;
    assert_eq!(evictions, [""; 0], "another leader says that it is not its turn");
    let (evictions, findings) = visit(true, draining, false).await;
    assert_eq!((evictions.len(), findings.len()), (0, 0), "another process leads");
}

#[tokio::test]
async fn an_owner_of_several_pods_has_one_event() {
    let api = ScriptedApi::new(|request: &Request| {
        if request.uri().path().contains("/events") {
            return (201, serde_json::from_slice(request.body()).unwrap());
        }
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job", "controller": true}]);
        let pod = |name: &str, owners: &Value| {
            json!({
                "metadata": {"name": name, "namespace": "team", "uid": name, "ownerReferences": owners},
                "spec": {"containers": [], "resourceClaims": [{"name": "gpu"}]},
            })
        };
        let items = json!([pod("a", &owner), pod("b", &owner), pod("alone", &json!([]))]);
        (200, pod_list(&json!(items)))
    });
    let events = Events::new(api.client(), "octavo.dev/controller", "c");
    let (findings, mut found) = mpsc::channel(8);
    let announcer = Announcer::new(api.client(), events, leader(true), findings);
    let (notices, wanted) = watch::channel(Vec::new());
    let notice = Notice {
        maintenance: "m".to_owned(),
        uid: "u".to_owned(),
        generation: Some(3),
        nodes: BTreeSet::from(["n".to_owned(), "o".to_owned()]),
        note: "is planned".to_owned(),
    };
    notices.send(vec![notice]).unwrap();
    drop(notices);
    announcer.run(wanted).await;
    assert_eq!(found.recv().await, Some(Finding::Informed("u".to_owned(), Some(3))));
    let requests = api.requests();
    let events = requests.iter().filter(|request| request.method() == "POST");
    let events = events.map(|request| {
        let event: Value = serde_json::from_slice(request.body()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&event["regarding"]["name"]), text(&event["reason"]))
    });
    let planned = |name: &str| (name.to_owned(), "MaintenancePlanned".to_owned());
    assert_eq!(events.collect::<Vec<_>>(), [planned("alone"), planned("train")]);
}
