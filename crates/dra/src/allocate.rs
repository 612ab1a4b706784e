//! Which devices the claims of a pod get on a node, or why none.
//!
//! The rules are those of Kubernetes 1.36 (`k8s.io/dynamic-resource-allocation`, structured
//! parameters), so that what is found here is what kube-scheduler would give on the same node.

mod capacity;
mod constraints;
mod counters;
mod explain;
mod holdings;
mod obstacle;
mod plan;
mod preference;
mod reach;
mod reason;
mod refusal;
mod scene;
mod search;
mod selection;
mod taints;
mod tentative;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use crate::claim::{Allocation, AllocationResult, Claim};
use crate::classes::Classes;
use crate::features::Features;
use crate::node::Node;
use crate::pools::{Index, Inventory};
use crate::slice::Slice;
pub use capacity::taken;
use counters::{Meter, Supply};
pub use explain::{Clash, DeviceVerdict, Explanation, Placed, RequestExplanation};
use holdings::Holdings;
pub use preference::preference;
pub use reason::Reason;
pub use refusal::{ClaimRef, DeviceRef, RESULTS_PER_CLAIM, Refusal, RequestFault};
use scene::Scene;
use search::Search;
use selection::Selection;
use tentative::Pick;

/// Allocates devices of a cluster's slices beside the claims that are allocated already.
///
/// It is made once and asked for many nodes and pods, from any number of threads: what it finds out
/// of slices and selectors it keeps. It does not change: what it allocates is not yet held.
#[derive(Debug)]
pub struct Allocator<'a> {
    features: Features,
    classes: &'a Classes,
    inventory: Inventory<'a>,
    survey: Arc<Survey>,
    holdings: Holdings<'a>,
    /// By edition.
    supplies: Vec<OnceLock<Supply<'a>>>,
    steps: u64,
}

/// What was found out of slices, which does not depend on claims. It borrows nothing: who keeps the slices
/// can keep it from one allocator to the next.
#[derive(Debug)]
pub struct Survey {
    index: Arc<Index>,
    selection: Selection,
    /// By edition.
    meters: Vec<OnceLock<Arc<Meter>>>,
}

impl Survey {
    /// A survey of slices; their order does not matter. Little is looked at before somebody asks.
    pub fn new<'a>(slices: impl IntoIterator<Item = &'a Slice>, features: Features) -> Self {
        Self::of(&Inventory::new(slices, features))
    }

    fn of(inventory: &Inventory<'_>) -> Self {
        Self {
            index: Arc::clone(inventory.index()),
            selection: Selection::default(),
            meters: inventory.editions.iter().map(|_| OnceLock::new()).collect(),
        }
    }
}

impl<'a> Allocator<'a> {
    /// Steps that one search takes before it is given up, if nothing else is said.
    pub const STEPS: u64 = 100_000;

    /// An allocator of all slices of a cluster. Of the claims those count that are allocated. The
    /// order of slices and claims does not matter.
    pub fn new(
        classes: &'a Classes,
        slices: impl IntoIterator<Item = &'a Slice>,
        claims: impl IntoIterator<Item = &'a Claim>,
        features: Features,
    ) -> Self {
        let inventory = Inventory::new(slices, features);
        let survey = Arc::new(Survey::of(&inventory));
        Self::with_inventory(classes, inventory, survey, claims, features, Self::STEPS)
    }

    /// An allocator of slices that were surveyed, which is much faster. Slices that are not those of the
    /// survey are surveyed anew.
    pub fn surveyed(
        classes: &'a Classes,
        slices: impl IntoIterator<Item = &'a Slice> + Clone,
        survey: &Arc<Survey>,
        claims: impl IntoIterator<Item = &'a Claim>,
    ) -> Self {
        let features = survey.index.features();
        match Inventory::again(slices.clone(), &survey.index) {
            Some(inventory) => {
                let survey = Arc::clone(survey);
                Self::with_inventory(classes, inventory, survey, claims, features, Self::STEPS)
            }
            None => Self::new(classes, slices, claims, features),
        }
    }

    /// An allocator of the same slices and classes beside other allocated claims. What is known of
    /// slices and selectors is shared with it.
    #[must_use]
    pub fn with_claims(&self, claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        let (inventory, survey) = (self.inventory.clone(), Arc::clone(&self.survey));
        Self::with_inventory(self.classes, inventory, survey, claims, self.features, self.steps)
    }

    /// Sets how many steps a search takes before it is given up. A step is a device that is taken
    /// for a try, or a request that is reached.
    #[must_use]
    pub fn with_steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    fn with_inventory(
        classes: &'a Classes,
        inventory: Inventory<'a>,
        survey: Arc<Survey>,
        claims: impl IntoIterator<Item = &'a Claim>,
        features: Features,
        steps: u64,
    ) -> Self {
        let holdings = Holdings::new(&inventory, claims, features);
        let supplies = inventory.editions.iter().map(|_| OnceLock::new()).collect();
        Self { features, classes, inventory, survey, holdings, supplies, steps }
    }

    /// Allocates the claims of one pod together, for a node: one allocation for each, in their
    /// order. None of them may be allocated. `share_ids` gives a new UID for each part of a device
    /// that allows several allocations, in the order of the results.
    pub fn allocate(
        &self,
        node: &Node,
        claims: &[&Claim],
        share_ids: &mut dyn FnMut() -> String,
    ) -> Result<Vec<Allocation>, Refusal> {
        self.allocate_among(node, claims, &|_, _, _| true, share_ids)
    }

    /// As [`Allocator::allocate`], of those devices only of which `is_meant` says so by driver, pool and
    /// name. Requests for all devices get all that are meant.
    pub fn allocate_among(
        &self,
        node: &Node,
        claims: &[&Claim],
        is_meant: &dyn Fn(&str, &str, &str) -> bool,
        share_ids: &mut dyn FnMut() -> String,
    ) -> Result<Vec<Allocation>, Refusal> {
        let scene = Scene::new(self, node)?.narrowed(is_meant);
        let claims = plan::plan(&scene, claims)?;
        let mut search = Search::new(&scene, &claims);
        search.run()?;
        let allocation = |picks: &Vec<Pick<'_>>| {
            let nodes = reach::nodes(&scene, picks)?;
            let results = picks.iter().map(|pick| result(&scene, pick, share_ids)).collect();
            Ok(Allocation { results, nodes })
        };
        search.state.picks.iter().map(allocation).collect()
    }

    /// Why the claims of a pod get nothing on a node, device by device; or that they do.
    pub fn explain(&self, node: &Node, claims: &[&Claim]) -> Explanation {
        explain::explain(self, node, claims)
    }

    /// The counters of an edition.
    fn supply(&self, edition: usize) -> &Supply<'a> {
        self.supplies[edition].get_or_init(|| {
            let meter = self.survey.meters[edition]
                .get_or_init(|| Arc::new(Meter::new(&self.inventory, edition)));
            Supply::new(Arc::clone(meter), &self.inventory, &self.holdings)
        })
    }
}

fn result(
    scene: &Scene<'_, '_>,
    pick: &Pick<'_>,
    share_ids: &mut dyn FnMut() -> String,
) -> AllocationResult {
    let DeviceRef { driver, pool, device } = scene.device_ref(pick.candidate.device);
    AllocationResult {
        request: pick.place.name(),
        driver,
        pool,
        device,
        admin_access: pick.place.wanted.ask.admin_access,
        share_id: pick.is_part.then(share_ids),
        consumed: pick.consumed.iter().map(|(&name, &amount)| (name.to_owned(), amount)).collect(),
    }
}
