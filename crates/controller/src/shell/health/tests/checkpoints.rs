//! Pods that save their work before they leave, against a server that stores one `NodeHealth`.

use std::sync::{Arc, Mutex};

use super::*;
use crate::health::maintenance::Visit;
use crate::shell::health::departures::Next;

/// A node with a pod on a GPU whose pods leave.
struct Cluster {
    api: ScriptedApi,
    /// The node's health, as the server stores it.
    health: Arc<Mutex<Value>>,
    pods: Arc<Mutex<Vec<Value>>>,
    /// How writes of requests fail, if they do.
    failure: Arc<Mutex<Option<(u16, &'static str)>>>,
}

/// A pod with annotations.
fn pod(annotations: &Value) -> Value {
    json!({
        "metadata": {"name": "train", "namespace": "team", "uid": "u", "annotations": annotations},
        "spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7"},
    })
}

fn hooked() -> Value {
    pod(&json!({"checkpoint.octavo.dev/http": ":80/save"}))
}

impl Cluster {
    fn new(pod: Value, state: Option<&str>) -> Self {
        let mut object = evicting();
        if let Some(state) = state {
            let reason = json!({"reason": "linkDown", "needs": "resetFunction"});
            object["status"]["devices"][0]["record"]["track"]["state"] = json!({state: reason});
        }
        let health = Arc::new(Mutex::new(object));
        let pods = Arc::new(Mutex::new(vec![pod]));
        let failing: Arc<Mutex<Option<(u16, &'static str)>>> = Arc::default();
        let (stored, running) = (Arc::clone(&health), Arc::clone(&pods));
        let fails = Arc::clone(&failing);
        let api = ScriptedApi::new(move |request: &Request| {
            let (path, mut stored) = (request.uri().path(), stored.lock().unwrap());
            if path.ends_with("/nodehealths/n") {
                if request.method() == "PATCH" {
                    if let Some((code, message)) = *fails.lock().unwrap() {
                        return failure(code, message);
                    }
                    let patch: Value = serde_json::from_slice(request.body()).unwrap();
                    assert_eq!(patch["metadata"]["resourceVersion"], "4");
                    assert!(patch["spec"].get("devices").is_none(), "these have another manager");
                    let query = request.uri().query().unwrap();
                    assert!(query.contains("fieldManager=octavo.dev%2Fcheckpoint-controller"));
                    stored["spec"]["checkpoints"] = patch["spec"]["checkpoints"].clone();
                }
                return (200, stored.clone());
            }
            if path.ends_with("/pods") {
                let items = running.lock().unwrap().clone();
                return (200, pod_list(&json!(items)));
            }
            if path.ends_with("/resourceclaims/gpu") {
                return (200, gpu_claim("gpu-1"));
            }
            if path.ends_with("/maintenances/m") {
                let draining = json!([{"name": "n", "since": "1970-01-12T13:40:00Z"}]);
                return (200, maintenance::maintenance(&draining));
            }
            if path.ends_with("/nodes/n") {
                return (200, json!({"metadata": {"name": "n"}, "spec": {}}));
            }
            if path.ends_with("/pods/train/status") {
                return (200, hooked());
            }
            if path.contains("/events") {
                return (201, serde_json::from_slice(request.body()).unwrap());
            }
            (200, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}))
        });
        Self { api, health, pods, failure: failing }
    }

    /// A look, some seconds after the first. Returns when the next one is, and the writes of it: events as their reason, without those
    /// that announce pods.
    async fn look(&self, wanted: &Departures, later: i64) -> (Next, Vec<String>) {
        let (reader, _findings) = reader(&self.api, true);
        let (next, writes) = self.look_by(&reader, wanted, later).await;
        (next.unwrap(), writes)
    }

    /// The same by a reader that has looked before.
    async fn look_by(
        &self,
        reader: &Reader,
        wanted: &Departures,
        later: i64,
    ) -> (Result<Next, LeaderError>, Vec<String>) {
        let before = self.api.requests().len();
        let now = Timestamp::from_second(NOW + later).unwrap();
        let next = reader.look("n", wanted, now).await;
        let requests = self.api.requests();
        let writes = requests[before..].iter().filter(|request| request.method() != "GET");
        let writes = writes.map(|request| {
            let path = request.uri().path();
            let body: Value = serde_json::from_slice(request.body()).unwrap();
            let is_event = path.contains("/events");
            let last = path.rsplit('/').next().unwrap();
            if is_event { body["reason"].as_str().unwrap().to_owned() } else { last.to_owned() }
        });
        (next, writes.filter(|write| write != "EvictionPlanned").collect())
    }

    fn asked(&self) -> Vec<Value> {
        let health = self.health.lock().unwrap();
        health["spec"]["checkpoints"].as_array().cloned().unwrap_or_default()
    }

    fn report(&self, outcome: &str) {
        let since = &self.asked()[0]["since"];
        let report = json!({"uid": "u", "since": since, "outcome": outcome, "milliseconds": 5});
        self.health.lock().unwrap()["status"]["checkpoints"] = json!([report]);
    }
}

