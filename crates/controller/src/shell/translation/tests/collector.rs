use std::time::Duration;

use jiff::Timestamp;
use octavo_kube_io::lease;
use octavo_testkit::{Request, ScriptedApi, failure};
use serde_json::{Value, json};

use super::{leader, metrics};
use crate::shell::leader::{Leader, LeaderError};
use crate::shell::leadership::Leadership;
use crate::shell::translation::collector::Collector;

fn template(namespace: &str, name: &str, used: &str) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "resourceVersion": "7",
            "labels": {"octavo.dev/translated": "true"}, "annotations": {"octavo.dev/last-used": used}},
    })
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items})
}

/// One round at noon over four templates; `team/old-used` is a pod's. Answers to writes come from `written`.
async fn round(written: (u16, Value)) -> ScriptedApi {
    let api = ScriptedApi::new(move |request: &Request| {
        let path = request.uri().path();
        if path.ends_with("/resourceclaimtemplates") {
            return (
                200,
                list(&[
                    template("team", "young", "2028-01-01T11:45:00Z"),
                    template("team", "old", "2028-01-01T10:59:00Z"),
                    template("team", "old-used", "2028-01-01T10:59:00Z"),
                    template("other", "half", "2028-01-01T11:20:00Z"),
                ]),
            );
        }
        if path.ends_with("/pods") {
            let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "old-used"}]);
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "resourceClaims": claims}});
            return (
                200,
                json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod]}),
            );
        }
        if request.method() == "DELETE" && written.0 == 200 {
            return (200, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}));
        }
        written.clone()
    });
    let collector =
        Collector { client: api.client(), leader: leader(), keep: Duration::from_hours(1) };
    let noon: Timestamp = "2028-01-01T12:00:00Z".parse().unwrap();
    collector.collect(noon).await.unwrap();
    api
}

#[tokio::test]
async fn old_templates_are_deleted_unless_a_pod_needs_them() {
    let api = round((200, template("team", "x", ""))).await;
    let requests = api.requests();
    let writes: Vec<_> = requests.iter().filter(|it| it.method() != "GET").collect();
    let path = |index: usize| writes[index].uri().path();
    assert_eq!(writes.len(), 2, "{:?}", api.uris());
    let [delete, renew] =
        [0, 1].map(|index| serde_json::from_slice::<Value>(writes[index].body()).unwrap());
    assert_eq!((writes[0].method().as_str(), writes[1].method().as_str()), ("DELETE", "PATCH"));
    assert!(path(0).ends_with("/namespaces/team/resourceclaimtemplates/old"));
    // Only as it was seen: the webhook may have renewed its time since.
    assert_eq!(delete["preconditions"], json!({"uid": "uid-old", "resourceVersion": "7"}));
    assert!(path(1).ends_with("/namespaces/team/resourceclaimtemplates/old-used"));
    let renewed = json!({"resourceVersion": "7", "annotations": {"octavo.dev/last-used": "2028-01-01T12:00:00Z"}});
    assert_eq!(renew["metadata"], renewed);
}

#[tokio::test]
async fn pods_are_read_after_templates_and_only_where_something_is_due() {
    let api = round((200, template("team", "x", ""))).await;
    let reads: Vec<String> =
        api.uris().into_iter().filter(|uri| !uri.contains("/resourceclaimtemplates/")).collect();
    assert_eq!(reads.len(), 3, "{reads:?}");
    // Templates of ComputeDomains are none of its business.
    for part in ["labelSelector=octavo.dev", "%21resource.nvidia.com%2FcomputeDomain"] {
        assert!(reads[0].contains(part), "{reads:?}");
    }
    assert!(
        reads[1].contains("/namespaces/other/pods") && reads[2].contains("/namespaces/team/pods")
    );
}

#[tokio::test]
async fn a_template_that_changed_in_between_is_left() {
    let api = round(failure(409, "it has changed")).await;
    assert_eq!(api.requests().iter().filter(|it| it.method() != "GET").count(), 2);
}

#[tokio::test]
async fn what_cannot_be_written_or_read_delays_no_other_template() {
    for code in [403, 429, 500] {
        let api = round(failure(code, "not now")).await;
        assert_eq!(api.requests().iter().filter(|it| it.method() != "GET").count(), 2, "{code}");
    }
    let api = ScriptedApi::new(|request: &Request| {
        let (path, old) = (request.uri().path(), "2028-01-01T10:00:00Z");
        if request.method() == "DELETE" {
            return (200, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}));
        }
        if path.ends_with("/resourceclaimtemplates") {
            return (200, list(&[template("a", "one", old), template("b", "two", old)]));
        }
        if path.contains("/namespaces/a/") {
            return failure(403, "a policy");
        }
        (200, json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []}))
    });
    let collector =
        Collector { client: api.client(), leader: leader(), keep: Duration::from_hours(1) };
    collector.collect("2028-01-01T12:00:00Z".parse().unwrap()).await.unwrap();
    let deleted: Vec<String> = api
        .requests()
        .iter()
        .filter(|it| it.method() == "DELETE")
        .map(|it| it.uri().path().to_owned())
        .collect();
    assert_eq!(deleted.len(), 1, "{deleted:?}");
    assert!(deleted[0].ends_with("/namespaces/b/resourceclaimtemplates/two"), "{deleted:?}");
}

#[tokio::test]
async fn a_round_ends_with_the_lease() {
    let api = ScriptedApi::new(|request: &Request| {
        assert_eq!(request.method(), "GET");
        let old = "2028-01-01T10:00:00Z";
        if request.uri().path().ends_with("/pods") {
            return (
                200,
                json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []}),
            );
        }
        (200, list(&[template("a", "one", old), template("b", "two", old)]))
    });
    let state = tokio::sync::watch::channel(lease::Leadership::Following { holder: None }).1;
    let leader = Leader { leadership: Leadership::of(state), metrics: metrics() };
    let collector = Collector { client: api.client(), leader, keep: Duration::from_hours(1) };
    let result = collector.collect("2028-01-01T12:00:00Z".parse().unwrap()).await;
    assert!(matches!(result, Err(LeaderError::NotLeader)), "{result:?}");
    assert_eq!(api.requests().len(), 2, "{:?}", api.uris());
}
