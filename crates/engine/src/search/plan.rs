//! The result of planning: a plan with its cost and runner-up, or a refusal with its proof.

mod apply;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use apply::{StalePlan, apply};

use crate::gang::GangError;
use crate::objective::{Amount, CostTerm, CostVector};
use crate::placement::Placement;
use crate::pod_planner::InfeasibleCounts;
use crate::topology::LevelId;
use crate::workload::MemberId;

/// An answer.
pub type PlanResult = Result<Plan, Refusal>;

/// A plan. Evictions come first, then moves in their order, then placements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Members of running workloads that must go for good, in order.
    pub evictions: Vec<MemberId>,
    /// Members of running workloads that are restarted elsewhere.
    pub moves: Vec<Move>,
    /// Placements of the members of the request, by rank.
    pub placements: Vec<Placed>,
    /// Its cost.
    pub cost: CostVector,
    /// The best alternative plan and its cost; none if there was no other.
    pub runner_up: Option<RunnerUp>,
    /// Steps that the search took.
    pub steps: u64,
}

/// A member of a running workload that is restarted elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The member.
    pub member: MemberId,
    /// The new placement.
    pub to: Placement,
}

/// The disruption that a decision causes beside its placements.
#[derive(Clone, Copy, Debug, Default)]
pub struct DisruptionSet<'a> {
    /// Members of running workloads that are restarted elsewhere.
    pub moves: &'a [Move],
    /// Members of running workloads that must go.
    pub evictions: &'a [MemberId],
}

/// A member of the request and its placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Index of its group in the request.
    pub group: u32,
    /// Its rank among all members of the request.
    pub rank: u32,
    /// Its place.
    pub placement: Placement,
}

/// A plan that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerUp {
    /// In words: where it would have been.
    pub place: String,
    /// Its cost.
    pub cost: CostVector,
    /// The first cost term, in the policy's order, in which it is worse. None: it is equal and lost
    /// by the order of domains and nodes.
    pub worse_in: Option<CostTerm>,
}

/// Why there is no plan, and what would make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The cheapest known change that would allow a plan.
    pub remedy: Option<Remedy>,
    /// Steps that the search took.
    pub steps: u64,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The request makes no sense.
    #[error(transparent)]
    Request(#[from] GangError),
    /// A bound proves that no plan exists: demand exceeds supply.
    #[error(transparent)]
    Bound(#[from] FailedBound),
    /// There would be a plan but for a constraint of the policy.
    #[error("the policy allows at most {most} {unit}; the best plan would reach {found}")]
    Constraint {
        /// Name of the limited cost.
        unit: &'static str,
        /// The limit.
        most: i64,
        /// The value that the best plan would reach.
        found: i64,
    },
    /// A plan exists only if fewer nodes are left free.
    #[error(
        "the policy keeps spare nodes in {domain}, at least {least}; the best plan would leave \
         {found}"
    )]
    Spares {
        /// In words: the domain.
        domain: String,
        /// Nodes that are to be left free there.
        least: i64,
        /// Nodes that would be left free.
        found: i64,
    },
    /// No node fits a pod; with the obstacle of each node.
    #[error(transparent)]
    NoNode(#[from] InfeasibleCounts),
    /// The search was complete: no bound fails, but no plan exists.
    #[error("no domain of the level {level} fits all members together ({searched} searched)")]
    Exhausted {
        /// Name of the level.
        level: Arc<str>,
        /// Domains that were searched.
        searched: u32,
    },
    /// The search was through and found no plan within limits on evictions. It is not exhaustive, so
    /// there may be one.
    #[error("no plan was found within the limits on evictions; one may exist")]
    EvictionLimits,
    /// The search ended before it was through. There may be a plan.
    #[error("no plan was found within {limit} steps; one may exist")]
    Steps {
        /// The limit.
        limit: u64,
    },
}

/// A proof that no plan exists: a violated necessary condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "group {group:?}: {wanted} wanted at least, at most {possible} are possible{}",
    .within.as_ref().map_or(String::new(), |domain| format!(" in {domain}"))
)]
pub struct FailedBound {
    /// The group that is too large.
    pub group: Arc<str>,
    /// Members wanted at least in one domain.
    pub wanted: u64,
    /// Members that fit the best domain at most.
    pub possible: u64,
    /// Level at which members must be together; level 0 is the whole cluster.
    pub level: LevelId,
    /// In words: the best domain; none: the whole cluster.
    pub within: Option<String>,
    /// The scarce resource there.
    pub scarce: Scarce,
}

/// A scarce resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scarce {
    /// Too few nodes allow the shape, even if they were empty.
    Capacity,
    /// It would fit if nothing else ran.
    Free,
    /// Limits on evictions keep too many GPUs in use.
    Evictions,
    /// Only GPUs are missing: too few are free, or they are fragmented.
    Gpus,
    /// Enough GPUs are free, but not CPU or memory on the same nodes.
    PlainResources,
    /// Capacity is free, but on forbidden nodes or on nodes at the group's member limit.
    Constraints,
}

/// A change that would turn the refusal into a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", deny_unknown_fields)]
pub enum Remedy {
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
        /// Their cost.
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
        /// The new limit.
        to: i64,
    },
}
