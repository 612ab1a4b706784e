//! Status updates: conditions of pods and pod groups, and events. They are written beside and after
//! the bindings, aggregated, and nothing waits for them.

mod condition_queue;
mod denied;
mod keyed_queue;
mod rate_limit;
mod status_queue;
mod write;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use octavo_kube_io::objects::{Kind, NodeName, ObjectName, PodUid, ScheduledCondition};

use crate::bind::PodRef;

pub use writer::{StatusOptions, StatusSender, StatusWriter};

/// Which bound pods get an event `Scheduled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ScheduledEvents {
    /// Pods that are bound while few events wait to be written. The pod itself shows its node.
    #[default]
    BestEffort,
    /// Every pod, as with kube-scheduler. This doubles the writes of a plain pod.
    All,
}

/// A reason with its message, as users and programs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusText {
    /// Reason of conditions and events, and label of metrics, in CamelCase.
    pub reason: &'static str,
    /// What happened, why, and what to do.
    pub message: String,
}

/// A status update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusUpdate {
    /// A pod is unschedulable: condition `PodScheduled=False`, and an event where the reason is
    /// new. Autoscalers add nodes for the reason `Unschedulable` only.
    PodUnschedulable {
        /// The pod.
        pod: PodRef,
        /// Why.
        status_text: StatusText,
        /// The observed condition. An equal one is not written again.
        seen: Option<ScheduledCondition>,
    },
    /// A pod was bound.
    PodBound {
        /// The pod.
        pod: PodRef,
        /// Its node.
        node: NodeName,
        /// If its place is kept for another entry: the name of that entry, and when the pod is evicted.
        loan: Option<String>,
    },
    /// A pod has a node, from this scheduler or another. It waits for nothing.
    PodSettled {
        /// Its UID.
        uid: PodUid,
    },
    /// A pod is evicted for others, or to move.
    PodEvicted {
        /// The pod.
        pod: PodRef,
        /// Why, and for which pod or gang.
        status_text: StatusText,
    },
    /// A pod leaves by a fault, and its gang had too many of them to be repaired.
    PodNotRepaired {
        /// The pod.
        pod: PodRef,
        /// Why.
        status_text: StatusText,
    },
    /// The state of a gang. Only its newest state is written, once a second at most.
    Group(GroupStatus),
    /// The state of a placement policy: whether it is accepted.
    Policy {
        /// Its name.
        name: Arc<str>,
        /// `metadata.generation` that was read.
        generation: i64,
        /// Why it is not used; `None` if it is.
        error: Option<StatusText>,
    },
}

/// The state of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// The object that announced the gang. An Octavo `PodGroup` gets a full status, a native one
    /// its condition, and a workload of another kind only an event.
    pub kind: Kind,
    /// Its name.
    pub name: ObjectName,
    /// Its UID.
    pub uid: Arc<str>,
    /// Its `metadata.generation` that was read.
    pub generation: i64,
    /// What it is doing.
    pub phase: GroupPhase,
    /// Why.
    pub status_text: StatusText,
    /// Existing pods by subgroup.
    pub present: BTreeMap<Arc<str>, u32>,
    /// Bound pods by subgroup.
    pub bound: BTreeMap<Arc<str>, u32>,
    /// The smallest topology domain that contains the gang, in words; `None` while nothing is
    /// bound.
    pub domain: Option<String>,
}

/// The phase of a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupPhase {
    /// Fewer pods exist than it needs.
    Gathering,
    /// It waits for placement.
    Waiting,
    /// It has a placement, and victims are leaving.
    Preempting,
    /// Its pods are being bound.
    Binding,
    /// At least its minimum is bound.
    Scheduled,
    /// A member lost its node and gets another.
    Repairing,
}

impl GroupPhase {
    /// Its name in statuses and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gathering => "Gathering",
            Self::Waiting => "Waiting",
            Self::Preempting => "Preempting",
            Self::Binding => "Binding",
            Self::Scheduled => "Scheduled",
            Self::Repairing => "Repairing",
        }
    }
}

#[cfg(test)]
mod tests;
