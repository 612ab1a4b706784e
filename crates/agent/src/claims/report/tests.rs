mod shares;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use kube::client::Body;
use octavo_api::Refusal;
use octavo_api::config::OverflowPolicy;
use octavo_enforcement::backend::BackendKind;
use octavo_kube_io::events::EventType;
use octavo_node::ClaimRef;
use serde_json::{Value, json};
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};

use super::status::NOTE_LIMIT;
use super::{
    Fact, KubeReporter, MigFact, REPEAT_INTERVAL, Report, ReportHistory, ReportedDevice, Reporter,
    TimeFact, event_of, status_of,
};

fn claim() -> ClaimRef {
    ClaimRef { namespace: "ns".to_owned(), name: "a".to_owned(), uid: "uid-1".to_owned() }
}

fn device() -> ReportedDevice {
    ReportedDevice {
        pool: "node-a".to_owned(),
        device: "gpu-0".to_owned(),
        share_id: None,
        fact: None,
    }
}

/// Of a refusal.
const PREPARED: (EventType, &str) = (EventType::Warning, super::PREPARE);

fn report(message: Option<&str>) -> Report {
    let refusal = message.map(|message| ("DeviceInUse", message.to_owned()));
    Report { claim: claim(), devices: vec![device()], refusal, event: PREPARED }
}

fn in_use() -> Refusal {
    Refusal::DeviceInUse { device: "gpu-0".to_owned(), holder: "ns/b".to_owned() }
}

#[test]
fn same_refusal_is_reported_once_in_ten_minutes() {
    let mut reported = ReportHistory::default();
    let start = Instant::now();
    assert!(reported.record_if_new(&report(Some("x")), start));
    assert!(!reported.record_if_new(&report(Some("x")), start + Duration::from_secs(1)));
    assert!(
        reported.record_if_new(&report(Some("y")), start + Duration::from_secs(2)),
        "another reason"
    );
    // It is well again.
    reported.forget(&report(None));
    assert!(reported.record_if_new(&report(Some("y")), start + Duration::from_secs(4)));
    assert!(
        reported
            .record_if_new(&report(Some("y")), start + Duration::from_secs(5) + REPEAT_INTERVAL)
    );
}

