use http::Method;
use octavo_api::compute_domain::{ComputeDomainChannelNumber, ComputeDomainStatus, Readiness};
use octavo_testkit::{Request, ScriptedApi, failure};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::certificate::CertificateRequest;
use crate::metrics::Metrics;
use crate::plan::{IndexChange, Reason, Regarding, Warning, Write};
use crate::shell::leadership;
use crate::shell::writer::{KubeWriter, WriteError, Writer};
use crate::store::{Change, Kind};
use crate::testing::{config, domain, object};
use crate::view::OwnedKind;
use crate::wanted::{self, DaemonsOf};

fn writer(api: &ScriptedApi, lease: octavo_kube_io::lease::Leadership) -> KubeWriter {
    let leadership = leadership::Leadership::of(watch::channel(lease).1);
    let metrics = Metrics::new(&mut Registry::default());
    KubeWriter::new(api.client(), "me", leadership, metrics)
}

/// Sends a write to a server with one answer; returns the request and the result.
async fn send(
    write: &Write,
    code: u16,
    answer: Value,
) -> (Vec<Request>, Result<Change, WriteError>) {
    let api = ScriptedApi::new(move |request: &Request| match request.method() {
        &Method::GET => (200, json!({"kind": "PodList", "metadata": {}, "items": []})),
        _ => (code, answer.clone()),
    });
    let result = writer(&api, leading(Duration::from_mins(1))).write(write).await;
    let requests = api.requests().clone();
    (requests, result)
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(request.body()).unwrap()
}

fn content_type(request: &Request) -> &str {
    request.headers()["content-type"].to_str().unwrap()
}

fn answer(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": kind,
        "metadata": {"namespace": "octavo", "name": name, "uid": "u", "resourceVersion": "8"},
    })
}

fn clique() -> crate::view::OwnedObject {
    let mut clique = object(OwnedKind::Clique, "octavo", "a.c", Some("a"));
    (clique.resource_version, clique.uid) = ("7".to_owned(), "u".to_owned());
    clique
}

#[tokio::test]
async fn nothing_is_sent_without_the_lease() {
    let api = ScriptedApi::new(|_: &Request| (200, Value::Null));
    let write = Write::Delete(clique());
    let result = writer(&api, following()).write(&write).await;
    assert!(matches!(result, Err(WriteError::NotLeader)));
    let over = leading(Duration::ZERO);
    assert!(matches!(writer(&api, over).write(&write).await, Err(WriteError::NotLeader)));
    assert!(api.requests().is_empty());
}

#[tokio::test]
async fn a_label_is_set_and_removed_while_it_is_as_it_was_seen() {
    let path = "/metadata/labels/resource.nvidia.com~1computeDomain";
    for (before, domain, change) in [
        (None, Some("a"), json!({"op": "add", "path": path, "value": "a"})),
        (Some("b"), Some("a"), json!({"op": "add", "path": path, "value": "a"})),
        (Some("a"), None, json!({"op": "remove", "path": path})),
    ] {
        let write = Write::LabelNode {
            node: "n".to_owned(),
            before: before.map(str::to_owned),
            domain: domain.map(str::to_owned),
        };
        let answer = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "resourceVersion": "8"}, "spec": {}});
        let (requests, result) = send(&write, 200, answer).await;
        let Ok(Change::Put(observed)) = result else { panic!("{result:?}") };
        assert_eq!((observed.key.kind, observed.resource_version.as_str()), (Kind::Node, "8"));
        let request = &requests[0];
        assert_eq!((request.method(), request.uri().path()), (&Method::PATCH, "/api/v1/nodes/n"));
        assert_eq!(content_type(request), "application/json-patch+json");
        let test = json!({"op": "test", "path": path, "value": before});
        assert_eq!(body(request), json!([test, change]));
    }
}

