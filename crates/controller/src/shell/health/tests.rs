//! Rounds and evictions against a server.

mod checkpoints;
mod lost;
mod maintenance;
mod notices;
mod remediations;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use octavo_kube_io::events::Events;
use octavo_kube_io::lease;
use octavo_testkit::{Request, ScriptedApi, failure};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::departures::Reader;
use super::evict::Evictor;
use super::notices::Announcer;
use super::round::{Finding, Outputs, Rounds};
use super::writes::{Write, send};
use crate::health::departures::Departures;
use crate::health::facts::{self, Change, Kind};
use crate::health::plan::{Eviction, Urgency};
use crate::health::remediation::Remediations;
use crate::metrics::Metrics;
use crate::shell::leader::{Leader, LeaderError};
use crate::shell::leadership::Leadership;

/// 1970-01-12T13:46:40Z.
const NOW: i64 = 1_000_000;

fn leader(leads: bool) -> Leader {
    let metrics = Metrics::new(&mut Registry::default());
    let leadership = if leads {
        Leadership::always()
    } else {
        let state = lease::Leadership::Following { holder: None };
        Leadership::of(watch::channel(state).1)
    };
    Leader { leadership, metrics }
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn pod_list(items: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items})
}

/// The claim `gpu` of the namespace `team`, with a device of the node `n`.
fn gpu_claim(device: &str) -> Value {
    let result =
        json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": device});
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "gpu", "namespace": "team"}, "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}},
    })
}

fn record(needs: &str) -> Value {
    json!({
        "track": {
            "state": {"fenced": {"reason": {"xid": 48}, "needs": needs}}, "since": 5, "returned": null,
            "hasFailed": true, "relapses": 0, "isHeld": false, "tried": "test", "retires": null, "attempt": 3,
        },
        "history": serde_json::to_value(octavo_health::risk::History::default()).unwrap(),
        "evictsSince": null,
    })
}

fn policy() -> Value {
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy",
        "metadata": {"name": "h100", "uid": "p", "resourceVersion": "1", "generation": 2},
        "spec": {"nodeSelector": {"pool": "h100"}, "mode": "Act", "evict": true},
    })
}

fn health(occupied: bool) -> Value {
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "NodeHealth",
        "metadata": {"name": "n", "uid": "h", "resourceVersion": "4"},
        "spec": {},
        "status": {"devices": [{
            "uuid": "GPU-1", "name": "gpu-1", "state": "Fenced", "since": "1970-01-01T00:00:05Z",
            "occupied": occupied, "resetsAlone": true, "record": record("resetFunction"),
        }]},
    })
}

/// One round of a controller that has read a node with a fenced GPU. Returns the requests and what is to be evicted.
async fn round(leads: bool, occupied: bool, written: u16) -> (Vec<(String, Value)>, Vec<Eviction>) {
    let (requests, nodes) = departures_of_round(leads, occupied, written).await;
    (requests, nodes.into_iter().flat_map(|of_node| of_node.evictions).collect())
}

/// The same with all for which pods are to be read.
async fn departures_of_round(
    leads: bool,
    occupied: bool,
    written: u16,
) -> (Vec<(String, Value)>, Vec<Departures>) {
    let api = ScriptedApi::new(move |request: &Request| {
        if written != 200 {
            return failure(written, "no");
        }
        let mut object =
            if request.uri().path().contains("nodehealths") { health(occupied) } else { policy() };
        let patch: Value = serde_json::from_slice(request.body()).unwrap();
        for part in ["spec", "status"] {
            if let Some(value) =
                patch.get(part).filter(|_| part == "status" || object["kind"] == "NodeHealth")
            {
                object[part] = value.clone();
            }
        }
        (200, object)
    });
    let (departures, wanted) = watch::channel(BTreeMap::new());
    let (notices, _notices) = watch::channel(Vec::new());
    let (remediations, _remediations) = watch::channel(Remediations::new());
    let outputs = Outputs { departures, notices, remediations };
    let mut rounds = Rounds::new(api.client(), leader(leads), outputs, None);
    let node = json!({"metadata": {"name": "n", "labels": {"pool": "h100"}}, "spec": {}});
    let parsed = |value: Value| serde_json::from_value(value).unwrap();
    let facts = [
        (Kind::Policy, "h100", facts::policy(&parsed(policy()))),
        (Kind::Node, "n", facts::node(&serde_json::from_value(node).unwrap())),
        (Kind::Health, "n", facts::health(serde_json::from_value(health(occupied)).unwrap())),
    ];
    for (kind, name, fact) in facts {
        rounds.facts.apply(Change::Begin(kind));
        rounds.facts.apply(Change::Put(name.to_owned(), fact));
        rounds.facts.apply(Change::End(kind));
    }
    rounds.facts.apply(Change::Begin(Kind::Maintenance));
    rounds.facts.apply(Change::End(Kind::Maintenance));
    rounds.round(now()).await;
    let requests = api.requests();
    let requests = requests.iter().map(|request| {
        assert_eq!(request.method(), "PATCH");
        (request.uri().to_string(), serde_json::from_slice(request.body()).unwrap())
    });
    let mut requests: Vec<(String, Value)> = requests.collect();
    // The status comes first.
    requests.reverse();
    let wanted = wanted.borrow().clone().into_values().collect();
    (requests, wanted)
}

