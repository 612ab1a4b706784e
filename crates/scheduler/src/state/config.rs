//! Settings of decisions, from the scheduler's config file.

use octavo_engine::topology::Level;
use serde::{Deserialize, Serialize};

/// Settings of decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SchedulerConfig {
    /// `spec.schedulerName` of the pods that this scheduler places. Also the value of the node
    /// label `octavo.dev/scheduler` on nodes whose devices it allocates.
    pub scheduler_name: String,
    /// Levels of the topology, loosest first. Levels whose label no node has are skipped.
    pub levels: Vec<LevelConfig>,
    /// Maximum number of write operations in flight; no decisions are made beyond it.
    pub in_flight: usize,
    /// Maximum number of decisions before watch events are applied again.
    pub batch: usize,
    /// Whether pods of lower priority may be evicted at all. Placement policies can forbid it on
    /// their own.
    pub preemption: bool,
    /// Maximum number of running pods to restart elsewhere to make room for one pod or gang; 0:
    /// none. Only pods that allow it ([`octavo_api::names::MOVABLE`]) are moved.
    pub defragmentation_moves: u32,
    /// Seconds until members of gangs on a lost node are deleted, so that their owners recreate
    /// them; 0: never. A node is lost if it is not ready or has a taint that evicts.
    pub repair_after_seconds: u64,
    /// Seconds for which a place is kept for the pod that an owner creates again: the new place of a
    /// moved pod, and that of a member of a gang that left by a fault.
    pub hold_seconds: u64,
    /// Faults of a gang within [`Self::repair_window_seconds`] after which it comes back as a repair. After
    /// more of them it waits as a new gang does: no place is kept for it, and it gets no spare node.
    pub max_repairs: u32,
    /// Seconds for which a fault of a gang counts; 0: a gang is always repaired.
    pub repair_window_seconds: u64,
    /// Seconds before the start of a `Maintenance` from which on its nodes take only pods with GPUs
    /// that end or yield in time; 0: until its start they take any.
    pub maintenance_horizon_seconds: u64,
    /// Seconds before a pod whose bind failed is retried. Doubles with each failure, up to sixteen
    /// times.
    pub retry_seconds: u64,
    /// Number of decisions kept for `explain`.
    pub explanations: usize,
    /// Number of decisions on gangs kept with the whole cluster, for `octavo sim verify`. Each
    /// takes as much memory as a snapshot.
    pub records: usize,
    /// Number of decisions on single pods kept with the whole cluster.
    pub pod_records: usize,
}

/// A level of the topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LevelConfig {
    /// Name of the level.
    pub name: String,
    /// Label of nodes whose value names the domain.
    pub label: String,
    /// Whether a value names the same domain wherever it occurs, as the id of an NVLink clique
    /// does.
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
            max_repairs: 30,
            repair_window_seconds: 86_400,
            maintenance_horizon_seconds: 86_400,
            retry_seconds: 1,
            explanations: 10_000,
            records: 0,
            pod_records: 0,
        }
    }
}

impl SchedulerConfig {
    /// The engine's levels: those whose label any node has.
    pub(super) fn levels(&self, is_label_used: impl Fn(&str) -> bool) -> Vec<Level> {
        let levels = self.levels.iter().filter(|level| is_label_used(&level.label));
        let level = |level: &LevelConfig| Level {
            name: level.name.as_str().into(),
            label: level.label.clone(),
            is_unique: level.unique,
        };
        levels.map(level).collect()
    }
}
