//! Pods that are announced before they leave a device, against a server.

use std::sync::{Arc, Mutex};

use super::*;

/// A node with a pod of a Job on a GPU out of service.
struct Cluster {
    api: ScriptedApi,
    /// The node's health, as the server has it.
    health: Arc<Mutex<Value>>,
}

/// The GPU's pods leave in its turn.
fn in_turn() -> Departures {
    let Departures { evictions, .. } = evictions(Urgency::Evicted);
    Departures { waiting: evictions, ..Departures::default() }
}

impl Cluster {
    /// A cluster in which an eviction is ordered, and a reader of it.
    fn new() -> (Self, Reader) {
        let health = Arc::new(Mutex::new(evicting()));
        let stored = Arc::clone(&health);
        let api = ScriptedApi::new(move |request: &Request| {
            let path = request.uri().path();
            if path.ends_with("/nodehealths/n") {
                return (200, stored.lock().unwrap().clone());
            }
            if path.ends_with("/pods") {
                let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job", "controller": true});
                let pod = json!({
                    "metadata": {"name": "train-0", "namespace": "team", "uid": "u", "ownerReferences": [owner]},
                    "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
                    "status": {"phase": "Running"},
                });
                return (200, pod_list(&json!([pod])));
            }
            if path.ends_with("/resourceclaims/gpu") {
                return (200, gpu_claim("gpu-1"));
            }
            if path.contains("/events") {
                return (201, serde_json::from_slice(request.body()).unwrap());
            }
            (200, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}))
        });
        let (reader, _findings) = reader(&api, true);
        (Self { api, health }, reader)
    }

    fn state(&self, state: Value) {
        let mut health = self.health.lock().unwrap();
        health["status"]["devices"][0]["record"]["track"]["state"] = state;
    }

    /// The bodies of the writes of a look.
    async fn look(&self, reader: &Reader, wanted: &Departures) -> Vec<Value> {
        let before = self.api.requests().len();
        reader.look("n", wanted, now()).await.unwrap();
        let requests = self.api.requests();
        let writes = requests[before..].iter().filter(|request| request.method() != "GET");
        writes.map(|request| serde_json::from_slice(request.body()).unwrap()).collect()
    }
}

/// Writes in short: events by their reason and object, others by their kind.
fn short(writes: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |write: &Value| {
        let kind = text(&write["kind"]);
        if kind != "Event" {
            return kind;
        }
        format!("{} {}", text(&write["reason"]), text(&write["regarding"]["kind"]))
    };
    writes.iter().map(of).collect()
}

/// The same in the order of words: events and evictions go side by side.
fn sorted(writes: &[Value]) -> Vec<String> {
    sorted_words(&short(writes))
}

fn sorted_words<T: AsRef<str>>(words: &[T]) -> Vec<String> {
    let mut words: Vec<_> = words.iter().map(|word| word.as_ref().to_owned()).collect();
    words.sort();
    words
}

#[tokio::test]
async fn controller_and_pod_have_their_event_with_the_eviction_and_once() {
    let (cluster, reader) = Cluster::new();
    let wanted = evictions(Urgency::Evicted);
    let writes = cluster.look(&reader, &wanted).await;
    let all = ["EvictionPlanned Job", "EvictionPlanned Pod", "GpuOutOfService Pod", "Eviction"];
    assert_eq!(sorted(&writes), sorted_words(&all));
    let event = |kind: &str| {
        let is_it = |write: &&Value| {
            write["reason"] == "EvictionPlanned" && write["regarding"]["kind"] == kind
        };
        writes.iter().find(is_it).unwrap()
    };
    let (event, of_pod) = (event("Job"), event("Pod"));
    assert_eq!((&event["type"], &event["action"]), (&json!("Warning"), &json!("Announce")));
    let regarding = &event["regarding"];
    assert_eq!((&regarding["name"], &regarding["namespace"]), (&json!("train"), &json!("team")));
    assert_eq!((&regarding["uid"], &regarding["apiVersion"]), (&json!("job"), &json!("batch/v1")));
    assert_eq!(
        event["note"],
        "pod train-0 is to leave gpu-1 of node n: the driver reported XID 48; now it is evicted under its disruption budgets"
    );
    assert_eq!(of_pod["note"], event["note"]);
    for _ in 0..2 {
        let writes = cluster.look(&reader, &wanted).await;
        assert_eq!(short(&writes), all[2..], "a disruption budget may hold the pod");
    }
    // The device returns, and fails again.
    let fenced = record("resetFunction")["track"]["state"].clone();
    cluster.state(json!("probation"));
    assert_eq!(cluster.look(&reader, &wanted).await, Vec::<Value>::new());
    cluster.state(fenced);
    let writes = cluster.look(&reader, &wanted).await;
    assert_eq!(sorted(&writes), sorted_words(&all), "it is another eviction");
}

#[tokio::test]
async fn a_pod_that_waits_for_the_budget_is_announced_and_stays() {
    let (cluster, reader) = Cluster::new();
    cluster.health.lock().unwrap()["spec"] = json!({});
    let writes = cluster.look(&reader, &in_turn()).await;
    assert_eq!(short(&writes), ["EvictionPlanned Job", "EvictionPlanned Pod"]);
    let note = writes[0]["note"].as_str().unwrap();
    assert!(note.contains("; in its turn, within the budget of evictions, it is"), "{note}");
    assert_eq!(cluster.look(&reader, &in_turn()).await, Vec::<Value>::new());
    *cluster.health.lock().unwrap() = evicting();
    let writes = cluster.look(&reader, &evictions(Urgency::Evicted)).await;
    assert_eq!(short(&writes), ["GpuOutOfService Pod", "Eviction"]);
}

#[tokio::test]
async fn a_device_that_returned_has_no_pod_announced() {
    let (cluster, reader) = Cluster::new();
    cluster.state(json!("probation"));
    for wanted in [in_turn(), evictions(Urgency::Evicted)] {
        assert_eq!(cluster.look(&reader, &wanted).await, Vec::<Value>::new());
    }
}
