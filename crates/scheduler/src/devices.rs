//! Slices, classes and claims of the cluster, by node; what the claims of a pod ask for, and what they
//! get on a node.
//!
//! ```text
//!  slices --pools--> nodes: GPUs as the engine sees them, the table of models
//!  claims, assumptions --ledger--> what is held of each pool
//!  pod --ask--> demand in the engine's terms, and whether that is all that matters
//!  ask, node, the engine's choice --allocate--> grant: devices by the allocator's last word
//! ```
//!
//! All of it is values: no I/O, no clock. What is said of the cluster depends on what is there and not on
//! the order in which it came.

mod allocation_patch;
mod ask;
mod assume_cache;
mod extended;
mod feasibility_cache;
mod fit;
mod invalidation;
mod models;
mod nodes;
mod pod_allocation;
mod pod_claims;
mod pod_demand;
mod pools;
mod reassume;
mod request_cache;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use octavo_dra::{Classes, Feature, Features, PoolRef};
use octavo_engine::gpu::{GpuModel, ModelId, ModelSet};
use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{Claim, Delta, DeviceClass, Node, ObjectName, ResourceSlice};

pub use ask::{Ask, AskError, AskedClaim};
pub use assume_cache::HeldDevices;
pub use feasibility_cache::{Feasibility, RequestKey};
pub use invalidation::Invalidation;
pub use nodes::{GpuSource, NodeGpus, UnmodeledReason};
pub use pod_allocation::{PodAllocation, PodAllocationError};
pub use request_cache::CostLimitScope;

use assume_cache::AssumeCache;
use feasibility_cache::FeasibilityCache;
use models::Models;
use nodes::NodeView;
use pools::Pools;
use request_cache::RequestCache;

/// What is known of the cluster's devices, and who has them.
#[derive(Debug)]
pub struct Devices {
    features: Features,
    classes: Classes,
    /// Classes as they were read, with their configs.
    class_objects: BTreeMap<Arc<str>, Arc<DeviceClass>>,
    pools: Pools,
    nodes: BTreeMap<Arc<str>, NodeView>,
    /// Nodes whose GPUs are not in the engine's picture.
    unmodeled: BTreeMap<Arc<str>, UnmodeledReason>,
    models: Models,
    assume_cache: AssumeCache,
    /// What requests were found to mean: kept from ask to ask.
    request_cache: Mutex<RequestCache>,
    /// What the allocator said, until a node or what is held of it changes.
    feasibility: Mutex<FeasibilityCache>,
    /// Number of the last change of any node's hardware.
    revision: u64,
    /// Nodes by the number of their last change.
    changes: BTreeMap<u64, Arc<str>>,
}

impl Default for Devices {
    /// Of a cluster with Kubernetes' default gates.
    fn default() -> Self {
        Self::new(Features::default())
    }
}

impl Devices {
    /// Of a cluster with these parts of dynamic resource allocation. Devices with binding conditions are
    /// never given out, whatever the cluster can do: nobody here waits for them.
    pub fn new(features: Features) -> Self {
        Self {
            features: features.without(Feature::BindingConditions),
            classes: Classes::default(),
            class_objects: BTreeMap::new(),
            pools: Pools::default(),
            nodes: BTreeMap::new(),
            unmodeled: BTreeMap::new(),
            models: Models::default(),
            assume_cache: AssumeCache::default(),
            request_cache: Mutex::default(),
            feasibility: Mutex::default(),
            revision: 0,
            changes: BTreeMap::new(),
        }
    }

    /// A round of decisions begins: selectors may cost something again.
    pub fn begin_cycle(&mut self) {
        self.request_cache().begin_cycle();
    }

    /// Takes in what changed of slices.
    pub fn apply_slices(&mut self, delta: &Delta<ResourceSlice>) -> Invalidation {
        let pools = self.pools.apply(delta);
        self.refresh_pools(&pools)
    }

