use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use k8s_openapi::ByteString;
use octavo_kube_io::admin::Readiness;
use octavo_kube_io::lease;
use octavo_testkit::{Request, ScriptedApi, failure};
use serde_json::{Value, json};

use super::{leader, metrics};
use crate::shell::leader::Leader;
use crate::shell::leadership::Leadership;
use crate::shell::translation::certificates::Keeper;
use crate::shell::translation::identity::Identity;
use crate::testing;
use crate::translation::authority::Certificates;

/// The Secret's data and the bundle, as the API server has them.
#[derive(Clone, Default)]
struct Stored {
    data: Arc<Mutex<Option<Value>>>,
    bundle: Arc<Mutex<Value>>,
    /// What was written, in order.
    writes: Arc<Mutex<Vec<&'static str>>>,
}

impl Stored {
    fn api(&self) -> ScriptedApi {
        let stored = self.clone();
        ScriptedApi::new(move |request: &Request| {
            let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
            let is_secret = request
                .uri()
                .path()
                .ends_with("/namespaces/octavo/secrets/octavo-controller-webhook");
            match request.method().as_str() {
                "GET" => {}
                _ if is_secret => {
                    stored.writes.lock().unwrap().push("certificate");
                    *stored.data.lock().unwrap() = Some(body["data"].clone());
                }
                _ => {
                    assert_eq!(
                        body[0],
                        json!({"op": "test", "path": "/webhooks/0/name", "value": "pods.octavo.dev"})
                    );
                    stored.writes.lock().unwrap().push("bundle");
                    *stored.bundle.lock().unwrap() = body[1]["value"].clone();
                }
            }
            if is_secret {
                return match &*stored.data.lock().unwrap() {
                    Some(data) => (
                        200,
                        json!({"apiVersion": "v1", "kind": "Secret", "data": data,
                        "metadata": {"name": "octavo-controller-webhook", "resourceVersion": "1"}}),
                    ),
                    None => failure(404, "no secret"),
                };
            }
            let webhook = json!({"name": "pods.octavo.dev", "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun",
                "clientConfig": {"caBundle": *stored.bundle.lock().unwrap()}});
            (
                200,
                json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "octavo-translation"}, "webhooks": [webhook]}),
            )
        })
    }

    fn certificates(&self) -> Certificates {
        let data = self.data.lock().unwrap().clone().unwrap();
        let data: BTreeMap<String, ByteString> = serde_json::from_value(data).unwrap();
        let text = |(key, bytes): (String, ByteString)| (key, String::from_utf8(bytes.0).unwrap());
        Certificates::read(&data.into_iter().map(text).collect()).unwrap()
    }
}

fn keeper(api: &ScriptedApi) -> (Keeper, Arc<Identity>, Arc<Readiness>) {
    keeper_of(api, leader())
}

fn keeper_of(api: &ScriptedApi, leader: Leader) -> (Keeper, Arc<Identity>, Arc<Readiness>) {
    let mut config = testing::config();
    config.translation.hosts = vec!["webhook.octavo.svc".to_owned()];
    let (identity, readiness) = (Arc::new(Identity::default()), Arc::new(Readiness::default()));
    let check = readiness.check("webhook", "waiting");
    (Keeper::new(&api.client(), &config, leader, Arc::clone(&identity), check), identity, readiness)
}

#[tokio::test]
async fn the_authority_is_trusted_before_the_first_certificate_is_stored() {
    let stored = Stored { data: Arc::new(Mutex::new(Some(json!({})))), ..Stored::default() };
    let api = stored.api();
    let (mut keeper, identity, readiness) = keeper(&api);
    keeper.refresh().await.unwrap();
    assert_eq!(*stored.writes.lock().unwrap(), ["bundle", "certificate"]);
    assert!(identity.is_set() && readiness.report().0);
    // Nothing is written while nothing changes; a bundle that an upgrade removed comes back.
    keeper.refresh().await.unwrap();
    assert_eq!(stored.writes.lock().unwrap().len(), 2);
    *stored.bundle.lock().unwrap() = Value::Null;
    keeper.refresh().await.unwrap();
    assert_eq!(*stored.writes.lock().unwrap(), ["bundle", "certificate", "bundle"]);
}

