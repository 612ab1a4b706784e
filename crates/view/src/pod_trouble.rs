//! Why the containers of a pod do not run, in the kubelet's words.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// Reasons of containers that wait for something else, of which the reason says nothing.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The reason and message of a container that waits or ended; `None` if the kubelet gives none.
pub fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let of_pod = words(status.reason.as_deref(), status.message.as_deref());
    containers(pod).rev().find_map(of_container).or(of_pod)
}

/// How often the pod's containers were restarted.
pub(crate) fn restarts(pod: &Pod) -> i32 {
    containers(pod).map(|status| status.restart_count).sum()
}

fn containers(pod: &Pod) -> impl DoubleEndedIterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let init = status.and_then(|status| status.init_container_statuses.as_deref());
    let main = status.and_then(|status| status.container_statuses.as_deref());
    [init, main].into_iter().flatten().flatten()
}

fn of_container(status: &ContainerStatus) -> Option<String> {
    if status.ready {
        return None;
    }
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    let is_starting = |reason: &str| STARTING.contains(&reason);
    let waiting = waiting.filter(|waiting| !waiting.reason.as_deref().is_some_and(is_starting));
    let waiting =
        waiting.and_then(|waiting| words(waiting.reason.as_deref(), waiting.message.as_deref()));
    let ended = [status.state.as_ref(), status.last_state.as_ref()]
        .into_iter()
        .flatten()
        .find_map(|state| state.terminated.as_ref());
    let ended = ended.map(|ended| {
        let reason = ended.reason.as_deref().unwrap_or("unknown reason");
        let message = ended.message.as_deref().map(str::trim).filter(|text| !text.is_empty());
        let message = message.map(|text| format!(": {text}")).unwrap_or_default();
        format!("ended with {reason}, exit code {}{message}", ended.exit_code)
    });
    match (waiting, ended) {
        (Some(waiting), Some(ended)) => Some(format!("{waiting}; {ended}")),
        (waiting, ended) => waiting.or(ended),
    }
}

fn words(reason: Option<&str>, message: Option<&str>) -> Option<String> {
    let words: Vec<&str> =
        [reason, message].into_iter().flatten().filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(": "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(statuses: &Value) -> Option<String> {
        let pod = json!({"status": {"containerStatuses": statuses}});
        trouble(&serde_json::from_value(pod).unwrap())
    }

    fn container(state: &Value, last: &Value) -> Value {
        json!([{
            "name": "c", "ready": false, "restartCount": 3, "image": "", "imageID": "",
            "state": state, "lastState": last,
        }])
    }

    #[test]
    fn waiting_and_ended_containers_say_why() {
        let pull = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        assert_eq!(of(&container(&pull, &json!({}))).unwrap(), "ImagePullBackOff: no such image");
        let crash = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let last =
            json!({"terminated": {"reason": "Error", "exitCode": 1, "message": "no IMEX\n"}});
        let text = of(&container(&crash, &last)).unwrap();
        assert_eq!(text, "CrashLoopBackOff; ended with Error, exit code 1: no IMEX");
    }

    #[test]
    fn containers_that_are_being_created_say_nothing() {
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        assert_eq!(of(&container(&creating, &json!({}))), None);
        assert_eq!(of(&json!([])), None);
    }
}