    /// Takes in what changed of nodes: labels say which slices they reach, `allocatable` what their device
    /// plugins serve.
    pub fn apply_nodes(&mut self, delta: &Delta<Node>) -> Invalidation {
        let mut touched = BTreeSet::new();
        if let Delta::Replace(_, nodes) = delta {
            let listed: BTreeSet<_> = nodes.iter().map(|node| &node.meta.name.name).collect();
            for (name, view) in &mut self.nodes {
                if !listed.contains(name) && view.forget_node() {
                    touched.insert(Arc::clone(name));
                }
            }
        }
        if let Delta::Delete(node) = delta
            && let Some(view) = self.nodes.get_mut(&node.meta.name.name)
            && view.forget_node()
        {
            touched.insert(Arc::clone(&node.meta.name.name));
        }
        for node in delta.present() {
            let name = &node.meta.name.name;
            let view = self.nodes.entry(Arc::clone(name)).or_insert_with(|| NodeView::named(name));
            if view.update_node(node) {
                touched.insert(Arc::clone(name));
            }
        }
        self.refresh_nodes(touched)
    }

    /// Takes in what changed of classes.
    pub fn apply_classes(&mut self, delta: &Delta<DeviceClass>) -> Invalidation {
        let mut changed = false;
        match delta {
            Delta::Delete(class) => {
                changed |= self.class_objects.remove(&class.meta.name.name).is_some();
            }
            Delta::Replace(_, classes) => {
                let listed: BTreeSet<_> =
                    classes.iter().map(|class| &class.meta.name.name).collect();
                let before = self.class_objects.len();
                self.class_objects.retain(|name, _| listed.contains(name));
                changed |= before != self.class_objects.len();
            }
            Delta::Upsert(_) => {}
        }
        for class in delta.present() {
            let old = self.class_objects.insert(Arc::clone(&class.meta.name.name), class.clone());
            changed |= old.is_none_or(|old| {
                old.class != class.class
                    || old.config != class.config
                    || old.meta.created != class.meta.created
            });
        }
        if changed {
            self.classes = Classes::default();
            for class in self.class_objects.values() {
                self.classes.insert(class.class.clone(), class.meta.created);
            }
            self.request_cache().clear();
            self.feasibility_cache().clear();
        }
        Invalidation { are_classes_changed: changed, ..Invalidation::default() }
    }

    /// Takes in what changed of claims. Those that are allocated hold their devices whoever allocated
    /// them.
    pub fn apply_claims(&mut self, delta: &Delta<Claim>) -> Invalidation {
        let changed = self.assume_cache.apply(delta);
        self.holdings(changed)
    }

    /// The GPUs of a node as the engine sees them; `None` for a node without, or with such as the engine
    /// cannot picture ([`Devices::unmodeled`] says why).
    pub fn gpus(&self, node: &str) -> Option<&NodeGpus> {
        self.nodes.get(node)?.gpus.as_ref().ok()?.as_ref()
    }

    /// Why a node's GPUs are not in the engine's picture though it has some: what asks for them is
    /// allocated there by the allocator alone.
    pub fn unmodeled(&self, node: &str) -> Option<&UnmodeledReason> {
        self.unmodeled.get(node)
    }

    /// All nodes whose GPUs are not in the engine's picture though they have some, and why.
    pub fn all_unmodeled(&self) -> &BTreeMap<Arc<str>, UnmodeledReason> {
        &self.unmodeled
    }

    /// Models of GPUs, in the order of their names. Two products that differ in memory or in how MIG cuts
    /// them have names that differ.
    pub fn models(&self) -> &[GpuModel] {
        self.models.table()
    }

    /// Models of GPUs that device plugins serve.
    pub fn plugin_models(&self) -> ModelSet {
        self.models.plugin_models()
    }

    /// What allocated and assumed claims hold of a node's devices, in the order of the claims' UIDs.
    pub fn held(&self, node: &str) -> Vec<HeldDevices> {
        let Some(view) = self.nodes.get(node) else { return Vec::new() };
        let gpus = view.gpus.as_ref().ok().and_then(Option::as_ref);
        self.assume_cache.held(&view.pools, gpus)
    }

    /// Of that what only this pod may use: a claim of several pods is nobody's own.
    pub fn held_alone_by(&self, node: &str, pod: &str) -> Vec<HeldDevices> {
        let Some(view) = self.nodes.get(node) else { return Vec::new() };
        let gpus = view.gpus.as_ref().ok().and_then(Option::as_ref);
        self.assume_cache.held_alone_by(pod, &view.pools, gpus)
    }

    /// Names of claims that were seen with an allocation.
    pub fn allocated(&self) -> impl Iterator<Item = &ObjectName> {
        self.assume_cache.allocated()
    }

