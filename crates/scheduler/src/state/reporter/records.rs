//! Recorded decisions, each with the whole cluster, so that they can be replayed.

use std::collections::VecDeque;

use octavo_engine::World;
use octavo_engine::explain::Explanation;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::planner::DecisionInput;
use octavo_engine::snapshot::{GangRecord, PinnedRecord, Snapshot};
use octavo_kube_io::objects::ObjectName;
use serde::Serialize;

use crate::state::queue::QueueKey;
use crate::state::{Scheduler, SchedulerConfig};

/// The newest decisions; the oldest is dropped first. Single pods have a limit of their own,
/// because they would displace gangs.
#[derive(Debug)]
pub(in crate::state) struct Records {
    of_gangs: RecordRing,
    of_pods: RecordRing,
}

#[derive(Debug)]
struct RecordRing {
    capacity: usize,
    records: VecDeque<(QueueKey, RecordedDecision)>,
}

/// A decision with the whole cluster, for replay by `octavo sim verify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDecision {
    /// The cluster before the decision.
    pub cluster: Snapshot,
    /// The gang that was decided on.
    pub gang: GangRecord,
    /// Members that had places already.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<PinnedRecord>,
    /// Names of forbidden nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forbidden: Vec<String>,
    /// The placement policy.
    pub policy: PlacementPolicy,
    /// Maximum number of running pods to move.
    pub moves: u32,
    /// Whether workloads of lower priority could be evicted.
    pub evictions: bool,
    /// The decision.
    pub answer: Explanation,
}

impl Records {
    pub(in crate::state) fn new(config: &SchedulerConfig) -> Self {
        let ring = |capacity| RecordRing { capacity, records: VecDeque::new() };
        Self { of_gangs: ring(config.records), of_pods: ring(config.pod_records) }
    }

    fn ring_of(&mut self, key: &QueueKey) -> &mut RecordRing {
        match key {
            QueueKey::Group(_) => &mut self.of_gangs,
            QueueKey::Pod(_) => &mut self.of_pods,
        }
    }

    /// Whether decisions on entries of this kind are recorded.
    pub(in crate::state) fn should_record(&mut self, key: &QueueKey) -> bool {
        self.ring_of(key).capacity > 0
    }

    /// Records a decision, and drops an older one on the same entry.
    pub(in crate::state) fn keep(&mut self, key: &QueueKey, recorded: RecordedDecision) {
        let RecordRing { capacity, records } = self.ring_of(key);
        records.retain(|(recorded_key, _)| recorded_key != key);
        records.push_back((key.clone(), recorded));
        while records.len() > *capacity {
            records.pop_front();
        }
    }
}

impl RecordRing {
    fn newest(&self, matches_key: impl Fn(&QueueKey) -> bool) -> Option<&RecordedDecision> {
        self.records.iter().rev().find(|(key, _)| matches_key(key)).map(|(_, recorded)| recorded)
    }
}

impl RecordedDecision {
    /// A recorded decision. The last pending gang of `cluster` is the one that was decided on.
    pub(in crate::state) fn of(
        mut cluster: Snapshot,
        case: &DecisionInput<'_>,
        world: &World,
        answer: &Explanation,
    ) -> Option<Self> {
        let gang = cluster.waiting.pop()?;
        let (pinned, forbidden) = (case.pinned.iter(), case.forbidden.iter());
        Some(Self {
            cluster,
            gang,
            pinned: pinned.map(|pinned| PinnedRecord::of(pinned, &world.cluster)).collect(),
            forbidden: forbidden.map(|node| world.cluster.name(*node).to_owned()).collect(),
            policy: case.policy.clone(),
            moves: case.preemption_budget.moves,
            evictions: case.preemption_budget.evictions.is_some(),
            answer: answer.clone(),
        })
    }
}

impl Scheduler {
    /// The last recorded decision on a single pod; `None` if there is none. The setting
    /// `podRecords` bounds their number.
    pub fn recorded_pod_decision(&self, name: &ObjectName) -> Option<&RecordedDecision> {
        let uid = self.cache.pod_named(name)?;
        self.reporter.records.of_pods.newest(|key| matches!(key, QueueKey::Pod(pod) if pod == uid))
    }

    /// The last recorded decision on a gang; `None` if there is none. The setting `records` bounds
    /// their number.
    pub fn recorded_group_decision(&self, name: &ObjectName) -> Option<&RecordedDecision> {
        let matches_key =
            |key: &QueueKey| matches!(key, QueueKey::Group(group) if group.object == *name);
        self.reporter.records.of_gangs.newest(matches_key)
    }
}