#[tokio::test]
async fn an_emptied_secret_gets_back_what_is_shown() {
    let stored = Stored { data: Arc::new(Mutex::new(Some(json!({})))), ..Stored::default() };
    let api = stored.api();
    let (mut keeper, ..) = keeper(&api);
    keeper.refresh().await.unwrap();
    let before = stored.certificates();
    *stored.data.lock().unwrap() = Some(json!({}));
    keeper.refresh().await.unwrap();
    assert!(stored.certificates() == before);
    assert_eq!(*stored.writes.lock().unwrap(), ["bundle", "certificate", "certificate"]);
}

#[tokio::test]
async fn without_its_secret_nothing_is_made() {
    let stored = Stored::default();
    let api = stored.api();
    let (mut keeper, identity, readiness) = keeper(&api);
    let error = format!("{:#}", keeper.refresh().await.unwrap_err());
    assert!(
        error.contains("octavo-controller-webhook") && error.contains("upgrade the release"),
        "{error}"
    );
    assert!(!identity.is_set() && !readiness.report().0);
    assert!(stored.writes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_replica_that_does_not_lead_shows_what_the_leader_made() {
    let stored = Stored { data: Arc::new(Mutex::new(Some(json!({})))), ..Stored::default() };
    let api = stored.api();
    let state = tokio::sync::watch::channel(lease::Leadership::Following { holder: None }).1;
    let follower = Leader { leadership: Leadership::of(state), metrics: metrics() };
    let (mut follower, identity, readiness) = keeper_of(&api, follower);
    follower.refresh().await.unwrap();
    assert!(
        !identity.is_set() && !readiness.report().0 && stored.writes.lock().unwrap().is_empty()
    );

    let (mut leading, ..) = keeper(&api);
    leading.refresh().await.unwrap();
    follower.refresh().await.unwrap();
    assert!(identity.is_set() && readiness.report().0);
    assert_eq!(*stored.writes.lock().unwrap(), ["bundle", "certificate"]);
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_made_again() {
    let stored = Stored { data: Arc::new(Mutex::new(Some(json!({})))), ..Stored::default() };
    let api = stored.api();
    keeper(&api).0.refresh().await.unwrap();
    let good = stored.data.lock().unwrap().clone().unwrap();
    let garbage = json!(ByteString(b"no PEM".to_vec()));
    for (key, value) in [
        ("tls.crt", garbage.clone()),
        ("tls.key", garbage.clone()),
        // Another's key.
        ("tls.key", good["ca.key"].clone()),
        ("ca.crt", garbage.clone()),
        ("ca.key", garbage),
        ("ca.key", good["tls.key"].clone()),
    ] {
        let mut bad = good.clone();
        bad[key] = value;
        *stored.data.lock().unwrap() = Some(bad.clone());
        stored.writes.lock().unwrap().clear();

        let state = tokio::sync::watch::channel(lease::Leadership::Following { holder: None }).1;
        let follower = Leader { leadership: Leadership::of(state), metrics: metrics() };
        let (mut follower, identity, readiness) = keeper_of(&api, follower);
        let error = format!("{:#}", follower.refresh().await.unwrap_err());
        assert!(error.contains(&key[..3]) && error.contains("the leader makes others"), "{error}");
        assert!(!identity.is_set() && !readiness.report().0);
        assert!(stored.writes.lock().unwrap().is_empty());

        let (mut leading, identity, readiness) = keeper(&api);
        leading.refresh().await.unwrap();
        assert!(identity.is_set() && readiness.report().0, "{key}");
        assert_eq!(*stored.writes.lock().unwrap(), ["bundle", "certificate"], "{key}");
        assert_ne!(stored.data.lock().unwrap().clone().unwrap()["tls.crt"], good["tls.crt"]);

        // A leader that serves gives back what it serves under.
        let made = stored.certificates();
        *stored.data.lock().unwrap() = Some(bad);
        leading.refresh().await.unwrap();
        assert!(stored.certificates() == made, "{key}");
    }
}
