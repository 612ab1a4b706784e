//! The simplest cost model.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::World;
use crate::gang::Gang;
use crate::node::NodeId;
use crate::objective::{CostModel, CostTerm, CostVector};
use crate::plan::{DisruptionSet, Placed, Reason};
use crate::topology::ring_hops;

/// The simplest cost model: fewest hops, then the least free GPU capacity on the used nodes, so
/// that unused nodes stay whole. It allows everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MinHops;

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
