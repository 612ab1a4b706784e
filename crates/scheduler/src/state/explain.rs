//! What people ask: why something is where it is or waits, and the whole picture as a document.

use std::collections::{BTreeMap, VecDeque};

use octavo_engine::Gang;
use octavo_engine::explain::{DisturbanceSaid, Explanation};
use octavo_engine::snapshot::Snapshot;
use octavo_kube_io::objects::ObjectName;
use serde::Serialize;

use super::Scheduler;
use super::preemption_hint::PreemptionHint;
use super::queue::QueueKey;
use super::unmodeled_nodes::UnmodeledNodes;
use crate::groups::GroupName;

/// DecisionLog that are kept to be explained, the oldest forgotten first.
#[derive(Debug)]
pub(super) struct DecisionLog {
    capacity: usize,
    by_unit: BTreeMap<QueueKey, Explanation>,
    oldest_first: VecDeque<QueueKey>,
}

/// Why a pod or a gang is where it is, or waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainReport {
    /// What it waits for; `None`: it does not wait.
    pub waiting: Option<PendingView>,
    /// The last decision; `None`: there was none since this scheduler started, or it is forgotten.
    pub decision: Option<Explanation>,
    /// The gang that it belongs to.
    pub group: Option<String>,
    /// Its node, where it is placed.
    pub node: Option<String>,
    /// Of what the engine refused: who would have to go so that it has its place, if that is known.
    pub disturbance: Option<DisturbanceSaid>,
    /// What is to be said of the search for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbance_note: Option<String>,
    /// Whether a [`super::Search`] would say more: who would have to go is not known.
    #[serde(skip)]
    pub needs_search: bool,
    /// Of what waits for GPUs: nodes that have some and are left out.
    #[serde(rename = "leftOut")]
    pub unmodeled_nodes: Vec<UnmodeledNodes>,
}

/// What something waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingView {
    /// One word.
    pub reason: String,
    /// In words.
    pub message: String,
}

impl PendingView {
    /// It has a place, and an order of which nobody knows the end.
    fn op_undecided(message: String) -> Self {
        Self { reason: "OrderUndecided".to_owned(), message }
    }
}

impl DecisionLog {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, by_unit: BTreeMap::new(), oldest_first: VecDeque::new() }
    }

    /// The last decision on a unit.
    pub(super) fn last(&self, key: &QueueKey) -> Option<&Explanation> {
        self.by_unit.get(key)
    }

    /// Keeps a decision.
    pub(super) fn record(&mut self, key: &QueueKey, explanation: Explanation) {
        if self.capacity == 0 {
            return;
        }
        if self.by_unit.insert(key.clone(), explanation).is_none() {
            self.oldest_first.push_back(key.clone());
        }
        while self.oldest_first.len() > self.capacity {
            if let Some(oldest) = self.oldest_first.pop_front() {
                self.by_unit.remove(&oldest);
            }
        }
    }
}

impl Scheduler {
    /// Why a pod is where it is, or waits. `None`: there is no such pod.
    pub fn explain_pod(&self, name: &ObjectName) -> Option<ExplainReport> {
        let uid = self.by_name.get(name)?;
        let record = self.pods.get(uid)?;
        let key = self.queue_key_of(uid);
        let place = record.place.as_ref().map(|place| place.node.to_string());
        let group = record.member.as_ref().map(|member| member.group.to_string());
        let indeterminate = self.indeterminate_message(uid).map(PendingView::op_undecided);
        let explained = self.explain(&key);
        let waiting = indeterminate.or(explained.waiting);
        Some(ExplainReport { group, node: place, waiting, ..explained })
    }

    /// Why a gang is where it is, or waits: by the name of the object that announced it, or by the group's
    /// own. `None`: there is no such gang with pods.
    pub fn explain_group(&self, name: &ObjectName) -> Option<ExplainReport> {
        let group = self.group_named(name)?.clone();
        let named = Some(group.to_string());
        let indeterminate = self.gang_indeterminate_message(&group).map(PendingView::op_undecided);
        let explained = self.explain(&QueueKey::Group(group));
        let waiting = explained.waiting.or(indeterminate);
        Some(ExplainReport { group: named, waiting, ..explained })
    }

    pub(super) fn group_named(&self, name: &ObjectName) -> Option<&GroupName> {
        self.members.keys().find(|group| group.object == *name)
    }

    fn explain(&self, key: &QueueKey) -> ExplainReport {
        let PreemptionHint { disturbance, note, needs_search } = self.preemption_hint(key);
        let waiting = self.pending.get(key).map(|waiting| PendingView {
            reason: waiting.statement.reason.to_owned(),
            message: waiting.statement.message.clone(),
        });
        let decision = self.decision_log.last(key).cloned();
        let unmodeled_nodes = if waiting.is_some() { self.unmodeled_for(key) } else { Vec::new() };
        ExplainReport {
            waiting,
            decision,
            group: None,
            node: None,
            disturbance,
            disturbance_note: note,
            needs_search,
            unmodeled_nodes,
        }
    }

    /// The cluster as decisions see it, with the gangs that wait and what the packing policy has learned.
    pub fn snapshot(&mut self) -> Snapshot {
        self.rebuild_engine_if_stale();
        let groups: Vec<_> = self
            .queue
            .entries()
            .filter_map(|(key, position, _)| match key {
                QueueKey::Group(group) => Some((position.clone(), group.clone())),
                QueueKey::Pod(_) => None,
            })
            .collect();
        let mut ranked = groups;
        ranked.sort();
        let mut waiting = Vec::new();
        for (_, group) in ranked {
            let Some(spec) = self.spec_of(&group) else { continue };
            if let Ok(request) = self.gang_request(&group, &spec)
                && request.pinned.is_empty()
            {
                waiting.push(request.gang);
            }
        }
        self.snapshot_with(&waiting)
    }

    /// The cluster as it is now, with these gangs waiting.
    pub(super) fn snapshot_with(&self, waiting: &[Gang]) -> Snapshot {
        let world = &self.engine.world;
        let packing = self.engine.decider.saved(&world.cluster);
        Snapshot { packing, ..Snapshot::of(world, waiting) }
    }
}
