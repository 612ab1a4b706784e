//! What a shape costs on a node of a state, kept from one decision to the next.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cluster::log::ClusterId;
use crate::cluster::states::StateId;
use crate::objective::CostVector;
use crate::shape::Shape;

/// Most shapes of which costs are kept; one more, and all are forgotten.
const MAX_SHAPES: usize = 64;

/// Costs by shape and state. They hold for one policy and one set of figures: whoever changes any of
/// these, or learns other figures, must [`CostCache::forget`]. Of another cluster all are forgotten. What is kept has no
/// influence on answers, only on how fast they come.
#[derive(Clone, Debug, Default)]
pub struct CostCache {
    cluster_id: ClusterId,
    by_shape: FxHashMap<Arc<Shape>, Costs>,
}

/// By slot of the state: the stamp for which the costs hold, and the costs.
pub(super) type Costs = Vec<Option<(u32, Box<[CandidateCost]>)>>;

/// What one way to be on a node costs there, as far as the policy looks at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateCost {
    /// The cost in units that depend on the node's state alone.
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
