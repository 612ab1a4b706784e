//! Nodes that are lost, and places that are kept for the successors of pods that were moved.

use std::sync::Arc;

use octavo_engine::{Placement, Shape};
use octavo_kube_io::objects::{Node, TaintEffect};

use super::picture::Want;
use super::pod::Place;
use super::queue::Unit;
use super::{Core, FlightKind};
use crate::bind::{Evict, OpKind};
use crate::status::{StatusText, StatusUpdate};

/// A place that is kept for the pod that somebody's owner makes in its stead.
#[derive(Clone, Debug)]
pub(super) struct HeldPlace {
    /// UID of the owner that makes pods; of pods without an owner nobody makes others.
    owner: Arc<str>,
    shape: Arc<Shape>,
    place: Place,
    want: Want,
    is_in_picture: bool,
    /// For whom the pod was moved.
    unit: Unit,
    holder: Arc<str>,
    until: u64,
}

impl Core {
    /// Keeps a place for the successor of a pod that is moved.
    pub(super) fn keep_place_for_successor(&mut self, uid: &Arc<str>, to: &Placement, unit: &Unit) {
        let Some(record) = self.pods.get(uid) else { return };
        let Some(owner) = record.pod.meta.owner.as_ref().map(|owner| Arc::clone(&owner.uid)) else {
            return;
        };
        let Some(has) = self.picture.has(uid).cloned() else { return };
        let node: Arc<str> = self.picture.world.cluster.name(to.node).into();
        let place = Place {
            node: Arc::clone(&node),
            gpus: to.gpus.clone(),
            hold: super::pod::Hold::Promised,
        };
        let holder: Arc<str> = format!("successor:{uid}").into();
        let want = Want { node, gpus: to.gpus.clone(), ..has.clone() };
        let until = self.now.saturating_add(self.config.hold_seconds.saturating_mul(1000));
        self.holds.push(HeldPlace {
            owner,
            shape: has.shape,
            place,
            want,
            is_in_picture: false,
            unit: unit.clone(),
            holder,
            until,
        });
    }

    /// Puts kept places into the picture, once those who had to leave have left it.
    pub(super) fn take_held_places(&mut self) {
        let mut holds = std::mem::take(&mut self.holds);
        for hold in &mut holds {
            if !std::mem::replace(&mut hold.is_in_picture, true) {
                self.picture.set(&hold.holder, Some(hold.want.clone()));
            }
        }
        self.holds = holds;
    }

    /// The place that is kept for a pod, if any. It is kept no longer.
    pub(super) fn kept_place(&mut self, uid: &Arc<str>, shape: &Arc<Shape>) -> Option<Place> {
        let owner = self.pods.get(uid)?.pod.meta.owner.as_ref()?;
        let is_for = |hold: &HeldPlace| {
            hold.owner == owner.uid
                && (&hold.shape.resources, &hold.shape.gpus) == (&shape.resources, &shape.gpus)
        };
        let index = self.holds.iter().position(is_for)?;
        let hold = self.holds.remove(index);
        self.picture.set(&hold.holder, None);
        Some(hold.place)
    }

    /// Puts kept places into a picture that was made anew.
    pub(super) fn show_held_places(&mut self) {
        for hold in self.holds.iter().filter(|hold| hold.is_in_picture) {
            self.picture.set(&hold.holder, Some(hold.want.clone()));
        }
    }

    /// Gives up places of those who need not move for a unit any more.
    pub(super) fn drop_holds_of(&mut self, unit: &Unit) {
        let (dropped, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.holds).into_iter().partition(|hold| hold.unit == *unit);
        self.holds = kept;
        for hold in dropped {
            self.picture.set(&hold.holder, None);
        }
    }

    /// Gives up places that nobody came for. Says when the next is given up.
    pub(super) fn drop_old_holds(&mut self) -> Option<u64> {
        let now = self.now;
        let (old, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.holds).into_iter().partition(|hold| hold.until <= now);
        self.holds = kept;
        for hold in &old {
            self.picture.set(&hold.holder, None);
        }
        if !old.is_empty() {
            self.something_changed();
        }
        self.holds.iter().map(|hold| hold.until).min()
    }

    /// Notes since when a node is lost.
    pub(super) fn note_whether_lost(&mut self, node: &Node) {
        let name = &node.meta.name.name;
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
            self.lost.entry(Arc::clone(name)).or_insert(self.now);
        } else {
            self.lost.remove(name);
        }
    }

    /// Deletes members of gangs on nodes that are lost for long enough, so that they are made again
    /// elsewhere. Only who leads does so.
    pub(super) fn repair_lost_nodes(&mut self) {
        let after = self.config.repair_after_seconds.saturating_mul(1000);
        if after == 0 {
            return;
        }
        let is_due = |since: u64| since.saturating_add(after) <= self.now;
        let lost = self.lost.iter().filter(|(_, since)| is_due(**since));
        for node in lost.map(|(node, _)| Arc::clone(node)).collect::<Vec<_>>() {
            let uids: Vec<_> = self.on_node.get(&node).into_iter().flatten().cloned().collect();
            for uid in uids {
                self.replace_member(&uid, &node);
            }
        }
    }

    /// A member on a lost node could not be deleted: it is tried again.
    pub(super) fn not_repaired(&mut self, uid: &Arc<str>) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.is_repaired = false;
        }
    }

    fn replace_member(&mut self, uid: &Arc<str>, node: &Arc<str>) {
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
        let message = format!("node {node} is lost; its gang gets another member elsewhere");
        let status_text = StatusText { reason: "NodeLost", message: message.clone() };
        self.reports.push(StatusUpdate::PodEvicted { pod: pod.clone(), status_text });
        let task = OpKind::Evict(Evict {
            pod,
            message,
            reason: "DeletionByTaintManager",
            is_bound_by_budgets: false,
        });
        self.order(uid, FlightKind::Repair, task);
        if let Some(group) = group {
            self.report_group(&group);
        }
    }
}
