//! Slices by pool, and pools by node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_dra::{NodeScope, PoolRef, Slice};
use octavo_kube_io::objects::{Delta, NodeName, ResourceSlice};

/// Slices by pool, and pools by node.
#[derive(Debug, Default)]
pub(super) struct Pools {
    /// By name of the object.
    slices: BTreeMap<Arc<str>, Arc<ResourceSlice>>,
    by_name: BTreeMap<PoolRef, Pool>,
    /// Pools with slices of one node, by node.
    by_node: BTreeMap<NodeName, BTreeSet<PoolRef>>,
    /// Pools with slices that more than one node may reach.
    shared: BTreeSet<PoolRef>,
}

/// A pool.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Its slices of all generations, by name.
    pub(super) slices: BTreeMap<Arc<str>, Arc<ResourceSlice>>,
    /// The nodes that its slices name.
    nodes: BTreeSet<NodeName>,
}

/// What a change of slices touches.
#[derive(Debug, Default)]
pub(super) struct PoolChange {
    /// Nodes that slices of the changed pools name.
    pub(super) nodes: BTreeSet<NodeName>,
    /// Whether a pool changed that any node may reach.
    pub(super) is_everywhere: bool,
}

impl Pools {
    /// Applies a change of slices.
    pub(super) fn apply(&mut self, delta: &Delta<ResourceSlice>) -> PoolChange {
        let mut touched = BTreeSet::new();
        for name in delta.gone(self.slices.keys(), |slice| Arc::clone(&slice.meta.name.name)) {
            self.remove(&name, &mut touched);
        }
        for slice in delta.present() {
            let name = &slice.meta.name.name;
            if self.slices.get(name).is_some_and(|old| old.slice == slice.slice) {
                continue;
            }
            self.remove(name, &mut touched);
            let pool = pool_ref(&slice.slice);
            self.slices.insert(Arc::clone(name), Arc::clone(slice));
            let of_pool = &mut self.by_name.entry(pool.clone()).or_default().slices;
            of_pool.insert(Arc::clone(name), Arc::clone(slice));
            touched.insert(pool);
        }
        let mut changed = PoolChange::default();
        for pool in &touched {
            self.update_reach(pool, &mut changed);
        }
        changed
    }

    /// A pool.
    pub(super) fn pool(&self, pool: &PoolRef) -> Option<&Pool> {
        self.by_name.get(pool)
    }

    /// Pools with slices of this node alone.
    pub(super) fn local_to(&self, node: &str) -> impl Iterator<Item = &PoolRef> {
        self.by_node.get(node).into_iter().flatten()
    }

    /// Pools that more than one node may reach.
    pub(super) fn shared(&self) -> impl Iterator<Item = (&PoolRef, &Pool)> {
        self.shared.iter().filter_map(|pool| Some((pool, self.by_name.get(pool)?)))
    }

    /// Whether more than one node may reach a pool.
    pub(super) fn is_shared(&self, pool: &PoolRef) -> bool {
        self.shared.contains(pool)
    }

    /// The nodes that slices of a pool name.
    pub(super) fn nodes_of(&self, pool: &PoolRef) -> impl Iterator<Item = &NodeName> {
        self.by_name.get(pool).into_iter().flat_map(|pool| &pool.nodes)
    }

    fn remove(&mut self, name: &Arc<str>, touched: &mut BTreeSet<PoolRef>) {
        let Some(slice) = self.slices.remove(name) else { return };
        let pool = pool_ref(&slice.slice);
        if let Some(of_pool) = self.by_name.get_mut(&pool) {
            of_pool.slices.remove(name);
        }
        touched.insert(pool);
    }

    /// Recomputes the nodes of a pool. Records the nodes that had it or have it.
    fn update_reach(&mut self, name: &PoolRef, changed: &mut PoolChange) {
        let Some(pool) = self.by_name.get_mut(name) else { return };
        changed.is_everywhere |= self.shared.remove(name);
        for node in std::mem::take(&mut pool.nodes) {
            if let Some(pools) = self.by_node.get_mut(&node) {
                pools.remove(name);
                if pools.is_empty() {
                    self.by_node.remove(&node);
                }
            }
            changed.nodes.insert(node);
        }
        for slice in pool.slices.values() {
            match &slice.slice.nodes {
                NodeScope::Node(node) => {
                    let node = NodeName::from(node.as_str());
                    self.by_node.entry(node.clone()).or_default().insert(name.clone());
                    changed.nodes.insert(node.clone());
                    pool.nodes.insert(node);
                }
                NodeScope::Selector(_) | NodeScope::All | NodeScope::PerDevice => {
                    self.shared.insert(name.clone());
                    changed.is_everywhere = true;
                }
            }
        }
        if pool.slices.is_empty() {
            self.by_name.remove(name);
        }
    }
}

impl Pool {
    /// Its slices, by name.
    pub(super) fn slices(&self) -> impl Iterator<Item = &Slice> + Clone {
        self.slices.values().map(|slice| &slice.slice)
    }
}

fn pool_ref(slice: &Slice) -> PoolRef {
    PoolRef { driver: slice.driver.clone(), pool: slice.pool.clone() }
}
