//! `octavo explain pod`: the state of a pod's claims and, if it waits, the reasons.
//!
//! The explanation never claims more than was read. GPUs are counted without regard to selectors: a
//! "no" from a count is certain, a "yes" is not. A certain "yes" comes from an allocator that
//! evaluates the claims as kube-scheduler does. It needs all of its input to be readable.

mod advice;
mod claims;
mod devices;
mod text;

use jiff::Timestamp;
use serde::Serialize;

pub use advice::{Advice, WaitReason};
pub use claims::{ClaimView, GivenDevice};
pub use devices::{
    AllocatorInput, ClashVerdict, DeviceReport, DeviceView, NodeVerdict, PlacedDevice,
    RequestVerdict,
};
pub use text::{TextOptions, render};

use self::devices::PodClaims;
use crate::scheduler::SchedulerExplanation;
use crate::snapshot::{ClaimSource, ClusterSnapshot, Condition, Gap, Holders, ObjectName, Pod};
use crate::usage::{self, GpuUse};

/// The state of a pod, and the reasons if it waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodExplanation {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The pod's phase.
    pub phase: String,
    /// Its state, finer than the phase.
    #[serde(rename = "stage")]
    pub state: PodState,
    /// Whether it waits: its phase is `Pending`.
    pub waits: bool,
    /// Creation time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// The node that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The scheduler that places it.
    pub scheduler: String,
    /// Condition `PodScheduled`, in the scheduler's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<Condition>,
    /// The explanation of Octavo's scheduler, if that scheduler places the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_says: Option<SchedulerExplanation>,
    /// Its claims.
    pub claims: Vec<ClaimView>,
    /// Events about it, oldest first.
    pub events: Vec<Event>,
    /// GPUs that it competes for; only while a known request waits for an allocation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<GpuUse>,
    /// The allocator's verdict on its open claims for each node, while the pod waits for a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceReport>,
    /// Warnings of the agents of nodes that do not serve it, the nearest node first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_warnings: Vec<NodeWarning>,
    /// Why it waits and what would help, most certain first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
    /// Objects that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// The state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PodState {
    /// Scheduling gates keep it from the scheduler.
    Gated,
    /// No node has been chosen.
    Unscheduled,
    /// Bound to a node; claims are prepared, images pulled, containers started.
    Starting,
    /// Running.
    Running,
    /// Succeeded or failed.
    Finished,
    /// Being deleted.
    Deleting,
    /// The phase is unknown.
    Unknown,
}

/// An event about a pod. Orders by time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Time of the last occurrence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// Component that reported it.
    pub source: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Reason, a constant.
    pub reason: String,
    /// Message, for people.
    pub message: String,
    /// How often.
    pub count: i32,
}

/// An agent's warning about its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeWarning {
    /// Node.
    pub node: String,
    /// The warning.
    #[serde(flatten)]
    pub event: Event,
}

/// Explains a pod of the snapshot; `None` if the snapshot does not have it.
pub fn explain_pod(
    snapshot: &ClusterSnapshot,
    name: &ObjectName,
    events: Vec<Event>,
) -> Option<PodExplanation> {
    let pod = snapshot.pods.get(name)?;
    let claims = claims::of_pod(snapshot, name, pod);
    let state = pod_state(pod);
    let asks = claims.iter().any(|claim| !claim.allocated && !claim.requests.is_empty());
    let candidates = if state == PodState::Unscheduled && asks {
        usage::gpus(snapshot, &Holders::of(snapshot))
    } else {
        Vec::new()
    };
    let mut explanation = PodExplanation {
        namespace: name.namespace.clone(),
        name: name.name.clone(),
        phase: pod.phase.clone(),
        state,
        waits: pod.phase == "Pending",
        created: pod.created,
        node: pod.node.clone(),
        scheduler: pod.scheduler.clone(),
        scheduled: pod.scheduled.clone(),
        scheduler_says: None,
        claims,
        events,
        candidates,
        devices: None,
        node_warnings: Vec::new(),
        advice: Vec::new(),
        gaps: snapshot.gaps.clone(),
    };
    if state == PodState::Unscheduled
        && let Some(input) = &snapshot.allocator
    {
        explanation.devices = devices_for(input, &explanation);
    }
    if state == PodState::Unscheduled && asks {
        explanation.node_warnings = node_warnings(snapshot, explanation.devices.as_ref());
    }
    if explanation.waits {
        explanation.advice = advice::wait_reasons(snapshot, pod, &explanation);
    }
    Some(explanation)
}

/// The allocator's verdict on the pod's open claims; `None` while one of them does not exist.
fn devices_for(input: &AllocatorInput, explanation: &PodExplanation) -> Option<DeviceReport> {
    let PodExplanation { namespace, scheduler, claims, .. } = explanation;
    let (allocated, open): (Vec<_>, Vec<_>) = claims.iter().partition(|claim| claim.allocated);
    // The scheduler creates the claim for extended resources when it places the pod.
    let is_unmade = |claim: &&ClaimView| {
        matches!(claim.source, ClaimSource::ExtendedResource(_)) && !claim.exists
    };
    let (unmade, open): (Vec<_>, Vec<_>) = open.into_iter().partition(is_unmade);
    let name = |claim: &'_ ClaimView| claim.claim.clone();
    let open: Vec<String> = open.into_iter().map(name).collect::<Option<_>>()?;
    let allocated: Vec<String> = allocated.into_iter().filter_map(name).collect();
    let has_extended = !unmade.is_empty();
    let pod = PodClaims { namespace, scheduler, open, allocated, has_extended };
    devices::report(input, &pod)
}

/// The agents' warnings on nodes whose devices do not serve the pod, each once. Without a verdict,
/// all nodes with devices count.
fn node_warnings(snapshot: &ClusterSnapshot, devices: Option<&DeviceReport>) -> Vec<NodeWarning> {
    let mut nodes: Vec<&str> = match devices {
        Some(report) if !report.fits.is_empty() => return Vec::new(),
        Some(report) => report.nodes.iter().map(|verdict| &*verdict.node).collect(),
        None => snapshot.pools.values().map(|pool| &*pool.node).collect(),
    };
    nodes.dedup();
    let mut warnings: Vec<NodeWarning> = Vec::new();
    for node in nodes {
        let of_node = warnings.len();
        // The newest of equal warnings is kept.
        for event in snapshot.node_warnings.get(node).into_iter().flatten().rev() {
            let is_known = |known: &NodeWarning| {
                (&known.event.reason, &known.event.message) == (&event.reason, &event.message)
            };
            if !warnings.iter().skip(of_node).any(is_known) {
                warnings.push(NodeWarning { node: node.to_owned(), event: event.clone() });
            }
        }
    }
    warnings
}

fn pod_state(pod: &Pod) -> PodState {
    match &*pod.phase {
        "Succeeded" | "Failed" => PodState::Finished,
        _ if pod.deleting => PodState::Deleting,
        "Running" => PodState::Running,
        "Pending" if pod.node.is_some() => PodState::Starting,
        "Pending" if !pod.gates.is_empty() => PodState::Gated,
        "Pending" => PodState::Unscheduled,
        _ => PodState::Unknown,
    }
}

#[cfg(test)]
mod tests;
