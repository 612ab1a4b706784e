//! What tables were made of: as long as it stays, they can be made again and are the same.

use super::demand_stats::DemandStats;
use super::gpu_counts;
use super::prior::{self, Size};
use crate::cluster::Cluster;
use crate::cluster::log::{Changes, Cursor};

/// What tables were made of, beside turnover.
#[derive(Clone, Debug)]
pub(super) struct ModelInputs {
    /// What was counted by then.
    pub(super) demand_stats: DemandStats,
    /// GPUs of each model by then.
    pub(super) gpus: Vec<u64>,
    /// Sizes of the largest nodes, of which pods are expected that were not seen; every node of the
    /// cluster is of one or need not be. None where everything is known.
    pub(super) sizes: Vec<Size>,
    /// How far sizes are checked.
    cursor: Cursor,
}

impl ModelInputs {
    /// What is counted and what there is now.
    pub(super) fn of(cluster: &Cluster, demand_stats: &DemandStats, is_learned: bool) -> Self {
        let sizes = if is_learned { prior::sizes(cluster) } else { Vec::new() };
        Self::new(demand_stats.clone(), gpu_counts::gpus_by_model(cluster), sizes)
    }

    pub(super) fn new(demand_stats: DemandStats, gpus: Vec<u64>, sizes: Vec<Size>) -> Self {
        Self { demand_stats, gpus, sizes, cursor: Cursor::default() }
    }

    /// Looks at nodes that changed. Whether there are now other sizes, because some node is larger
    /// than any was or of another size.
    pub(super) fn observe(&mut self, cluster: &Cluster) -> bool {
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
