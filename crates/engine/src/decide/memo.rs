//! What a shape costs on a node of a state, kept from one decision to the next.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cluster::log::Identity;
use crate::cluster::states::StateId;
use crate::objective::Vector;
use crate::shape::Shape;

/// Most shapes of which costs are kept; one more, and all are forgotten.
const MOST_SHAPES: usize = 64;

/// Costs by shape and state. They hold for one policy and one set of figures: whoever changes any of
/// these, or learns other figures, must [`Memo::forget`]. Of another cluster all are forgotten. What is kept has no
/// influence on answers, only on how fast they come.
#[derive(Clone, Debug, Default)]
pub struct Memo {
    identity: Identity,
    by_shape: FxHashMap<Arc<Shape>, Costs>,
}

/// By slot of the state: the stamp for which the costs hold, and the costs.
pub(super) type Costs = Vec<Option<(u32, Box<[Way]>)>>;

/// What one way to be on a node costs there, as far as the policy looks at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The cost in units that depend on the node's state alone.
    pub(super) cost: Vector,
    /// Compute that the pod takes, in thousandths of a GPU.
    pub(super) milli: i64,
}

impl Memo {
    /// Forgets all costs.
    pub fn forget(&mut self) {
        self.by_shape.clear();
    }

    pub(super) fn of(&mut self, cluster: Identity, shape: &Arc<Shape>) -> &mut Costs {
        if std::mem::replace(&mut self.identity, cluster) != cluster {
            self.forget();
        }
        if self.by_shape.len() >= MOST_SHAPES && !self.by_shape.contains_key(shape) {
            self.forget();
        }
        self.by_shape.entry(Arc::clone(shape)).or_default()
    }
}

/// The costs of a state, computed if they are not known.
pub(super) fn ways(costs: &mut Costs, id: StateId, compute: impl FnOnce() -> Box<[Way]>) -> &[Way] {
    let slot = id.slot as usize;
    if costs.len() <= slot {
        costs.resize_with(slot + 1, || None);
    }
    let known = &mut costs[slot];
    if known.as_ref().is_some_and(|(stamp, _)| *stamp != id.stamp) {
        *known = None;
    }
    &known.get_or_insert_with(|| (id.stamp, compute())).1
}
