//! Pending reasons: one value for conditions, events, metrics and explanations.

use octavo_engine::explain::Explanation;
use octavo_engine::objective::policy::PolicyError;

use octavo_kube_io::objects::PodUid;

use crate::devices::AskError;
use crate::groups::{GroupError, MissingMembers};
use crate::policies::Unusable;
use crate::predicates::Unfit;
use crate::state::Scheduler;
use crate::state::cycle::gang_request::IncompleteSegment;
use crate::state::cycle::infeasible_nodes::InfeasibleNodes;
use crate::state::queue::{QueueKey, State};
use crate::state::reporter::preemption_hint::HintRevision;
use crate::status::{StatusText, StatusUpdate};

/// Milliseconds before a transient reason is reported.
const REPORT_DELAY_MS: u64 = 5000;

/// Why a pod or gang is pending.
#[derive(Clone, Debug)]
pub(in crate::state) enum PendingReason {
    /// It does not exist any more.
    Gone,
    /// Its group is invalid or unknown.
    Group(GroupError),
    /// Fewer pods exist than the gang needs.
    Gathering(Vec<MissingMembers>),
    /// Its claims cannot be used yet.
    Claims(AskError),
    /// Its volumes cannot be used.
    Volumes(Unfit),
    /// Its policy does not exist or is invalid.
    NoPolicy(Unusable),
    /// Its policy does not fit this cluster.
    Policy(PolicyError),
    /// The engine's refusal, and why nodes are infeasible.
    Unschedulable(Box<Explanation>, InfeasibleNodes),
    /// The gang has its minimum, and no further member fits.
    Surplus,
    /// Members of incomplete segments.
    Incomplete(Vec<IncompleteSegment>),
    /// Members of one segment have different requests.
    UnevenSegment { sub: String, size: u32 },
    /// The engine found places, but devices or other resources were missing there.
    NoDevices { nodes: usize, last: NodeError },
    /// Other pods hold devices or other resources that the engine does not count. It may fit once they
    /// leave, but none of them may be evicted for it.
    Taken { last: Option<NodeError>, infeasible: InfeasibleNodes },
    /// No place is free. Victims were not searched, so this is not reported.
    NoFreePlace,
    /// Its place is nominated, and victims must leave first.
    Nominated { pods: usize, nodes: String },
    /// Its place is nominated, and its volumes are requested for these nodes.
    AwaitsVolumes { nodes: String },
    /// A write operation failed.
    Failed(String),
}

/// Why a node failed for a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct NodeError {
    /// The node, and the pod if there are several.
    pub(in crate::state) node: String,
    pub(in crate::state) message: String,
}

/// A reason in one word, for conditions, events and metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum Reason {
    /// The pod is gone.
    Gone,
    /// Fewer pods exist than the gang needs.
    Gathering,
    /// Claims do not exist yet, or cannot be used.
    WaitingForClaims,
    /// Volumes cannot be used.
    WaitingForVolumes,
    /// The placement policy does not fit this cluster.
    PlacementPolicyUnusable,
    /// No node satisfies the request. Cluster autoscalers add nodes for this reason alone.
    Unschedulable,
    /// The last segment lacks members.
    IncompleteSegment,
    /// Members of one segment have different requests.
    UnevenSegment,
    /// A write operation failed.
    SchedulerError,
    /// All members that fit have places.
    Scheduled,
    /// A pod is evicted for one of higher priority.
    Preempted,
    /// A pod is restarted elsewhere to make room.
    Moved,
    /// A pod is deleted because its node is lost.
    NodeLost,
    /// A pod is evicted because its gang has too few members.
    GangBelowMinimum,
    /// A gang had more faults than it is repaired for.
    TooManyRepairs,
    /// A reason of groups or policies.
    External(&'static str),
}

