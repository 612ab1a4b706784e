//! The inputs of the price model. As long as they stay, the model can be rebuilt identically.

use super::demand_stats::DemandStats;
use super::gpu_counts;
use super::prior::{self, Size};
use crate::cluster::Cluster;
use crate::cluster::log::{Changes, Cursor};

/// The inputs of the price model, except churn.
#[derive(Clone, Debug)]
pub(super) struct ModelInputs {
    /// The counts at that time.
    pub(super) demand_stats: DemandStats,
    /// GPUs of each model by then.
    pub(super) gpus: Vec<u64>,
    /// Sizes of the largest nodes, for which unseen pods are expected. Every node of the cluster is
    /// covered by one or too small to matter. Empty if the demand is known.
    pub(super) sizes: Vec<Size>,
    /// How far sizes are checked.
    cursor: Cursor,
}

impl ModelInputs {
    /// The current counts and GPUs.
    pub(super) fn of(cluster: &Cluster, demand_stats: &DemandStats, is_learned: bool) -> Self {
        let sizes = if is_learned { prior::sizes(cluster) } else { Vec::new() };
        Self::new(demand_stats.clone(), gpu_counts::gpus_by_model(cluster), sizes)
    }

    pub(super) fn new(demand_stats: DemandStats, gpus: Vec<u64>, sizes: Vec<Size>) -> Self {
        Self { demand_stats, gpus, sizes, cursor: Cursor::default() }
    }

    /// Reads changed nodes. Returns whether the sizes changed, because some node is not covered.
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
