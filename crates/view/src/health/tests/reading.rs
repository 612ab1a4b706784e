use octavo_testkit::{ScriptedApi, failure};
use serde_json::{Value, json};

use crate::error::ViewError;
use crate::health::{HealthError, claims, node, read};
use crate::snapshot::GapKind;

const NODES: &str = "/apis/octavo.dev/v1alpha1/nodehealths";
const POLICIES: &str = "/apis/octavo.dev/v1alpha1/healthpolicies";
const PODS: &str = "/api/v1/pods";

fn list(items: &Value) -> (u16, Value) {
    (200, json!({"metadata": {}, "items": items}))
}

fn health(name: &str, mode: &str) -> Value {
    let policy = json!({"name": "p", "generation": 1, "mode": mode});
    json!({"apiVersion": "octavo.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": name}, "spec": {},
        "status": {"policy": policy, "devices": []}})
}

#[tokio::test]
async fn one_object_of_another_version_hides_no_other() {
    let api = ScriptedApi::new(|request| match request.uri().path() {
        NODES => list(&json!([health("a", "Observe"), health("b", "Imagine")])),
        PODS => {
            let query = request.uri().query().unwrap_or_default();
            assert!(query.contains("component%3Dagent"), "{query}");
            list(&json!([{"metadata": {"name": "x"}, "spec": {"nodeName": "c", "containers": []}}]))
        }
        _ => list(&json!([])),
    });
    let facts = read(&api.client()).await.unwrap();
    assert!(facts.is_defined);
    assert_eq!(facts.nodes.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(facts.unreadable[0].name, "b");
    assert!(facts.unreadable[0].message.contains("Imagine"), "{:?}", facts.unreadable);
    assert!(facts.agents.contains("c"));
}

#[tokio::test]
async fn a_cluster_without_the_definition_is_no_failure() {
    let api = ScriptedApi::new(|_| failure(404, "404 page not found"));
    let facts = read(&api.client()).await.unwrap();
    assert!(!facts.is_defined);
    let error = node(&api.client(), "a").await.unwrap_err();
    assert!(matches!(error, ViewError::Health(HealthError::NoDefinition)), "{error}");
    assert!(claims(&api.client()).await.unwrap().pools.is_empty());
}

#[tokio::test]
async fn missing_rights_are_gaps_but_for_the_health_itself() {
    let api = ScriptedApi::new(|request| match request.uri().path() {
        NODES => list(&json!([health("a", "Act")])),
        _ => failure(403, "no right"),
    });
    let facts = read(&api.client()).await.unwrap();
    let gaps: Vec<_> = facts.gaps.iter().map(|gap| gap.kind).collect();
    assert_eq!(gaps, [GapKind::HealthPolicies, GapKind::Maintenances, GapKind::Pods]);
    assert_eq!(claims(&api.client()).await.unwrap().gaps[0].kind, GapKind::ClaimsElsewhere);
    let api = ScriptedApi::new(|_| failure(403, "no right"));
    let error = read(&api.client()).await.unwrap_err();
    assert!(matches!(error, ViewError::Refused { code: 403, .. }), "{error}");
}

#[tokio::test]
async fn a_node_without_an_object_is_named_with_those_that_have_one() {
    let api = ScriptedApi::new(|request| match request.uri().path() {
        NODES => list(&json!([health("a", "Act"), health("b", "Imagine")])),
        _ => failure(404, "not found"),
    });
    let error = node(&api.client(), "c").await.unwrap_err();
    assert_eq!(error.to_string(), "node \"c\" has no NodeHealth");
    assert_eq!(error.hint().unwrap(), "nodes that have one: a, b");
    let uris = api.uris();
    assert!(
        uris[0].starts_with(&format!("{NODES}/c")) && !uris.iter().any(|it| it.contains(POLICIES))
    );
}
