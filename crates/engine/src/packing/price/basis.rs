//! What tables were made of: as long as it stays, they can be made again and are the same.

use super::fleet;
use super::popularity::Popularity;
use super::prior::{self, Size};
use crate::cluster::Cluster;
use crate::cluster::log::{Changes, Cursor};

/// What tables were made of, beside turnover.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    /// What was counted by then.
    pub(super) popularity: Popularity,
    /// GPUs of each model by then.
    pub(super) gpus: Vec<u64>,
    /// Sizes of the largest nodes, of which pods are expected that were not seen; every node of the
    /// cluster is of one or need not be. None where everything is known.
    pub(super) sizes: Vec<Size>,
    /// How far sizes are checked.
    cursor: Cursor,
}

impl Basis {
    /// What is counted and what there is now.
    pub(super) fn of(cluster: &Cluster, popularity: &Popularity, is_learned: bool) -> Self {
        let sizes = if is_learned { prior::sizes(cluster) } else { Vec::new() };
        Self::new(popularity.clone(), fleet::gpus_by_model(cluster), sizes)
    }

    pub(super) fn new(popularity: Popularity, gpus: Vec<u64>, sizes: Vec<Size>) -> Self {
        Self { popularity, gpus, sizes, cursor: Cursor::default() }
    }

    /// Looks at nodes that changed. Whether there are now other sizes, because some node is larger
    /// than any was or of another size.
    pub(super) fn meet(&mut self, cluster: &Cluster) -> bool {
        let is_covered = |node| prior::covers(&self.sizes, cluster.class(node));
        let is_same = match cluster.log().read(&mut self.cursor) {
            Changes::Nodes(nodes) => nodes.iter().all(|node| is_covered(*node)),
            Changes::All => cluster.nodes().all(is_covered),
        };
        if !is_same {
            self.sizes = prior::sizes(cluster);
        }
        !is_same
    }
}
