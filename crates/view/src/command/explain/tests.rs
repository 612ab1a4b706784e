use octavo_testkit::ScriptedApi;
use serde_json::json;

use super::*;
use crate::connect::Timeout;
use crate::fixtures::{object, read};
use crate::scheduler::{LeaseName, LeaseProblem, SchedulerExplanation};

fn name(words: &[&str]) -> Result<(Target, String), String> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let found = parse_target(&words).map(|(subject, name)| (subject, name.to_owned()));
    found.map_err(|error| error.to_string())
}

#[test]
fn targets_are_named_in_both_of_kubectls_ways() {
    let is = |target| Ok((target, "train".to_owned()));
    for words in [&["pod", "train"][..], &["po/train"], &["pods/train"]] {
        assert_eq!(name(words), is(Target::Placed(Subject::Pod)));
    }
    for words in [&["podgroup", "train"][..], &["pg/train"], &["podgroups/train"]] {
        assert_eq!(name(words), is(Target::Placed(Subject::Gang)));
    }
    for words in [&["computedomain", "train"][..], &["computedomains/train"]] {
        assert_eq!(name(words), is(Target::Domain));
    }
    for words in [&["device", "n-1/gpu-0"][..], &["device/n-1/gpu-0"]] {
        assert_eq!(name(words), Ok((Target::Device, "n-1/gpu-0".to_owned())));
    }
}

#[test]
fn other_targets_are_rejected() {
    let error = |words: &[&str]| name(words).unwrap_err();
    assert_eq!(error(&["train"]), "\"train\" cannot be explained");
    assert_eq!(error(&["claim/a"]), "\"claim\" cannot be explained");
    assert_eq!(error(&["pod"]), "the name of the pod is missing");
    assert_eq!(error(&["podgroup/"]), "the name of the podgroup is missing");
    assert_eq!(error(&["pod", "a/b"]), "the name of the pod is missing");
}

/// A connection whose server responds to a path with a status and a text.
fn connection(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Connection {
    let api = ScriptedApi::new(move |request| answer(&request.uri().to_string()));
    Connection::new(api.client(), Timeout::default())
}

fn args() -> ExplainArgs {
    ExplainArgs {
        target: Vec::new(),
        namespace: None,
        scheduler: SchedulerSelection::default(),
        controller_lease: None,
        form: OutputArgs { output: Format::Table, no_headers: false },
        connect: ConnectArgs::default(),
    }
}

#[tokio::test]
async fn a_gang_is_explained_by_the_scheduler_that_leads() {
    let connection = connection(|path| {
        let pod = |name: &str| {
            json!({
                "metadata": {"namespace": "octavo", "name": name},
                "spec": {"containers": [{"name": "scheduler",
                    "ports": [{"name": "metrics", "containerPort": 9179}]}]},
                "status": {"phase": "Running"},
            })
        };
        let waiting = json!({
            "waiting": {"reason": "Gathering", "message": "fewer pods are there than the gang needs"},
            "decision": null, "group": "PodGroup a/train", "node": null,
        });
        let answers = [
            ("/s-0:9179/proxy/metrics", "octavo_scheduler_leader 0\n".to_owned()),
            ("/s-1:9179/proxy/metrics", "octavo_scheduler_leader 1\n".to_owned()),
            ("/s-1:9179/proxy/explain?podgroup=a/train", waiting.to_string()),
        ];
        if path.contains("/proxy/") {
            let found = answers.into_iter().find(|(end, _)| path.ends_with(end));
            return found.map_or((500, path.to_owned()), |(_, text)| (200, text));
        }
        if path.contains("/leases/") {
            return (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "reason": "NotFound", "code": 404})
                .to_string(),
            );
        }
        assert!(path.starts_with("/api/v1/pods?") && path.contains("scheduler"), "{path}");
        (200, json!({"metadata": {}, "items": [pod("s-0"), pod("s-1")]}).to_string())
    });
    let (text, waits) = gang(&args(), &connection, &object("a/train")).await.unwrap();
    assert!(waits);
    insta::assert_snapshot!(text, @r"
    Gang a/train waits

    Octavo's scheduler (octavo/s-1)
      gang: PodGroup a/train
      waits, Gathering: fewer pods are there than the gang needs
    ");
}

/// A pod's explanation, as the API server alone gives it.
fn explained(scheduler: &str) -> PodExplanation {
    let (snapshot, events) = read(&format!("pod a/job phase=Pending scheduler={scheduler}"));
    explain_pod(&snapshot, &object("a/job"), events).unwrap()
}

#[test]
fn unreachable_scheduler_is_a_gap_unless_it_was_named() {
    let gaps = |scheduler: &str, error: ViewError| {
        let mut explanation = explained(scheduler);
        add_scheduler_answer(&mut explanation, Err(error), false).unwrap();
        explanation.gaps
    };
    let gone = || ViewError::SchedulerUnreachable {
        scheduler: "octavo/s-0".to_owned(),
        message: "connection refused".to_owned(),
    };
    let found = gaps("octavo", gone());
    assert!(found[0].message.contains("octavo/s-0"), "{found:?}");
    assert!(found[0].message.contains("--metrics-listen"), "what helps is said: {found:?}");
    let none =
        || ViewError::NoScheduler { lease: LeaseName::default(), problem: LeaseProblem::Missing };
    assert_eq!(gaps("octavo", none()).len(), 1);
    assert_eq!(gaps("volcano", none()), [], "that is no affair of Octavo's");
    assert!(
        add_scheduler_answer(&mut explained("octavo"), Err(gone()), true).is_err(),
        "it was named"
    );
}

#[test]
fn scheduler_message_is_shown_once() {
    let mut explanation = explained("octavo");
    let decision = json!({
        "outcome": "refused", "request": "a/job", "policy": "default", "reason": "NoNode",
        "message": "no node has room", "remedy": {"kind": "moreNodes", "nodes": 1, "like": "n0"},
        "steps": 3,
    });
    let message = "a/job is not placed: no node has room; it would help to add 1 node, like n0";
    let waiting = json!({"reason": "Unschedulable", "message": message});
    let answer = json!({"waiting": waiting, "decision": decision, "group": null, "node": null});
    let answer: SchedulerExplanation = serde_json::from_value(answer).unwrap();
    add_scheduler_answer(&mut explanation, Ok(answer), false).unwrap();
    let options =
        TextOptions { wide: false, headers: true, colour: false, now: crate::fixtures::now() };
    insta::assert_snapshot!(explain::render(&explanation, options), @r"
    Pod a/job waits for a node

    It asks for no devices: it has no claims, and no limits that a DeviceClass serves.

    How it was decided
      waits, Unschedulable
      last decision:
        a/job is not placed: no node has room
        it would help to add 1 node, like n0
    ");
}
