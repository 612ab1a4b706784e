//! Why something waits: one value, of which conditions, events, metrics and pages are views.

use std::iter;
use std::sync::Arc;

use octavo_engine::explain::Explanation;
use octavo_engine::objective::policy::PolicyError;

use super::asking::Left;
use super::left_out::LeftOut;
use super::queue::{State, Unit};
use super::{Core, Decided};
use crate::devices::AskError;
use crate::groups::{GroupError, MissingMembers};
use crate::policies::Unusable;
use crate::predicates::{Unfit, Unsupported};
use crate::status::{StatusText, StatusUpdate};

/// Reason of pods whose claims are not there yet.
const WAITS_FOR_CLAIMS: &str = "WaitingForClaims";
/// How long what should pass by itself may take before it is told, in milliseconds.
const PATIENCE: u64 = 5000;

/// Why a pod or gang cannot be decided on, or was refused.
#[derive(Clone, Debug)]
pub(super) enum Blocked {
    /// It is not there any more.
    Gone,
    /// It requires what is not decided here.
    Unsupported(Unsupported),
    /// Its group makes no sense, or is not known.
    Group(GroupError),
    /// Fewer pods are there than the gang needs.
    Gathering(Vec<MissingMembers>),
    /// Its claims.
    Claims(AskError),
    /// Its volumes.
    Volumes(Unfit),
    /// Its policy is not there or not understood.
    NoPolicy(Unusable),
    /// Its policy makes no sense in this cluster.
    Policy(PolicyError),
    /// The engine's refusal, in words, and why nodes were left out.
    Refused(Box<Explanation>, LeftOut),
    /// The gang has what it needs, and there is no room for more of its members.
    Surplus,
    /// Members of segments that are not complete.
    Incomplete(Vec<Left>),
    /// Members of one segment ask for different things.
    UnevenSegment { sub: String, size: u32 },
    /// The engine had places, but no devices or room were found there.
    NoDevices { nodes: usize, last: String },
    /// Others were asked to leave.
    Promised { pods: usize, nodes: String },
    /// Its order failed.
    Failed(String),
}

/// What a unit waits for, as it was told last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) status_text: StatusText,
    /// Whether it is the engine that had no place.
    pub(super) is_refused: bool,
    /// Of a gang: who would have to go, in words, as it was told last.
    pub(super) disturbance: Option<String>,
    /// When that was looked for last.
    pub(super) looked_at: Option<u64>,
}

impl Waiting {
    /// What the status of a gang says.
    pub(super) fn statement_of_gang(&self) -> StatusText {
        let StatusText { reason, message } = self.status_text.clone();
        let message = match &self.disturbance {
            Some(words) => format!("{message}; {words}"),
            None => message,
        };
        StatusText { reason, message }
    }
}

impl Blocked {
    /// As people see it.
    pub(super) fn status_text(&self) -> StatusText {
        let (reason, message) = match self {
            Self::Gone => ("Gone", "the pod is gone".to_owned()),
            Self::Unsupported(what) => (what.reason(), what.to_string()),
            Self::Group(error) => return error.status_text(),
            Self::Gathering(missing) => ("Gathering", gathering(missing)),
            Self::Claims(error) => (WAITS_FOR_CLAIMS, error.to_string()),
            Self::Volumes(unfit) => ("WaitingForVolumes", unfit.to_string()),
            Self::NoPolicy(error) => return error.status_text(),
            Self::Policy(error) => ("PlacementPolicyUnusable", error.to_string()),
            Self::Refused(explanation, left_out) => {
                ("Unschedulable", left_out.beside(refused(explanation)))
            }
            Self::Surplus => (
                "Unschedulable",
                "the gang has the members that it needs, and there is no room for more".to_owned(),
            ),
            Self::Incomplete(left) => ("IncompleteSegment", incomplete(left)),
            Self::UnevenSegment { sub, size } => (
                "UnevenSegment",
                format!(
                    "subgroup {sub:?} has segments of {size} members, but members of one segment ask \
                     for different things: give those that differ a subgroup of their own"
                ),
            ),
            Self::NoDevices { nodes, last } => (
                "Unschedulable",
                format!(
                    "{nodes} nodes have room, but none has the devices or what else is asked for; \
                     the last one: {last}"
                ),
            ),
            Self::Promised { pods, nodes } => (
                "Unschedulable",
                format!("a place on {nodes} is promised; waiting for {pods} pods to leave"),
            ),
            Self::Failed(message) => ("SchedulerError", message.clone()),
        };
        StatusText { reason, message }
    }

    /// How the unit waits then: until something changes, or until what is missing is there.
    pub(super) fn state(&self, changes: u64) -> State {
        match self {
            Self::Gathering(_) | Self::Gone => State::Missing,
            Self::Claims(error) if error.is_transient() => State::Missing,
            _ => State::Refused(changes),
        }
    }
}

