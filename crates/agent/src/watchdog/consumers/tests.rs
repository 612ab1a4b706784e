use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::{Duration, advance, timeout};
use tonic::codegen::http::{Request, Response};

use super::{Consumers, PACE, Reader, Use};
use crate::node::ClaimRef;

fn claim() -> ClaimRef {
    let (namespace, name, uid) = ("team".to_owned(), "train".to_owned(), "u-1".to_owned());
    ClaimRef { namespace, name, uid }
}

/// A server with one claim, and how often it was asked; for its first answers it is out of order.
fn server(failures: usize) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |_: Request<Body>| {
        let is_broken = count.fetch_add(1, Ordering::SeqCst) < failures;
        let answer = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": "team", "name": "train", "uid": "u-1"}, "spec": {},
            "status": {"reservedFor": [
                {"resource": "pods", "name": "pod-1", "uid": "p-1"},
                {"resource": "jobs", "apiGroup": "batch", "name": "job", "uid": "j-1"},
            ]},
        });
        let body = Body::from(answer.to_string().into_bytes());
        let status = if is_broken { 500 } else { 200 };
        async move { Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap()) }
    });
    (Client::new(service, "default"), asked)
}

/// Lets the reader do what it has to do.
async fn read(reader: Reader, client: Client, consumers: Consumers) -> Consumers {
    let run = timeout(Duration::from_millis(1), reader.run(client));
    let _ = run.await;
    consumers
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_read_once_for_the_pods_that_are_there() {
    let (consumers, reader) = Consumers::new();
    let (client, asked) = server(0);
    for _ in 0..3 {
        for pod in ["p-1", "p-2", "j-1"] {
            assert_eq!(consumers.are(&claim(), pod), Use::Asked);
        }
    }
    let consumers = read(reader, client, consumers).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let uses = ["p-1", "p-2", "j-1"].map(|pod| consumers.are(&claim(), pod));
    assert_eq!(uses, [Use::Yes, Use::No, Use::No]);
    consumers.keep(&[].into());
    assert_eq!(consumers.are(&claim(), "p-1"), Use::Asked, "it is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_new_pod_has_the_claim_read_anew_but_not_at_once() {
    let (consumers, mut reader) = Consumers::new();
    assert_eq!(consumers.are(&claim(), "p-1"), Use::Asked);
    assert_eq!(reader.queue.recv().await, Some(claim()));
    reader.answer("u-1", &["p-1"]);
    assert_eq!(consumers.are(&claim(), "p-2"), Use::Asked);
    assert!(reader.queue.try_recv().is_err());
    advance(PACE).await;
    assert_eq!(consumers.are(&claim(), "p-2"), Use::Asked);
    assert_eq!(reader.queue.recv().await, Some(claim()));
    reader.answer("u-1", &["p-1", "p-2"]);
    assert_eq!(consumers.are(&claim(), "p-2"), Use::Yes);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_asked_again_and_nobody_waits_for_it() {
    let (consumers, reader) = Consumers::new();
    let (client, asked) = server(1);
    assert_eq!(consumers.are(&claim(), "p-1"), Use::Asked);
    let reading = tokio::spawn(reader.run(client));
    while asked.load(Ordering::SeqCst) == 0 || consumers.are(&claim(), "p-1") == Use::Asked {
        tokio::task::yield_now().await;
    }
    assert_eq!(consumers.are(&claim(), "p-1"), Use::No, "as far as anybody can tell");
    advance(PACE).await;
    while consumers.are(&claim(), "p-1") != Use::Yes {
        tokio::task::yield_now().await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    drop(consumers);
    reading.await.unwrap();
}
