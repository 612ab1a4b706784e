//! What the pod of a Job has come to (pure).

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use octavo_view::pod_trouble::trouble;

use crate::report::Findings;

/// Reasons of a waiting container that do not pass by themselves within the time of a validation.
const LASTING: [&str; 3] =
    ["CreateContainerConfigError", "CreateContainerError", "RunContainerError"];
/// Those that say nothing of the node's GPUs.
const OF_IMAGE: [&str; 3] = ["ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName"];

/// The state of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    /// It has no node yet, or starts, or runs.
    Waits(&'static str),
    /// The scheduler has no place for it, with its words.
    Unschedulable(String),
    /// The node does not get its image, in the words of the kubelet.
    NoImage(String),
    /// Its container does not start, in the words of kubelet or runtime.
    NotStarted(String),
    /// It has ended with its results.
    Ended(Findings),
}

impl PodState {
    /// The state of a pod.
    pub(super) fn of(pod: &Pod) -> Self {
        let Some(status) = &pod.status else { return Self::Waits("its pod has no node yet") };
        let container = status.container_statuses.iter().flatten().next();
        match status.phase.as_deref() {
            Some("Succeeded" | "Failed") => Self::of_ended(pod, container),
            Some("Running") => Self::Waits("its pod runs"),
            _ if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) => {
                let waiting =
                    container.and_then(|it| it.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
                match waiting {
                    Some(reason) if OF_IMAGE.contains(&reason) => {
                        Self::NoImage(trouble(pod).unwrap_or_default())
                    }
                    Some(reason) if LASTING.contains(&reason) => {
                        Self::NotStarted(trouble(pod).unwrap_or_default())
                    }
                    _ => Self::Waits("its pod starts"),
                }
            }
            _ => {
                let mut conditions = status.conditions.iter().flatten();
                let is_refusal = |reason: Option<&str>| reason == Some("Unschedulable");
                let refused = conditions
                    .find(|it| it.type_ == "PodScheduled" && is_refusal(it.reason.as_deref()));
                match refused {
                    Some(refused) => {
                        Self::Unschedulable(refused.message.clone().unwrap_or_default())
                    }
                    None => Self::Waits("its pod has no node yet"),
                }
            }
        }
    }

    /// The results of an ended pod, or why there are none.
    fn of_ended(pod: &Pod, container: Option<&ContainerStatus>) -> Self {
        let ended = container.and_then(|it| it.state.as_ref()?.terminated.as_ref());
        let results = ended.and_then(|ended| serde_json::from_str(ended.message.as_deref()?).ok());
        match results {
            Some(results) => Self::Ended(results),
            None => Self::NotStarted(
                trouble(pod).unwrap_or_else(|| "its pod ended without results".to_owned()),
            ),
        }
    }
}
