//! What is said of a decision, with names in the place of ids.

use serde::{Deserialize, Serialize};

use crate::objective::CostTerm;
use crate::pod_planner::Obstacle;

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum Explanation {
    /// There is a plan.
    Placed(PlanSummary),
    /// There is none.
    Refused(RefusalSummary),
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanSummary {
    /// Name of what was asked for.
    pub request: String,
    /// Name of the policy.
    pub policy: String,
    /// What the policy compares, in words.
    pub order: String,
    /// Who must go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<MemberRef>,
    /// Who is restarted elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MemberMove>,
    /// Where the members go, by rank.
    pub placements: Vec<MemberPlacement>,
    /// What it costs: the units of the policy in its order, then others that are not 0.
    pub cost: Vec<Amount>,
    /// The best other plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<RunnerUpSummary>,
    /// Steps that the search took.
    pub steps: u64,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefusalSummary {
    /// Name of what was asked for.
    pub request: String,
    /// Name of the policy.
    pub policy: String,
    /// The reason in one word, such as `NoNode`: for conditions and metrics.
    pub reason: String,
    /// The reason in a sentence.
    pub message: String,
    /// Where no node has room: what keeps the pod off how many nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<ObstacleCount>,
    /// What would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<RemedySummary>,
    /// Steps that the search took.
    pub steps: u64,
}

/// A cost in a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Amount {
    /// The unit.
    pub unit: CostTerm,
    /// The cost.
    pub value: i64,
}

/// A member of a running workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberRef {
    /// Name of the workload.
    pub workload: String,
    /// Its rank.
    pub rank: u32,
    /// Where it is.
    pub node: String,
}

/// A member that is restarted elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberMove {
    /// Who.
    pub member: MemberRef,
    /// Where it is to be.
    pub to: NodePlacement,
}

/// A member of the request and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberPlacement {
    /// Name of its group.
    pub group: String,
    /// Its rank.
    pub rank: u32,
    /// Its place.
    pub place: NodePlacement,
}

/// A place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodePlacement {
    /// Name of the node.
    pub node: String,
    /// Path of the tightest domain that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Its GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuAllocation>,
}

/// A part of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuAllocation {
    /// Index of the GPU in its node.
    pub gpu: u16,
    /// Compute in thousandths of the GPU.
    pub milli: u16,
    /// Memory in MiB; 0: not counted.
    pub memory_mib: u32,
    /// Memory slices of a MIG instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<u8>,
}

/// A plan that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunnerUpSummary {
    /// Where it would have been.
    pub place: String,
    /// In which unit it lost; none: it was as good, and came later in the order of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worse_in: Option<CostTerm>,
    /// By how much it was worse in that unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<i64>,
    /// What it would have cost.
    pub cost: Vec<Amount>,
}

/// Nodes that a pod cannot be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObstacleCount {
    /// What keeps it off.
    pub obstacle: Obstacle,
    /// How many nodes.
    pub nodes: u64,
}

/// What would turn a refusal into a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", deny_unknown_fields)]
pub enum RemedySummary {
    /// Fewer members.
    FewerMembers {
        /// The group.
        group: String,
        /// How many fit.
        fit: u32,
    },
    /// A looser level.
    LooserLevel {
        /// The tightest level at which it fits.
        level: String,
    },
    /// Moves of running pods.
    Moves {
        /// How many.
        pods: u32,
        /// What they cost.
        cost: Vec<Amount>,
    },
    /// Evictions of running workloads.
    Evictions {
        /// How many members.
        pods: u32,
        /// Their workloads.
        workloads: Vec<String>,
    },
    /// More nodes.
    MoreNodes {
        /// How many.
        nodes: u32,
        /// Like this one.
        like: String,
    },
    /// Another limit in the policy.
    Constraint {
        /// Of what.
        unit: String,
        /// What it would have to be.
        to: i64,
    },
}
