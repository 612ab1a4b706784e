//! Power, spend and spare nodes of the whole cluster, updated incrementally.

use crate::World;
use crate::cluster::Cluster;
use crate::cluster::log::{Changes, ClusterId, Cursor};
use crate::cluster::states::{NodeState, StateId};
use crate::node::NodeId;
use crate::objective::{cost, energy};
use crate::topology::{DomainId, Topology};

/// Power, spend and spare nodes of one cluster and one topology. It reads the changes since the
/// last call. Figures of nodes are computed once for each state.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    cursor: Cursor,
    /// The cluster that the figures are of.
    cluster_id: ClusterId,
    /// By slot of the state; the generation tells whether the entry is still valid.
    known: Vec<Option<(u32, Reading)>>,
    /// By node.
    readings: Vec<Reading>,
    watts: i64,
    cents: i64,
    /// By domain.
    spares: Vec<i64>,
    /// The topology that those are of.
    topology: Option<Topology>,
}

/// Figures of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    watts: i64,
    cents: i64,
    is_spare: bool,
}

impl Meter {
    /// Reads what changed.
    pub fn read(&mut self, world: &World) {
        let World { cluster, topology, .. } = world;
        // A rebuilt topology moves nodes between domains. For another cluster no cached value
        // holds.
        let cluster_id = cluster.log().cluster_id();
        if self.topology.as_ref() != Some(topology) || self.cluster_id != cluster_id {
            let domains = topology.domains().count();
            let topology = Some(topology.clone());
            *self = Self { cluster_id, spares: vec![0; domains], topology, ..Self::default() };
        }
        match cluster.log().read(&mut self.cursor) {
            Changes::Nodes(nodes) => {
                for node in nodes {
                    self.update(cluster, topology, *node);
                }
            }
            Changes::All => {
                for node in cluster.nodes() {
                    self.update(cluster, topology, node);
                }
            }
        }
    }

    /// Power of the whole cluster in watts.
    pub fn watts(&self) -> i64 {
        self.watts
    }

    /// Spend of the whole cluster in cents per hour.
    pub fn cents_per_hour(&self) -> i64 {
        self.cents
    }

    /// Spare nodes of a domain ([`cost::is_spare`]).
    pub fn spares(&self, domain: DomainId) -> i64 {
        self.spares.get(domain.0 as usize).copied().unwrap_or(0)
    }

    fn update(&mut self, cluster: &Cluster, topology: &Topology, node: NodeId) {
        let index = node.0 as usize;
        if self.readings.len() <= index {
            self.readings.resize(index + 1, Reading::default());
        }
        let id = cluster.state(node);
        let Some(state) = cluster.states().state(id) else { return };
        let now = self.reading(cluster, id, state);
        let old = std::mem::replace(&mut self.readings[index], now);
        self.watts += now.watts - old.watts;
        self.cents += now.cents - old.cents;
        let spares = i64::from(now.is_spare) - i64::from(old.is_spare);
        if spares != 0 {
            for domain in topology.ancestors(topology.leaf_domain(node)) {
                if let Some(count) = self.spares.get_mut(domain.0 as usize) {
                    *count += spares;
                }
            }
        }
    }

    fn reading(&mut self, cluster: &Cluster, id: StateId, state: &NodeState) -> Reading {
        let slot = id.slot as usize;
        if self.known.len() <= slot {
            self.known.resize(slot + 1, None);
        }
        if let Some((generation, reading)) = self.known[slot]
            && generation == id.generation
        {
            return reading;
        }
        let reading = Reading {
            watts: energy::watts(cluster, state),
            cents: cost::cents(cluster, state),
            is_spare: cost::is_spare(cluster, state),
        };
        self.known[slot] = Some((id.generation, reading));
        reading
    }
}