#[tokio::test]
async fn a_pod_is_asked_once_and_leaves_when_its_work_is_saved() {
    let cluster = Cluster::new(hooked(), None);
    let wanted = evictions(Urgency::Evicted);
    let until = u64::try_from(NOW + 90).unwrap();
    let (next, writes) = cluster.look(&wanted, 0).await;
    assert_eq!((next, &*writes), (Next::By(until), &["n".to_owned()][..]));
    let [request] = cluster.asked().try_into().unwrap();
    assert_eq!(
        (&request["uid"], &request["url"]),
        (&json!("u"), &json!("http://10.0.0.7:80/save"))
    );
    assert_eq!(request["since"], "1970-01-12T13:46:40Z");
    for outcome in [None, Some("Running")] {
        if let Some(outcome) = outcome {
            cluster.report(outcome);
        }
        let (next, writes) = cluster.look(&wanted, 60).await;
        assert_eq!((next, writes.len()), (Next::By(until), 0), "also for another controller");
    }
    cluster.report("Saved");
    let (_, writes) = cluster.look(&wanted, 61).await;
    assert_eq!(writes, ["GpuOutOfService", "eviction"]);
    assert_eq!(
        cluster.asked().len(),
        1,
        "a disruption budget may hold it, and it is not asked again"
    );
    cluster.pods.lock().unwrap().clear();
    cluster.look(&wanted, 62).await;
    assert!(cluster.asked().is_empty());
}

#[tokio::test]
async fn a_pod_that_fails_or_does_not_answer_leaves_too() {
    let wanted = evictions(Urgency::Evicted);
    for outcome in ["Failed", "TimedOut"] {
        let cluster = Cluster::new(hooked(), None);
        cluster.look(&wanted, 0).await;
        cluster.report(outcome);
        assert_eq!(cluster.look(&wanted, 1).await.1, ["GpuOutOfService", "eviction"]);
    }
    let silent = Cluster::new(hooked(), None);
    silent.look(&wanted, 0).await;
    assert!(silent.look(&wanted, 89).await.1.is_empty());
    assert_eq!(silent.look(&wanted, 90).await.1, ["GpuOutOfService", "eviction"]);
}

#[tokio::test]
async fn pods_of_a_dead_device_and_those_with_wrong_annotations_are_not_waited_for() {
    let dead = Cluster::new(hooked(), None);
    let (_, writes) = dead.look(&evictions(Urgency::Deleted), 0).await;
    assert_eq!(writes, ["GpuOutOfService", "status", "train"]);
    let wrong = Cluster::new(pod(&json!({"checkpoint.octavo.dev/http": "no port"})), None);
    let (_, writes) = wrong.look(&evictions(Urgency::Evicted), 0).await;
    assert_eq!(writes, ["CheckpointInvalid", "GpuOutOfService", "eviction"]);
}

#[tokio::test]
async fn a_request_ends_once_its_pod_need_not_leave_and_its_outcome_is_known() {
    let outcomes: [(Option<&str>, i64); 2] = [(Some("Saved"), 2), (None, 90)];
    for (outcome, later) in outcomes {
        let cluster = Cluster::new(hooked(), None);
        let wanted = evictions(Urgency::Evicted);
        cluster.look(&wanted, 0).await;
        let asked = cluster.asked();
        let set = |state: &Value| {
            let mut health = cluster.health.lock().unwrap();
            health["status"]["devices"][0]["record"]["track"]["state"] = state.clone();
        };
        let fenced = record("resetFunction")["track"]["state"].clone();
        for state in [&json!("probation"), &fenced, &json!("probation")] {
            set(state);
            assert!(cluster.look(&wanted, 1).await.1.is_empty());
            assert_eq!((asked.len(), cluster.asked()), (1, asked.clone()), "it is asked once");
        }
        if let Some(outcome) = outcome {
            cluster.report(outcome);
        }
        let (_, writes) = cluster.look(&wanted, later).await;
        assert_eq!((writes, cluster.asked().len()), (vec!["n".to_owned()], 0));
    }
}

