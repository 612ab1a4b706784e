//! Upper bounds on what fits, for each domain and shape, kept by deltas.
//!
//! For each shape that was asked for there is a [`Column`]: how many pods of it fit each node, and
//! the sums over domains. What a node has room for is computed once for each state of nodes, so the
//! first question about a shape costs by the number of states, and later ones by the number of nodes
//! that changed. For pods of one shape the sums are exact; for pods of several shapes together they
//! are upper bounds. A gang of which more is wanted than the sum cannot be placed: that is a proof.

pub(crate) mod column;
pub(crate) mod relaxation;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::shape::Shape;
use crate::topology::{DomainId, LevelId, Topology};

pub use column::Column;
pub use relaxation::Relaxation;

/// Shapes that are tracked unless somebody says otherwise.
pub const DEFAULT_MAX_SHAPES: usize = 64;

/// Columns of the shapes that were asked for last.
#[derive(Clone, Debug)]
pub struct Bounds {
    most: usize,
    /// Questions so far: who was asked for least recently goes first.
    lookups: u64,
    columns: BTreeMap<Arc<Shape>, (u64, Column)>,
    /// The topology whose domains the sums are of.
    topology: Option<Arc<Topology>>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_SHAPES)
    }
}

impl Bounds {
    /// Bounds that track so many shapes at most; at least one.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), lookups: 0, columns: BTreeMap::new(), topology: None }
    }

    /// What there is room for of a shape, as things are now.
    pub fn column(
        &mut self,
        cluster: &Cluster,
        topology: &Topology,
        shape: &Arc<Shape>,
    ) -> &Column {
        self.set_topology(topology);
        self.cached_column(cluster, topology, shape)
    }

    /// Takes over a topology, and gives it as it is kept here.
    pub(crate) fn set_topology(&mut self, topology: &Topology) -> Arc<Topology> {
        match &self.topology {
            Some(by_slot) if **by_slot == *topology => Arc::clone(by_slot),
            _ => {
                self.columns.clear();
                let topology = Arc::new(topology.clone());
                self.topology = Some(Arc::clone(&topology));
                topology
            }
        }
    }

    /// As [`Self::column`], for who has just called [`Self::set_topology`].
    pub(crate) fn cached_column(
        &mut self,
        cluster: &Cluster,
        topology: &Topology,
        shape: &Arc<Shape>,
    ) -> &Column {
        if !self.columns.contains_key(shape) && self.columns.len() >= self.most {
            let oldest = self.columns.iter().min_by_key(|(_, (lookups, _))| *lookups);
            if let Some(shape) = oldest.map(|(shape, _)| Arc::clone(shape)) {
                self.columns.remove(&shape);
            }
        }
        self.lookups += 1;
        let (lookups, column) = self.columns.entry(Arc::clone(shape)).or_default();
        *lookups = self.lookups;
        column.refresh(cluster, topology, shape);
        column
    }

    /// How many pods of a shape fit a domain now, if nothing else comes.
    pub fn count(
        &mut self,
        cluster: &Cluster,
        topology: &Topology,
        shape: &Arc<Shape>,
        domain: DomainId,
    ) -> u64 {
        self.column(cluster, topology, shape).count(domain)
    }

    /// The domain of a level with room for the most pods of a shape, and for how many; the lowest
    /// id of equals. None: the level has no domains.
    pub fn best(
        &mut self,
        cluster: &Cluster,
        topology: &Topology,
        shape: &Arc<Shape>,
        level: LevelId,
    ) -> Option<(DomainId, u64)> {
        self.column(cluster, topology, shape).best(topology, level)
    }

    /// How many shapes are tracked.
    pub fn shape_count(&self) -> usize {
        self.columns.len()
    }

    /// Takes the log as read, by who knows that the cluster was changed and changed back since the
    /// last question: a search that undid all its trials. Columns that had not read all before are
    /// left as they are.
    pub(crate) fn skip(&mut self, since: crate::cluster::log::Cursor, cluster: &Cluster) {
        for (_, column) in self.columns.values_mut() {
            column.skip(since, cluster);
        }
    }
}