#[test]
fn a_status_names_the_device_and_the_claims_uid() {
    let twice = Report { devices: vec![device(), device()], ..report(Some("taken")) };
    let status = status_of(&twice, "2026-01-01T00:00:00Z".parse().expect("is a time"));
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
    let cleared = status_of(&report(None), jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(cleared["status"]["devices"], json!([]));
}

#[test]
fn an_event_is_never_longer_than_the_api_takes() {
    let event = event_of(&claim(), "node-a", PREPARED, "DeviceInUse", &"ä".repeat(NOTE_LIMIT));
    assert!(event.note.is_some_and(|note| note.len() <= NOTE_LIMIT && note.len() > NOTE_LIMIT - 2));
    assert_eq!(event.regarding.and_then(|claim| claim.uid), Some("uid-1".to_owned()));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let normal = event_of(&claim(), "node-a", (EventType::Normal, "Watch"), "SwappedOut", "");
    assert_eq!(normal.type_.as_deref(), Some("Normal"));
}

/// Method, path with query, and body of every request.
type Requests = Arc<Mutex<Vec<(String, String, Value)>>>;

/// An API server that accepts everything and echoes it.
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

/// Prepared devices: a share of one GPU, an instance of another, and a whole GPU.
fn got() -> Vec<ReportedDevice> {
    let instance = MigFact {
        uuid: "MIG-1".to_owned(),
        gpu_instance: 7,
        compute_instance: 0,
        profile: "1g.10gb".to_owned(),
        parent_uuid: "GPU-1".to_owned(),
    };
    let prepared_at = Some(1_767_225_600);
    let named = |name: &str, share: Option<&str>, fact| ReportedDevice {
        pool: "node-a".to_owned(),
        device: name.to_owned(),
        share_id: share.map(str::to_owned),
        fact,
    };
    vec![
        named("gpu-0", Some("s1"), Some(share(prepared_at))),
        named("gpu-1-mig-1g10gb-19-0", None, Some(Fact::Mig { prepared_at, instance })),
        named("gpu-2", Some("s2"), None),
    ]
}

/// A share that the guard holds.
fn share(prepared_at: Option<i64>) -> Fact {
    Fact::Share {
        prepared_at,
        backend: Some(BackendKind::Guard),
        is_exempt: false,
        overflow: Some(OverflowPolicy::Kill),
        time: TimeFact::default(),
        swap: None,
        findings: Vec::new(),
    }
}

#[test]
fn prepared_status_covers_shares_and_mig_but_not_whole_gpus() {
    let report = Report { devices: got(), ..report(None) };
    let at = "2026-01-01T00:00:00Z";
    let share_text = "the guard in the containers refuses memory beyond the share, and the agent \
         monitors the driver's count; its overflow policy is Kill";
    let expected = json!([
        {
            "driver": "gpu.nvidia.com", "pool": "node-a", "device": "gpu-0", "shareID": "s1",
            "conditions": [{"type": "Enforced", "status": "True", "reason": "Guard",
                "message": share_text, "lastTransitionTime": at}],
        },
        {
            "driver": "gpu.nvidia.com", "pool": "node-a", "device": "gpu-1-mig-1g10gb-19-0",
            "conditions": [{"type": "Ready", "status": "True", "reason": "Prepared",
                "message": "MIG instance MIG-1 is ready for the claim's containers",
                "lastTransitionTime": at}],
            "data": {"uuid": "MIG-1", "gpuInstance": 7, "computeInstance": 0,
                "profile": "1g.10gb", "parentUUID": "GPU-1"},
        },
    ]);
    // The time is that of the prepare, so a repeated report is identical.
    for now in [jiff::Timestamp::UNIX_EPOCH, jiff::Timestamp::now()] {
        assert_eq!(status_of(&report, now)["status"]["devices"], expected);
    }
    let gone = |device: ReportedDevice| {
        let Some(Fact::Mig { instance, .. }) = device.fact.clone() else { return device };
        ReportedDevice { fact: Some(Fact::MigGone { instance }), ..device }
    };
    let report = Report { devices: got().into_iter().map(gone).collect(), ..report };
    let status = status_of(&report, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(status["status"]["devices"][1]["conditions"][0]["reason"], "MigInstanceGone");
    assert_eq!(status["status"]["devices"][1]["data"], Value::Null);
}

/// An API server that answers with these codes, one after the other, and then takes everything.
#[derive(Clone, Default)]
struct Moody(Server, Arc<Mutex<Vec<u16>>>);

impl Service<Request<Body>> for Moody {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Server as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let taken = self.0.call(request);
        let mut codes = self.1.lock().expect("not poisoned");
        if codes.is_empty() {
            return taken;
        }
        let code = codes.remove(0);
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": code, "message": "no", "reason": "Unknown"});
        Box::pin(async move {
            taken.await?;
            let body = Body::from(status.to_string().into_bytes());
            Ok(Response::builder().status(code).body(body).expect("is a response"))
        })
    }
}

impl Moody {
    fn requests(&self) -> usize {
        self.0.0.lock().expect("not poisoned").len()
    }

    /// Lets other tasks run until this many requests have come.
    async fn wait_for(&self, requests: usize) {
        while self.requests() < requests {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn prepared_status_is_retried_until_written() {
    let server = Moody::default();
    *server.1.lock().expect("not poisoned") = vec![500, 403, 503, 422, 429];
    let client = kube::Client::new(server.clone(), "default");
    let (reporter, worker) = KubeReporter::new(client, "node-a".to_owned());
    let task = tokio::spawn(worker.run());
    reporter.prepared(&claim(), &got());
    server.wait_for(6).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(server.requests(), 6, "it has arrived");
    drop(reporter);
    task.await.expect("ends");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_taken_back_until_that_arrives() {
    let server = Moody::default();
    let waiting = 64;
    // Those are dropped and this one is not: two attempts fail.
    *server.1.lock().expect("not poisoned") = vec![500; waiting + 2];
    let client = kube::Client::new(server.clone(), "default");
    let (reporter, worker) = KubeReporter::new(client, "node-a".to_owned());
    // However many reports wait.
    for number in 0..100 {
        let other = ClaimRef { uid: format!("other-{number}"), ..claim() };
        reporter.refused(&other, &[], &in_use());
    }
    reporter.prepared(&claim(), &[device()]);
    let task = tokio::spawn(worker.run());
    server.wait_for(waiting + 3).await;
    drop(reporter);
    task.await.expect("ends");
    let requests = server.0.0.lock().expect("not poisoned");
    assert_eq!(requests.last().expect("is there").2["status"]["devices"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn released_or_deleted_claim_is_reported_no_longer() {
    for is_gone in [true, false] {
        let server = Moody::default();
        let code = if is_gone { 404 } else { 500 };
        *server.1.lock().expect("not poisoned") = vec![code; 100];
        let client = kube::Client::new(server.clone(), "default");
        let (reporter, worker) = KubeReporter::new(client, "node-a".to_owned());
        let task = tokio::spawn(worker.run());
        reporter.prepared(&claim(), &got());
        server.wait_for(1).await;
        if !is_gone {
            server.wait_for(3).await;
            reporter.released("uid-1");
        }
        let before = server.requests();
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(server.requests() <= before + 1, "one may have been on its way");
        drop(reporter);
        task.await.expect("ends");
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_and_prepared_status_replace_each_other() {
    let server = Moody::default();
    let client = kube::Client::new(server.clone(), "default");
    let (reporter, worker) = KubeReporter::new(client, "node-a".to_owned());
    reporter.prepared(&claim(), &got());
    reporter.refused(&claim(), &got(), &in_use());
    reporter.prepared(&claim(), &got());
    drop(reporter);
    worker.run().await;
    let requests = server.0.0.lock().expect("not poisoned");
    let reasons: Vec<_> = requests
        .iter()
        .filter(|(method, _, _)| method == "PATCH")
        .map(|(_, _, body)| body["status"]["devices"][0]["conditions"][0]["reason"].clone())
        .collect();
    assert_eq!(reasons, ["DeviceInUse", "Guard"]);
}

#[tokio::test]
async fn a_full_queue_never_blocks() {
    let client = kube::Client::new(Server::default(), "default");
    let (reporter, _worker) = KubeReporter::new(client, "node-a".to_owned());
    // The call returns although no worker takes reports.
    for _ in 0..1000 {
        reporter.refused(&claim(), &[device()], &in_use());
    }
    assert_eq!(reporter.queue.capacity(), 0);
}