#[tokio::test]
async fn a_request_that_is_refused_holds_up_no_pod_and_the_event_says_why() {
    let unknown =
        "failed to create typed patch object: .spec.checkpoints: field not declared in schema";
    for (code, message) in [(500, unknown), (422, "spec.checkpoints: Invalid value")] {
        let cluster = Cluster::new(hooked(), None);
        *cluster.failure.lock().unwrap() = Some((code, message));
        let (reader, _findings) = reader(&cluster.api, true);
        let (next, writes) = cluster.look_by(&reader, &evictions(Urgency::Evicted), 0).await;
        assert!(matches!(next, Err(LeaderError::Api(_))), "{next:?}");
        assert_eq!(writes, ["n", "GpuOutOfService", "eviction"]);
        let requests = cluster.api.requests();
        let event = requests.iter().rfind(|it| it.uri().path().contains("/events")).unwrap();
        let event: Value = serde_json::from_slice(event.body()).unwrap();
        let note = event["note"].as_str().unwrap();
        assert!(
            note.contains("the work of the pod is not saved") && note.contains(message),
            "{note}"
        );
    }
    let suspect = Cluster::new(hooked(), Some("suspect"));
    *suspect.failure.lock().unwrap() = Some((500, unknown));
    let (reader, _findings) = reader(&suspect.api, true);
    let (_, writes) = suspect.look_by(&reader, &evictions(Urgency::AtCheckpoint), 0).await;
    assert_eq!(writes, ["n"], "it runs to its end");
}

#[tokio::test]
async fn a_server_that_fails_delays_pods_by_their_deadline_at_most() {
    let cluster = Cluster::new(hooked(), None);
    let wanted = evictions(Urgency::Evicted);
    let (reader, _findings) = reader(&cluster.api, true);
    let fail = |failure| *cluster.failure.lock().unwrap() = failure;
    fail(Some((503, "no")));
    for later in [0, 89] {
        assert_eq!(cluster.look_by(&reader, &wanted, later).await.1, ["n"], "it is tried again");
    }
    // One that works meanwhile gives the pod its time, and the next failure another.
    fail(None);
    assert_eq!(cluster.look_by(&reader, &wanted, 89).await.1, ["n"]);
    cluster.health.lock().unwrap()["spec"]["checkpoints"] = json!([]);
    fail(Some((503, "no")));
    assert_eq!(cluster.look_by(&reader, &wanted, 90).await.1, ["n"]);
    let (_, writes) = cluster.look_by(&reader, &wanted, 180).await;
    assert_eq!(writes, ["n", "GpuOutOfService", "eviction"]);
}

#[tokio::test]
async fn of_a_suspect_device_only_pods_that_save_their_work_leave() {
    let wanted = evictions(Urgency::AtCheckpoint);
    let cluster = Cluster::new(hooked(), Some("suspect"));
    cluster.look(&wanted, 0).await;
    cluster.report("Failed");
    assert!(cluster.look(&wanted, 1).await.1.is_empty(), "it runs to its end");
    cluster.report("Saved");
    assert_eq!(cluster.look(&wanted, 2).await.1, ["GpuOutOfService", "eviction"]);
    let without = Cluster::new(pod(&json!({})), Some("suspect"));
    assert!(without.look(&wanted, 0).await.1.is_empty());
    let candidates =
        Departures { candidates: ["gpu-1".to_owned()].into(), ..Departures::default() };
    for (cluster, expected) in [(&cluster, 1), (&without, 0)] {
        let (reader, mut found) = reader(&cluster.api, true);
        reader.look("n", &candidates, now()).await.unwrap();
        let Some(Finding::Hooked(node, devices)) = found.recv().await else { panic!() };
        assert_eq!((&*node, devices.len()), ("n", expected));
    }
}

#[tokio::test]
async fn pods_save_their_work_before_work_on_their_node() {
    let cluster = Cluster::new(hooked(), Some("suspect"));
    let visit = Visit {
        node: "n".to_owned(),
        maintenance: "m".to_owned(),
        note: "work".to_owned(),
        is_drained: true,
    };
    let wanted = Departures { visit: Some(visit), ..Departures::default() };
    assert_eq!(cluster.look(&wanted, 0).await.1, ["n"]);
    cluster.report("Failed");
    assert_eq!(cluster.look(&wanted, 1).await.1, ["NodeInMaintenance", "eviction"]);
}

#[tokio::test]
async fn a_server_that_does_not_store_requests_holds_up_no_pod() {
    let api = ScriptedApi::new(|request: &Request| {
        let path = request.uri().path();
        if path.ends_with("/nodehealths/n") {
            return (200, evicting());
        }
        if path.ends_with("/pods") {
            return (200, pod_list(&json!([hooked()])));
        }
        if path.ends_with("/resourceclaims/gpu") {
            let result = json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1"});
            return (
                200,
                json!({
                    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                    "metadata": {"name": "gpu", "namespace": "team"}, "spec": {},
                    "status": {"allocation": {"devices": {"results": [result]}}},
                }),
            );
        }
        (200, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}))
    });
    let (reader, _findings) = reader(&api, true);
    reader.look("n", &evictions(Urgency::Evicted), now()).await.unwrap();
    assert!(api.requests().last().unwrap().uri().path().ends_with("/train/eviction"));
}
