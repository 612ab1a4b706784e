use octavo_api::checkpoint::{CheckpointReport, Signal};
use serde_json::{Value, json};

use super::*;

/// 1970-01-12T13:46:40Z.
const NOW: u64 = 1_000_000;

fn pod(annotations: &Value) -> Pod {
    let running = json!({"running": {"startedAt": "1970-01-01T00:00:00Z"}});
    let status = |name: &str, id: &str| json!({"name": name, "containerID": format!("containerd://{id}"), "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": running});
    let pod = json!({
        "metadata": {"name": "train", "namespace": "team", "uid": "u", "annotations": annotations},
        "spec": {"containers": [{"name": "trainer"}, {"name": "sidecar"}]},
        "status": {
            "phase": "Running", "podIP": "10.0.0.7",
            "containerStatuses": [status("sidecar", "s1"), status("trainer", "t1")],
        },
    });
    serde_json::from_value(pod).unwrap()
}

fn signal() -> Pod {
    pod(&json!({"checkpoint.octavo.dev/signal": "SIGUSR1"}))
}

fn asked_at(since: u64) -> HealthFacts {
    let requests = vec![CheckpointRequest {
        uid: "u".to_owned(),
        since: date(since),
        deadline_seconds: 60,
        ..CheckpointRequest::default()
    }];
    HealthFacts { requests, ..HealthFacts::default() }
}

fn of(pod: &Pod) -> CheckpointRequest {
    match progress(pod, Some(&HealthFacts::default()), NOW).unwrap() {
        Progress::NotAsked(request) => *request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_says_how_the_agent_reaches_the_pod() {
    let request = of(&signal());
    let expected = SignalRequest { container_id: "t1".to_owned(), signal: Signal::Usr1 };
    assert_eq!(request.signal, Some(expected), "the first container of the spec");
    assert_eq!((&*request.uid, &*request.namespace, &*request.name), ("u", "team", "train"));
    assert_eq!((&*request.since, request.deadline_seconds), ("1970-01-12T13:46:40Z", 60));
    let named = json!({"checkpoint.octavo.dev/signal": "SIGTERM", "checkpoint.octavo.dev/container": "sidecar"});
    assert_eq!(of(&pod(&named)).signal.unwrap().container_id, "s1");
    let mut http = pod(&json!({"checkpoint.octavo.dev/http": ":8080/save"}));
    assert_eq!(of(&http).url.as_deref(), Some("http://10.0.0.7:8080/save"));
    http.status.as_mut().unwrap().pod_ip = Some("fd00::7".to_owned());
    assert_eq!(of(&http).url.as_deref(), Some("http://[fd00::7]:8080/save"));
    let file = of(&pod(&json!({"checkpoint.octavo.dev/file": "control/save"}))).file.unwrap();
    assert_eq!((&*file.volume, &*file.path), ("control", "save"));
}

#[test]
fn a_pod_that_cannot_be_asked_is_not_waited_for() {
    let why = |pod: &Pod| match progress(pod, Some(&HealthFacts::default()), NOW).unwrap() {
        Progress::NotSaved(why) => why,
        other => panic!("{other:?}"),
    };
    let mut ended = signal();
    ended.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[1].state = None;
    assert_eq!(why(&ended), "its container does not run");
    let mut pending = signal();
    pending.status.as_mut().unwrap().phase = Some("Pending".to_owned());
    assert_eq!(why(&pending), "it does not run");
    assert_eq!(progress(&pod(&json!({})), None, NOW), Ok(Progress::NoHook));
    let no_agent = progress(&signal(), None, NOW).unwrap();
    assert_eq!(no_agent, Progress::NotSaved("no agent of its node reports".to_owned()));
    let two =
        json!({"checkpoint.octavo.dev/signal": "SIGUSR1", "checkpoint.octavo.dev/file": "a/b"});
    assert!(progress(&pod(&two), Some(&HealthFacts::default()), NOW).is_err());
}

#[test]
fn a_pod_is_waited_for_until_its_report_or_its_deadline() {
    let of = |health: &HealthFacts| progress(&signal(), Some(health), NOW).unwrap();
    assert_eq!(of(&asked_at(NOW - 89)), Progress::Asked(NOW + 1));
    let Progress::NotSaved(why) = of(&asked_at(NOW - 90)) else { panic!() };
    assert_eq!(why, "its agent reported nothing before its deadline");
    assert_eq!(of(&asked_at(NOW + 500)), Progress::Asked(NOW + 90), "clocks of controllers differ");
    let with = |outcome| {
        let message = Some("answer 500".to_owned());
        let (uid, since) = ("u".to_owned(), date(NOW));
        let report = CheckpointReport { uid, since, outcome, milliseconds: 1, message };
        HealthFacts { reports: vec![report], ..asked_at(NOW) }
    };
    let earlier =
        HealthFacts { reports: with(CheckpointOutcome::Saved).reports, ..asked_at(NOW - 1) };
    assert_eq!(of(&earlier), Progress::Asked(NOW + 89), "it is the answer to another request");
    assert_eq!(of(&with(CheckpointOutcome::Running)), Progress::Asked(NOW + 90));
    assert_eq!(of(&with(CheckpointOutcome::Saved)), Progress::Saved);
    for outcome in [CheckpointOutcome::Failed, CheckpointOutcome::TimedOut] {
        assert_eq!(of(&with(outcome)), Progress::NotSaved("answer 500".to_owned()));
    }
}