impl Reason {
    /// The word on the wire.
    pub(in crate::state) const fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "Gone",
            Self::Gathering => "Gathering",
            Self::WaitingForClaims => "WaitingForClaims",
            Self::WaitingForVolumes => "WaitingForVolumes",
            Self::PlacementPolicyUnusable => "PlacementPolicyUnusable",
            Self::Unschedulable => "Unschedulable",
            Self::IncompleteSegment => "IncompleteSegment",
            Self::UnevenSegment => "UnevenSegment",
            Self::SchedulerError => "SchedulerError",
            Self::Scheduled => "Scheduled",
            Self::Preempted => "Preempted",
            Self::Moved => "Moved",
            Self::NodeLost => "NodeLost",
            Self::GangBelowMinimum => "GangBelowMinimum",
            Self::TooManyRepairs => "TooManyRepairs",
            Self::External(reason) => reason,
        }
    }
}

/// The pending reason of an entry, as last recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::state) struct PendingStatus {
    pub(in crate::state) reason: Reason,
    /// As in the conditions of its pods.
    pub(in crate::state) status_text: StatusText,
    /// The message with numbers and advice.
    pub(in crate::state) detail: String,
    /// Whether the engine found no plan.
    pub(in crate::state) is_unschedulable: bool,
    /// The preemption hint of a gang, as last reported.
    pub(in crate::state) hint: Option<String>,
    /// When the last hint search ran, in milliseconds.
    pub(in crate::state) hint_searched_at: Option<u64>,
    /// What that search depended on.
    pub(in crate::state) hint_revision: Option<HintRevision>,
}

impl PendingStatus {
    /// The text in a gang's status, with the hint.
    pub(in crate::state) fn gang_statement(&self) -> StatusText {
        let message = match &self.hint {
            Some(words) => format!("{}; {words}", self.detail),
            None => self.detail.clone(),
        };
        StatusText { reason: self.status_text.reason, message }
    }
}

impl PendingReason {
    /// The reason in one word.
    pub(in crate::state) fn reason(&self) -> Reason {
        match self {
            Self::Gone => Reason::Gone,
            Self::Group(error) => Reason::External(error.reason()),
            Self::Gathering(_) => Reason::Gathering,
            Self::Claims(_) => Reason::WaitingForClaims,
            Self::Volumes(_) | Self::AwaitsVolumes { .. } => Reason::WaitingForVolumes,
            Self::NoPolicy(error) => Reason::External(error.reason()),
            Self::Policy(_) => Reason::PlacementPolicyUnusable,
            Self::Unschedulable(..)
            | Self::Surplus
            | Self::NoDevices { .. }
            | Self::Taken { .. }
            | Self::NoFreePlace
            | Self::Nominated { .. } => Reason::Unschedulable,
            Self::Incomplete(_) => Reason::IncompleteSegment,
            Self::UnevenSegment { .. } => Reason::UnevenSegment,
            Self::Failed(_) => Reason::SchedulerError,
        }
    }

    /// The reason in a sentence.
    pub(in crate::state) fn message(&self) -> String {
        match self {
            Self::Gone => "the pod is gone".to_owned(),
            Self::Group(error) => error.to_string(),
            Self::Gathering(missing) => gathering_text(missing),
            Self::Claims(error) => error.to_string(),
            Self::Volumes(unfit) => unfit.to_string(),
            Self::NoPolicy(error) => error.to_string(),
            Self::Policy(error) => error.to_string(),
            Self::Unschedulable(explanation, infeasible) => {
                infeasible.message(refusal_text(explanation))
            }
            Self::Surplus => {
                "the gang has its minimum of members, and no node has room for more".to_owned()
            }
            Self::Incomplete(segments) => incomplete_text(segments),
            Self::UnevenSegment { sub, size } => format!(
                "subgroup {sub:?} has segments of {size} members, but members of one segment have \
                 different requests: give members that differ a subgroup of their own"
            ),
            Self::NoDevices { nodes, last: NodeError { node, message } } => format!(
                "{nodes} nodes have room, but none has the devices or the other requested resources; \
                 the last one, {node}: {message}"
            ),
            Self::Taken { last, infeasible } => {
                let node = last.as_ref().map(|last| last.node.as_str());
                infeasible.message(taken_text(node, last.as_ref()))
            }
            Self::NoFreePlace => "no place is free".to_owned(),
            Self::Nominated { pods, nodes } => {
                format!("a place on {nodes} is nominated; waiting for {pods} pods to leave")
            }
            Self::AwaitsVolumes { nodes } => {
                format!("a place on {nodes} is nominated; waiting for volumes to be bound")
            }
            Self::Failed(message) => message.clone(),
        }
    }