#[tokio::test]
async fn a_round_applies_orders_and_status_for_the_versions_that_were_read() {
    let (requests, evictions) = round(true, false, 200).await;
    let [(orders_uri, orders), (status_uri, status)] = requests.as_slice() else {
        panic!("{requests:?}")
    };
    assert!(orders_uri.starts_with("/apis/octavo.dev/v1alpha1/nodehealths/n?"), "{orders_uri}");
    assert!(orders_uri.contains("fieldManager=octavo.dev%2Fhealth-controller"), "{orders_uri}");
    assert!(orders_uri.contains("force=true"), "{orders_uri}");
    assert_eq!(orders["metadata"], json!({"name": "n", "uid": "h", "resourceVersion": "4"}));
    let device = &orders["spec"]["devices"][0];
    let permit =
        json!({"afterAttempt": 3, "remedy": "resetFunction", "since": "1970-01-12T13:46:40Z"});
    assert_eq!((&device["uuid"], &device["permit"]), (&json!("GPU-1"), &permit));
    assert_eq!(device["history"], record("resetFunction"));
    assert!(device.get("order").is_none(), "orders are persons'");
    assert!(status_uri.contains("/healthpolicies/h100/status?"), "{status_uri}");
    assert_eq!(status["metadata"]["resourceVersion"], "1");
    let status = &status["status"];
    assert_eq!((&status["observedGeneration"], &status["nodes"]), (&json!(2), &json!(1)));
    assert_eq!((&status["devices"]["fenced"], &status["remedies"]), (&json!(1), &json!(1)));
    assert_eq!(evictions, []);
}

#[tokio::test]
async fn a_kind_that_is_not_served_or_not_allowed_is_known_to_be_so() {
    for code in [403, 404] {
        let api = ScriptedApi::new(move |_: &Request| failure(code, "no"));
        let stop = CancellationToken::new();
        let mut changes = super::watches::watch(&api.client(), &stop);
        let mut unserved = std::collections::BTreeSet::new();
        while unserved.len() < 4 {
            match changes.recv().await.unwrap() {
                Change::Unserved(kind) => drop(unserved.insert(kind)),
                Change::Begin(_) => {}
                other => panic!("{other:?}"),
            }
        }
        stop.cancel();
    }
}

#[tokio::test]
async fn pods_are_evicted_once_that_is_written_down() {
    let (requests, evictions) = round(true, true, 200).await;
    let device = &requests[0].1["spec"]["devices"][0];
    assert_eq!(device["evictsSince"], "1970-01-12T13:46:40Z");
    assert_eq!(evictions.len(), 1);
    for refused in [409, 500] {
        let (_, evictions) = round(true, true, refused).await;
        assert_eq!(evictions, [], "{refused}");
        // So the look at the node does not end, and no pod is announced twice.
        let (_, nodes) = departures_of_round(true, true, refused).await;
        let [node] = nodes.as_slice() else { panic!("{nodes:?}") };
        assert_eq!(node.waiting.len(), 1, "{refused}");
    }
    let (requests, evictions) = round(false, true, 200).await;
    assert_eq!((requests, evictions), (vec![], vec![]));
}

