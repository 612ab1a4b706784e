use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Client;
use octavo_node::ClaimRef;
use octavo_testkit::{ScriptedApi, failure};
use serde_json::json;
use tokio::time::{Duration, advance, timeout};

use super::{ClaimConsumers, PodUse, READ_INTERVAL, Reader};

fn claim() -> ClaimRef {
    let (namespace, name, uid) = ("team".to_owned(), "train".to_owned(), "u-1".to_owned());
    ClaimRef { namespace, name, uid }
}

/// A server with one claim. Its first answers are errors.
fn server(failures: usize) -> ScriptedApi {
    let answered = AtomicUsize::default();
    ScriptedApi::new(move |_| {
        if answered.fetch_add(1, Ordering::SeqCst) < failures {
            return failure(500, "broken");
        }
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": "team", "name": "train", "uid": "u-1"}, "spec": {},
            "status": {"reservedFor": [
                {"resource": "pods", "name": "pod-1", "uid": "p-1"},
                {"resource": "jobs", "apiGroup": "batch", "name": "job", "uid": "j-1"},
            ]},
        });
        (200, claim)
    })
}

/// Lets the reader run.
async fn read(reader: Reader, client: Client, consumers: ClaimConsumers) -> ClaimConsumers {
    let run = timeout(Duration::from_millis(1), reader.run(client));
    let _ = run.await;
    consumers
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_read_once_for_the_pods_that_are_there() {
    let (consumers, reader) = ClaimConsumers::new();
    let api = server(0);
    for _ in 0..3 {
        for pod in ["p-1", "p-2", "j-1"] {
            assert_eq!(consumers.pod_use(&claim(), pod), PodUse::Asked);
        }
    }
    let consumers = read(reader, api.client(), consumers).await;
    assert_eq!(api.requests().len(), 1);
    let usages = ["p-1", "p-2", "j-1"].map(|pod| consumers.pod_use(&claim(), pod));
    assert_eq!(usages, [PodUse::Yes, PodUse::No, PodUse::No]);
    consumers.keep(&[].into());
    assert_eq!(consumers.pod_use(&claim(), "p-1"), PodUse::Asked, "it is forgotten");
}

#[tokio::test(start_paused = true)]
async fn new_pod_triggers_a_delayed_claim_read() {
    let (consumers, mut reader) = ClaimConsumers::new();
    assert_eq!(consumers.pod_use(&claim(), "p-1"), PodUse::Asked);
    assert_eq!(reader.queue.recv().await, Some(claim()));
    reader.answer("u-1", &["p-1"]);
    assert_eq!(consumers.pod_use(&claim(), "p-2"), PodUse::Asked);
    assert!(reader.queue.try_recv().is_err());
    advance(READ_INTERVAL).await;
    assert_eq!(consumers.pod_use(&claim(), "p-2"), PodUse::Asked);
    assert_eq!(reader.queue.recv().await, Some(claim()));
    reader.answer("u-1", &["p-1", "p-2"]);
    assert_eq!(consumers.pod_use(&claim(), "p-2"), PodUse::Yes);
}

#[tokio::test(start_paused = true)]
async fn unanswered_read_is_retried_without_blocking() {
    let (consumers, reader) = ClaimConsumers::new();
    let api = server(1);
    assert_eq!(consumers.pod_use(&claim(), "p-1"), PodUse::Asked);
    let reading = tokio::spawn(reader.run(api.client()));
    while api.requests().is_empty() || consumers.pod_use(&claim(), "p-1") == PodUse::Asked {
        tokio::task::yield_now().await;
    }
    assert_eq!(consumers.pod_use(&claim(), "p-1"), PodUse::No, "as far as anybody can tell");
    advance(READ_INTERVAL).await;
    while consumers.pod_use(&claim(), "p-1") != PodUse::Yes {
        tokio::task::yield_now().await;
    }
    assert_eq!(api.requests().len(), 2);
    drop(consumers);
    reading.await.unwrap();
}
