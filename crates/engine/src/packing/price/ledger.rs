//! Sums over all open nodes that say how full the cluster is, kept by what changed.

use std::collections::BTreeMap;

use super::levels;
use super::reserve::{Places, Reserve};
use super::tables::Tables;
use crate::cluster::Cluster;
use crate::cluster::log::{Changes, Cursor};
use crate::node::NodeId;

/// What is left of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    cursor: Cursor,
    /// What each node adds.
    nodes: Vec<Line>,
    /// Value of what is left of all GPUs, in millionths of a GPU.
    value: i64,
    cpu_milli: i64,
    cpu_capacity: i64,
    places: Vec<i64>,
    /// How many nodes have these shapes of the reserve allowed, as a mask.
    allowed: BTreeMap<u64, u32>,
    /// Weights of the pods that take places of each shape of the reserve.
    rates: Vec<i64>,
}

#[derive(Clone, Debug, Default)]
struct Line {
    /// None of a closed node.
    allowed: Option<u64>,
    value: i64,
    cpu_milli: i64,
    places: Places,
}

impl Ledger {
    /// The ledger for new tables.
    pub(super) fn of(cluster: &Cluster, tables: &mut Tables) -> Self {
        let none = || vec![0; tables.reserve.wishes.len()];
        let mut ledger = Self { places: none(), rates: none(), ..Self::default() };
        ledger.catch_up(cluster, tables);
        ledger
    }

    /// Reads what changed.
    pub(super) fn catch_up(&mut self, cluster: &Cluster, tables: &mut Tables) {
        let mut is_other = false;
        self.nodes.resize_with(cluster.node_count(), Line::default);
        match cluster.log().read(&mut self.cursor) {
            Changes::Nodes(nodes) => {
                for node in nodes {
                    is_other |= self.enter(cluster, tables, *node);
                }
            }
            Changes::All => {
                for node in cluster.nodes() {
                    is_other |= self.enter(cluster, tables, node);
                }
            }
        }
        if is_other {
            self.rates = tables.reserve.rates(self.allowed.keys().copied());
        }
        self.cpu_capacity = cluster.totals().capacity.cpu_milli;
    }

    /// The shapes of the reserve that are tight now, as a mask.
    pub(super) fn tight(&self, tables: &Tables) -> u64 {
        // A hundredth of the CPU is always left over somewhere.
        let cpu = self.cpu_milli - self.cpu_capacity / 100;
        let more = tables.pods_to_come(self.value, cpu);
        Reserve::tight(&self.places, &self.rates, more, tables.total)
    }

    /// Enters a node anew. Whether other shapes are now allowed together somewhere.
    fn enter(&mut self, cluster: &Cluster, tables: &mut Tables, node: NodeId) -> bool {
        let line =
            if cluster.is_open(node) { line(cluster, tables, node) } else { Line::default() };
        let Some(old) = self.nodes.get_mut(node.0 as usize) else { return false };
        self.value += line.value - old.value;
        self.cpu_milli += line.cpu_milli - old.cpu_milli;
        for (sum, places) in self.places.iter_mut().zip(&line.places) {
            *sum += i64::from(*places);
        }
        for (sum, places) in self.places.iter_mut().zip(&old.places) {
            *sum -= i64::from(*places);
        }
        let (was, is) = (old.allowed, line.allowed);
        *old = line;
        was != is && self.exchange(was, is)
    }

    /// Counts a node under another mask. Whether other masks are now there.
    fn exchange(&mut self, was: Option<u64>, is: Option<u64>) -> bool {
        let before = self.allowed.len();
        let mut is_other = false;
        if let Some(is) = is {
            *self.allowed.entry(is).or_default() += 1;
            is_other = self.allowed.len() > before;
        }
        if let Some(was) = was
            && let Some(count) = self.allowed.get_mut(&was)
        {
            *count -= 1;
            if *count == 0 {
                self.allowed.remove(&was);
                is_other = true;
            }
        }
        is_other
    }
}

fn line(cluster: &Cluster, tables: &mut Tables, node: NodeId) -> Line {
    let class = cluster.class(node);
    let sheet = tables.sheet(cluster, class);
    let model = cluster.models().get(usize::from(class.model.0));
    let levels = levels::levels(cluster.gpus(node), model);
    let free = cluster.free(node);
    Line {
        allowed: Some(sheet.wishes.mask),
        value: sheet.value(&levels),
        cpu_milli: free.cpu_milli.max(0),
        places: tables.reserve.places(&sheet.wishes, &free, &levels),
    }
}