/// A node with a GPU that is fenced, and whose pods are evicted.
fn evicting() -> Value {
    let mut object = health(true);
    object["spec"] = json!({"devices": [{"uuid": "GPU-1", "evictsSince": "1970-01-11T10:00:00Z"}]});
    object
}

/// The eviction of that GPU.
fn evictions(urgency: Urgency) -> Departures {
    let eviction = Eviction {
        node: "n".to_owned(),
        device: "gpu-1".to_owned(),
        taint: ("gpu.nvidia.com/xid", "48".to_owned()),
        reason: "the driver reported XID 48".to_owned(),
        since: 900_000,
        urgency,
    };
    Departures { evictions: vec![eviction], ..Departures::default() }
}

fn reader(api: &ScriptedApi, leads: bool) -> (Reader, mpsc::Receiver<Finding>) {
    let events = Events::new(api.client(), "octavo.dev/controller", "c");
    let (findings, found) = mpsc::channel(8);
    (Reader::new(Evictor::new(api.client(), events, leader(leads)), findings), found)
}

/// What is sent for a pod on the GPU, without reads. Evictions are answered so.
async fn look(urgency: Urgency, answer: u16) -> (Vec<(String, Value)>, Result<(), LeaderError>) {
    look_at(evicting(), urgency, answer).await
}

/// The same for a node's health as it is at the time of the look.
async fn look_at(
    health: Value,
    urgency: Urgency,
    answer: u16,
) -> (Vec<(String, Value)>, Result<(), LeaderError>) {
    let api = ScriptedApi::new(move |request: &Request| {
        let path = request.uri().path();
        if path.ends_with("/nodehealths/n") {
            return (200, health.clone());
        }
        let list = |kind: &str, items: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": items});
        let pod = |name: &str| {
            json!({
                "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}")},
                "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": format!("of-{name}")}]},
                "status": {"phase": "Running"},
            })
        };
        if path.ends_with("/pods") {
            assert_eq!(request.uri().query(), Some("&fieldSelector=spec.nodeName%3Dn"));
            return (200, list("PodList", json!([pod("unread"), pod("sick"), pod("well")])));
        }
        if path.ends_with("/resourceclaims/of-unread") {
            return if answer == 500 { failure(500, "no") } else { failure(404, "gone") };
        }
        if path.ends_with("/resourceclaims/of-sick") || path.ends_with("/resourceclaims/of-well") {
            let device = if path.ends_with("sick") { "gpu-1" } else { "gpu-0" };
            let result = json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": device});
            let claim = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "c", "namespace": "team"}, "spec": {},
                "status": {"allocation": {"devices": {"results": [result]}}},
            });
            return (200, claim);
        }
        if path.contains("/events") {
            return (201, serde_json::from_slice(request.body()).unwrap());
        }
        if !matches!(answer, 200 | 500) {
            return failure(
                answer,
                "Cannot evict pod as it would violate the pod's disruption budget.",
            );
        }
        if path.ends_with("/status") {
            return (200, pod("sick"));
        }
        (200, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}))
    });
    let (reader, _findings) = reader(&api, true);
    let result = reader.look("n", &evictions(urgency), now()).await.map(drop);
    let requests = api.requests();
    let sent = requests.iter().filter(|request| request.method() != "GET").map(|request| {
        let path = format!("{} {}", request.method(), request.uri().path());
        (path, serde_json::from_slice(request.body()).unwrap())
    });
    (sent.collect(), result)
}

#[tokio::test]
async fn a_pod_of_the_device_is_evicted_under_its_budgets_after_an_event() {
    let (sent, result) = look(Urgency::Evicted, 200).await;
    result.unwrap();
    let [(_, planned), (event_path, event), (path, eviction)] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    assert_eq!(planned["reason"], "EvictionPlanned");
    assert_eq!(planned["regarding"]["name"], "sick");
    assert!(event_path.ends_with("/namespaces/team/events"), "{event_path}");
    assert_eq!(event["reason"], "GpuOutOfService");
    assert_eq!(event["regarding"]["name"], "sick");
    assert_eq!(path, "POST /api/v1/namespaces/team/pods/sick/eviction");
    assert_eq!(eviction["deleteOptions"]["preconditions"]["uid"], "uid-sick");
}

