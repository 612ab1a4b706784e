//! Who says what placements cost, and which cost is less.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::World;
use crate::gang::Gang;
use crate::node::NodeId;
use crate::objective::{CostTerm, CostVector};
use crate::plan::{DisruptionSet, Placed, Reason};
use crate::solve::NodeSet;
use crate::solve::ranks::ring_hops;

/// Says what placements cost, and which cost is less. The search asks it about each plan that it
/// has found; `crate::objective` answers as a `PlacementPolicy` says.
pub trait CostModel {
    /// What these placements cost. `world` is as it is without them. `placed` is in the order of
    /// ranks and has the members that are to be placed alone. Where members are pinned the search
    /// puts the hops of the ring through all members in the place of those that were answered.
    fn cost(
        &self,
        world: &World,
        gang: &Gang,
        placed: &[Placed],
        disruptions: DisruptionSet<'_>,
    ) -> CostVector;

    /// Which of two costs is less: a total preorder.
    fn compare(&self, a: &CostVector, b: &CostVector) -> Ordering;

    /// The first unit, in the policy's order, in which `other` is worse than what was `taken`; none
    /// if the two are equal.
    fn worse_in(&self, taken: &CostVector, other: &CostVector) -> Option<CostTerm>;

    /// Nodes that a second search leaves alone when a first one took too many of the free ones
    /// ([`Reason::Spares`]).
    fn kept_free(&self, world: &World) -> NodeSet {
        let _ = world;
        NodeSet::new()
    }

    /// Whether [`Self::check`] may deny anything that disturbs nobody.
    fn has_limits(&self) -> bool {
        true
    }

    /// Whether a plan of this cost is allowed: the global constraints. `world` is as it is without
    /// it.
    fn check(
        &self,
        world: &World,
        gang: &Gang,
        placed: &[Placed],
        disruptions: DisruptionSet<'_>,
        cost: &CostVector,
    ) -> Result<(), Reason>;
}

/// The simplest judge: fewest hops, then the least that is left of GPUs on the nodes that are used,
/// so that fresh nodes stay whole. It allows everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinHops;

impl CostModel for MinHops {
    fn cost(&self, world: &World, _: &Gang, placed: &[Placed], _: DisruptionSet<'_>) -> CostVector {
        let mut cost = CostVector::default();
        cost.set(
            CostTerm::Hops,
            ring_hops(&world.topology, placed.iter().map(|placed| placed.placement.node)),
        );
        let nodes: BTreeSet<NodeId> = placed.iter().map(|placed| placed.placement.node).collect();
        let gpus = nodes.iter().flat_map(|node| world.cluster.gpus(*node));
        let free: i64 = gpus.map(|gpu| i64::from(gpu.open_milli())).sum();
        let parts = placed.iter().flat_map(|placed| &placed.placement.gpus);
        let left = free - parts.map(|part| i64::from(part.milli)).sum::<i64>();
        cost.set(CostTerm::PackingPrice, left);
        cost
    }

    fn compare(&self, a: &CostVector, b: &CostVector) -> Ordering {
        let key = |cost: &CostVector| (cost.of(CostTerm::Hops), cost.of(CostTerm::PackingPrice));
        key(a).cmp(&key(b))
    }

    fn worse_in(&self, taken: &CostVector, other: &CostVector) -> Option<CostTerm> {
        [CostTerm::Hops, CostTerm::PackingPrice]
            .into_iter()
            .find(|unit| other.of(*unit) > taken.of(*unit))
    }

    fn has_limits(&self) -> bool {
        false
    }

    fn check(
        &self,
        _: &World,
        _: &Gang,
        _: &[Placed],
        _: DisruptionSet<'_>,
        _: &CostVector,
    ) -> Result<(), Reason> {
        Ok(())
    }
}
