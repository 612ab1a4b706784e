//! Slices, device classes and claims of the cluster by node. What a pod's claims ask for, and what
//! they get on a node.
//!
//! ```text
//! slices --pools--> nodes: GPUs as the engine models them, the table of GPU models
//! claims, assumed allocations --assume cache--> what is held of each pool
//! pod --ask--> demand in the engine's terms, and whether it is exact
//! ask, node, the engine's choice --allocate--> pod allocation, by the DRA allocator
//! ```
//!
//! All types are plain values: no I/O, no clock. The state depends only on the objects that exist,
//! not on the order of their events.

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
mod request_cache;
mod unserved;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use octavo_api::names::OWNER_OCTAVO;
use octavo_api::names::{DRIVER_COMPUTE_DOMAIN, LABEL_COMPUTE_DOMAIN};
use octavo_dra::{Classes, Feature, Features, PoolRef, Toleration};
use octavo_engine::gpu::{GpuModel, ModelId};
use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{
    Claim, Delta, DeviceClass, Node, NodeName, ObjectName, ResourceSlice,
};

pub use ask::{Ask, AskError, AskedClaim};
pub use assume_cache::{ClaimKey, HeldDevices};
pub use feasibility_cache::{Feasibility, RequestKey};
pub use invalidation::Invalidation;
pub use nodes::{GpuSource, NodeGpus, UnmodeledReason};
pub use pod_allocation::{PodAllocation, PodAllocationError};
pub use request_cache::CostLimitScope;

use assume_cache::AssumeCache;
use feasibility_cache::FeasibilityCache;
use models::Models;
use nodes::NodeView;
use pod_allocation::own_toleration;
use pools::Pools;
use request_cache::RequestCache;

/// The cluster's devices and their holders.
#[derive(Debug)]
pub struct Devices {
    features: Features,
    /// The toleration of the taint with which the agent keeps devices for this scheduler.
    own_toleration: Toleration,
    classes: Classes,
    /// Classes as they were read, with their configs.
    class_objects: BTreeMap<Arc<str>, Arc<DeviceClass>>,
    pools: Pools,
    nodes: BTreeMap<NodeName, NodeView>,
    /// Nodes with GPUs that the engine does not model.
    unmodeled: BTreeMap<NodeName, UnmodeledReason>,
    models: Models,
    assume_cache: AssumeCache,
    /// Evaluated requests, kept across asks.
    request_cache: Mutex<RequestCache>,
    /// The allocator's results, kept until a node's hardware or holdings change.
    feasibility: Mutex<FeasibilityCache>,
    /// Number of the last hardware change of any node.
    revision: u64,
    /// Nodes by the number of their last change.
    changes: BTreeMap<u64, NodeName>,
}

impl Default for Devices {
    /// Of a scheduler with the default name, in a cluster with Kubernetes' default feature gates.
    fn default() -> Self {
        Self::new(OWNER_OCTAVO, Features::default())
    }
}

