//! Allocates devices of a node to the claims of a pod, or explains why it cannot.
//!
//! The rules are those of Kubernetes 1.36 (`k8s.io/dynamic-resource-allocation`, structured
//! parameters): kube-scheduler would choose the same devices on the same node.

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

/// Allocates devices from the slices of a cluster, beside the claims that are already allocated.
///
/// One allocator serves many nodes and pods from any number of threads and keeps the results of
/// selectors. Its own allocations do not change it.
#[derive(Debug)]
pub struct Allocator<'a> {
    features: Features,
    classes: &'a Classes,
    inventory: Inventory<'a>,
    slice_index: Arc<SliceIndex>,
    allocated: AllocatedDevices<'a>,
    /// By pool generation.
    remaining_by_generation: Vec<OnceLock<RemainingCounters<'a>>>,
    steps: u64,
}

/// Results about slices that do not depend on claims. It borrows nothing, so the owner of the
/// slices can pass it from one allocator to the next.
#[derive(Debug)]
pub struct SliceIndex {
    index: Arc<InventoryIndex>,
    verdict_cache: VerdictCache,
    /// By pool generation.
    counters_by_generation: Vec<OnceLock<Arc<PoolCounters>>>,
}

impl SliceIndex {
    /// An index of slices in any order. Most of its results are computed on first use.
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
    /// Default limit of the steps of one search.
    pub const MAX_STEPS: u64 = 100_000;

    /// An allocator for all slices of a cluster, beside those claims that are allocated. The order
    /// of slices and claims does not matter.
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

    /// An allocator for indexed slices, which is much faster to make. Slices that differ from those
    /// of the index are indexed again.
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

    /// An allocator for the same slices and classes beside other allocated claims. It shares the
    /// index of slices.
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

    /// Limits the steps of a search. Each device that the search takes and each request that it
    /// reaches is one step.
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

    /// Allocates the claims of one pod together on a node: one allocation for each claim, in their
    /// order. None of the claims may be allocated already. `share_ids` returns a new UID for each
    /// share of a device that allows multiple allocations, in the order of the results.
    pub fn allocate(
        &self,
        node: &Node,
        claims: &[&Claim],
        share_ids: &mut dyn FnMut() -> String,
    ) -> Result<Vec<Allocation>, AllocateError> {
        self.allocate_among(node, claims, &|_, _, _| true, share_ids)
    }

    /// As [`Allocator::allocate`], but only from devices for which `is_eligible(driver, pool,
    /// name)` is true. A request for all devices gets all eligible ones.
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

    /// Explains, device by device, why the claims of a pod cannot be allocated on a node.
    pub fn explain(&self, node: &Node, claims: &[&Claim]) -> Explanation {
        explain::explain(self, node, claims)
    }

    /// The counters of a pool generation.
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
