//! Sums over all open nodes that tell how full the cluster is, updated incrementally.

use std::collections::BTreeMap;

use super::gpu_residual;
use super::price_model::PriceModel;
use super::reserve::{Places, Reserve};
use crate::cluster::Cluster;
use crate::cluster::log::{Changes, Cursor};
use crate::node::NodeId;

/// Free capacity of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct CapacityTotals {
    cursor: Cursor,
    /// The contribution of each node.
    nodes: Vec<NodeTotals>,
    /// Value of all residual GPUs, in millionths of a GPU.
    value: i64,
    cpu_milli: i64,
    cpu_capacity: i64,
    places: Vec<i64>,
    /// Number of nodes for each mask of allowed reserved shapes.
    allowed: BTreeMap<u64, u32>,
    /// Total weight of the pods that take slots of each reserved shape.
    rates: Vec<i64>,
}

#[derive(Clone, Debug, Default)]
struct NodeTotals {
    /// None of a closed node.
    allowed: Option<u64>,
    value: i64,
    cpu_milli: i64,
    places: Places,
}

impl CapacityTotals {
    /// The ledger for new tables.
    pub(super) fn of(cluster: &Cluster, price_model: &mut PriceModel) -> Self {
        let none = || vec![0; price_model.reserve.reserved_shapes.len()];
        let mut totals = Self { places: none(), rates: none(), ..Self::default() };
        totals.catch_up(cluster, price_model);
        totals
    }

    /// Reads what changed.
    pub(super) fn catch_up(&mut self, cluster: &Cluster, price_model: &mut PriceModel) {
        let mut has_changed = false;
        self.nodes.resize_with(cluster.node_count(), NodeTotals::default);
        match cluster.log().read(&mut self.cursor) {
            Changes::Nodes(nodes) => {
                for node in nodes {
                    has_changed |= self.enter(cluster, price_model, *node);
                }
            }
            Changes::All => {
                for node in cluster.nodes() {
                    has_changed |= self.enter(cluster, price_model, node);
                }
            }
        }
        if has_changed {
            self.rates = price_model.reserve.rates(self.allowed.keys().copied());
        }
        self.cpu_capacity = cluster.totals().capacity.cpu_milli;
    }

    /// The shapes of the reserve that are tight now, as a mask.
    pub(super) fn tight(&self, price_model: &PriceModel) -> u64 {
        // A hundredth of the CPU is always left over somewhere.
        let cpu = self.cpu_milli - self.cpu_capacity / 100;
        let more = price_model.pods_to_come(self.value, cpu);
        Reserve::tight(&self.places, &self.rates, more, price_model.total)
    }

    /// Updates a node. Returns whether the set of masks has changed.
    fn enter(&mut self, cluster: &Cluster, price_model: &mut PriceModel, node: NodeId) -> bool {
        let node_totals = if cluster.is_open(node) {
            node_totals(cluster, price_model, node)
        } else {
            NodeTotals::default()
        };
        let Some(old) = self.nodes.get_mut(node.0 as usize) else { return false };
        self.value += node_totals.value - old.value;
        self.cpu_milli += node_totals.cpu_milli - old.cpu_milli;
        for (sum, places) in self.places.iter_mut().zip(&node_totals.places) {
            *sum += i64::from(*places);
        }
        for (sum, places) in self.places.iter_mut().zip(&old.places) {
            *sum -= i64::from(*places);
        }
        let (was, is) = (old.allowed, node_totals.allowed);
        *old = node_totals;
        was != is && self.exchange(was, is)
    }

    /// Counts a node under another mask. Whether other masks are now there.
    fn exchange(&mut self, was: Option<u64>, is: Option<u64>) -> bool {
        let before = self.allowed.len();
        let mut has_changed = false;
        if let Some(is) = is {
            *self.allowed.entry(is).or_default() += 1;
            has_changed = self.allowed.len() > before;
        }
        if let Some(was) = was
            && let Some(count) = self.allowed.get_mut(&was)
        {
            *count -= 1;
            if *count == 0 {
                self.allowed.remove(&was);
                has_changed = true;
            }
        }
        has_changed
    }
}

fn node_totals(cluster: &Cluster, price_model: &mut PriceModel, node: NodeId) -> NodeTotals {
    let class = cluster.class(node);
    let class_model = price_model.class_model(cluster, class);
    let model = cluster.models().get(usize::from(class.model.0));
    let residuals = gpu_residual::residuals(cluster.gpus(node), model);
    let free = cluster.free(node);
    NodeTotals {
        allowed: Some(class_model.reserved_shapes.mask),
        value: class_model.value(&residuals),
        cpu_milli: free.cpu_milli.max(0),
        places: price_model.reserve.places(&class_model.reserved_shapes, &free, &residuals),
    }
}