#[tokio::test]
async fn a_budget_that_forbids_is_tried_again_and_a_pod_that_is_gone_is_no_failure() {
    let (_, result) = look(Urgency::Evicted, 429).await;
    assert!(matches!(result, Err(LeaderError::Api(_))), "{result:?}");
    let (sent, result) = look(Urgency::Evicted, 404).await;
    result.unwrap();
    assert_eq!(sent.len(), 3);
}

#[tokio::test]
async fn a_device_that_returned_or_whose_eviction_ended_keeps_its_pods() {
    let mut returned = evicting();
    returned["status"]["devices"][0]["record"]["track"]["state"] = json!("probation");
    let mut unread = evicting();
    unread["status"]["devices"][0]["record"] = json!({"colour": "red"});
    for object in [returned, unread, health(true)] {
        let (sent, result) = look_at(object, Urgency::Deleted, 200).await;
        result.unwrap();
        assert_eq!(sent, []);
    }
}

#[tokio::test]
async fn a_claim_that_cannot_be_read_holds_up_no_other_pod() {
    let (sent, result) = look(Urgency::Evicted, 500).await;
    assert!(matches!(result, Err(LeaderError::Api(_))), "{result:?}");
    assert_eq!(sent.last().unwrap().0, "POST /api/v1/namespaces/team/pods/sick/eviction");
}

#[tokio::test]
async fn a_pod_of_a_dead_device_is_marked_and_deleted() {
    let (sent, result) = look(Urgency::Deleted, 200).await;
    result.unwrap();
    let [_, _, (mark_path, mark), (path, delete)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(mark_path, "PATCH /api/v1/namespaces/team/pods/sick/status");
    let condition = &mark["status"]["conditions"][0];
    assert_eq!(condition["type"], "DisruptionTarget");
    assert_eq!(condition["reason"], "DeletionByDeviceTaintManager");
    assert_eq!(path, "DELETE /api/v1/namespaces/team/pods/sick");
    assert_eq!(delete["preconditions"]["uid"], "uid-sick");
    let (sent, result) = look(Urgency::Deleted, 404).await;
    result.unwrap();
    assert_eq!(sent.len(), 3, "gone before it was marked");
}

#[tokio::test(start_paused = true)]
async fn evictions_go_on_until_their_rounds_end() {
    let api = ScriptedApi::new(|request: &Request| {
        if request.uri().path().ends_with("/nodehealths/n") {
            return (200, evicting());
        }
        assert!(request.uri().path().ends_with("/pods"));
        (200, pod_list(&json!([])))
    });
    let (sender, wanted) = watch::channel(BTreeMap::new());
    let reader = tokio::spawn(reader(&api, true).0.run(wanted));
    sender.send(BTreeMap::from([("n".to_owned(), evictions(Urgency::Evicted))])).unwrap();
    tokio::time::timeout(Duration::from_hours(1), async {
        while api.requests().len() < 6 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
    .await
    .unwrap();
    drop(sender);
    reader.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_look_takes_long_delays_no_other() {
    let api = ScriptedApi::new(|request: &Request| {
        if request.uri().path().contains("/nodehealths/") {
            return (200, evicting());
        }
        (200, pod_list(&json!([])))
    });
    let events = Events::new(api.client(), "octavo.dev/controller", "c");
    // No round takes what is found, so the second look at a node with candidates does not end by itself.
    let (findings, _found) = mpsc::channel(1);
    let reader = Reader::new(Evictor::new(api.client(), events, leader(true)), findings);
    let candidates =
        Departures { candidates: ["gpu-1".to_owned()].into(), ..Departures::default() };
    let slow = [("a".to_owned(), candidates.clone()), ("b".to_owned(), candidates)];
    let nodes = slow.into_iter().chain([("n".to_owned(), evictions(Urgency::Evicted))]);
    let (sender, wanted) = watch::channel(BTreeMap::new());
    let reader = tokio::spawn(reader.run(wanted));
    sender.send(nodes.collect()).unwrap();
    let looks = |node: &str| {
        let end = format!("/nodehealths/{node}");
        api.requests().iter().filter(|request| request.uri().path().ends_with(&end)).count()
    };
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(looks("n") >= 4, "{}", looks("n"));
    let before = looks("a") + looks("b");
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(looks("a") + looks("b") > before, "a look ends after a while");
    drop(sender);
    reader.await.unwrap();
}
