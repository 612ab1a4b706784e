//! Which devices the claims of a pod get on a node, or why none.
//!
//! The rules are those of Kubernetes 1.36 (`k8s.io/dynamic-resource-allocation`, structured
//! parameters), so that what is found here is what kube-scheduler would give on the same node.

mod allocated_devices;
mod capacity;
mod constraints;
mod counters;
mod device_mismatch;
mod error;
mod explain;
mod mismatch;
mod node_context;
mod node_selector;
mod partial_allocation;
mod plan;
mod prioritized_list;
mod search;
mod taints;
#[cfg(test)]
mod tests;
mod verdict_cache;

use std::sync::{Arc, OnceLock};

use crate::claim::{Allocation, AllocationResult, Claim};
use crate::classes::Classes;
use crate::features::Features;
use crate::node::Node;
use crate::pools::{Inventory, InventoryIndex};
use crate::slice::Slice;
use allocated_devices::AllocatedDevices;
pub use capacity::consumed_capacity;
use counters::{PoolCounters, RemainingCounters};
pub use device_mismatch::DeviceMismatch;
pub use error::{AllocateError, ClaimRef, DeviceRef, MAX_RESULTS_PER_CLAIM, RequestError};
pub use explain::{Clash, DeviceVerdict, Explanation, Placed, RequestExplanation};
use node_context::NodeContext;
use partial_allocation::Pick;
pub use prioritized_list::prioritized_list_score;
use search::Search;
use verdict_cache::VerdictCache;

/// Allocates devices of a cluster's slices beside the claims that are allocated already.
///
/// It is made once and asked for many nodes and pods, from any number of threads: what it finds out
/// of slices and selectors it keeps. It does not change: what it allocates is not yet held.
#[derive(Debug)]
pub struct Allocator<'a> {
    features: Features,
    classes: &'a Classes,
    inventory: Inventory<'a>,
    slice_index: Arc<SliceIndex>,
    allocated: AllocatedDevices<'a>,
    /// By edition.
    remaining_by_generation: Vec<OnceLock<RemainingCounters<'a>>>,
    steps: u64,
}

/// What was found out of slices, which does not depend on claims. It borrows nothing: who keeps the slices
/// can keep it from one allocator to the next.
#[derive(Debug)]
pub struct SliceIndex {
    index: Arc<InventoryIndex>,
    verdict_cache: VerdictCache,
    /// By edition.
    counters_by_generation: Vec<OnceLock<Arc<PoolCounters>>>,
}

impl SliceIndex {
    /// A survey of slices; their order does not matter. Little is looked at before somebody asks.
    pub fn new<'a>(slices: impl IntoIterator<Item = &'a Slice>, features: Features) -> Self {
        Self::of(&Inventory::new(slices, features))
    }

    fn of(inventory: &Inventory<'_>) -> Self {
        Self {
            index: Arc::clone(inventory.index()),
            verdict_cache: VerdictCache::default(),
            counters_by_generation: inventory.generations.iter().map(|_| OnceLock::new()).collect(),
        }
    }
}

impl<'a> Allocator<'a> {
    /// Steps that one search takes before it is given up, if nothing else is said.
    pub const MAX_STEPS: u64 = 100_000;

    /// An allocator of all slices of a cluster. Of the claims those count that are allocated. The
    /// order of slices and claims does not matter.
    pub fn new(
        classes: &'a Classes,
        slices: impl IntoIterator<Item = &'a Slice>,
        claims: impl IntoIterator<Item = &'a Claim>,
        features: Features,
    ) -> Self {
        let inventory = Inventory::new(slices, features);
        let slice_index = Arc::new(SliceIndex::of(&inventory));
        Self::with_inventory(classes, inventory, slice_index, claims, features, Self::MAX_STEPS)
    }

    /// An allocator of slices that were surveyed, which is much faster. Slices that are not those of the
    /// survey are surveyed anew.
    pub fn with_slice_index(
        classes: &'a Classes,
        slices: impl IntoIterator<Item = &'a Slice> + Clone,
        slice_index: &Arc<SliceIndex>,
        claims: impl IntoIterator<Item = &'a Claim>,
    ) -> Self {
        let features = slice_index.index.features();
        match Inventory::with_index(slices.clone(), &slice_index.index) {
            Some(inventory) => {
                let slice_index = Arc::clone(slice_index);
                Self::with_inventory(
                    classes,
                    inventory,
                    slice_index,
                    claims,
                    features,
                    Self::MAX_STEPS,
                )
            }
            None => Self::new(classes, slices, claims, features),
        }
    }

