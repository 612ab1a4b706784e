use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use kube::client::Body;
use octavo_api::Refusal;
use serde_json::{Value, json};
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};

use super::{
    KubeReporter, NOTE_LIMIT, REPEAT_AFTER, Report, ReportedDevice, Reporter, Told, event_of,
    status_of,
};
use crate::node::ClaimRef;

fn claim() -> ClaimRef {
    ClaimRef { namespace: "ns".to_owned(), name: "a".to_owned(), uid: "uid-1".to_owned() }
}

fn device() -> ReportedDevice {
    ReportedDevice { pool: "node-a".to_owned(), device: "gpu-0".to_owned(), share_id: None }
}

fn report(message: Option<&str>) -> Report {
    let refusal = message.map(|message| ("DeviceInUse", message.to_owned()));
    Report { claim: claim(), devices: vec![device()], refusal }
}

fn in_use() -> Refusal {
    Refusal::DeviceInUse { device: "gpu-0".to_owned(), holder: "ns/b".to_owned() }
}

#[test]
fn the_same_refusal_is_news_once_in_ten_minutes() {
    let mut told = Told::default();
    let start = Instant::now();
    assert!(told.is_news(&report(Some("x")), start));
    assert!(!told.is_news(&report(Some("x")), start + Duration::from_secs(1)));
    assert!(told.is_news(&report(Some("y")), start + Duration::from_secs(2)), "another reason");
    assert!(told.is_news(&report(None), start + Duration::from_secs(3)), "it is well again");
    assert!(told.is_news(&report(Some("y")), start + Duration::from_secs(4)));
    assert!(told.is_news(&report(Some("y")), start + Duration::from_secs(5) + REPEAT_AFTER));
}

#[test]
fn a_status_names_the_device_and_the_claims_uid() {
    let twice = Report { devices: vec![device(), device()], ..report(Some("taken")) };
    let status = status_of(&twice, "2026-01-01T00:00:00Z");
    assert_eq!(
        status,
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "a", "uid": "uid-1"},
            "status": {"devices": [{
                "driver": "gpu.nvidia.com", "pool": "node-a", "device": "gpu-0",
                "conditions": [{
                    "type": "Ready", "status": "False", "reason": "DeviceInUse",
                    "message": "taken", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            }]},
        })
    );
    let cleared = status_of(&report(None), "");
    assert_eq!(cleared["status"]["devices"], json!([]));
}

#[test]
fn an_event_is_never_longer_than_the_api_takes() {
    let event = event_of(&claim(), "node-a", "DeviceInUse", &"ä".repeat(NOTE_LIMIT));
    assert!(event.note.is_some_and(|note| note.len() <= NOTE_LIMIT && note.len() > NOTE_LIMIT - 2));
    assert_eq!(event.regarding.and_then(|claim| claim.uid), Some("uid-1".to_owned()));
}

/// Method, path with query, and body of every request.
type Requests = Arc<Mutex<Vec<(String, String, Value)>>>;

/// An API server that takes everything and answers with what it was sent.
#[derive(Clone, Default)]
struct Server(Requests);

impl Service<Request<Body>> for Server {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let requests = Arc::clone(&self.0);
        Box::pin(async move {
            let (method, path) = (request.method().to_string(), request.uri().to_string());
            let body = request.into_body().collect_bytes().await.expect("has a body");
            let value = serde_json::from_slice(&body).expect("is JSON");
            requests.lock().expect("not poisoned").push((method, path, value));
            let answer: Ready<_> = ready(Response::new(Body::from(body.to_vec())));
            Ok(answer.await)
        })
    }
}

#[tokio::test]
async fn a_retrying_kubelet_makes_one_condition_and_one_event() {
    let server = Server::default();
    let client = kube::Client::new(server.clone(), "default");
    let (reporter, worker) = KubeReporter::new(client, "node-a".to_owned());
    for _ in 0..20 {
        reporter.refused(&claim(), &[device()], &in_use());
    }
    let gone = Refusal::ClaimNotFound { claim: "ns/a".to_owned() };
    reporter.refused(&claim(), &[], &gone);
    reporter.prepared(&claim(), &[device()]);
    drop(reporter);
    worker.run().await;

    let requests = server.0.lock().expect("not poisoned");
    let seen: Vec<_> = requests
        .iter()
        .map(|(method, path, body)| (method.as_str(), path.as_str(), body["kind"].clone()))
        .collect();
    let status = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/a/status?\
                  &force=true&fieldManager=octavo-agent";
    let events = "/apis/events.k8s.io/v1/namespaces/ns/events?";
    assert_eq!(
        seen,
        [
            ("PATCH", status, json!("ResourceClaim")),
            ("POST", events, json!("Event")),
            ("PATCH", status, json!("ResourceClaim")),
        ]
    );
    assert_eq!(requests[1].2["note"], json!(in_use().to_string()));
    assert_eq!(requests[2].2["status"]["devices"], json!([]));
}

/// An API server that takes events and is not allowed anything else.
#[derive(Clone, Default)]
struct Strict(Server);

impl Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Server as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.method() == "POST" {
            return self.0.call(request);
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
            "message": "no", "reason": "Forbidden"});
        let answer =
            Response::builder().status(403).body(Body::from(status.to_string().into_bytes()));
        Box::pin(async move { Ok(answer.expect("is a response")) })
    }
}

#[tokio::test]
async fn a_condition_that_is_not_allowed_does_not_cost_the_event() {
    let server = Strict::default();
    let client = kube::Client::new(server.clone(), "default");
    let (reporter, worker) = KubeReporter::new(client, "node-a".to_owned());
    for _ in 0..3 {
        reporter.refused(&claim(), &[device()], &in_use());
    }
    drop(reporter);
    worker.run().await;
    let requests = server.0.0.lock().expect("not poisoned");
    assert_eq!(requests.len(), 1, "one event, and not one for each attempt: {requests:?}");
    assert_eq!(requests[0].2["reason"], "DeviceInUse");
}

#[tokio::test]
async fn a_full_queue_never_blocks() {
    let client = kube::Client::new(Server::default(), "default");
    let (reporter, _worker) = KubeReporter::new(client, "node-a".to_owned());
    // Nobody takes reports: the call returns all the same.
    for _ in 0..1000 {
        reporter.refused(&claim(), &[device()], &in_use());
    }
    assert_eq!(reporter.queue.capacity(), 0);
}
