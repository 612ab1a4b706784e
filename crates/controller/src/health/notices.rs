//! Events before pods leave: which objects get them, and their words. Pure.
//!
//! Work on nodes is announced for all pods of its nodes, once for each version of its object. A pod that is to leave a device is announced
//! with its controller, once for each eviction.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use octavo_api::names::{REASON_EVICTION_PLANNED, REASON_MAINTENANCE_PLANNED};

use super::checkpoints::{self, Progress};
use super::departures::Departures;
use super::facts::{HealthFacts, date};
use super::maintenance::Notice;
use super::plan::{Eviction, Urgency};
use super::pods;

/// An event before pods leave.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// The objects that get it, one each.
    pub to: Vec<ObjectReference>,
    /// Why, for programs.
    pub reason: &'static str,
    /// Why, and what happens when, for people.
    pub note: String,
    /// Whether a fault is the cause.
    pub is_warning: bool,
}

impl Announcement {
    /// That of work on nodes.
    pub fn of_work(notice: &Notice, to: Vec<ObjectReference>) -> Self {
        let Notice { maintenance, note, .. } = notice;
        let note = format!("the Maintenance {maintenance} of nodes of its pods {note}");
        Self { to, reason: REASON_MAINTENANCE_PLANNED, note, is_warning: false }
    }
}

/// A pod that is to leave a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Departing {
    /// Its UID.
    pub uid: String,
    /// How it leaves.
    pub urgency: Urgency,
    /// The event of its controller, and of itself.
    pub announcement: Announcement,
}

/// When a pod leaves, soonest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    Now,
    /// Once its claim no longer tolerates the taint of the device, in seconds since 1970.
    At(u64),
    /// Once the budget has room.
    InTurn,
}

/// The pod, if it is to leave a device now or later, by its claims. `health` is that of its node. A pod that is being deleted leaves
/// already, and one that cannot save its work stays on a device that is left at checkpoints.
pub fn departing(
    pod: &Pod,
    claims: &[ResourceClaim],
    wanted: &Departures,
    health: Option<&HealthFacts>,
    now: u64,
) -> Option<Departing> {
    let metadata = &pod.metadata;
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    // Annotations that cannot be used name no hook.
    let progress = checkpoints::progress(pod, health, now).unwrap_or(Progress::NoHook);
    let saves = !matches!(progress, Progress::NoHook | Progress::NotSaved(_));
    let granted = pods::left(claims, &wanted.evictions)
        .map(|(eviction, due)| (eviction, if due <= now { When::Now } else { When::At(due) }));
    let waiting = pods::left(claims, &wanted.waiting).map(|(eviction, _)| (eviction, When::InTurn));
    let all = granted
        .chain(waiting)
        .filter(|(eviction, _)| saves || eviction.urgency != Urgency::AtCheckpoint);
    // Of several that are alike the first.
    let (eviction, when) =
        all.rev().max_by_key(|(eviction, when)| (eviction.urgency, Reverse(*when)))?;
    let Eviction { node, device, reason, urgency, .. } = eviction;
    let (name, urgency) = (metadata.name.as_deref()?, *urgency);
    let outlook = outlook(urgency, &progress, when);
    let note = format!("pod {name} is to leave {device} of node {node}: {reason}; {outlook}");
    let to = pods::controller(pod).into_iter().chain(pods::reference(pod)).collect();
    Some(Departing {
        uid: metadata.uid.clone()?,
        urgency,
        announcement: Announcement { to, reason: REASON_EVICTION_PLANNED, note, is_warning: true },
    })
}

/// What happens to a pod, and when, for people.
fn outlook(urgency: Urgency, progress: &Progress, when: When) -> String {
    let when = match when {
        When::Now => "now".to_owned(),
        When::At(due) => format!("at {}, when its claim no longer tolerates that,", date(due)),
        When::InTurn => "in its turn, within the budget of evictions,".to_owned(),
    };
    let what = match (urgency, progress) {
        (Urgency::Deleted, _) => "it is deleted, since no process can use the GPU".to_owned(),
        (Urgency::AtCheckpoint, Progress::NotAsked(_) | Progress::Asked(_)) => {
            "it is asked to save its work, and is evicted once it has".to_owned()
        }
        (Urgency::Evicted, Progress::NotAsked(request)) => format!(
            "it is asked to save its work, and is evicted under its disruption budgets once it has, or after {} s",
            request.deadline_seconds
        ),
        (Urgency::Evicted, Progress::Asked(until)) => format!(
            "it saves its work until {}, and is then evicted under its disruption budgets",
            date(*until)
        ),
        _ => "it is evicted under its disruption budgets".to_owned(),
    };
    format!("{when} {what}")
}

/// Pods that have their event, by node and UID, and how they leave by that event.
#[derive(Debug, Default)]
pub struct Announced(BTreeMap<String, BTreeMap<String, Urgency>>);

impl Announced {
    /// Those of a node's departing pods that have no event yet, or one of a milder way to leave. A pod that is to leave no more is
    /// forgotten, so that its next eviction is announced. Of pods with a UID in `unread` too little could be read for that.
    pub fn open(
        &mut self,
        node: &str,
        found: Vec<Departing>,
        unread: &BTreeSet<String>,
    ) -> Vec<Departing> {
        let Some(known) = self.0.get_mut(node) else { return found };
        let is_found = |uid: &String| found.iter().any(|pod| pod.uid == *uid);
        known.retain(|uid, _| unread.contains(uid) || is_found(uid));
        let is_open =
            |pod: &Departing| known.get(&pod.uid).is_none_or(|announced| *announced < pod.urgency);
        found.into_iter().filter(is_open).collect()
    }

    /// Notes that a pod of a node has its event.
    pub fn note(&mut self, node: &str, pod: &Departing) {
        let of_node = self.0.entry(node.to_owned()).or_default();
        of_node.insert(pod.uid.clone(), pod.urgency);
    }

    /// Forgets the pods of all other nodes.
    pub fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.0.retain(|node, _| is_wanted(node));
    }
}