    /// The reason in a sentence without numbers and names of the cluster, which would change often.
    fn summary(&self) -> String {
        match self {
            Self::Unschedulable(explanation, infeasible) => match &**explanation {
                Explanation::Refused(refusal) => infeasible.message(refusal.summary.clone()),
                Explanation::Placed(_) => self.message(),
            },
            Self::Taken { last, infeasible } => infeasible.message(taken_text(None, last.as_ref())),
            Self::NoDevices { last, .. } => format!(
                "nodes have room, but none has the devices or the other requested resources, for \
                 example: {}",
                last.message
            ),
            _ => self.message(),
        }
    }

    /// Reason and summary, as conditions and events have them.
    pub(in crate::state) fn status_text(&self) -> StatusText {
        StatusText { reason: self.reason().as_str(), message: self.summary() }
    }

    /// Whether no place was found, so that any room may help.
    pub(in crate::state) fn lacks_place(&self) -> bool {
        matches!(
            self,
            Self::Unschedulable(..)
                | Self::NoDevices { .. }
                | Self::Taken { .. }
                | Self::NoFreePlace
        )
    }

    /// Whether the missing object itself makes the entry ready. If not, it waits for a change of the
    /// cluster.
    fn is_gated(&self) -> bool {
        match self {
            Self::Gathering(_) | Self::Gone => true,
            Self::Claims(error) => error.is_transient(),
            _ => false,
        }
    }
}

/// What other pods hold, with an example.
fn taken_text(node: Option<&str>, last: Option<&NodeError>) -> String {
    let node = node.map_or_else(String::new, |node| format!(" on {node}"));
    let example = last.map(|last| format!("; for example{node}: {}", last.message));
    format!(
        "other pods hold the requested devices or other resources; it may fit once they leave{}",
        example.unwrap_or_default()
    )
}

fn gathering_text(missing: &[MissingMembers]) -> String {
    let each = missing
        .iter()
        .map(|missing| format!("{} of {} {}", missing.have, missing.min, missing.sub));
    format!("the gang has fewer pods than it needs: {}", each.collect::<Vec<_>>().join(", "))
}

fn incomplete_text(segments: &[IncompleteSegment]) -> String {
    let each = segments.iter().map(|IncompleteSegment { sub, count, size, of }| {
        format!(
            "{count} pods of {sub} wait for the rest of their segment: a segment has {size} members, \
             and the subgroup has {of}"
        )
    });
    each.collect::<Vec<_>>().join("; ")
}

/// A refusal in one sentence, with advice.
fn refusal_text(explanation: &Explanation) -> String {
    let mut lines = explanation.lines().into_iter().map(|line| line.trim().to_owned());
    let first = lines.next().unwrap_or_default();
    // Equal pods get equal messages: the object already has the name.
    let first =
        first.split_once(" is not placed: ").map_or(first.clone(), |(_, why)| why.to_owned());
    let details: Vec<_> = lines.collect();
    if details.is_empty() { first } else { format!("{first}; {}", details.join("; ")) }
}

