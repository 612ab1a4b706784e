//! Additional input about a gang: pinned members, and forbidden nodes.

use super::{PartRecord, PinnedRecord, SnapshotError, read};
use crate::World;
use crate::cluster::Cluster;
use crate::solve::{NodeSet, Pinned};

impl PinnedRecord {
    /// The record of a pinned member.
    pub fn of(pinned: &Pinned, cluster: &Cluster) -> Self {
        Self {
            rank: pinned.rank,
            node: cluster.name(pinned.placement.node).to_owned(),
            gpus: pinned.placement.gpus.iter().map(PartRecord::of).collect(),
        }
    }

    /// The member in a world of the document.
    pub fn pinned(&self, world: &World) -> Result<Pinned, SnapshotError> {
        let place = || format!("pinned member of rank {}", self.rank);
        let placement = read::placement(&place, &self.node, &self.gpus, world)?;
        Ok(Pinned { rank: self.rank, placement })
    }
}

/// The nodes of these names.
pub fn nodes_named(names: &[String], world: &World) -> Result<NodeSet, SnapshotError> {
    let place = || "forbidden nodes".to_owned();
    names.iter().map(|name| read::node(&place, name, world)).collect()
}
