//! What an operator can set of decisions. Read from the scheduler's config file.

use octavo_engine::topology::Level;
use serde::{Deserialize, Serialize};

/// How decisions are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SchedulerConfig {
    /// `spec.schedulerName` of the pods that this scheduler places, and the value of the node label
    /// `octavo.dev/scheduler` on nodes whose devices are its own.
    pub scheduler_name: String,
    /// Levels of the topology, loosest first. Levels whose label no node has are left out.
    pub levels: Vec<LevelConfig>,
    /// Orders that may be on their way at once; more are not decided.
    pub in_flight: usize,
    /// DecisionLog between two looks at what has changed.
    pub batch: usize,
    /// Whether pods of lower priority may be evicted for others at all; placement policies can forbid it
    /// on their own.
    pub preemption: bool,
    /// Running pods that may be restarted elsewhere to make room for one pod or gang; 0: none.
    /// Only pods that allow it ([`octavo_api::names::MOVABLE`]) are moved.
    pub defragmentation_moves: u32,
    /// Seconds after which members of gangs on a node that is lost (not ready, or with a taint that
    /// evicts) are deleted, so that they are made again elsewhere; 0: never.
    pub repair_after_seconds: u64,
    /// Seconds that a moved pod's new place is kept for the pod that its owner makes in its stead.
    pub hold_seconds: u64,
    /// Seconds before a pod whose order failed is decided on again; doubled with each failure, up to
    /// sixteen times.
    pub retry_seconds: u64,
    /// DecisionLog that are kept to be explained.
    pub explanations: usize,
    /// DecisionLog on gangs that are kept with the whole cluster as it was, to be replayed by
    /// `octavo sim verify`. Each takes as much memory as a snapshot.
    pub records: usize,
    /// DecisionLog on pods by themselves that are kept likewise.
    pub pod_records: usize,
}

/// A level of the topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LevelConfig {
    /// Its name.
    pub name: String,
    /// Label of nodes whose value names the domain.
    pub label: String,
    /// Whether a value means the same domain wherever it occurs, as the id of an NVLink clique does.
    #[serde(default)]
    pub unique: bool,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        let level = |name: &str, label: &str, unique| LevelConfig {
            name: name.to_owned(),
            label: label.to_owned(),
            unique,
        };
        Self {
            scheduler_name: "octavo".to_owned(),
            levels: vec![
                level("zone", "topology.kubernetes.io/zone", false),
                level("block", "topology.octavo.dev/block", false),
                level("rack", "topology.octavo.dev/rack", false),
                level("clique", octavo_api::names::LABEL_CLIQUE, true),
            ],
            in_flight: 512,
            batch: 256,
            preemption: true,
            defragmentation_moves: 0,
            repair_after_seconds: 60,
            hold_seconds: 30,
            retry_seconds: 1,
            explanations: 10_000,
            records: 0,
            pod_records: 0,
        }
    }
}

impl SchedulerConfig {
    /// The levels as the engine wants them, those that a label of any node makes.
    pub(super) fn levels(&self, is_there: impl Fn(&str) -> bool) -> Vec<Level> {
        let levels = self.levels.iter().filter(|level| is_there(&level.label));
        let level = |level: &LevelConfig| Level {
            name: level.name.as_str().into(),
            label: level.label.clone(),
            is_unique: level.unique,
        };
        levels.map(level).collect()
    }
}
