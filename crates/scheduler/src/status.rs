//! What people are told: conditions of pods and pod groups, and events. All of it is written beside the
//! bindings and after them, aggregated, and never waited for.

mod denied;
mod rate_limit;
mod status_queue;
mod write;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_kube_io::objects::{Kind, ObjectName, ScheduledCondition};

use crate::bind::PodRef;

pub use writer::{StatusOptions, StatusSender, StatusWriter};

/// One reason value, as people and programs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusText {
    /// Reason of conditions and events, and label of metrics: a word in camel case.
    pub reason: &'static str,
    /// What, why and what to do.
    pub message: String,
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusUpdate {
    /// A pod waits: condition `PodScheduled=False`, and an event where the reason is new. Autoscalers
    /// add nodes for the reason `Unschedulable` and for no other.
    PodUnschedulable {
        /// The pod.
        pod: PodRef,
        /// Why.
        status_text: StatusText,
        /// The condition as it was seen: what it says already is not written again.
        seen: Option<ScheduledCondition>,
    },
    /// A pod was bound.
    PodBound {
        /// The pod.
        pod: PodRef,
        /// Its node.
        node: Arc<str>,
    },
    /// A pod was asked to leave its place to others, or to move.
    PodEvicted {
        /// The pod.
        pod: PodRef,
        /// Why, and for whom.
        status_text: StatusText,
    },
    /// How a gang stands. Only the newest of a gang is written, once a second at most.
    Group(GroupStatus),
    /// How a placement policy stands: whether it is understood.
    Policy {
        /// Its name.
        name: Arc<str>,
        /// `metadata.generation` that was read.
        generation: i64,
        /// Why it is not used; `None`: it is.
        error: Option<StatusText>,
    },
}

/// How a gang stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// The object that announced the gang, for its status: an Octavo `PodGroup` gets a full status, a
    /// native one its condition; a workload of another kind gets an event alone.
    pub kind: Kind,
    /// Its name.
    pub name: ObjectName,
    /// Its UID.
    pub uid: Arc<str>,
    /// `metadata.generation` of it that was read.
    pub generation: i64,
    /// What it is doing.
    pub phase: GroupPhase,
    /// Why.
    pub status_text: StatusText,
    /// Pods that there are, by subgroup.
    pub present: BTreeMap<Arc<str>, u32>,
    /// Pods that are bound, by subgroup.
    pub bound: BTreeMap<Arc<str>, u32>,
    /// Where it lies: the tightest domain that has all of it, in words; `None` while nothing is bound.
    pub domain: Option<String>,
}

/// What a gang is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupPhase {
    /// Fewer pods are there than it needs.
    Gathering,
    /// It wants places.
    Waiting,
    /// It has places and others are leaving them.
    Preempting,
    /// Its pods are being bound.
    Binding,
    /// At least its minimum is bound.
    Scheduled,
    /// A member lost its node and gets another.
    Repairing,
}

impl GroupPhase {
    /// Its name, as statuses and metrics have it.
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
