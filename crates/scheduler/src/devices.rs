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

mod again;
mod answers;
mod ask;
mod claims;
mod extended;
mod fit;
mod forms;
mod grant;
mod ledger;
mod models;
mod nodes;
mod pools;
mod sum;
mod touched;
mod written;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use octavo_dra::{Classes, Feature, Features, PoolRef};
use octavo_engine::gpu::{GpuModel, ModelId, ModelSet};
use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{Claim, Delta, DeviceClass, Node, ObjectName, ResourceSlice};

pub use answers::{Found, Wish};
pub use ask::{Ask, AskError, AskedClaim};
pub use forms::Dearness;
pub use grant::{Grant, GrantError};
pub use ledger::Held;
pub use nodes::{GpuSource, NodeGpus, Outside};
pub use touched::Touched;

use answers::Answers;
use forms::Forms;
use ledger::Ledger;
use models::Models;
use nodes::NodeView;
use pools::Pools;

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
    outside: BTreeMap<Arc<str>, Outside>,
    models: Models,
    ledger: Ledger,
    /// What requests were found to mean: kept from ask to ask.
    forms: Mutex<Forms>,
    /// What the allocator said, until a node or what is held of it changes.
    answers: Mutex<Answers>,
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
            outside: BTreeMap::new(),
            models: Models::default(),
            ledger: Ledger::default(),
            forms: Mutex::default(),
            answers: Mutex::default(),
            revision: 0,
            changes: BTreeMap::new(),
        }
    }

    /// A round of decisions begins: selectors may cost something again.
    pub fn begin_round(&mut self) {
        self.forms().begin_round();
    }

    /// Takes in what changed of slices.
    pub fn apply_slices(&mut self, delta: &Delta<ResourceSlice>) -> Touched {
        let pools = self.pools.apply(delta);
        self.look_at(&pools)
    }

    /// Takes in what changed of nodes: labels say which slices they reach, `allocatable` what their device
    /// plugins serve.
    pub fn apply_nodes(&mut self, delta: &Delta<Node>) -> Touched {
        let mut touched = BTreeSet::new();
        if let Delta::Replace(_, nodes) = delta {
            let there: BTreeSet<_> = nodes.iter().map(|node| &node.meta.name.name).collect();
            for (name, view) in &mut self.nodes {
                if !there.contains(name) && view.forget_node() {
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
            if view.take(node) {
                touched.insert(Arc::clone(name));
            }
        }
        self.look_at_nodes(touched)
    }

    /// Takes in what changed of classes.
    pub fn apply_classes(&mut self, delta: &Delta<DeviceClass>) -> Touched {
        let mut changed = false;
        match delta {
            Delta::Delete(class) => {
                changed |= self.class_objects.remove(&class.meta.name.name).is_some();
            }
            Delta::Replace(_, classes) => {
                let there: BTreeSet<_> =
                    classes.iter().map(|class| &class.meta.name.name).collect();
                let before = self.class_objects.len();
                self.class_objects.retain(|name, _| there.contains(name));
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
            self.forms().clear();
            self.answers().clear();
        }
        Touched { are_classes_changed: changed, ..Touched::default() }
    }

    /// Takes in what changed of claims. Those that are allocated hold their devices whoever allocated
    /// them.
    pub fn apply_claims(&mut self, delta: &Delta<Claim>) -> Touched {
        let changed = self.ledger.apply(delta);
        self.holdings(changed)
    }

    /// The GPUs of a node as the engine sees them; `None` for a node without, or with such as the engine
    /// cannot picture ([`Devices::outside`] says why).
    pub fn gpus(&self, node: &str) -> Option<&NodeGpus> {
        self.nodes.get(node)?.gpus.as_ref().ok()?.as_ref()
    }

    /// Why a node's GPUs are not in the engine's picture though it has some: what asks for them is
    /// allocated there by the allocator alone.
    pub fn outside(&self, node: &str) -> Option<&Outside> {
        self.outside.get(node)
    }

    /// All nodes whose GPUs are not in the engine's picture though they have some, and why.
    pub fn all_outside(&self) -> &BTreeMap<Arc<str>, Outside> {
        &self.outside
    }

    /// Models of GPUs, in the order of their names. Two products that differ in memory or in how MIG cuts
    /// them have names that differ.
    pub fn models(&self) -> &[GpuModel] {
        self.models.table()
    }

    /// Models of GPUs that device plugins serve.
    pub fn plugin_models(&self) -> ModelSet {
        self.models.of_plugins()
    }

    /// What allocated and assumed claims hold of a node's devices, in the order of the claims' UIDs.
    pub fn held(&self, node: &str) -> Vec<Held> {
        let Some(view) = self.nodes.get(node) else { return Vec::new() };
        let gpus = view.gpus.as_ref().ok().and_then(Option::as_ref);
        self.ledger.held(&view.pools, gpus)
    }

    /// Of that what only this pod may use: a claim of several pods is nobody's own.
    pub fn held_alone_by(&self, node: &str, pod: &str) -> Vec<Held> {
        let Some(view) = self.nodes.get(node) else { return Vec::new() };
        let gpus = view.gpus.as_ref().ok().and_then(Option::as_ref);
        self.ledger.held_alone_by(pod, &view.pools, gpus)
    }

    /// Names of claims that were seen with an allocation.
    pub fn allocated(&self) -> impl Iterator<Item = &ObjectName> {
        self.ledger.allocated()
    }

    /// Whether a class of devices serves an extended resource.
    pub fn is_class_resource(&self, resource: &str) -> bool {
        self.classes.for_resource(resource).is_some()
    }

    /// The claim of a name, as it was last seen.
    pub fn claim(&self, name: &ObjectName) -> Option<&Arc<Claim>> {
        self.ledger.claim(name)
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
    fn look_at(&mut self, pools: &pools::Changed) -> Touched {
        let mut touched: BTreeSet<Arc<str>> = pools.nodes.clone();
        if pools.is_everywhere {
            touched.extend(self.nodes.keys().cloned());
        }
        for name in &pools.nodes {
            if !self.nodes.contains_key(name) {
                self.nodes.insert(Arc::clone(name), NodeView::named(name));
            }
        }
        self.look_at_nodes(touched)
    }

    /// Reads these nodes anew.
    fn look_at_nodes(&mut self, nodes: BTreeSet<Arc<str>>) -> Touched {
        let mut touched = Touched::default();
        for name in nodes {
            let Some(view) = self.nodes.get_mut(&name) else { continue };
            self.answers.get_mut().unwrap_or_else(PoisonError::into_inner).forget(&name);
            let old = view.model_key().cloned();
            view.refresh(&self.pools);
            if old.as_ref() != view.model_key() {
                self.models.replace(old.as_ref(), view.model_key());
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
        if self.models.settle() {
            touched.are_models_changed = true;
            self.forms().clear();
            self.answers().clear();
            self.nodes.values_mut().for_each(|view| view.set_model(&self.models));
            let all = self.nodes.iter();
            let outside = all.filter_map(|(name, view)| Some((name, view.gpus.as_ref().err()?)));
            self.outside = outside.map(|(name, why)| (Arc::clone(name), why.clone())).collect();
        } else {
            for name in &touched.hardware {
                self.outside.remove(name);
                let Some(view) = self.nodes.get_mut(name) else { continue };
                view.set_model(&self.models);
                if let Err(why) = &view.gpus {
                    self.outside.insert(Arc::clone(name), why.clone());
                }
            }
        }
        touched
    }

    /// Which nodes' holdings a change of the ledger touches.
    fn holdings(&self, changed: ledger::Changed) -> Touched {
        let mut touched = Touched { claims: changed.claims, ..Touched::default() };
        for pool in &changed.pools {
            self.add_nodes_of(pool, &mut touched);
        }
        let mut answers = self.answers();
        if touched.is_shared_pool_touched {
            answers.clear();
        }
        touched.holdings.iter().for_each(|node| answers.forget(node));
        drop(answers);
        touched
    }

    fn add_nodes_of(&self, pool: &PoolRef, touched: &mut Touched) {
        touched.holdings.extend(self.pools.nodes_of(pool).cloned());
        if self.pools.is_shared(pool) {
            touched.is_shared_pool_touched = true;
        }
    }

    /// The index of the model of a node's GPUs, if the engine has them.
    fn model_of(&self, node: &str) -> Option<ModelId> {
        self.gpus(node).map(|gpus| gpus.model)
    }

    fn forms(&self) -> std::sync::MutexGuard<'_, Forms> {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
