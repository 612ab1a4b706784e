//! What people ask: why something is where it is or waits, and the whole picture as a document.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use octavo_engine::Gang;
use octavo_engine::explain::{Explanation, PreemptionHint};
use octavo_engine::snapshot::Snapshot;
use octavo_kube_io::objects::ObjectName;
use serde::Serialize;

use super::Core;
use super::outside::OutsideNodes;
use super::queue::Unit;
use super::remedy::Remedied;
use super::statement::Waiting;
use crate::groups::{GroupName, GroupSpec};
use crate::status::{GroupPhase, GroupStatus, StatusText, StatusUpdate};

/// Decisions that are kept to be explained, the oldest forgotten first.
#[derive(Debug)]
pub(super) struct Decisions {
    most: usize,
    by_unit: BTreeMap<Unit, Explanation>,
    order: VecDeque<Unit>,
}

/// Why a pod or a gang is where it is, or waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// What it waits for; `None`: it does not wait.
    pub waiting: Option<WaitingSaid>,
    /// The last decision; `None`: there was none since this scheduler started, or it is forgotten.
    pub decision: Option<Explanation>,
    /// The gang that it belongs to.
    pub group: Option<String>,
    /// Its node, where it is placed.
    pub node: Option<String>,
    /// Of what the engine refused: who would have to go so that it has its place, if that is known.
    pub disturbance: Option<PreemptionHint>,
    /// What is to be said of the search for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbance_note: Option<String>,
    /// Whether a [`super::Search`] would say more: who would have to go is not known.
    #[serde(skip)]
    pub is_open: bool,
    /// Of what waits for GPUs: nodes that have some and are left out.
    pub left_out: Vec<OutsideNodes>,
}

/// What something waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingSaid {
    /// One word.
    pub reason: String,
    /// In words.
    pub message: String,
}

impl WaitingSaid {
    /// It has a place, and an order of which nobody knows the end.
    fn undecided(message: String) -> Self {
        Self { reason: "OrderUndecided".to_owned(), message }
    }
}

impl Decisions {
    pub(super) fn new(most: usize) -> Self {
        Self { most, by_unit: BTreeMap::new(), order: VecDeque::new() }
    }

    /// The last decision on a unit.
    pub(super) fn last(&self, unit: &Unit) -> Option<&Explanation> {
        self.by_unit.get(unit)
    }

    /// Keeps a decision.
    pub(super) fn note(&mut self, unit: &Unit, explanation: Explanation) {
        if self.most == 0 {
            return;
        }
        if self.by_unit.insert(unit.clone(), explanation).is_none() {
            self.order.push_back(unit.clone());
        }
        while self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.by_unit.remove(&oldest);
            }
        }
    }
}

impl Core {
    /// Why a pod is where it is, or waits. `None`: there is no such pod.
    pub fn explain_pod(&self, name: &ObjectName) -> Option<Explained> {
        let uid = self.by_name.get(name)?;
        let record = self.pods.get(uid)?;
        let unit = self.unit_of(uid);
        let place = record.place.as_ref().map(|place| place.node.to_string());
        let group = record.member.as_ref().map(|member| member.group.to_string());
        let doubt = self.doubt_said(uid).map(WaitingSaid::undecided);
        let explained = self.explained(&unit);
        let waiting = doubt.or(explained.waiting);
        Some(Explained { group, node: place, waiting, ..explained })
    }

    /// Why a gang is where it is, or waits: by the name of the object that announced it, or by the group's
    /// own. `None`: there is no such gang with pods.
    pub fn explain_group(&self, name: &ObjectName) -> Option<Explained> {
        let group = self.group_named(name)?.clone();
        let named = Some(group.to_string());
        let doubt = self.doubt_said_of(&group).map(WaitingSaid::undecided);
        let explained = self.explained(&Unit::Group(group));
        let waiting = explained.waiting.or(doubt);
        Some(Explained { group: named, waiting, ..explained })
    }

    pub(super) fn group_named(&self, name: &ObjectName) -> Option<&GroupName> {
        self.members.keys().find(|group| group.object == *name)
    }

    fn explained(&self, unit: &Unit) -> Explained {
        let Remedied { disturbance, note, is_open } = self.remedied(unit);
        let waiting = self.waiting.get(unit).map(|waiting| WaitingSaid {
            reason: waiting.status_text.reason.to_owned(),
            message: waiting.status_text.message.clone(),
        });
        let decision = self.decisions.last(unit).cloned();
        let left_out = if waiting.is_some() { self.outside_for(unit) } else { Vec::new() };
        Explained {
            waiting,
            decision,
            group: None,
            node: None,
            disturbance,
            disturbance_note: note,
            is_open,
            left_out,
        }
    }

