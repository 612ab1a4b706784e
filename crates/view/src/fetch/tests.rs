use std::sync::Mutex;

use octavo_testkit::{ScriptedApi, failure};
use serde_json::{Value, json};

use super::{for_pod, for_top};
use crate::error::ViewError;
use crate::snapshot::{GapKind, ObjectName};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
const OWN_CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims";
const POD: &str = "/api/v1/namespaces/team/pods/train";
const EVENTS: &str = "/api/v1/namespaces/team/events";

/// A server that responds to a path and query with a status and an object.
fn server(answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static) -> ScriptedApi {
    ScriptedApi::new(move |request| {
        answer(request.uri().path(), request.uri().query().unwrap_or_default())
    })
}

fn paths(api: &ScriptedApi) -> Vec<String> {
    api.requests().iter().map(|request| request.uri().path().to_owned()).collect()
}

fn list(items: &Value) -> (u16, Value) {
    (200, json!({"metadata": {}, "items": items}))
}

fn refusal(code: u16, path: &str) -> (u16, Value) {
    failure(code, &format!("no {path}"))
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"namespace": "team", "name": name}, "spec": {}})
}

fn pod(spec: &Value) -> (u16, Value) {
    let metadata = json!({"namespace": "team", "name": "train", "uid": "u-1"});
    (200, json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}))
}

fn name() -> ObjectName {
    ObjectName::new("team", "train")
}

#[tokio::test]
async fn pod_without_devices_needs_no_cluster_lists() {
    let api = server(|path, _| match path {
        POD => pod(&json!({"containers": []})),
        _ => list(&json!([])),
    });
    for_pod(&api.client(), &name()).await.unwrap();
    assert_eq!(paths(&api), [POD, EVENTS]);
}

#[tokio::test]
async fn bound_pod_reads_only_claims_of_its_namespace() {
    let api = server(|path, _| match path {
        POD => pod(&json!({
            "containers": [], "nodeName": "n",
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
        })),
        OWN_CLAIMS => list(&json!([claim("mine")])),
        _ => list(&json!([])),
    });
    let (snapshot, _) = for_pod(&api.client(), &name()).await.unwrap();
    assert!(snapshot.claims.contains_key(&ObjectName::new("team", "mine")));
    let asked = paths(&api);
    assert!(!asked.iter().any(|path| path == CLAIMS || path == "/api/v1/nodes"), "{asked:?}");
}

#[tokio::test]
async fn user_of_one_namespace_sees_own_claims_and_the_gaps() {
    let api = server(|path, _| match path {
        POD => pod(&json!({
            "containers": [],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
        })),
        OWN_CLAIMS => list(&json!([claim("mine")])),
        EVENTS => list(&json!([])),
        other => refusal(403, other),
    });
    let (snapshot, _) = for_pod(&api.client(), &name()).await.unwrap();
    assert!(snapshot.claims.contains_key(&ObjectName::new("team", "mine")));
    let gaps: Vec<GapKind> = snapshot.gaps.iter().map(|gap| gap.kind).collect();
    let expected = [
        GapKind::ClaimsElsewhere,
        GapKind::Slices,
        GapKind::Classes,
        GapKind::Nodes,
        GapKind::NodeEvents,
    ];
    assert_eq!(gaps, expected);

    let error = for_top(&api.client()).await.unwrap_err();
    assert!(matches!(error, ViewError::Refused { code: 403, kind: "resourceslices", .. }));
    assert!(error.hint().unwrap().contains("the right to read resourceslices"));
}

#[tokio::test]
async fn warnings_of_agents_are_read_by_node() {
    let api = server(|path, query| match path {
        POD => pod(&json!({
            "containers": [],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
        })),
        "/api/v1/namespaces/default/events" => {
            for part in ["Node", "Warning", "octavo.dev%2Fagent"] {
                assert!(query.contains(part), "{query}");
            }
            let event = |time: &str, message: &str| {
                json!({
                    "metadata": {"name": message}, "involvedObject": {"kind": "Node", "name": "n"},
                    "eventTime": time, "type": "Warning", "reason": "FieldsDropped",
                    "message": message, "reportingComponent": "octavo.dev/agent",
                })
            };
            list(&json!([
                event("2026-01-05T11:00:00.000000Z", "later"),
                event("2026-01-05T10:00:00.000000Z", "earlier"),
            ]))
        }
        _ => list(&json!([])),
    });
    let (snapshot, _) = for_pod(&api.client(), &name()).await.unwrap();
    let messages: Vec<&str> =
        snapshot.node_warnings["n"].iter().map(|event| &*event.message).collect();
    assert_eq!(messages, ["earlier", "later"]);
}

#[tokio::test]
async fn missing_api_error_names_the_version() {
    let api = server(|path, _| refusal(404, path));
    let error = for_top(&api.client()).await.unwrap_err();
    assert!(error.hint().unwrap().contains("Kubernetes 1.34"), "{error}");
}

#[tokio::test]
async fn expired_continue_token_restarts_the_list() {
    let stale = Mutex::new(true);
    let api = server(move |path, query| match path {
        CLAIMS if query.contains("continue=") => {
            if std::mem::take(&mut *stale.lock().unwrap()) {
                refusal(410, path)
            } else {
                list(&json!([claim("b")]))
            }
        }
        CLAIMS => (200, json!({"metadata": {"continue": "next"}, "items": [claim("a")]})),
        _ => list(&json!([])),
    });
    let snapshot = for_top(&api.client()).await.unwrap();
    let names: Vec<&str> = snapshot.claims.keys().map(|name| &*name.name).collect();
    assert_eq!(names, ["a", "b"]);
    let pages = paths(&api).iter().filter(|path| *path == CLAIMS).count();
    assert_eq!(pages, 4);
}

#[tokio::test]
async fn objects_that_are_not_understood_are_noted() {
    let odd = |name: &str| {
        let request =
            json!({"name": "gpu", "exactly": {"deviceClassName": "c", "allocationMode": "Some"}});
        let spec = json!({"devices": {"requests": [request]}});
        json!({"metadata": {"namespace": "team", "name": name}, "spec": spec})
    };
    let api = server(move |path, _| match path {
        POD => pod(&json!({
            "containers": [],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
        })),
        CLAIMS => list(&json!([claim("mine"), odd("other"), odd("third")])),
        _ => list(&json!([])),
    });
    let (snapshot, _) = for_pod(&api.client(), &name()).await.unwrap();
    let [gap] = &*snapshot.gaps else { panic!("{:?}", snapshot.gaps) };
    assert_eq!(gap.kind, GapKind::Unreadable);
    assert!(gap.message.starts_with("ResourceClaim team/other: request gpu has"), "{gap:?}");
    assert!(gap.message.ends_with(" (and 1 more)"), "{gap:?}");
}