#[tokio::test]
async fn indices_change_if_they_and_the_places_of_their_entries_are_as_they_were() {
    let change =
        |position, node: &str, index| IndexChange { position, node: node.to_owned(), index };
    let changes = vec![change(1, "m", Some(4)), change(0, "n", None)];
    let write = Write::AssignIndices { object: clique(), seen: 9, changes };
    let (requests, result) = send(&write, 200, answer("ComputeDomainClique", "a.c")).await;
    result.unwrap();
    let request = &requests[0];
    assert_eq!(content_type(request), "application/json-patch+json");
    let path = "/apis/resource.nvidia.com/v1beta1/namespaces/octavo/computedomaincliques/a.c";
    assert_eq!(request.uri().path(), path);
    assert_eq!(request.uri().query(), Some("fieldManager=octavo.dev/controller"));
    let count = "/metadata/annotations/octavo.dev~1index-changes";
    let wanted = json!([
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": count, "value": "9"},
        {"op": "replace", "path": count, "value": "10"},
        {"op": "test", "path": "/daemons/1/nodeName", "value": "m"},
        {"op": "add", "path": "/daemons/1/index", "value": 4},
        {"op": "test", "path": "/daemons/0/nodeName", "value": "n"},
        {"op": "remove", "path": "/daemons/0/index"},
    ]);
    assert_eq!(body(request), wanted);
}

#[tokio::test]
async fn a_clique_gets_its_labels_and_begins_to_count_for_one_version() {
    let labels = crate::view::Clique::labels("a", "c");
    for (counts, annotations) in
        [(false, json!({"octavo.dev/index-changes": "0"})), (true, Value::Null)]
    {
        let write = Write::LabelClique { object: clique(), labels: labels.clone(), counts };
        let (requests, result) = send(&write, 200, answer("ComputeDomainClique", "a.c")).await;
        result.unwrap();
        let metadata = &body(&requests[0])["metadata"];
        assert_eq!(content_type(&requests[0]), "application/merge-patch+json");
        assert_eq!(
            (&metadata["resourceVersion"], &metadata["annotations"]),
            (&json!("7"), &annotations)
        );
        assert_eq!(metadata["labels"]["resource.nvidia.com/computeDomain"], "a");
    }
}

#[tokio::test]
async fn entries_are_removed_if_they_are_where_they_were_and_no_pod_has_their_address() {
    let entries = vec![(2, "n".to_owned(), "10.0.0.2".to_owned())];
    let write = Write::RemoveEntries { object: clique(), entries };
    let (requests, result) = send(&write, 200, answer("ComputeDomainClique", "a.c")).await;
    result.unwrap();
    assert!(
        requests[0]
            .uri()
            .query()
            .unwrap()
            .contains("labelSelector=resource.nvidia.com%2FcomputeDomain%3Da")
    );
    assert_eq!(content_type(&requests[1]), "application/json-patch+json");
    let wanted = json!([
        {"op": "test", "path": "/daemons/2/nodeName", "value": "n"},
        {"op": "test", "path": "/daemons/2/ipAddress", "value": "10.0.0.2"},
        {"op": "remove", "path": "/daemons/2"},
    ]);
    assert_eq!(body(&requests[1]), wanted);

    let pod = json!({
        "metadata": {"name": "p", "labels": {"resource.nvidia.com/computeDomain": "a"}},
        "spec": {"nodeName": "n", "containers": []}, "status": {"podIP": "10.0.0.2"},
    });
    let api = ScriptedApi::new(move |_: &Request| {
        (200, json!({"kind": "PodList", "metadata": {}, "items": [pod]}))
    });
    let result = writer(&api, leading(Duration::from_mins(1))).write(&write).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
    assert_eq!(api.requests().len(), 1);
}

