use std::sync::{Arc, Mutex};

use octavo_testkit::{ScriptedApi, failure};
use serde_json::{Value, json};

use super::*;
use crate::fixtures::now;

fn client(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Client {
    ScriptedApi::new(move |request| answer(&request.uri().to_string())).client()
}

fn pod(name: &str, phase: &str, port: &str) -> Value {
    json!({
        "metadata": {"namespace": "octavo", "name": name},
        "spec": {"containers": [{"name": "main", "ports": [{"name": port, "containerPort": 9179}]}]},
        "status": {"phase": phase},
    })
}

fn list(pods: &[Value]) -> (u16, String) {
    (200, json!({"metadata": {}, "items": pods}).to_string())
}

fn status(code: u16, message: &str) -> (u16, String) {
    (code, failure(code, message).1.to_string())
}

async fn found(client: &Client) -> Result<String, ViewError> {
    found_by(client, None).await
}

async fn found_by(client: &Client, named: Option<&str>) -> Result<String, ViewError> {
    let named = named.map(|name| name.parse::<LeaseName>().unwrap());
    let found = Scheduler::find(client, named.as_ref(), now()).await;
    found.map(|found| found.name().to_owned())
}

fn lease(holder: &str, address: Option<&str>, renewed: &str) -> (u16, String) {
    let mut lease = json!({
        "metadata": {"namespace": "octavo-system", "name": "octavo-scheduler"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
    });
    if let Some(address) = address {
        lease["metadata"]["annotations"] = json!({"octavo.dev/address": address});
    }
    (200, lease.to_string())
}

fn missing() -> (u16, String) {
    status(404, "leases \"octavo-scheduler\" not found")
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/octavo-system/leases/octavo-scheduler";
/// Five seconds before [`now`].
const RECENTLY: &str = "2026-01-05T11:59:55.000000Z";
/// Three minutes before [`now`].
const LONG_AGO: &str = "2026-01-05T11:57:00.000000Z";

#[tokio::test]
async fn holder_that_is_no_pod_is_asked_at_its_address() {
    let client = client(|path| match path {
        LEASE => lease("laptop", Some("127.0.0.1:22848"), RECENTLY),
        other => panic!("{other} need not be read"),
    });
    assert_eq!(found(&client).await.unwrap(), "at http://127.0.0.1:22848");
}

#[tokio::test]
async fn refused_connection_names_the_lease_that_gave_the_address() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let client = client(move |_| lease("laptop", Some(&address), RECENTLY));
    let scheduler = Scheduler::find(&client, None, now()).await.unwrap();
    let error = scheduler.snapshot::<Value>().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("onnection refused"), "{text}");
    assert!(
        text.ends_with("the Lease octavo-system/octavo-scheduler gives this address"),
        "{text}"
    );
    assert!(error.hint().unwrap().contains("--scheduler"), "{error}");
}

#[tokio::test]
async fn holder_that_is_a_pod_is_asked_first() {
    let client = client(|path| match path {
        "/apis/coordination.k8s.io/v1/namespaces/octavo/leases/other" => {
            lease("s-1", None, RECENTLY)
        }
        path if path.contains("/proxy/") => (200, "octavo_scheduler_leader 1\n".to_owned()),
        _ => list(&[pod("s-0", "Running", "metrics"), pod("s-1", "Running", "metrics")]),
    });
    assert_eq!(found_by(&client, Some("octavo/other")).await.unwrap(), "octavo/s-1");
}

#[tokio::test]
async fn lease_that_names_no_scheduler_leads_to_the_pods() {
    for answer in [
        missing(),
        status(403, "leases is forbidden"),
        lease("", None, RECENTLY),
        lease("laptop", Some("127.0.0.1:1"), LONG_AGO),
        lease("laptop", Some("nowhere"), RECENTLY),
    ] {
        let with_pods = |pods: Vec<Value>| {
            let answer = answer.clone();
            client(move |path| match path {
                path if path.contains("/leases/") => answer.clone(),
                path if path.contains("/proxy/") => (200, "octavo_scheduler_leader 1\n".to_owned()),
                _ => list(&pods),
            })
        };
        let pods = with_pods(vec![pod("s-0", "Running", "metrics")]);
        assert_eq!(found(&pods).await.unwrap(), "octavo/s-0");
        // The pods may be those of another scheduler.
        let error = found_by(&pods, Some("team/own")).await.unwrap_err();
        assert!(error.to_string().starts_with("the Lease team/own names no scheduler"), "{error}");
        let none = found(&with_pods(Vec::new())).await.unwrap_err();
        assert!(matches!(none, ViewError::NoScheduler { .. }), "{none}");
    }
}

#[tokio::test]
async fn errors_say_what_is_wrong_with_the_lease_and_what_to_do() {
    let error = async |answer: (u16, String)| {
        let client = client(move |_| answer.clone());
        let error = found_by(&client, Some("octavo-system/octavo-scheduler")).await.unwrap_err();
        format!("{error}\n{}", error.hint().unwrap())
    };
    insta::assert_snapshot!(error(missing()).await, @"
    the Lease octavo-system/octavo-scheduler names no scheduler: it does not exist
    check that Octavo's scheduler runs; --scheduler-lease NAMESPACE/NAME names the Lease of its config file, and --scheduler HOST:PORT the address of its --metrics-listen
    ");
    insta::assert_snapshot!(error(lease("", None, RECENTLY)).await, @"
    the Lease octavo-system/octavo-scheduler names no scheduler: it has no holder
    no scheduler is running: start Octavo's scheduler
    ");
    insta::assert_snapshot!(error(lease("laptop", Some("127.0.0.1:1"), LONG_AGO)).await, @"
    the Lease octavo-system/octavo-scheduler names no scheduler: it has expired: its holder laptop renewed it 3m ago
    the scheduler at 127.0.0.1:1 has stopped or does not reach the API server: start it, or read its log; --scheduler 127.0.0.1:1 asks it nevertheless
    ");
    insta::assert_snapshot!(error(status(403, "leases is forbidden")).await, @"
    the Lease octavo-system/octavo-scheduler names no scheduler: it may not be read: leases is forbidden
    ask an administrator for the right to get the Lease octavo-system/octavo-scheduler, or give --scheduler HOST:PORT
    ");
    insta::assert_snapshot!(error(lease("laptop", Some("nowhere"), RECENTLY)).await, @r#"
    the Lease octavo-system/octavo-scheduler names no scheduler: it has the annotation octavo.dev/address "nowhere", which is no address
    use the octavo of the scheduler's version (`octavo version`), or give --scheduler HOST:PORT
    "#);
}

#[tokio::test]
async fn holder_without_address_and_pod_is_named() {
    let client = client(|path| match path {
        LEASE => lease("laptop", None, RECENTLY),
        _ => list(&[]),
    });
    let error = found(&client).await.unwrap_err();
    assert!(error.to_string().contains("laptop"), "{error}");
    assert!(error.hint().unwrap().contains("--metrics-listen"), "{error}");
}

#[test]
fn name_of_a_lease_has_a_namespace() {
    assert_eq!("a/b".parse::<LeaseName>().unwrap().to_string(), "a/b");
    for text in ["", "a", "/b", "a/", "a/b/c"] {
        let error = text.parse::<LeaseName>().unwrap_err();
        assert!(error.to_string().contains("NAMESPACE/NAME"), "{error}");
    }
}

#[tokio::test]
async fn first_answering_scheduler_is_used_without_a_leader() {
    let client = client(|path| match path {
        LEASE => missing(),
        path if path.contains("/s-0:") => status(503, "connection refused"),
        path if path.contains("/s-1:") => (200, "octavo_scheduler_leader 0\n".to_owned()),
        path if path.contains("/s-2:") => (200, "octavo_scheduler_leader 0\n".to_owned()),
        _ => list(&[
            pod("gone", "Failed", "metrics"),
            pod("other", "Running", "web"),
            pod("s-0", "Running", "metrics"),
            pod("s-1", "Running", "metrics"),
            pod("s-2", "Running", "metrics"),
        ]),
    });
    assert_eq!(found(&client).await.unwrap(), "octavo/s-1");
}

#[tokio::test]
async fn missing_scheduler_error_gives_the_cause() {
    let none = client(|path| if path == LEASE { missing() } else { list(&[]) });
    assert!(matches!(found(&none).await, Err(ViewError::NoScheduler { .. })));
    let answer = |path: &str| match path {
        LEASE => missing(),
        path if path.contains("/proxy/") => status(503, "dial tcp: connection refused"),
        _ => list(&[pod("s-0", "Running", "metrics")]),
    };
    let error = found(&client(answer)).await.unwrap_err();
    assert!(error.to_string().contains("octavo/s-0") && error.to_string().contains("refused"));
    assert!(error.hint().unwrap().contains("port-forward"), "{error}");
    let answer = |path: &str| match path {
        LEASE => missing(),
        path if path.contains("/proxy/") => status(403, "pods/proxy is forbidden"),
        _ => list(&[pod("s-0", "Running", "metrics")]),
    };
    let error = found(&client(answer)).await.unwrap_err();
    assert!(error.hint().unwrap().contains("pods/proxy"), "{error}");
}

#[tokio::test]
async fn scheduler_errors_differ_from_api_server_errors() {
    let scheduler = |answer: (u16, &'static str)| Scheduler {
        client: client(move |_| (answer.0, answer.1.to_owned())),
        prefix: String::new(),
        name: "octavo/s-0".to_owned(),
        pod: None,
        lease: None,
    };
    let gang = ObjectName::new("a", "train");
    let error =
        scheduler((404, "no decision is recorded\n")).decision::<Value>(Subject::Gang, &gang).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "the scheduler octavo/s-0 responded: no decision is recorded"
    );
    let error = scheduler((200, "{}}")).snapshot::<Value>().await.unwrap_err();
    assert!(error.to_string().contains("cannot be parsed"), "{error}");
}

#[test]
fn an_address_has_a_port() {
    for text in ["localhost:9477", "http://10.0.0.1:80"] {
        assert!(text.parse::<SchedulerAddress>().is_ok(), "{text}");
    }
    let error = "localhost".parse::<SchedulerAddress>().unwrap_err();
    assert!(error.to_string().contains("HOST:PORT"), "{error}");
}

/// A decision in the format in which the scheduler records it. Its text comes from the engine.
#[test]
fn decision_shows_costs_and_runner_up() {
    let recorded = include_str!("../../../sim/src/whatif/decision/recorded.json");
    let recorded: Value = serde_json::from_str(recorded).unwrap();
    let answer = json!({
        "waiting": null, "decision": recorded["answer"], "group": "PodGroup team/g", "node": null,
    });
    let explanation = GangExplanation {
        namespace: "team".to_owned(),
        name: "g".to_owned(),
        waits: false,
        scheduler: "at http://127.0.0.1:9477/".to_owned(),
        scheduler_says: serde_json::from_value(answer).unwrap(),
    };
    let text = render(&explanation, GangTextOptions { colour: false });
    assert!(text.starts_with("Gang team/g does not wait\n"), "{text}");
    for part in ["costs 0 pods disturbed", "next best: ", "policy "] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn victims_are_listed_with_the_infeasible_nodes() {
    let left_out =
        "2 nodes (a, b) are left out: both the device plugin and the driver serve the GPUs";
    let victim = |name: &str, gang: Option<&str>, node: &str| json!({"name": format!("pod team/{name}"), "gang": gang, "priority": 5, "node": node});
    let gang = Some("PodGroup team/old");
    let answer = json!({
        "waiting": {
            "reason": "Unschedulable",
            "message": format!("no node has room; it would help to add 1 node, like n0; {left_out}"),
        },
        "decision": {
            "outcome": "refused", "request": "pod team/p", "policy": "default", "reason": "NoNode",
            "message": "no node has room",
            "remedy": {"kind": "moreNodes", "nodes": 1, "like": "n0"}, "steps": 3,
        },
        "disturbance": {
            "evictions": [victim("o0", gang, "n0"), victim("o1", gang, "n1"), victim("q", None, "n2")],
            "hindrances": ["`preemption` is off in the scheduler's config"],
        },
        "leftOut": [{"reason": "ServedTwice", "nodes": 2, "message": left_out}],
    });
    let says: SchedulerExplanation = serde_json::from_value(answer).unwrap();
    let text = text::explanation_lines(&says, "");
    insta::assert_snapshot!(text, @"
    waits, Unschedulable
    last decision:
      pod team/p is not placed: no node has room
      it would help to add 1 node, like n0
    currently:
      2 nodes (a, b) are left out: both the device plugin and the driver serve the GPUs
      it would help to evict 2 pods of PodGroup team/old (priority 5) from 2 nodes, pod team/q (priority 5) from node n2; that is not done: `preemption` is off in the scheduler's config
    ");
}

#[test]
fn a_pod_in_a_lent_place_is_shown_with_its_lender() {
    let loan = "runs in a place that is kept for pod high: it is evicted once the pods that must leave for that have left";
    let says: SchedulerExplanation =
        serde_json::from_value(json!({"node": "n0", "loan": loan})).unwrap();
    assert_eq!(text::explanation_lines(&says, ""), format!("  {loan}\n"));
}

#[tokio::test]
async fn a_scheduler_that_serves_its_loopback_is_asked_by_a_port_forward() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let paths = Arc::clone(&asked);
    let client = client(move |path| {
        paths.lock().unwrap().push(path.to_owned());
        match path {
            path if path.contains("/leases/") => missing(),
            path if path.contains("/proxy/") => (403, LOOPBACK_ONLY.to_owned()),
            path if path.contains("/portforward") => status(403, "forbidden"),
            _ => list(&[pod("s-0", "Running", "metrics")]),
        }
    });
    let error = found(&client).await.unwrap_err();
    assert!(matches!(error, ViewError::Refused { kind: "pods/portforward", .. }), "{error}");
    let asked = asked.lock().unwrap();
    let forward = "/api/v1/namespaces/octavo/pods/s-0/portforward";
    assert!(asked.iter().any(|path| path.starts_with(forward)), "{asked:?}");
}
