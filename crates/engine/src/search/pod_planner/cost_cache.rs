//! Costs of a shape on nodes of a state, cached between decisions.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cluster::log::ClusterId;
use crate::cluster::states::StateId;
use crate::objective::CostVector;
use crate::shape::Shape;

/// The maximum number of shapes; one more clears the cache.
const MAX_SHAPES: usize = 64;

/// Costs by shape and state. They hold for one policy and one set of figures: after a change of
/// either, call [`CostCache::forget`]. Another cluster clears the cache. It affects speed, not
/// results.
#[derive(Clone, Debug, Default)]
pub struct CostCache {
    cluster_id: ClusterId,
    by_shape: FxHashMap<Arc<Shape>, Costs>,
}

/// By slot of the state: the generation and the costs.
pub(super) type Costs = Vec<Option<(u32, Box<[CandidateCost]>)>>;

/// The cost of one candidate, in the terms that the policy considers.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateCost {
    /// The cost in terms that depend only on the node's state.
    pub(super) cost: CostVector,
    /// Compute that the pod takes, in thousandths of a GPU.
    pub(super) milli: i64,
}

impl CostCache {
    /// Forgets all costs.
    pub fn forget(&mut self) {
        self.by_shape.clear();
    }

    pub(super) fn of(&mut self, cluster: ClusterId, shape: &Arc<Shape>) -> &mut Costs {
        if std::mem::replace(&mut self.cluster_id, cluster) != cluster {
            self.forget();
        }
        if self.by_shape.len() >= MAX_SHAPES && !self.by_shape.contains_key(shape) {
            self.forget();
        }
        self.by_shape.entry(Arc::clone(shape)).or_default()
    }
}

/// The costs of a state, computed if they are not known.
pub(super) fn candidate_costs(
    costs: &mut Costs,
    id: StateId,
    compute: impl FnOnce() -> Box<[CandidateCost]>,
) -> &[CandidateCost] {
    let slot = id.slot as usize;
    if costs.len() <= slot {
        costs.resize_with(slot + 1, || None);
    }
    let known = &mut costs[slot];
    if known.as_ref().is_some_and(|(generation, _)| *generation != id.generation) {
        *known = None;
    }
    &known.get_or_insert_with(|| (id.generation, compute())).1
}
