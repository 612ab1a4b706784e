use serde_json::{Value, json};

use super::*;
use crate::report::{Component, Finding};

fn state(node: Option<&str>, status: &Value) -> PodState {
    let pod = json!({"spec": {"nodeName": node, "containers": []}, "status": status});
    PodState::of(&serde_json::from_value(pod).unwrap())
}

/// The status of a pod whose container has a state.
fn with_container(phase: &str, state: &Value) -> Value {
    json!({"phase": phase, "containerStatuses": [{
        "name": "validate", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": state}]})
}

#[test]
fn a_pod_without_a_place_has_the_scheduler_s_words() {
    let refused = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 cannot allocate all claims."}]});
    let words = "0/1 nodes are available: 1 cannot allocate all claims.".to_owned();
    assert_eq!(state(None, &refused), PodState::Unschedulable(words));
    let new = PodState::Waits("its pod has no node yet");
    assert_eq!(state(None, &json!({"phase": "Pending"})), new);
    let gated = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]});
    assert_eq!(state(None, &gated), new);
}

#[test]
fn a_container_that_cannot_start_ends_the_wait_unless_it_may_pass() {
    let waiting = |reason: &str| {
        let state = json!({"waiting": {"reason": reason, "message": "unresolvable CDI devices"}});
        with_container("Pending", &state)
    };
    let words = "CreateContainerError: unresolvable CDI devices".to_owned();
    assert_eq!(state(Some("a"), &waiting("CreateContainerError")), PodState::NotStarted(words));
    let no_image = state(Some("a"), &waiting("ImagePullBackOff"));
    assert!(matches!(no_image, PodState::NoImage(_)), "{no_image:?}");
    for passing in ["ContainerCreating", "ErrImagePull"] {
        assert_eq!(
            state(Some("a"), &waiting(passing)),
            PodState::Waits("its pod starts"),
            "{passing}"
        );
    }
    let running = with_container("Running", &json!({"running": {}}));
    assert_eq!(state(Some("a"), &running), PodState::Waits("its pod runs"));
}

#[test]
fn an_ended_container_has_results_or_says_why_not() {
    let ended = |reason: &str, message: &str| {
        let state = json!({"terminated": {"reason": reason, "exitCode": 1, "message": message}});
        with_container("Failed", &state)
    };
    let findings =
        Findings { components: vec![Finding::failed(Component::Driver, "no GPU", "look")] };
    let text = serde_json::to_string(&findings).unwrap();
    assert_eq!(state(Some("a"), &ended("Error", &text)), PodState::Ended(findings));
    let broken = state(Some("a"), &ended("StartError", "exec: octavo: not found"));
    let words = "ended with StartError, exit code 1: exec: octavo: not found".to_owned();
    assert_eq!(broken, PodState::NotStarted(words));
    let rejected = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy GPU"});
    let words = "UnexpectedAdmissionError: no healthy GPU".to_owned();
    assert_eq!(state(Some("a"), &rejected), PodState::NotStarted(words));
}
