//! The policy's cached state of a cluster between decisions.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::candidates::{self, Appraisal};
use super::capacity_totals::CapacityTotals;
use super::index::{Index, RankedEntry};
use super::price_model::PriceModel;
use super::prior::Size;
use crate::cluster::Cluster;
use crate::cluster::log::Changes;
use crate::cluster::log::ClusterId;
use crate::cluster::states::StateId;
use crate::node::NodeSet;
use crate::packing::{Choice, Rival};
use crate::pick::{self, Gpus};
use crate::placement::Placement;
use crate::shape::{GpuDemand, Shape};

/// Shapes whose scores are kept at least.
const MIN_INDICES: usize = 32;
/// Shapes whose scores are kept at most, however few states there are.
const MAX_INDICES: usize = 1024;
/// The maximum of states times shapes with cached scores, beyond the minimum: some 100 MB.
const MAX_SCORES: usize = 1 << 20;

/// Tables, and everything that was computed with them.
#[derive(Clone, Debug)]
pub(super) struct ScoreCache {
    /// The cluster that all this is of.
    of: ClusterId,
    price_model: PriceModel,
    totals: CapacityTotals,
    /// By slot of the state, with its generation.
    appraisals: Vec<Option<(u32, Appraisal)>>,
    /// By slot of the state: the decision in which it was last scored.
    scored: Vec<u64>,
    indices: FxHashMap<Arc<Shape>, Index>,
    decisions: u64,
}

impl ScoreCache {
    /// Books of a cluster with nothing in them yet.
    pub(super) fn new(cluster: &Cluster, mut price_model: PriceModel) -> Self {
        Self {
            of: cluster.log().cluster_id(),
            totals: CapacityTotals::of(cluster, &mut price_model),
            price_model,
            appraisals: Vec::new(),
            scored: Vec::new(),
            indices: FxHashMap::default(),
            decisions: 0,
        }
    }

    /// A cache with the same price model but other expected node sizes.
    pub(super) fn with_expected_sizes(self, cluster: &Cluster, sizes: &[Size]) -> Self {
        let mut price_model = self.price_model;
        price_model.expect_sizes(sizes);
        Self::new(cluster, price_model)
    }

    /// Whether this is of that cluster.
    pub(super) fn is_of(&self, cluster: &Cluster) -> bool {
        self.of == cluster.log().cluster_id()
    }

    /// How many pods fill the cluster when it is empty.
    pub(super) fn pods_to_fill(&self, cluster: &Cluster) -> u64 {
        self.price_model.pods_to_fill(cluster)
    }

    #[cfg(test)]
    pub(super) fn decisions(&self) -> u64 {
        self.decisions
    }

    #[cfg(test)]
    pub(super) fn is_kept(&self, shape: &Arc<Shape>) -> bool {
        self.indices.contains_key(shape)
    }

    #[cfg(test)]
    pub(super) fn class_model_count(&self) -> usize {
        self.price_model.class_model_count()
    }

    /// The best placement for a pod now, outside of some nodes.
    pub(super) fn choose(
        &mut self,
        cluster: &Cluster,
        shape: &Arc<Shape>,
        avoids_risk: bool,
        forbidden: &NodeSet,
    ) -> Option<Choice> {
        self.decisions += 1;
        self.totals.catch_up(cluster, &mut self.price_model);
        let tight = self.totals.tight(&self.price_model);
        let mut index = self.take_index(cluster, shape);
        self.catch_up(cluster, &mut index);
        let best = index.best(cluster, tight, avoids_risk, forbidden);
        self.indices.insert(Arc::clone(shape), index);
        let (best, rival) = best?;
        let placement = placement(cluster, shape, &best)?;
        let runner_up =
            rival.map(|ranked| Rival { node: ranked.entry.node, score: ranked.score() });
        Some(Choice { placement, score: best.score(), runner_up })
    }

    /// The scores of a shape. If too many shapes are cached, the least recently used ones are
    /// dropped.
    fn take_index(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Index {
        let mut index = self.indices.remove(shape).unwrap_or_else(|| Index::new(shape));
        index.used = self.decisions;
        // Checked at every decision: cached shapes from a time with few states grow on use.
        let most = MAX_SCORES / cluster.states().slot_count().max(1);
        while self.indices.len() >= most.clamp(MIN_INDICES, MAX_INDICES) {
            let oldest = self.indices.values().min_by_key(|index| index.used);
            let Some(shape) = oldest.map(|index| Arc::clone(&index.shape)) else { break };
            self.indices.remove(&shape);
        }
        index
    }

    /// Scores the states that nodes entered since the shape was last requested.
    fn catch_up(&mut self, cluster: &Cluster, index: &mut Index) {
        let states = cluster.states();
        self.appraisals.resize(states.slot_count(), None);
        self.scored.resize(states.slot_count(), 0);
        match cluster.log().read(&mut index.cursor) {
            Changes::Nodes(nodes) => {
                for node in nodes {
                    let id = cluster.state(*node);
                    // Others of the state are represented by its first node.
                    if self.scored[id.slot as usize] != self.decisions
                        && states.first_node(id) == Some(*node)
                    {
                        self.score(cluster, id, index);
                    }
                }
            }
            Changes::All => {
                index.clear();
                states.iter().for_each(|(id, _, _)| self.score(cluster, id, index));
            }
        }
        index.tidy(cluster);
    }

    fn score(&mut self, cluster: &Cluster, id: StateId, index: &mut Index) {
        let slot = id.slot as usize;
        let states = cluster.states();
        let (Some(state), Some(node)) = (states.state(id), states.first_node(id)) else { return };
        self.scored[slot] = self.decisions;
        let known =
            self.appraisals[slot].take().filter(|(generation, _)| *generation == id.generation);
        let class_model =
            self.price_model.class_model(cluster, &cluster.classes()[state.class.0 as usize]);
        let price_model = &self.price_model;
        let appraisal = match known {
            Some((_, appraisal)) => appraisal,
            None => Appraisal::of(cluster, price_model, &class_model, state),
        };
        let shape = &index.shape;
        let ways =
            candidates::candidates(cluster, price_model, &class_model, state, &appraisal, shape);
        index.note(node, id, &ways);
        self.appraisals[slot] = Some((id.generation, appraisal));
    }
}

fn placement(cluster: &Cluster, shape: &Shape, ranked: &RankedEntry) -> Option<Placement> {
    let node = ranked.entry.node;
    let gpus = match (&shape.gpus, ranked.entry.level) {
        (GpuDemand::Share { milli, memory_mib, .. }, Some(level)) => {
            pick::share_at(cluster, node, *milli, *memory_mib, level)?
        }
        (demand, _) => Gpus::of_node(cluster, node).demanded(demand)?,
    };
    Some(Placement { node, gpus })
}
