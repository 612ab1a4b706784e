//! A pod's status: addresses, containers and phase (pure).

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
    ResourceStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not all containers have started.
    Pending,
    /// The containers have started.
    Running,
    /// All containers have succeeded.
    Succeeded,
    /// A container has failed.
    Failed,
}

/// State of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not running, with the reason.
    Waiting { reason: &'static str, message: String },
    /// Running.
    Running { started: Timestamp },
    /// Ended.
    Terminated { exit_code: i32, started: Option<Timestamp>, finished: Timestamp },
}

/// Why a node did not accept a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// Reason.
    pub(crate) reason: &'static str,
    /// Text for people.
    pub(crate) message: String,
}

/// Inputs of a pod's status besides its object.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Phase.
    pub(crate) phase: Phase,
    /// When the node accepted the pod.
    pub(crate) start_time: Timestamp,
    /// Address of the node.
    pub(crate) host_ip: String,
    /// Address of the pod, once assigned.
    pub(crate) pod_ip: Option<String>,
    /// Whether the probes of running containers succeed.
    pub(crate) is_ready: bool,
    /// State of all containers without an entry in `exceptions`.
    pub(crate) state: State,
    /// State of single containers, by name.
    pub(crate) exceptions: BTreeMap<String, State>,
    /// State before the last restart.
    pub(crate) last: Option<State>,
    /// Number of restarts of the containers.
    pub(crate) restarts: i32,
    /// Health of each container's devices, by container name.
    pub(crate) resources: BTreeMap<String, Vec<ResourceStatus>>,
    /// Why the node did not accept the pod, which then has no containers.
    pub(crate) rejection: Option<Rejection>,
}

impl Phase {
    /// Value of the API field.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Whether no container runs any more.
    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The status of `pod` according to `view`. `now` dates changed conditions.
pub(crate) fn status_of(pod: &Pod, view: &View, now: Timestamp) -> PodStatus {
    if let Some(rejection) = &view.rejection {
        return PodStatus {
            phase: Some(view.phase.as_str().to_owned()),
            start_time: Some(Time(view.start_time)),
            reason: Some(rejection.reason.to_owned()),
            message: Some(format!("Pod was rejected: {}", rejection.message)),
            ..PodStatus::default()
        };
    }
    let spec = pod.spec.clone().unwrap_or_default();
    let statuses = |containers: &[Container], init: bool| {
        let list = containers.iter().map(|container| container_status(pod, container, init, view));
        Some(list.collect::<Vec<_>>()).filter(|list| !list.is_empty())
    };
    PodStatus {
        phase: Some(view.phase.as_str().to_owned()),
        start_time: Some(Time(view.start_time)),
        host_ip: Some(view.host_ip.clone()),
        host_ips: Some(vec![HostIP { ip: view.host_ip.clone() }]),
        pod_ip: view.pod_ip.clone(),
        pod_ips: view.pod_ip.clone().map(|ip| vec![PodIP { ip }]),
        conditions: Some(conditions(pod, view, now)),
        init_container_statuses: statuses(
            spec.init_containers.as_deref().unwrap_or_default(),
            true,
        ),
        container_statuses: statuses(&spec.containers, false),
        ..PodStatus::default()
    }
}

fn container_status(pod: &Pod, container: &Container, init: bool, view: &View) -> ContainerStatus {
    let sidecar = container.restart_policy.as_deref() == Some("Always");
    let state = match view.exceptions.get(&container.name).unwrap_or(&view.state) {
        // Init containers end before the others start; simulated ones take no time.
        State::Running { started } if init && !sidecar => {
            State::Terminated { exit_code: 0, started: Some(*started), finished: *started }
        }
        state => state.clone(),
    };
    let running = matches!(state, State::Running { .. });
    let ended_well = matches!(state, State::Terminated { exit_code: 0, .. });
    let started = !matches!(state, State::Waiting { .. });
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: String::new(),
        container_id: started
            .then(|| format!("octavo-lab://{}/{}", pod.uid().unwrap_or_default(), container.name)),
        ready: (running && view.is_ready) || (init && !sidecar && ended_well),
        started: Some(running && view.is_ready),
        restart_count: view.restarts,
        state: Some(api_state(&state)),
        last_state: view.last.as_ref().map(api_state),
        allocated_resources_status: view
            .resources
            .get(&container.name)
            .filter(|resources| !resources.is_empty())
            .cloned(),
        ..ContainerStatus::default()
    }
}

fn api_state(state: &State) -> ContainerState {
    let mut api = ContainerState::default();
    match state {
        State::Waiting { reason, message } => {
            api.waiting = Some(ContainerStateWaiting {
                reason: Some((*reason).to_owned()),
                message: Some(message.clone()).filter(|message| !message.is_empty()),
            });
        }
        State::Running { started } => {
            api.running = Some(ContainerStateRunning { started_at: Some(Time(*started)) });
        }
        State::Terminated { exit_code, started, finished } => {
            let reason = if *exit_code == 0 { "Completed" } else { "Error" };
            api.terminated = Some(ContainerStateTerminated {
                exit_code: *exit_code,
                reason: Some(reason.to_owned()),
                started_at: started.map(Time),
                finished_at: Some(Time(*finished)),
                ..ContainerStateTerminated::default()
            });
        }
    }
    api
}

/// The conditions that a kubelet owns; the strategic merge keeps the others.
fn conditions(pod: &Pod, view: &View, now: Timestamp) -> Vec<PodCondition> {
    let ready = view.phase == Phase::Running
        && matches!(view.state, State::Running { .. })
        && view.is_ready
        && view.exceptions.is_empty();
    let why_not = match view.phase {
        Phase::Succeeded => "PodCompleted",
        Phase::Failed => "PodFailed",
        Phase::Pending | Phase::Running => "ContainersNotReady",
    };
    let sandbox = view.pod_ip.is_some() && !view.phase.is_terminal();
    let inits = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
    // A pod without init containers is initialized from the start.
    let initialized = view.phase != Phase::Pending || inits.is_none_or(Vec::is_empty);
    [
        ("PodReadyToStartContainers", sandbox, None),
        ("Initialized", initialized, Some("ContainersNotInitialized")),
        ("ContainersReady", ready, Some(why_not)),
        ("Ready", ready, Some(why_not)),
    ]
    .into_iter()
    .map(|(type_, holds, why_not)| {
        let status = if holds { "True" } else { "False" };
        let old = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let since = old
            .filter(|old| old.type_ == type_ && old.status == status)
            .find_map(|old| old.last_transition_time.clone());
        PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            // In a merge an empty text removes an old reason; an absent one keeps it.
            reason: Some(if holds { "" } else { why_not.unwrap_or_default() }.to_owned()),
            last_transition_time: Some(since.unwrap_or(Time(now))),
            ..PodCondition::default()
        }
    })
    .collect()
}

#[cfg(test)]
mod tests;