impl Devices {
    /// Of the scheduler of this name, in a cluster with these DRA features. Devices with binding
    /// conditions are never allocated, because this scheduler does not wait for such conditions.
    pub fn new(scheduler: &str, features: Features) -> Self {
        Self {
            features: features.without(Feature::BindingConditions),
            own_toleration: own_toleration(scheduler),
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

    /// Starts a scheduling cycle, which renews the cost budget of selectors.
    pub fn begin_cycle(&mut self) {
        self.request_cache().begin_cycle();
    }

    /// Applies a change of slices.
    pub fn apply_slices(&mut self, delta: &Delta<ResourceSlice>) -> Invalidation {
        let pools = self.pools.apply(delta);
        self.refresh_pools(&pools)
    }

    /// Applies a change of nodes. Labels decide which slices a node reaches, `allocatable` what its
    /// device plugins serve.
    pub fn apply_nodes(&mut self, delta: &Delta<Node>) -> Invalidation {
        let mut touched = BTreeSet::new();
        for name in delta.gone(self.nodes.keys(), Node::name) {
            if self.nodes.get_mut(&name).is_some_and(NodeView::forget_node) {
                touched.insert(name);
            }
        }
        for node in delta.present() {
            let name = node.name();
            let view = self.nodes.entry(name.clone()).or_insert_with(|| NodeView::named(&name));
            if view.update_node(node) {
                touched.insert(name);
            }
        }
        self.refresh_nodes(touched)
    }

    /// Applies a change of classes.
    pub fn apply_classes(&mut self, delta: &Delta<DeviceClass>) -> Invalidation {
        let mut changed = false;
        let known = self.class_objects.keys();
        for name in delta.gone(known, |class| Arc::clone(&class.meta.name.name)) {
            changed |= self.class_objects.remove(&name).is_some();
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

    /// Applies a change of claims. An allocated claim holds its devices, whichever scheduler
    /// allocated it.
    pub fn apply_claims(&mut self, delta: &Delta<Claim>) -> Invalidation {
        let changed = self.assume_cache.apply(delta);
        self.holdings(changed)
    }

    /// The GPUs of a node as the engine models them. `None` without GPUs, or with GPUs that the
    /// engine does not model (the status of unmodeled nodes has the reason).
    pub fn gpus(&self, node: &str) -> Option<&NodeGpus> {
        self.nodes.get(node)?.gpus()
    }

    /// All nodes with GPUs that the engine does not model, with the reasons.
    pub fn all_unmodeled(&self) -> &BTreeMap<NodeName, UnmodeledReason> {
        &self.unmodeled
    }

    /// GPU models, ordered by name. Products that differ in memory or MIG geometry have different
    /// names.
    pub fn models(&self) -> &[GpuModel] {
        self.models.table()
    }

    /// What allocated and assumed claims hold of a node's devices, ordered by the claims' keys.
    pub fn held(&self, node: &str) -> Vec<HeldDevices> {
        let Some(view) = self.nodes.get(node) else { return Vec::new() };
        self.assume_cache.held(&view.pools, view.gpus())
    }

    /// Of these the claims that only this pod uses. A shared claim belongs to no single pod.
    pub fn held_alone_by(&self, node: &str, pod: &str) -> Vec<HeldDevices> {
        let Some(view) = self.nodes.get(node) else { return Vec::new() };
        self.assume_cache.held_alone_by(pod, &view.pools, view.gpus())
    }

    /// Names of claims that are observed with an allocation.
    pub fn allocated(&self) -> impl Iterator<Item = &ObjectName> {
        self.assume_cache.allocated()
    }

    /// Whether a device class serves an extended resource.
    pub fn is_class_resource(&self, resource: &str) -> bool {
        self.classes.for_resource(resource).is_some()
    }

    /// Names of the nodes on which a `ComputeDomain`, by its UID, has channels. Its driver names pools after nodes.
    pub fn domain_nodes(&self, domain: &str) -> BTreeSet<String> {
        let label = (LABEL_COMPUTE_DOMAIN, domain);
        self.assume_cache.pools_held_with_label(label, DRIVER_COMPUTE_DOMAIN)
    }

    /// A claim by name, as last observed.
    pub fn claim(&self, name: &ObjectName) -> Option<&Arc<Claim>> {
        self.assume_cache.claim(name)
    }

    /// Parts of GPUs that an allocation takes on a node, in order, without devices that the engine
    /// does not count.
    pub fn parts(&self, node: &str, allocation: &octavo_dra::Allocation) -> GpuParts {
        let Some(gpus) = self.gpus(node) else { return GpuParts::new() };
        let mut parts: GpuParts =
            allocation.results.iter().filter_map(|result| gpus.part(result)).collect();
        parts.sort_unstable();
        parts
    }

    /// Refreshes the nodes that reach the changed pools.
    fn refresh_pools(&mut self, pools: &pools::PoolChange) -> Invalidation {
        let mut touched: BTreeSet<NodeName> = pools.nodes.clone();
        if pools.is_everywhere {
            touched.extend(self.nodes.keys().cloned());
        }
        for name in &pools.nodes {
            if !self.nodes.contains_key(name) {
                self.nodes.insert(name.clone(), NodeView::named(name));
            }
        }
        self.refresh_nodes(touched)
    }

    /// Re-reads these nodes.
    fn refresh_nodes(&mut self, nodes: BTreeSet<NodeName>) -> Invalidation {
        let mut touched = Invalidation::default();
        for name in nodes {
            let Some(view) = self.nodes.get_mut(&name) else { continue };
            self.feasibility.get_mut().unwrap_or_else(PoisonError::into_inner).forget(&name);
            let old = view.model_key().cloned();
            view.refresh(&self.pools, &self.own_toleration);
            if old.as_ref() != view.model_key() {
                self.models.move_node(old.as_ref(), view.model_key());
            }
            self.changes.remove(&view.revision);
            self.revision += 1;
            view.revision = self.revision;
            if view.is_empty() {
                self.nodes.remove(&name);
            }
            self.changes.insert(self.revision, name.clone());
            touched.holdings.insert(name.clone());
            touched.hardware.insert(name);
        }
        if self.models.rebuild_if_stale() {
            touched.are_models_changed = true;
            self.request_cache().clear();
            self.feasibility_cache().clear();
            self.nodes.values_mut().for_each(|view| view.set_model(&self.models));
            let all = self.nodes.iter();
            let unmodeled = all.filter_map(|(name, view)| Some((name, view.gpus.as_ref().err()?)));
            self.unmodeled = unmodeled.map(|(name, why)| (name.clone(), why.clone())).collect();
        } else {
            for name in &touched.hardware {
                self.unmodeled.remove(name);
                let Some(view) = self.nodes.get_mut(name) else { continue };
                view.set_model(&self.models);
                if let Err(why) = &view.gpus {
                    self.unmodeled.insert(name.clone(), why.clone());
                }
            }
        }
        touched
    }

    /// The nodes whose holdings a change of the assume cache touches.
    fn holdings(&self, changed: assume_cache::HoldingsChange) -> Invalidation {
        let mut touched = Invalidation { claims: changed.claims, ..Invalidation::default() };
        for pool in &changed.pools {
            self.add_nodes_of(pool, &mut touched);
        }
        let mut feasibility = self.feasibility_cache();
        if touched.is_shared_pool_touched {
            feasibility.all_holdings_changed();
        }
        touched.holdings.iter().for_each(|node| feasibility.holdings_changed(node));
        drop(feasibility);
        touched
    }

    fn add_nodes_of(&self, pool: &PoolRef, touched: &mut Invalidation) {
        touched.holdings.extend(self.pools.nodes_of(pool).cloned());
        if self.pools.is_shared(pool) {
            touched.is_shared_pool_touched = true;
        }
    }

    /// The index of the model of a node's GPUs, if the engine models them.
    fn model_of(&self, node: &str) -> Option<ModelId> {
        self.gpus(node).map(|gpus| gpus.model)
    }

    fn request_cache(&self) -> std::sync::MutexGuard<'_, RequestCache> {
        self.request_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