#[tokio::test]
async fn a_status_replaces_lists_and_changed_conditions_get_a_time() {
    let condition = |time: &str| octavo_api::Condition {
        last_transition_time: time.to_owned(),
        ..octavo_api::Condition::default()
    };
    let status = ComputeDomainStatus {
        status: Readiness::NotReady,
        nodes: Vec::new(),
        channels: Vec::new(),
        conditions: vec![condition(""), condition("then")],
    };
    let write = Write::SetStatus {
        namespace: "team".to_owned(),
        name: "train".to_owned(),
        uid: "u".to_owned(),
        resource_version: Some("7".to_owned()),
        status,
    };
    let mut answer = answer("ComputeDomain", "train");
    answer["spec"] = json!({"channel": {"resourceClaimTemplate": {"name": "t"}}});
    let (requests, result) = send(&write, 200, answer).await;
    result.unwrap();
    assert!(requests[0].uri().path().ends_with("/namespaces/team/computedomains/train/status"));
    assert_eq!(content_type(&requests[0]), "application/merge-patch+json");
    let body = body(&requests[0]);
    assert_eq!((&body["metadata"]["uid"], &body["status"]["nodes"]), (&json!("u"), &json!([])));
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    assert_eq!(body["status"].get("channels"), Some(&Value::Null), "stale ones are removed");
    let conditions = &body["status"]["conditions"];
    assert_eq!(conditions[1]["lastTransitionTime"], "then");
    let time = conditions[0]["lastTransitionTime"].as_str().unwrap();
    assert!(time.ends_with('Z') && time.len() == "2026-01-01T00:00:00Z".len(), "{time}");
}

