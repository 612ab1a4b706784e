//! What the searches ask of a cost model.

use std::cmp::Ordering;

use super::{CostTerm, CostVector};
use crate::World;
use crate::gang::Gang;
use crate::node::NodeSet;
use crate::plan::{DisruptionSet, Placed, Reason};

/// A cost model: the cost of placements, and the order of costs. The search evaluates each plan
/// with it. [`PolicyCostModel`](super::cost::PolicyCostModel) implements it for a policy.
pub trait CostModel {
    /// The cost of these placements. `world` does not contain them. `placed` is in rank order and
    /// has only the members to place. With pinned members the search replaces the hops by those of
    /// the ring through all members.
    fn cost(
        &self,
        world: &World,
        gang: &Gang,
        placed: &[Placed],
        disruptions: DisruptionSet<'_>,
    ) -> CostVector;

    /// Which of two costs is less: a total preorder.
    fn compare(&self, a: &CostVector, b: &CostVector) -> Ordering;

    /// The first term, in the policy's order, in which `other` is worse than `taken`; none if they
    /// are equal.
    fn worse_in(&self, taken: &CostVector, other: &CostVector) -> Option<CostTerm>;

    /// Nodes to leave alone in a second search, after a first one took too many spare nodes
    /// ([`Reason::Spares`]).
    fn kept_free(&self, world: &World) -> NodeSet {
        let _ = world;
        NodeSet::new()
    }

    /// Whether [`Self::check`] may deny a plan without disruption.
    fn has_limits(&self) -> bool {
        true
    }

    /// Whether a plan of this cost is allowed by the global constraints. `world` does not contain
    /// the plan.
    fn check(
        &self,
        world: &World,
        gang: &Gang,
        placed: &[Placed],
        disruptions: DisruptionSet<'_>,
        cost: &CostVector,
    ) -> Result<(), Reason>;
}
