//! The data of an explanation, with names instead of ids.

use serde::{Deserialize, Serialize};

use crate::objective::{Amount, CostTerm};
use crate::plan::Remedy;
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
    /// The terms that the policy compares, as text.
    pub order: String,
    /// Members to evict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<MemberRef>,
    /// Members to restart elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MemberMove>,
    /// Placements of the members, by rank.
    pub placements: Vec<MemberPlacement>,
    /// Cost: the terms of the policy in its order, then other terms that are not 0.
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
    /// The same without numbers and names of the cluster.
    #[serde(default)]
    pub summary: String,
    /// If no node fits: the number of nodes for each obstacle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<ObstacleCount>,
    /// A change that would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
    /// Steps that the search took.
    pub steps: u64,
}

/// A member of a running workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberRef {
    /// Name of the workload.
    pub workload: String,
    /// Its rank.
    pub rank: u32,
    /// Its node.
    pub node: String,
}

/// A member that is restarted elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberMove {
    /// The member.
    pub member: MemberRef,
    /// The new placement.
    pub to: NodePlacement,
}

/// A member of the request and its placement.
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
    /// Its placement, as text.
    pub place: String,
    /// The cost term in which it lost. None: it was equal and came later in node order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worse_in: Option<CostTerm>,
    /// The difference in that term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<i64>,
    /// Its cost.
    pub cost: Vec<Amount>,
}

/// Nodes that a pod cannot be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObstacleCount {
    /// The obstacle.
    pub obstacle: Obstacle,
    /// How many nodes.
    pub nodes: u64,
}