fn gathering(missing: &[MissingMembers]) -> String {
    let each = missing.iter().map(|one| format!("{} of {} {}", one.have, one.min, one.sub));
    format!("fewer pods are there than the gang needs: {}", each.collect::<Vec<_>>().join(", "))
}

fn incomplete(left: &[Left]) -> String {
    let each = left.iter().map(|Left { sub, count, size, of }| {
        format!(
            "{count} pods of {sub} wait until their segment is complete: a segment has {size} members, \
             and there are {of}"
        )
    });
    each.collect::<Vec<_>>().join("; ")
}

/// A refusal in one sentence, with what would help.
fn refused(explanation: &Explanation) -> String {
    let mut lines = explanation.lines().into_iter().map(|line| line.trim().to_owned());
    let first = lines.next().unwrap_or_default();
    // Equal pods are told the same: whose name it is says the object that it is told of.
    let first =
        first.split_once(" is not placed: ").map_or(first.clone(), |(_, why)| why.to_owned());
    let rest: Vec<_> = lines.collect();
    if rest.is_empty() { first } else { format!("{first}; {}", rest.join("; ")) }
}

impl Core {
    /// A unit waits, and why. Told only where that is new.
    pub(super) fn block(&mut self, unit: &Unit, blocked: &Blocked) {
        let state = blocked.state(self.changes);
        self.queue.set(unit, state);
        if matches!(blocked, Blocked::Claims(AskError::LeftFromEarlierAttempt(_))) {
            self.undo_allocations(unit);
            self.queue.set(unit, State::NotBefore(self.now.saturating_add(1000)));
        }
        if matches!(blocked, Blocked::Claims(AskError::NotEvaluated { .. })) {
            // In the next round, and not in this one.
            self.queue.set(unit, State::NotBefore(self.now.saturating_add(1)));
        }
        let mut status_text = blocked.status_text();
        let is_refused = matches!(blocked, Blocked::Refused(..));
        if is_refused {
            let outside = self.outside_for(unit).into_iter().map(|one| one.message);
            let parts: Vec<_> = iter::once(status_text.message).chain(outside).collect();
            status_text.message = parts.join("; ");
        }
        let result = match blocked {
            Blocked::Promised { .. } => "promised",
            Blocked::Refused(..) | Blocked::NoDevices { .. } | Blocked::Surplus => "refused",
            _ => "waits",
        };
        let is_gang = matches!(unit, Unit::Group(_));
        self.decided.push(Decided { is_gang, result, reason: status_text.reason });
        let is_new = self.waiting.get(unit).is_none_or(|known| known.status_text != status_text);
        if is_new {
            let waiting = Waiting {
                status_text: status_text.clone(),
                is_refused,
                disturbance: None,
                looked_at: None,
            };
            self.waiting.insert(unit.clone(), waiting);
        }
        self.remedy_is_due(unit);
        if !is_new {
            return;
        }
        if matches!(blocked, Blocked::Claims(error) if error.is_transient()) {
            // Mostly it is over before anybody could read of it.
            self.untold.insert((self.now.saturating_add(PATIENCE), unit.clone()));
            return;
        }
        self.tell(unit, blocked, &status_text);
    }

    /// Tells what still waits for what should have passed. Says when the next is told.
    pub(super) fn tell_late(&mut self) -> Option<u64> {
        loop {
            let (at, unit) = self.untold.first()?.clone();
            if at > self.now {
                return Some(at);
            }
            self.untold.remove(&(at, unit.clone()));
            let Some(waiting) = self.waiting.get(&unit) else { continue };
            let status_text = waiting.status_text.clone();
            let uids = self.uids_of(&unit);
            for uid in uids.iter().filter(|_| status_text.reason == WAITS_FOR_CLAIMS) {
                self.say_pod_waits(uid, &status_text);
            }
        }
    }

    fn tell(&mut self, unit: &Unit, blocked: &Blocked, status_text: &StatusText) {
        match unit {
            Unit::Pod(uid) => self.say_pod_waits(uid, status_text),
            Unit::Group(group) => {
                self.report_group(group);
                if matches!(blocked, Blocked::Gathering(_)) {
                    // The gang's status says so: a write for each pod would tell nobody more.
                    return;
                }
                // Autoscalers and people look at pods.
                for uid in self.uids_of(&Unit::Group(group.clone())) {
                    let waits = self
                        .pods
                        .get(&uid)
                        .is_some_and(|record| record.waits_for(&self.config.scheduler_name));
                    if waits {
                        self.say_pod_waits(&uid, status_text);
                    }
                }
            }
        }
    }

    pub(super) fn say_pod_waits(&mut self, uid: &Arc<str>, status_text: &StatusText) {
        let Some(record) = self.pods.get(uid) else { return };
        self.reports.push(StatusUpdate::PodUnschedulable {
            pod: record.reference(),
            status_text: status_text.clone(),
            seen: record.pod.scheduled.clone(),
        });
    }
}