    /// Whether a class of devices serves an extended resource.
    pub fn is_class_resource(&self, resource: &str) -> bool {
        self.classes.for_resource(resource).is_some()
    }

    /// The claim of a name, as it was last seen.
    pub fn claim(&self, name: &ObjectName) -> Option<&Arc<Claim>> {
        self.assume_cache.claim(name)
    }

    /// Parts of GPUs that an allocation takes on a node, in order; what the engine does not count is left
    /// out.
    pub fn parts(&self, node: &str, allocation: &octavo_dra::Allocation) -> GpuParts {
        let Some(gpus) = self.gpus(node) else { return GpuParts::new() };
        let mut parts: GpuParts =
            allocation.results.iter().filter_map(|result| gpus.part(result)).collect();
        parts.sort_unstable();
        parts
    }

    /// Pools changed: which nodes see something else now.
    fn refresh_pools(&mut self, pools: &pools::PoolChange) -> Invalidation {
        let mut touched: BTreeSet<Arc<str>> = pools.nodes.clone();
        if pools.is_everywhere {
            touched.extend(self.nodes.keys().cloned());
        }
        for name in &pools.nodes {
            if !self.nodes.contains_key(name) {
                self.nodes.insert(Arc::clone(name), NodeView::named(name));
            }
        }
        self.refresh_nodes(touched)
    }

    /// Reads these nodes anew.
    fn refresh_nodes(&mut self, nodes: BTreeSet<Arc<str>>) -> Invalidation {
        let mut touched = Invalidation::default();
        for name in nodes {
            let Some(view) = self.nodes.get_mut(&name) else { continue };
            self.feasibility.get_mut().unwrap_or_else(PoisonError::into_inner).forget(&name);
            let old = view.model_key().cloned();
            view.refresh(&self.pools);
            if old.as_ref() != view.model_key() {
                self.models.move_node(old.as_ref(), view.model_key());
            }
            self.changes.remove(&view.revision);
            self.revision += 1;
            view.revision = self.revision;
            if view.is_empty() {
                self.nodes.remove(&name);
            }
            self.changes.insert(self.revision, Arc::clone(&name));
            touched.holdings.insert(Arc::clone(&name));
            touched.hardware.insert(name);
        }
        if self.models.rebuild_if_stale() {
            touched.are_models_changed = true;
            self.request_cache().clear();
            self.feasibility_cache().clear();
            self.nodes.values_mut().for_each(|view| view.set_model(&self.models));
            let all = self.nodes.iter();
            let unmodeled = all.filter_map(|(name, view)| Some((name, view.gpus.as_ref().err()?)));
            self.unmodeled = unmodeled.map(|(name, why)| (Arc::clone(name), why.clone())).collect();
        } else {
            for name in &touched.hardware {
                self.unmodeled.remove(name);
                let Some(view) = self.nodes.get_mut(name) else { continue };
                view.set_model(&self.models);
                if let Err(why) = &view.gpus {
                    self.unmodeled.insert(Arc::clone(name), why.clone());
                }
            }
        }
        touched
    }

    /// Which nodes' holdings a change of the ledger touches.
    fn holdings(&self, changed: assume_cache::HoldingsChange) -> Invalidation {
        let mut touched = Invalidation { claims: changed.claims, ..Invalidation::default() };
        for pool in &changed.pools {
            self.add_nodes_of(pool, &mut touched);
        }
        let mut feasibility = self.feasibility_cache();
        if touched.is_shared_pool_touched {
            feasibility.clear();
        }
        touched.holdings.iter().for_each(|node| feasibility.forget(node));
        drop(feasibility);
        touched
    }

    fn add_nodes_of(&self, pool: &PoolRef, touched: &mut Invalidation) {
        touched.holdings.extend(self.pools.nodes_of(pool).cloned());
        if self.pools.is_shared(pool) {
            touched.is_shared_pool_touched = true;
        }
    }

    /// The index of the model of a node's GPUs, if the engine has them.
    fn model_of(&self, node: &str) -> Option<ModelId> {
        self.gpus(node).map(|gpus| gpus.model)
    }

    fn request_cache(&self) -> std::sync::MutexGuard<'_, RequestCache> {
        self.request_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