    /// The cluster as decisions see it, with the gangs that wait and what the packing policy has learned.
    pub fn snapshot(&mut self) -> Snapshot {
        self.bring_picture_up_to_date();
        let groups: Vec<_> = self
            .queue
            .units()
            .filter_map(|(unit, rank, _)| match unit {
                Unit::Group(group) => Some((rank.clone(), group.clone())),
                Unit::Pod(_) => None,
            })
            .collect();
        let mut ranked = groups;
        ranked.sort();
        let mut waiting = Vec::new();
        for (_, group) in ranked {
            let Some(spec) = self.spec_of(&group) else { continue };
            if let Ok(asked) = self.asked(&group, &spec)
                && asked.pinned.is_empty()
            {
                waiting.push(asked.gang);
            }
        }
        self.snapshot_with(&waiting)
    }

    /// The cluster as it is now, with these gangs waiting.
    pub(super) fn snapshot_with(&self, waiting: &[Gang]) -> Snapshot {
        let world = &self.picture.world;
        let packing = self.picture.planner.saved(&world.cluster);
        Snapshot { packing, ..Snapshot::of(world, waiting) }
    }

    /// Says how a gang stands that one of its pods has left, where its object has a status for that; an
    /// event for each pod that ends would be noise.
    pub(super) fn report_departure(&mut self, group: &GroupName, spec: &GroupSpec) {
        if spec.announcer.kind.kind != "PodGroup" {
            return;
        }
        if self.members.contains_key(group) {
            self.report_group(group);
            return;
        }
        self.reports.push(StatusUpdate::Group(GroupStatus {
            kind: spec.announcer.kind.clone(),
            name: spec.announcer.name.clone(),
            uid: Arc::clone(&spec.announcer.uid),
            generation: spec.announcer.generation,
            phase: GroupPhase::Gathering,
            status_text: StatusText {
                reason: "Gathering",
                message: "no pod of the gang is there".to_owned(),
            },
            present: BTreeMap::new(),
            bound: BTreeMap::new(),
            domain: None,
        }));
    }

    /// Says how a gang stands.
    pub(super) fn report_group(&mut self, group: &GroupName) {
        let Some(spec) = self.spec_of(group) else { return };
        let unit = Unit::Group(group.clone());
        let (mut present, mut bound) = (BTreeMap::new(), BTreeMap::new());
        let mut domains: Option<octavo_engine::DomainId> = None;
        let topology = &self.picture.world.topology;
        for uid in self.present(group) {
            let Some(record) = self.pods.get(&uid) else { continue };
            let Some(member) = &record.member else { continue };
            *present.entry(Arc::clone(&member.sub)).or_insert(0) += 1;
            let Some(place) = &record.place else { continue };
            if place.hold == super::pod::Hold::Promised {
                continue;
            }
            *bound.entry(Arc::clone(&member.sub)).or_insert(0) += 1;
            let Some(node) = self.picture.node(&place.node) else { continue };
            let home = topology.leaf_domain(node);
            domains = Some(match domains {
                None => home,
                Some(other) => {
                    let mut above = topology.ancestors(home);
                    let nodes = |id| topology.domain(id).nodes.clone();
                    let inner = nodes(other);
                    above
                        .find(|id| {
                            let outer = nodes(*id);
                            outer.start <= inner.start && inner.end <= outer.end
                        })
                        .unwrap_or(octavo_engine::Topology::ROOT)
                }
            });
        }
        let status_text = self.waiting.get(&unit).map(Waiting::statement_of_gang);
        let all_bound: u32 = bound.values().sum();
        let phase = if self.promises.contains_key(&unit) {
            GroupPhase::Preempting
        } else {
            match &status_text {
                Some(one) if one.reason == "Gathering" => GroupPhase::Gathering,
                Some(_) if all_bound > 0 && all_bound < spec.min => GroupPhase::Repairing,
                Some(_) if all_bound == 0 => GroupPhase::Waiting,
                _ if all_bound >= spec.min && all_bound > 0 => GroupPhase::Scheduled,
                _ => GroupPhase::Binding,
            }
        };
        let status_text = status_text.unwrap_or_else(|| StatusText {
            reason: "Scheduled",
            message: format!("{all_bound} pods have places"),
        });
        self.reports.push(StatusUpdate::Group(GroupStatus {
            kind: spec.announcer.kind.clone(),
            name: spec.announcer.name.clone(),
            uid: Arc::clone(&spec.announcer.uid),
            generation: spec.announcer.generation,
            phase,
            status_text,
            present,
            bound,
            domain: domains.map(|id| topology.path(id)),
        }));
    }
}