#[tokio::test]
async fn a_deletion_names_the_uid_and_waits_for_finalizers() {
    let mut set = object(OwnedKind::DaemonSet, "octavo", "computedomain-daemon-a", Some("a"));
    set.uid = "u".to_owned();
    let write = Write::Delete(set);
    let success = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    let (requests, result) = send(&write, 200, success).await;
    assert!(matches!(result, Ok(Change::Gone(_))), "{result:?}");
    assert_eq!(requests[0].method(), Method::DELETE);
    let body = body(&requests[0]);
    assert_eq!(
        (&body["preconditions"]["uid"], &body["propagationPolicy"]),
        (&json!("u"), &json!("Background"))
    );
    let mut kept = answer("DaemonSet", "computedomain-daemon-a");
    kept["apiVersion"] = json!("apps/v1");
    kept["metadata"]["finalizers"] = json!(["other"]);
    kept["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (_, result) = send(&write, 200, kept).await;
    assert!(matches!(result, Ok(Change::Put(_))), "{result:?}");
}

#[tokio::test]
async fn objects_are_created_where_they_belong() {
    let (domain, config) = (domain("a"), config());
    for (object, path) in [
        (
            wanted::workload_template(&domain),
            "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates",
        ),
        (
            wanted::daemon_set(DaemonsOf::Domain(&domain), &config),
            "/apis/apps/v1/namespaces/octavo/daemonsets",
        ),
        (
            wanted::clique("a", "c", &config),
            "/apis/resource.nvidia.com/v1beta1/namespaces/octavo/computedomaincliques",
        ),
    ] {
        let (requests, result) = send(&Write::Create(object.clone()), 201, object.clone()).await;
        assert!(matches!(result, Ok(Change::Put(_))), "{result:?}");
        assert_eq!((requests[0].method(), requests[0].uri().path()), (&Method::POST, path));
        assert_eq!(body(&requests[0])["metadata"]["labels"], object["metadata"]["labels"]);
    }
}

#[tokio::test]
async fn a_certificate_is_issued_into_a_secret_and_another_owner_s_is_kept() {
    let request = CertificateRequest {
        namespace: "octavo".to_owned(),
        domain: "a".to_owned(),
        title: "ComputeDomain a".to_owned(),
        owner: "u".to_owned(),
        slots: 4,
    };
    let write = Write::IssueCertificate(request);
    let (requests, result) = send(&write, 201, answer("Secret", "computedomain-daemon-a")).await;
    let Ok(Change::Put(observed)) = result else { panic!("{result:?}") };
    assert_eq!(observed.key.kind, Kind::Secret);
    let (method, path) = (requests[0].method(), requests[0].uri().path());
    assert_eq!((method, path), (&Method::POST, "/api/v1/namespaces/octavo/secrets"));
    let key = body(&requests[0])["stringData"]["tls.key"].as_str().unwrap().to_owned();
    assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
    // No message has the key.
    assert!(!format!("{write:?} {observed:?}").contains("PRIVATE"));
    let (_, result) = send(&write, 409, failure(409, "it exists").1).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
}

#[tokio::test]
async fn a_daemon_set_is_replaced_for_one_version() {
    let object = wanted::daemon_set(DaemonsOf::Domain(&domain("a")), &config());
    let write =
        Write::ReplaceDaemonSet { resource_version: "7".to_owned(), object: object.clone() };
    let (requests, result) = send(&write, 200, object).await;
    result.unwrap();
    assert_eq!(requests[0].method(), Method::PUT);
    assert_eq!(body(&requests[0])["metadata"]["resourceVersion"], "7");
}

#[tokio::test]
async fn the_last_finalizer_of_a_deleted_domain_ends_it() {
    let write = Write::SetFinalizers {
        namespace: "team".to_owned(),
        name: "train".to_owned(),
        resource_version: "7".to_owned(),
        finalizers: Vec::new(),
    };
    let mut answer = answer("ComputeDomain", "train");
    answer["spec"] = json!({"channel": {"resourceClaimTemplate": {"name": "t"}}});
    let (_, result) = send(&write, 200, answer.clone()).await;
    assert!(matches!(result, Ok(Change::Put(_))), "{result:?}");
    answer["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (requests, result) = send(&write, 200, answer).await;
    assert!(matches!(result, Ok(Change::Gone(_))), "{result:?}");
    assert_eq!(body(&requests[0])["metadata"], json!({"resourceVersion": "7", "finalizers": []}));
}

#[tokio::test]
async fn older_states_are_conflicts_and_other_refusals_failures() {
    let indices = Write::AssignIndices { object: clique(), seen: 0, changes: Vec::new() };
    let create = Write::Create(wanted::workload_template(&domain("a")));
    let label = Write::LabelNode { node: "n".to_owned(), before: None, domain: None };
    for (write, code, is_conflict) in [
        (&indices, 409, true),
        (&indices, 422, true),
        (&label, 422, true),
        (&label, 403, false),
        (&create, 409, true),
        (&create, 422, false),
        (&indices, 403, false),
    ] {
        let (_, result) = send(write, code, failure(code, "no").1).await;
        let error = result.unwrap_err();
        assert_eq!(matches!(error, WriteError::Conflict(_)), is_conflict, "{code}: {error}");
    }
}

#[tokio::test]
async fn a_warning_is_an_event_on_its_object() {
    let api = ScriptedApi::new(|request: &Request| {
        (201, serde_json::from_slice::<Value>(request.body()).unwrap())
    });
    let writer = writer(&api, leading(Duration::from_mins(1)));
    let warning = Warning {
        regarding: Regarding::Domain,
        reason: Reason::CliqueFull,
        note: "It is full.".to_owned(),
    };
    writer.report(Some(&domain("a")), &warning).await;
    let request = api.requests()[0].clone();
    assert_eq!(request.uri().path(), "/apis/events.k8s.io/v1/namespaces/team/events");
    let event = body(&request);
    assert_eq!((&event["reason"], &event["type"]), (&json!("CliqueFull"), &json!("Warning")));
    assert_eq!(event["regarding"]["uid"], "a");
    assert_eq!(event["reportingController"], "octavo.dev/controller");
}

#[tokio::test]
async fn channels_that_the_server_drops_are_a_failure() {
    let channel = ComputeDomainChannelNumber { clique_id: "c".to_owned(), channel: 3 };
    let status = ComputeDomainStatus { channels: vec![channel], ..ComputeDomainStatus::default() };
    let write = Write::SetStatus {
        namespace: "team".to_owned(),
        name: "train".to_owned(),
        uid: "u".to_owned(),
        resource_version: None,
        status,
    };
    let mut answer = answer("ComputeDomain", "train");
    answer["spec"] = json!({"channel": {"resourceClaimTemplate": {"name": "t"}}});
    answer["status"] = json!({"status": "NotReady"});
    let (requests, result) = send(&write, 200, answer.clone()).await;
    assert!(body(&requests[0])["metadata"].get("resourceVersion").is_none());
    assert_eq!(body(&requests[0])["status"]["channels"], json!([{"cliqueID": "c", "channel": 3}]));
    let Err(WriteError::Failed(error)) = result else { panic!("{result:?}") };
    assert!(error.to_string().contains("CustomResourceDefinition"), "{error}");
    answer["status"]["channels"] = json!([{"cliqueID": "c", "channel": 3}]);
    send(&write, 200, answer).await.1.unwrap();
}
