//! Explanations of pods and gangs, and the snapshot.

use std::collections::{BTreeMap, VecDeque};

use octavo_engine::Gang;
use octavo_engine::explain::{Explanation, PreemptionHint};
use octavo_engine::snapshot::Snapshot;
use octavo_kube_io::objects::ObjectName;
use serde::Serialize;

use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::unmodeled_nodes::UnmodeledNodes;
use crate::state::queue::QueueKey;
use crate::state::reporter::preemption_hint::HintState;

/// The last decisions, kept for explanations. The oldest is dropped first.
#[derive(Debug)]
pub(in crate::state) struct DecisionLog {
    capacity: usize,
    by_unit: BTreeMap<QueueKey, Explanation>,
    oldest_first: VecDeque<QueueKey>,
}

/// Why a pod or gang is placed where it is, or why it is pending.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainReport {
    /// The pending reason; `None` if it is not pending.
    pub waiting: Option<PendingView>,
    /// The last decision; `None` if there was none since the start, or it was dropped.
    pub decision: Option<Explanation>,
    /// The gang that it belongs to.
    pub group: Option<String>,
    /// Its node, if placed.
    pub node: Option<String>,
    /// If it runs in a place that is kept for another entry: the name of that entry, and when the pod is evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loan: Option<String>,
    /// The victims that would make it schedulable, if known.
    pub disturbance: Option<PreemptionHint>,
    /// A note on the search for victims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbance_note: Option<String>,
    /// Whether a [`crate::state::HintSearch`] could find the victims.
    #[serde(skip)]
    pub needs_search: bool,
    /// For entries that request GPUs: nodes whose GPUs are not modeled.
    #[serde(rename = "leftOut")]
    pub unmodeled_nodes: Vec<UnmodeledNodes>,
}

/// A pending reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingView {
    /// The reason in one word.
    pub reason: String,
    /// The reason in a sentence.
    pub message: String,
}

impl PendingView {
    /// A pod with a place and a bind of indeterminate outcome.
    fn op_undecided(message: String) -> Self {
        Self { reason: "OrderUndecided".to_owned(), message }
    }
}

impl DecisionLog {
    pub(in crate::state) fn new(capacity: usize) -> Self {
        Self { capacity, by_unit: BTreeMap::new(), oldest_first: VecDeque::new() }
    }

    /// The last decision on an entry.
    pub(in crate::state) fn last(&self, key: &QueueKey) -> Option<&Explanation> {
        self.by_unit.get(key)
    }

    /// Records a decision.
    pub(in crate::state) fn record(&mut self, key: &QueueKey, explanation: Explanation) {
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
    /// Explains a pod; `None` if it does not exist.
    pub fn explain_pod(&self, name: &ObjectName) -> Option<ExplainReport> {
        let uid = self.cache.pod_named(name)?;
        let record = self.cache.pod(uid)?;
        let key = self.cache.queue_key_of(uid);
        let place = record.place.as_ref().map(|place| place.node.to_string());
        let group = record.member.as_ref().map(|member| member.group.to_string());
        let indeterminate = self.indeterminate_message(uid).map(PendingView::op_undecided);
        let explained = self.explain(&key);
        let waiting = indeterminate.or(explained.waiting);
        let loan = self.loan_text(uid);
        Some(ExplainReport { group, node: place, waiting, loan, ..explained })
    }

    /// Explains a gang, by the name of the object that announced it or by its own name. `None` if
    /// no such gang has pods.
    pub fn explain_group(&self, name: &ObjectName) -> Option<ExplainReport> {
        let group = self.cache.group_named(name)?.clone();
        let named = Some(group.to_string());
        let indeterminate = self.gang_indeterminate_message(&group).map(PendingView::op_undecided);
        let explained = self.explain(&QueueKey::Group(group));
        let waiting = explained.waiting.or(indeterminate);
        Some(ExplainReport { group: named, waiting, ..explained })
    }

    fn explain(&self, key: &QueueKey) -> ExplainReport {
        let HintState { disturbance, note, needs_search } = self.preemption_hint(key);
        let waiting = self.reporter.pending.get(key).map(|pending| PendingView {
            reason: pending.status_text.reason.to_owned(),
            message: pending.detail.clone(),
        });
        let decision = self.reporter.decision_log.last(key).cloned();
        let unmodeled_nodes =
            if waiting.is_some() { self.cache.unmodeled_for(key) } else { Vec::new() };
        ExplainReport {
            waiting,
            decision,
            group: None,
            node: None,
            loan: None,
            disturbance,
            disturbance_note: note,
            needs_search,
            unmodeled_nodes,
        }
    }

    /// Snapshot of the cluster, with the pending gangs and what the packing policy has learned.
    pub fn snapshot(&mut self) -> Snapshot {
        self.rebuild_engine_if_stale();
        self.update_allowances();
        self.requeue_changed_gangs();
        let groups = self.queue.in_order().filter_map(|position| match &position.key {
            QueueKey::Group(group) => Some(group.clone()),
            QueueKey::Pod(_) => None,
        });
        let groups: Vec<_> = groups.collect();
        let mut pending = Vec::new();
        for group in groups {
            let Some(spec) = self.cache.spec_of(&group) else { continue };
            if let Ok(request) = self.gang_request(&group, &spec)
                && request.pinned.is_empty()
            {
                pending.push(request.gang);
            }
        }
        self.cache.snapshot_with(&pending)
    }
}

impl Cache {
    /// Snapshot of the cluster, with these gangs pending.
    pub(in crate::state) fn snapshot_with(&self, pending: &[Gang]) -> Snapshot {
        let world = &self.engine().world;
        let packing = self.engine().planner.saved(&world.cluster);
        Snapshot { packing, ..Snapshot::of(world, pending) }
    }
}
