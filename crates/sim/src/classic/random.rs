//! Random: any node on which the pod fits, and any GPU.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::generate::random::Random as Draws;
use octavo_engine::cluster::Cluster;
use octavo_engine::cluster::log::{Changes, Cursor};
use octavo_engine::fit;
use octavo_engine::gpu::Slices;
use octavo_engine::node::NodeId;
use octavo_engine::packing::{Choice, Packing};
use octavo_engine::pick::Gpus;
use octavo_engine::placement::{GpuPart, GpuParts, Placement};
use octavo_engine::shape::{GpuDemand, Shape};

/// Maximum number of shapes with cached feasibility. Beyond it all are dropped.
const MAX_SHAPES: usize = 4096;

/// The rule of `RandomScore`: every feasible node has the same chance, and for a share every
/// fitting GPU of the node. Whole GPUs and MIG instances use the default choice. The source's order
/// of nodes changes between runs, so its draws cannot be reproduced; these use a seed. There is no
/// runner-up, because all other nodes are equal.
#[derive(Debug)]
pub struct Random {
    draws: Draws,
    feasible: FxHashMap<Arc<Shape>, Feasible>,
}

impl Random {
    /// Draws from this seed.
    pub fn new(seed: u64) -> Self {
        Self { draws: Draws::seeded(seed), feasible: FxHashMap::default() }
    }

    fn gpus(&mut self, cluster: &Cluster, node: NodeId, demand: &GpuDemand) -> Option<GpuParts> {
        let gpus = Gpus::of_node(cluster, node);
        let GpuDemand::Share { count, milli, memory_mib } = *demand else {
            return gpus.demanded(demand);
        };
        // Reservoir sampling in one pass: the n-th fitting GPU replaces a chosen one with
        // probability count / n.
        let mut chosen: SmallVec<[u16; 8]> = SmallVec::new();
        let fitting = (0_u16..).zip(gpus.free);
        let fitting = fitting.filter(|(_, gpu)| fit::share_fits(gpu, milli, memory_mib));
        for (seen, (index, _)) in (1_u32..).zip(fitting) {
            if chosen.len() < usize::from(count) {
                chosen.push(index);
            } else if let Some(place) = chosen.get_mut(self.draws.index(seen as usize)) {
                *place = index;
            }
        }
        chosen.sort_unstable();
        let part = |gpu| GpuPart { gpu, milli, slices: Slices::NONE, memory_mib };
        (chosen.len() == usize::from(count)).then(|| chosen.into_iter().map(part).collect())
    }
}

impl Packing for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice> {
        if self.feasible.len() >= MAX_SHAPES && !self.feasible.contains_key(shape) {
            self.feasible.clear();
        }
        let feasible = self.feasible.entry(Arc::clone(shape)).or_default();
        feasible.catch_up(cluster, shape);
        let node = match feasible.count() {
            0 => return None,
            // The source does not score a single node, so nothing is drawn.
            1 => feasible.nth(0),
            count => feasible.nth(u32::try_from(self.draws.below(count.into())).unwrap_or(0)),
        };
        let gpus = self.gpus(cluster, node, &shape.gpus)?;
        Some(Choice { placement: Placement { node, gpus }, score: 100, runner_up: None })
    }
}

/// The feasible nodes of a shape, counted so that the n-th is found in logarithmic time.
#[derive(Debug, Default)]
struct Feasible {
    read: Cursor,
    /// Count of all feasible nodes at 1; of the two halves of `n` at `2n` and `2n + 1`; each node
    /// from the middle on.
    counts: Vec<u32>,
}

impl Feasible {
    fn catch_up(&mut self, cluster: &Cluster, shape: &Shape) {
        let places = cluster.node_count().next_power_of_two();
        let fits = |node: NodeId| {
            let state = cluster.states().state(cluster.state(node));
            state.is_some_and(|state| fit::fits(cluster, state, shape))
        };
        match cluster.log().read(&mut self.read) {
            Changes::Nodes(nodes) if self.counts.len() == 2 * places => {
                for node in nodes {
                    self.set(*node, fits(*node));
                }
            }
            _ => {
                self.counts = vec![0; 2 * places];
                for (_, state, nodes) in cluster.states().iter() {
                    if fit::fits(cluster, state, shape) {
                        for node in nodes {
                            self.counts[places + node.0 as usize] = 1;
                        }
                    }
                }
                for at in (1..places).rev() {
                    self.counts[at] = self.counts[2 * at] + self.counts[2 * at + 1];
                }
            }
        }
    }

    fn set(&mut self, node: NodeId, is_feasible: bool) {
        let mut at = self.counts.len() / 2 + node.0 as usize;
        if (self.counts[at] == 1) == is_feasible {
            return;
        }
        while at > 0 {
            if is_feasible {
                self.counts[at] += 1;
            } else {
                self.counts[at] -= 1;
            }
            at /= 2;
        }
    }

    fn count(&self) -> u32 {
        self.counts.get(1).copied().unwrap_or(0)
    }

    /// The n-th feasible node, counted from 0 by id.
    fn nth(&self, n: u32) -> NodeId {
        let (places, mut at, mut left) = (self.counts.len() / 2, 1, n);
        while at < places {
            at *= 2;
            if self.counts[at] <= left {
                left -= self.counts[at];
                at += 1;
            }
        }
        NodeId(u32::try_from(at - places).unwrap_or(u32::MAX))
    }
}
