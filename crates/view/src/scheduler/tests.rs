use octavo_testkit::{ScriptedApi, failure};
use serde_json::{Value, json};

use super::*;

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
    Scheduler::find(client).await.map(|found| found.name().to_owned())
}

#[tokio::test]
async fn first_answering_scheduler_is_used_without_a_leader() {
    let client = client(|path| match path {
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
    let none = client(|_| list(&[]));
    assert!(matches!(found(&none).await, Err(ViewError::NoScheduler)));
    let answer = |path: &str| match path {
        path if path.contains("/proxy/") => status(503, "dial tcp: connection refused"),
        _ => list(&[pod("s-0", "Running", "metrics")]),
    };
    let error = found(&client(answer)).await.unwrap_err();
    assert!(error.to_string().contains("octavo/s-0") && error.to_string().contains("refused"));
    assert!(error.hint().unwrap().contains("port-forward"), "{error}");
    let answer = |path: &str| match path {
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
