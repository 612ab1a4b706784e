//! Repair of gangs on lost nodes, and places kept for the successors of moved pods.

use std::sync::Arc;

use octavo_engine::{Placement, Shape};
use octavo_kube_io::objects::{Node, NodeName, PodUid, TaintEffect};

use super::engine_cache::{DesiredMember, Holder};
use super::pending_reason::Reason;
use super::pod::Place;
use super::queue::QueueKey;
use super::{OpPurpose, Scheduler};
use crate::bind::{Evict, OpKind};
use crate::status::{StatusText, StatusUpdate};

/// A place that is kept for the successor of a moved pod.
#[derive(Clone, Debug)]
pub(super) struct SuccessorPlace {
    /// UID of the owner that creates the successor. Pods without an owner have none.
    owner: Arc<str>,
    shape: Arc<Shape>,
    place: Place,
    desired: DesiredMember,
    is_in_engine: bool,
    /// The entry for which the pod was moved.
    key: QueueKey,
    holder: Holder,
    until: u64,
}

impl Scheduler {
    /// Keeps a place for the successor of a pod that is moved.
    pub(super) fn hold_place_for_successor(
        &mut self,
        uid: &PodUid,
        to: &Placement,
        key: &QueueKey,
    ) {
        let Some(record) = self.pods.get(uid) else { return };
        let Some(owner) = record.pod.meta.owner.as_ref().map(|owner| Arc::clone(&owner.uid)) else {
            return;
        };
        let Some(cached) = self.engine.desired(uid).cloned() else { return };
        let node: NodeName = self.engine.world.cluster.name(to.node).into();
        let place = Place {
            node: node.clone(),
            gpus: to.gpus.clone(),
            state: super::pod::PlaceState::Nominated,
        };
        let holder: Holder = format!("successor:{uid}").into();
        let desired = DesiredMember { node, gpus: to.gpus.clone(), ..cached.clone() };
        let until = self.now.saturating_add(self.config.hold_seconds.saturating_mul(1000));
        self.successor_places.push(SuccessorPlace {
            owner,
            shape: cached.shape,
            place,
            desired,
            is_in_engine: false,
            key: key.clone(),
            holder,
            until,
        });
    }

    /// Adds new successor places to the engine cache, after the victims were removed from it.
    pub(super) fn show_new_successor_places(&mut self) {
        let mut successor_places = std::mem::take(&mut self.successor_places);
        for successor in &mut successor_places {
            if !std::mem::replace(&mut successor.is_in_engine, true) {
                self.engine.set_desired(&successor.holder, Some(successor.desired.clone()));
            }
        }
        self.successor_places = successor_places;
    }

    /// Takes the place that is kept for a pod, if there is one.
    pub(super) fn take_successor_place(
        &mut self,
        uid: &PodUid,
        shape: &Arc<Shape>,
    ) -> Option<Place> {
        let owner = self.pods.get(uid)?.pod.meta.owner.as_ref()?;
        let is_for = |successor: &SuccessorPlace| {
            successor.owner == owner.uid
                && (&successor.shape.resources, &successor.shape.gpus)
                    == (&shape.resources, &shape.gpus)
        };
        let index = self.successor_places.iter().position(is_for)?;
        let successor = self.successor_places.remove(index);
        self.engine.set_desired(&successor.holder, None);
        Some(successor.place)
    }

    /// Adds successor places to a rebuilt engine cache.
    pub(super) fn show_successor_places(&mut self) {
        for successor in self.successor_places.iter().filter(|successor| successor.is_in_engine) {
            self.engine.set_desired(&successor.holder, Some(successor.desired.clone()));
        }
    }

    /// Drops the successor places of pods that need not move for this entry any more.
    pub(super) fn drop_successor_places_of(&mut self, key: &QueueKey) {
        let (dropped, remaining): (Vec<_>, Vec<_>) = std::mem::take(&mut self.successor_places)
            .into_iter()
            .partition(|successor| successor.key == *key);
        self.successor_places = remaining;
        for successor in dropped {
            self.engine.set_desired(&successor.holder, None);
        }
    }

    /// Drops expired successor places. Returns the next deadline.
    pub(super) fn drop_expired_successor_places(&mut self) -> Option<u64> {
        let now = self.now;
        let (old, remaining): (Vec<_>, Vec<_>) = std::mem::take(&mut self.successor_places)
            .into_iter()
            .partition(|successor| successor.until <= now);
        self.successor_places = remaining;
        for successor in &old {
            self.engine.set_desired(&successor.holder, None);
        }
        if !old.is_empty() {
            self.cluster_changed();
        }
        self.successor_places.iter().map(|successor| successor.until).min()
    }

    /// Records since when a node is lost.
    pub(super) fn track_lost_node(&mut self, node: &Node) {
        let is_evicting = node.taints.iter().any(|taint| {
            taint.effect == TaintEffect::NoExecute
                && matches!(
                    taint.key.as_str(),
                    "node.kubernetes.io/unreachable"
                        | "node.kubernetes.io/not-ready"
                        | "node.kubernetes.io/out-of-service"
                )
        });
        if is_evicting || node.is_ready == Some(false) {
            self.lost.entry(node.name()).or_insert(self.now);
        } else {
            self.lost.remove(&*node.meta.name.name);
        }
    }

    /// Deletes members of gangs on nodes that are lost for long enough, so that their owners
    /// recreate them elsewhere. Only called while leading.
    pub(super) fn repair_lost_nodes(&mut self) {
        let after = self.config.repair_after_seconds.saturating_mul(1000);
        if after == 0 {
            return;
        }
        let is_due = |since: u64| since.saturating_add(after) <= self.now;
        let lost = self.lost.iter().filter(|(_, since)| is_due(**since));
        for node in lost.map(|(node, _)| node.clone()).collect::<Vec<_>>() {
            let uids: Vec<_> = self.on_node.get(&node).into_iter().flatten().cloned().collect();
            for uid in uids {
                self.replace_member(&uid, &node);
            }
        }
    }

    /// Handles a failed deletion of a member on a lost node: it is tried again.
    pub(super) fn repair_failed(&mut self, uid: &PodUid) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.is_repaired = false;
        }
    }

    fn replace_member(&mut self, uid: &PodUid, node: &NodeName) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        let is_due = record.member.is_some()
            && record.pod.node.is_some()
            && record.pod.meta.deleted.is_none()
            && !record.pod.has_ended()
            && !record.is_repaired;
        if !is_due {
            return;
        }
        record.is_repaired = true;
        let pod = record.reference();
        let group = record.member.as_ref().map(|member| member.group.clone());
        let message = format!("node {node} is lost; the gang gets a new member on another node");
        let status_text =
            StatusText { reason: Reason::NodeLost.as_str(), message: message.clone() };
        self.reports.push(StatusUpdate::PodEvicted { pod: pod.clone(), status_text });
        let task = OpKind::Evict(Evict {
            pod,
            message,
            reason: "DeletionByTaintManager",
            is_bound_by_budgets: false,
        });
        self.submit(uid, OpPurpose::Repair, task);
        if let Some(group) = group {
            self.report_group(&group);
        }
    }
}