    /// An allocator of the same slices and classes beside other allocated claims. What is known of
    /// slices and selectors is shared with it.
    #[must_use]
    pub fn with_claims(&self, claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        let (inventory, slice_index) = (self.inventory.clone(), Arc::clone(&self.slice_index));
        Self::with_inventory(
            self.classes,
            inventory,
            slice_index,
            claims,
            self.features,
            self.steps,
        )
    }

    /// Sets how many steps a search takes before it is given up. A step is a device that is taken
    /// for a try, or a request that is reached.
    #[must_use]
    pub fn with_max_steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    fn with_inventory(
        classes: &'a Classes,
        inventory: Inventory<'a>,
        slice_index: Arc<SliceIndex>,
        claims: impl IntoIterator<Item = &'a Claim>,
        features: Features,
        steps: u64,
    ) -> Self {
        let allocated = AllocatedDevices::new(&inventory, claims, features);
        let remaining_by_generation =
            inventory.generations.iter().map(|_| OnceLock::new()).collect();
        Self {
            features,
            classes,
            inventory,
            slice_index,
            allocated,
            remaining_by_generation,
            steps,
        }
    }

    /// Allocates the claims of one pod together, for a node: one allocation for each, in their
    /// order. None of them may be allocated. `share_ids` gives a new UID for each part of a device
    /// that allows several allocations, in the order of the results.
    pub fn allocate(
        &self,
        node: &Node,
        claims: &[&Claim],
        share_ids: &mut dyn FnMut() -> String,
    ) -> Result<Vec<Allocation>, AllocateError> {
        self.allocate_among(node, claims, &|_, _, _| true, share_ids)
    }

    /// As [`Allocator::allocate`], of those devices only of which `is_eligible` says so by driver, pool and
    /// name. Requests for all devices get all that are meant.
    pub fn allocate_among(
        &self,
        node: &Node,
        claims: &[&Claim],
        is_eligible: &dyn Fn(&str, &str, &str) -> bool,
        share_ids: &mut dyn FnMut() -> String,
    ) -> Result<Vec<Allocation>, AllocateError> {
        let context = NodeContext::new(self, node)?.restricted_to(is_eligible);
        let claims = plan::plan(&context, claims)?;
        let mut search = Search::new(&context, &claims);
        search.run()?;
        let allocation = |picks: &Vec<Pick<'_>>| {
            let nodes = node_selector::node_selector(&context, picks)?;
            let results = picks.iter().map(|pick| result(&context, pick, share_ids)).collect();
            Ok(Allocation { results, nodes })
        };
        search.state.picks.iter().map(allocation).collect()
    }

    /// Why the claims of a pod get nothing on a node, device by device; or that they do.
    pub fn explain(&self, node: &Node, claims: &[&Claim]) -> Explanation {
        explain::explain(self, node, claims)
    }

    /// The counters of an edition.
    fn remaining(&self, generation: usize) -> &RemainingCounters<'a> {
        self.remaining_by_generation[generation].get_or_init(|| {
            let pool_counters = self.slice_index.counters_by_generation[generation]
                .get_or_init(|| Arc::new(PoolCounters::new(&self.inventory, generation)));
            RemainingCounters::new(Arc::clone(pool_counters), &self.inventory, &self.allocated)
        })
    }
}

fn result(
    context: &NodeContext<'_, '_>,
    pick: &Pick<'_>,
    share_ids: &mut dyn FnMut() -> String,
) -> AllocationResult {
    let DeviceRef { driver, pool, device } = context.device_ref(pick.candidate.device);
    AllocationResult {
        request: pick.target.name(),
        driver,
        pool,
        device,
        admin_access: pick.target.wanted.ask.admin_access,
        share_id: pick.is_part.then(share_ids),
        consumed: pick.consumed.iter().map(|(&name, &amount)| (name.to_owned(), amount)).collect(),
    }
}
