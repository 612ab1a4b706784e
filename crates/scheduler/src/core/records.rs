//! Decisions that are kept with the whole cluster as it was, so that anybody can make them again.

use std::collections::VecDeque;

use octavo_engine::World;
use octavo_engine::explain::Explanation;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::planner::DecisionInput;
use octavo_engine::snapshot::{GangRecord, PinnedRecord, Snapshot};
use octavo_kube_io::objects::ObjectName;
use serde::Serialize;

use super::queue::Unit;
use super::{Core, CoreConfig};

/// The newest decisions, the oldest forgotten first. Pods by themselves are many: they do not drive out
/// gangs.
#[derive(Debug)]
pub(super) struct Records {
    of_gangs: Kept,
    of_pods: Kept,
}

#[derive(Debug)]
struct Kept {
    most: usize,
    records: VecDeque<(Unit, Recorded)>,
}

/// A decision, with the whole cluster as it was: what `octavo sim verify` asks again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// The cluster before the decision.
    pub cluster: Snapshot,
    /// Who asked.
    pub gang: GangRecord,
    /// Members of it that had their places already.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<PinnedRecord>,
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
    pub(super) fn new(config: &CoreConfig) -> Self {
        let kept = |most| Kept { most, records: VecDeque::new() };
        Self { of_gangs: kept(config.records), of_pods: kept(config.pod_records) }
    }

    fn of(&mut self, unit: &Unit) -> &mut Kept {
        match unit {
            Unit::Group(_) => &mut self.of_gangs,
            Unit::Pod(_) => &mut self.of_pods,
        }
    }

    /// Whether decisions on units of this kind are kept.
    pub(super) fn want(&mut self, unit: &Unit) -> bool {
        self.of(unit).most > 0
    }

    /// Keeps a decision, and no older one on the same unit.
    pub(super) fn keep(&mut self, unit: &Unit, recorded: Recorded) {
        let Kept { most, records } = self.of(unit);
        records.retain(|(known, _)| known != unit);
        records.push_back((unit.clone(), recorded));
        while records.len() > *most {
            records.pop_front();
        }
    }
}

impl Kept {
    fn newest(&self, is_it: impl Fn(&Unit) -> bool) -> Option<&Recorded> {
        self.records.iter().rev().find(|(unit, _)| is_it(unit)).map(|(_, recorded)| recorded)
    }
}

impl Recorded {
    /// A decision in the cluster as it was, in which the gang that was asked for is the last that waits.
    pub(super) fn of(
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
            pinned: pinned.map(|one| PinnedRecord::of(one, &world.cluster)).collect(),
            forbidden: forbidden.map(|node| world.cluster.name(*node).to_owned()).collect(),
            policy: case.policy.clone(),
            moves: case.preemption_budget.moves,
            evictions: case.preemption_budget.evictions.is_some(),
            answer: answer.clone(),
        })
    }
}

impl Core {
    /// The last recorded decision on a gang. `None`: there is none; `records` in the config says how many
    /// are kept.
    pub fn recorded(&self, name: &ObjectName) -> Option<&Recorded> {
        let is_it = |unit: &Unit| matches!(unit, Unit::Group(group) if group.object == *name);
        self.records.of_gangs.newest(is_it)
    }

    /// The last recorded decision on a pod by itself. `None`: there is none; `podRecords` in the config
    /// says how many are kept.
    pub fn recorded_pod(&self, name: &ObjectName) -> Option<&Recorded> {
        let uid = self.by_name.get(name)?;
        self.records.of_pods.newest(|unit| matches!(unit, Unit::Pod(pod) if pod == uid))
    }
}
