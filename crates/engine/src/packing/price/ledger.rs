//! Sums over all open nodes that say how full the cluster is, kept by what changed.

use super::levels;
use super::reserve::Places;
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
}

#[derive(Clone, Debug, Default)]
struct Line {
    value: i64,
    cpu_milli: i64,
    places: Places,
}

impl Ledger {
    /// The ledger for new tables.
    pub(super) fn of(cluster: &Cluster, tables: &Tables) -> Self {
        let mut ledger = Self { places: vec![0; tables.reserve.wishes.len()], ..Self::default() };
        ledger.catch_up(cluster, tables);
        ledger
    }

    /// Reads what changed.
    pub(super) fn catch_up(&mut self, cluster: &Cluster, tables: &Tables) {
        self.nodes.resize_with(cluster.node_count(), Line::default);
        match cluster.log().read(&mut self.cursor) {
            Changes::Nodes(nodes) => {
                for node in nodes {
                    self.enter(cluster, tables, *node);
                }
            }
            Changes::All => {
                for node in cluster.nodes() {
                    self.enter(cluster, tables, node);
                }
            }
        }
        self.cpu_capacity = cluster.totals().capacity.cpu_milli;
    }

    /// The shapes of the reserve that are tight now, as a mask.
    pub(super) fn tight(&self, tables: &Tables) -> u64 {
        // A hundredth of the CPU is always left over somewhere.
        let cpu = self.cpu_milli - self.cpu_capacity / 100;
        let more = tables.pods_to_come(self.value, cpu);
        tables.reserve.tight(&self.places, more, tables.total)
    }

    fn enter(&mut self, cluster: &Cluster, tables: &Tables, node: NodeId) {
        let line =
            if cluster.is_open(node) { line(cluster, tables, node) } else { Line::default() };
        let Some(old) = self.nodes.get_mut(node.0 as usize) else { return };
        self.value += line.value - old.value;
        self.cpu_milli += line.cpu_milli - old.cpu_milli;
        for (sum, places) in self.places.iter_mut().zip(&line.places) {
            *sum += i64::from(*places);
        }
        for (sum, places) in self.places.iter_mut().zip(&old.places) {
            *sum -= i64::from(*places);
        }
        *old = line;
    }
}

fn line(cluster: &Cluster, tables: &Tables, node: NodeId) -> Line {
    let class = cluster.class(node);
    let Some(state) = cluster.states().state(cluster.state(node)) else { return Line::default() };
    let number = state.class.0 as usize;
    let model = cluster.models().get(usize::from(class.model.0));
    let levels = levels::levels(&state.gpus, model);
    let free = cluster.free(node);
    Line {
        value: tables.value(number, &levels),
        cpu_milli: free.cpu_milli.max(0),
        places: tables.reserve.places(number, &free, &levels),
    }
}
