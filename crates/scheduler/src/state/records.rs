//! DecisionLog that are kept with the whole cluster as it was, so that anybody can make them again.

use std::collections::VecDeque;

use octavo_engine::World;
use octavo_engine::decider::Case;
use octavo_engine::explain::Explanation;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::snapshot::{GangForm, PinnedForm, Snapshot};
use octavo_kube_io::objects::ObjectName;
use serde::Serialize;

use super::queue::QueueKey;
use super::{Scheduler, SchedulerConfig};

/// The newest decisions, the oldest forgotten first. Pods by themselves are many: they do not drive out
/// gangs.
#[derive(Debug)]
pub(super) struct Records {
    of_gangs: RecordRing,
    of_pods: RecordRing,
}

#[derive(Debug)]
struct RecordRing {
    capacity: usize,
    records: VecDeque<(QueueKey, RecordedDecision)>,
}

/// A decision, with the whole cluster as it was: what `octavo sim verify` asks again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDecision {
    /// The cluster before the decision.
    pub cluster: Snapshot,
    /// Who asked.
    pub gang: GangForm,
    /// Members of it that had their places already.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<PinnedForm>,
    /// Names of nodes on which nobody was to be placed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forbidden: Vec<String>,
    /// By which policy.
    pub policy: PlacementPolicy,
    /// How many running pods might be moved.
    pub moves: u32,
    /// Whether workloads of lower priority might be evicted.
    pub evictions: bool,
    /// What was decided.
    pub answer: Explanation,
}

impl Records {
    pub(super) fn new(config: &SchedulerConfig) -> Self {
        let ring = |capacity| RecordRing { capacity, records: VecDeque::new() };
        Self { of_gangs: ring(config.records), of_pods: ring(config.pod_records) }
    }

    fn ring_of(&mut self, key: &QueueKey) -> &mut RecordRing {
        match key {
            QueueKey::Group(_) => &mut self.of_gangs,
            QueueKey::Pod(_) => &mut self.of_pods,
        }
    }

    /// Whether decisions on units of this kind are kept.
    pub(super) fn should_record(&mut self, key: &QueueKey) -> bool {
        self.ring_of(key).capacity > 0
    }

    /// Keeps a decision, and no older one on the same unit.
    pub(super) fn keep(&mut self, key: &QueueKey, recorded: RecordedDecision) {
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
    /// A decision in the cluster as it was, in which the gang that was asked for is the last that waits.
    pub(super) fn of(
        mut cluster: Snapshot,
        case: &Case<'_>,
        world: &World,
        answer: &Explanation,
    ) -> Option<Self> {
        let gang = cluster.waiting.pop()?;
        let (pinned, forbidden) = (case.pinned.iter(), case.forbidden.iter());
        Some(Self {
            cluster,
            gang,
            pinned: pinned.map(|pinned| PinnedForm::of(pinned, &world.cluster)).collect(),
            forbidden: forbidden.map(|node| world.cluster.name(*node).to_owned()).collect(),
            policy: case.policy.clone(),
            moves: case.allowance.moves,
            evictions: case.allowance.evictions.is_some(),
            answer: answer.clone(),
        })
    }
}

impl Scheduler {
    /// The last recorded decision on a gang. `None`: there is none; `records` in the config says how many
    /// are kept.
    pub fn recorded_group_decision(&self, name: &ObjectName) -> Option<&RecordedDecision> {
        let matches_key =
            |key: &QueueKey| matches!(key, QueueKey::Group(group) if group.object == *name);
        self.records.of_gangs.newest(matches_key)
    }

    /// The last recorded decision on a pod by itself. `None`: there is none; `podRecords` in the config
    /// says how many are kept.
    pub fn recorded_pod_decision(&self, name: &ObjectName) -> Option<&RecordedDecision> {
        let uid = self.by_name.get(name)?;
        self.records.of_pods.newest(|key| matches!(key, QueueKey::Pod(pod) if pod == uid))
    }
}