impl Scheduler {
    /// Records why an entry is pending. Reports it if the reason or message is new.
    pub(in crate::state) fn set_pending(&mut self, key: &QueueKey, reason: &PendingReason) {
        match reason {
            PendingReason::Nominated { .. } | PendingReason::AwaitsVolumes { .. } => {
                self.queue.set_state(key, State::Nominated);
            }
            reason if reason.is_gated() => self.queue.set_state(key, State::Gated),
            reason => self.refuse(key, reason),
        }
        if let (QueueKey::Pod(uid), false) = (key, self.reservations.is_nominated(key)) {
            // It may be from a nomination of an earlier leader.
            self.set_nominated_node(uid, None);
        }
        if matches!(reason, PendingReason::Claims(AskError::LeftFromEarlierAttempt(_))) {
            self.roll_back_allocations(key);
            self.queue.set_state(key, State::BackoffUntil(self.cache.now().saturating_add(1000)));
        }
        if matches!(reason, PendingReason::Claims(AskError::NotEvaluated { .. })) {
            // In the next cycle, not in this one.
            self.queue.set_state(key, State::BackoffUntil(self.cache.now().saturating_add(1)));
        }
        let (mut status_text, mut detail) = (reason.status_text(), reason.message());
        let is_unschedulable =
            matches!(reason, PendingReason::Unschedulable(..) | PendingReason::Taken { .. });
        if is_unschedulable {
            for nodes in self.cache.unmodeled_for(key) {
                status_text.message.push_str("; GPUs of some nodes are not used: ");
                status_text.message.push_str(&nodes.why);
                detail.push_str("; ");
                detail.push_str(&nodes.message);
            }
        }
        let result = match reason {
            PendingReason::Nominated { .. } | PendingReason::AwaitsVolumes { .. } => "nominated",
            PendingReason::Unschedulable(..)
            | PendingReason::NoDevices { .. }
            | PendingReason::Taken { .. }
            | PendingReason::Surplus => "refused",
            _ => "waits",
        };
        self.reporter.metric_events.decided(key, result, status_text.reason);
        let is_new =
            self.reporter.pending.get(key).is_none_or(|pending| pending.status_text != status_text);
        if let (false, Some(pending)) = (is_new, self.reporter.pending.get_mut(key))
            && pending.detail != detail
        {
            pending.detail = detail;
            if let QueueKey::Group(group) = key {
                self.reporter.report_group(group);
            }
        } else if is_new {
            let pending = PendingStatus {
                reason: reason.reason(),
                status_text: status_text.clone(),
                detail,
                is_unschedulable,
                hint: None,
                hint_searched_at: None,
                hint_revision: None,
            };
            self.reporter.pending.insert(key.clone(), pending);
        }
        self.schedule_hint(key);
        if !is_new {
            return;
        }
        if matches!(reason, PendingReason::Claims(error) if error.is_transient()) {
            // Transient: usually over before anyone could read it.
            self.reporter
                .delayed
                .insert((self.cache.now().saturating_add(REPORT_DELAY_MS), key.clone()));
            return;
        }
        self.report_pending(key, reason, &status_text);
    }

    /// Reports transient reasons that have not passed. Returns the next deadline.
    pub(in crate::state) fn flush_delayed(&mut self) -> Option<u64> {
        loop {
            let (at, key) = self.reporter.delayed.first()?.clone();
            if at > self.cache.now() {
                return Some(at);
            }
            self.reporter.delayed.remove(&(at, key.clone()));
            let Some(pending) = self.reporter.pending.get(&key) else { continue };
            let (reason, status_text) = (pending.reason, pending.status_text.clone());
            let uids = self.cache.pods_of(&key);
            for uid in uids.iter().filter(|_| reason == Reason::WaitingForClaims) {
                self.report_pod_pending(uid, &status_text);
            }
        }
    }

    fn report_pending(&mut self, key: &QueueKey, reason: &PendingReason, status_text: &StatusText) {
        match key {
            QueueKey::Pod(uid) => self.report_pod_pending(uid, status_text),
            QueueKey::Group(group) => {
                self.reporter.report_group(group);
                if matches!(reason, PendingReason::Gathering(_)) {
                    // The gang's status reports it; a write for each pod would add nothing.
                    return;
                }
                // Cluster autoscalers and users look at pods.
                for uid in self.cache.pods_of(&QueueKey::Group(group.clone())) {
                    let waits = self.cache.pod(&uid).is_some_and(|record| {
                        record.is_pending_for(&self.cache.config().scheduler_name)
                    });
                    if waits {
                        self.report_pod_pending(&uid, status_text);
                    }
                }
            }
        }
    }

    pub(in crate::state) fn report_pod_pending(&mut self, uid: &PodUid, status_text: &StatusText) {
        let Some(record) = self.cache.pod(uid) else { return };
        self.reporter.reports.push(StatusUpdate::PodUnschedulable {
            pod: record.reference(),
            status_text: status_text.clone(),
            seen: record.pod.scheduled.clone(),
        });
    }
}
