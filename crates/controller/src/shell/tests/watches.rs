use octavo_testkit::{FakeApi, Request, ScriptedApi, eventually, failure};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::shell::watches;
use crate::store::{Change, Fact, Kind, Store};
use crate::testing::config;

const DOMAINS: &str = "/apis/resource.nvidia.com/v1beta1/computedomains";
const NODES: &str = "/api/v1/nodes";

fn node(label: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "spec": {},
        "metadata": {"name": "n", "uid": "u", "labels": {"resource.nvidia.com/computeDomain": label}},
    })
}

async fn next(changes: &mut mpsc::Receiver<Change>) -> Change {
    tokio::time::timeout(std::time::Duration::from_mins(1), changes.recv()).await.unwrap().unwrap()
}

/// The label of the next node that changes.
async fn next_label(changes: &mut mpsc::Receiver<Change>) -> Option<String> {
    loop {
        if let Change::Put(observed) = next(changes).await
            && let Some(Fact::Node { label, .. }) = observed.fact
        {
            return label;
        }
    }
}

#[tokio::test]
async fn all_kinds_are_listed_and_then_watched() {
    let (api, stop) = (FakeApi::default(), CancellationToken::new());
    let spec = json!({"channel": {"resourceClaimTemplate": {"name": "t"}}});
    let domain = json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
        "metadata": {"name": "train", "namespace": "team", "uid": "a"}, "spec": spec,
    });
    api.put(DOMAINS, domain);
    api.put(NODES, node("a"));
    let (_, mut changes) = watches::watch(&api.client(), &config(), &stop);
    let mut store = Store::default();
    while !store.is_complete() {
        let change = next(&mut changes).await;
        store.apply(change);
    }
    let view = store.view("a");
    assert_eq!(view.domain.unwrap().full_name(), "team/train");
    assert_eq!(view.nodes["n"].label.as_deref(), Some("a"));

    api.put(NODES, node("b"));
    assert_eq!(next_label(&mut changes).await.as_deref(), Some("b"));
    api.end_watches(NODES);
    api.put(NODES, node("c"));
    assert_eq!(next_label(&mut changes).await.as_deref(), Some("c"));
    api.delete(NODES, "", "n");
    loop {
        if let Change::Gone(observed) = next(&mut changes).await {
            assert_eq!((observed.key.kind, observed.key.name.as_str()), (Kind::Node, "n"));
            break;
        }
    }
    // Pods and DaemonSets of others are not even asked for.
    let queries = [("/api/v1/pods", true), ("/apis/apps/v1/daemonsets", true), (NODES, false)];
    for (collection, is_labelled) in queries {
        let requests = api.requests().into_iter();
        let last = collection.rsplit('/').next().unwrap();
        let mut lists = requests.filter(|(_, path, _)| path.ends_with(last));
        assert!(
            lists.all(|(_, _, query)| query.contains("labelSelector") == is_labelled),
            "{collection}"
        );
    }
    stop.cancel();
}

#[tokio::test]
async fn secrets_are_asked_for_only_with_encryption_and_without_their_content() {
    for encryption in [false, true] {
        let (api, stop) =
            (ScriptedApi::new(|_: &Request| failure(404, "none")), CancellationToken::new());
        let mut config = config();
        config.imex.encryption = encryption;
        let (_, mut changes) = watches::watch(&api.client(), &config, &stop);
        let of = |kind: &str| {
            let requests = api.requests().clone().into_iter();
            let found = requests.filter(|it| it.uri().path().ends_with(kind));
            found.map(|it| it.headers()["accept"].to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        if encryption {
            eventually("they are asked for", || !of("/namespaces/octavo/secrets").is_empty()).await;
            let accepted = of("/secrets");
            assert!(accepted.iter().all(|it| it.contains("as=PartialObject")), "{accepted:?}");
        } else {
            while !matches!(next(&mut changes).await, Change::End(Kind::Secret)) {}
            eventually("others are asked for", || !of("/daemonsets").is_empty()).await;
            assert!(of("/secrets").is_empty());
        }
        stop.cancel();
    }
}
