//! Upper bounds on fitting pods, for each domain and shape, updated incrementally.
//!
//! Each requested shape has a [`Column`]: the number of pods that fit each node, and the sums over
//! domains. The number for a node is computed once for each state of nodes. The first request for a
//! shape therefore costs time by the number of states, later ones by the number of changed nodes.
//! Sums are exact for pods of one shape and upper bounds for pods of several shapes. A gang that
//! needs more than the sum cannot be placed: that is a proof.

pub(crate) mod column;
pub(crate) mod relaxation;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::shape::Shape;
use crate::topology::Topology;

pub(crate) use column::Column;
pub(crate) use relaxation::Relaxation;

/// The default number of tracked shapes.
const MAX_SHAPES: usize = 64;

/// Columns of the shapes that were asked for last.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    most: usize,
    /// Lookups so far: the least recently used shape is dropped first.
    lookups: u64,
    columns: BTreeMap<Arc<Shape>, (u64, Column)>,
    /// The topology whose domains the sums are of.
    topology: Option<Arc<Topology>>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self::new(MAX_SHAPES)
    }
}

impl Bounds {
    /// Bounds that track at most `most` shapes; at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), lookups: 0, columns: BTreeMap::new(), topology: None }
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

    /// The current column of a shape; the caller has just called [`Self::set_topology`].
    pub(crate) fn column(
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

    /// Marks the log as read after a search that rolled back all its changes since `since`. Columns
    /// that had not read everything before are left as they are.
    pub(crate) fn skip(&mut self, since: crate::cluster::log::Cursor, cluster: &Cluster) {
        for (_, column) in self.columns.values_mut() {
            column.skip(since, cluster);
        }
    }
}
