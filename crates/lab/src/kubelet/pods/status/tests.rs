use serde_json::json;

use super::*;

fn pod() -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid"},
        "spec": {
            "initContainers": [
                {"name": "first", "image": "i"},
                {"name": "sidecar", "image": "i", "restartPolicy": "Always"},
            ],
            "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
        },
        "status": {"conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:01Z"},
        ]},
    }))
    .unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn view(phase: Phase, state: State) -> View {
    View {
        is_ready: true,
        phase,
        start_time: at(0),
        host_ip: "127.66.0.1".to_owned(),
        pod_ip: Some("10.64.0.1".to_owned()),
        state,
        exceptions: BTreeMap::new(),
        last: None,
        restarts: 0,
        resources: BTreeMap::new(),
        rejection: None,
    }
}

fn condition<'a>(status: &'a PodStatus, type_: &str) -> &'a PodCondition {
    status.conditions.as_ref().unwrap().iter().find(|c| c.type_ == type_).unwrap()
}

fn container<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten()).find(|c| c.name == name).unwrap()
}

#[test]
fn a_pod_whose_devices_are_not_prepared_is_pending_with_the_reason() {
    let waiting = State::Waiting { reason: "ContainerCreating", message: String::new() };
    let status = status_of(&pod(), &view(Phase::Pending, waiting), at(5));
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let state = container(&status, "a").state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(state.reason.as_deref(), Some("ContainerCreating"));
    assert_eq!(condition(&status, "Ready").reason.as_deref(), Some("ContainersNotReady"));
    let since = condition(&status, "Ready").last_transition_time.as_ref().unwrap();
    assert_eq!(
        since.0.to_string(),
        "2026-01-01T00:00:01Z",
        "an unchanged condition keeps its date"
    );
}

#[test]
fn a_pending_pod_without_init_containers_is_initialised() {
    let waiting = || State::Waiting { reason: "ContainerCreating", message: String::new() };
    let mut pod = pod();
    let status = status_of(&pod, &view(Phase::Pending, waiting()), at(5));
    let initialized = condition(&status, "Initialized");
    assert_eq!(initialized.status, "False");
    assert_eq!(initialized.reason.as_deref(), Some("ContainersNotInitialized"));
    pod.spec.as_mut().unwrap().init_containers = None;
    let status = status_of(&pod, &view(Phase::Pending, waiting()), at(5));
    assert_eq!(condition(&status, "Initialized").status, "True");
}

#[test]
fn a_running_pod_is_ready_and_its_init_containers_are_done() {
    let status = status_of(&pod(), &view(Phase::Running, State::Running { started: at(1) }), at(5));
    assert_eq!(status.pod_ip.as_deref(), Some("10.64.0.1"));
    assert_eq!(condition(&status, "Ready").status, "True");
    assert_eq!(condition(&status, "Ready").last_transition_time, Some(Time(at(5))));
    assert!(container(&status, "first").state.as_ref().unwrap().terminated.is_some());
    for name in ["sidecar", "a", "b"] {
        assert!(container(&status, name).state.as_ref().unwrap().running.is_some(), "{name}");
        assert!(container(&status, name).ready);
    }
    assert!(status.conditions.unwrap().iter().all(|c| c.type_ != "PodScheduled"));
}

#[test]
fn a_container_that_cannot_be_created_is_named_with_its_error() {
    let waiting = State::Waiting { reason: "ContainerCreating", message: String::new() };
    let mut view = view(Phase::Pending, waiting);
    let error = State::Waiting { reason: "CreateContainerError", message: "no device".to_owned() };
    view.exceptions.insert("b".to_owned(), error);
    let status = status_of(&pod(), &view, at(5));
    let waiting = |name| container(&status, name).state.clone().unwrap().waiting.unwrap();
    assert_eq!(waiting("b").reason.as_deref(), Some("CreateContainerError"));
    assert_eq!(waiting("b").message.as_deref(), Some("no device"));
    assert_ne!(waiting("a").reason.as_deref(), Some("CreateContainerError"));
}

#[test]
fn finished_pod_shows_its_exit_code_and_is_not_ready() {
    let ended = |exit_code| State::Terminated { exit_code, started: Some(at(1)), finished: at(6) };
    for (phase, exit_code, reason, why) in [
        (Phase::Succeeded, 0, "Completed", "PodCompleted"),
        (Phase::Failed, 3, "Error", "PodFailed"),
    ] {
        let status = status_of(&pod(), &view(phase, ended(exit_code)), at(6));
        let state = container(&status, "a").state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert_eq!((state.exit_code, state.reason.as_deref()), (exit_code, Some(reason)));
        assert_eq!(condition(&status, "Ready").reason.as_deref(), Some(why));
        assert_eq!(condition(&status, "PodReadyToStartContainers").status, "False");
    }
}

#[test]
fn a_restarted_container_counts_and_shows_its_last_end() {
    let mut view = view(Phase::Running, State::Running { started: at(8) });
    view.restarts = 2;
    view.last = Some(State::Terminated { exit_code: 1, started: Some(at(1)), finished: at(6) });
    let status = status_of(&pod(), &view, at(8));
    assert_eq!(container(&status, "a").restart_count, 2);
    let last = container(&status, "a").last_state.as_ref().unwrap();
    assert_eq!(last.terminated.as_ref().unwrap().exit_code, 1);
}
