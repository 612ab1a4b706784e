//! Policies that score nodes and take the best.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::groups::Groups;
use super::index::Index;
use octavo_engine::cluster::Cluster;
use octavo_engine::cluster::states::{NodeState, StateId};
use octavo_engine::fit;
use octavo_engine::fragmentation::NodeResidual;
use octavo_engine::node::NodeId;
use octavo_engine::packing::{Choice, Packing, Rival};
use octavo_engine::pick::Gpus;
use octavo_engine::placement::{GpuParts, Placement};
use octavo_engine::shape::{GpuDemand, Shape};

/// Maximum number of shapes with cached scores. Beyond it all are dropped.
const MAX_SHAPES: usize = 4096;

/// How a policy scores.
pub trait Rule: Send {
    /// The policy's name.
    fn name(&self) -> &'static str;

    /// The score of nodes on which the pod fits; more is better.
    fn score(&mut self, candidate: &Candidate<'_>) -> i32;

    /// The GPUs the pod gets of the node that was chosen.
    fn gpus(&mut self, cluster: &Cluster, node: NodeId, shape: &Shape) -> Option<GpuParts> {
        Gpus::of_node(cluster, node).demanded(&shape.gpus)
    }

    /// Features of a node beyond its state; nodes with different features are scored separately.
    fn features(&self, node: NodeId) -> u128 {
        let _ = node;
        0
    }

    /// Records a placed pod; returns whether the node's features changed.
    fn placed(&mut self, shape: &Shape, node: NodeId) -> bool {
        let _ = (shape, node);
        false
    }

    /// Records a released pod; returns whether the node's features changed.
    fn released(&mut self, shape: &Shape, node: NodeId) -> bool {
        let _ = (shape, node);
        false
    }
}

/// Nodes with equal scores on which a pod fits.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The nodes' state.
    pub id: StateId,
    /// Their free capacity.
    pub state: &'a NodeState,
    /// Their marks.
    pub features: u128,
    /// The pod's request.
    pub shape: &'a Shape,
}

impl<'a> Candidate<'a> {
    /// The residual of the nodes.
    pub fn left(&self) -> NodeResidual<'a> {
        NodeResidual::of_state(self.cluster, self.state)
    }

    /// The GPUs of the state.
    pub fn gpus(&self) -> Gpus<'a> {
        Gpus::of_state(self.cluster, self.state)
    }

    /// Compute that the pod would take, in thousandths of a GPU.
    pub fn total_milli(&self) -> i64 {
        match &self.shape.gpus {
            GpuDemand::Mig { count, profile } => {
                let profile = self.gpus().model.and_then(|model| model.profile(profile));
                i64::from(*count) * profile.map_or(0, |profile| i64::from(profile.milli))
            }
            demand => demand.total_milli(),
        }
    }
}

/// A policy from a rule: the greatest score, then the lowest rank of the node.
#[derive(Debug)]
pub struct Ranked<R> {
    rule: R,
    groups: Groups,
    indexes: FxHashMap<Arc<Shape>, Index>,
    /// Nodes whose features changed since the last update of the groups.
    marked: Vec<NodeId>,
}

impl<R: Rule> Ranked<R> {
    /// A policy by this rule; ties are broken by `ties`, see [`super::Setup::ties`].
    pub fn new(rule: R, ties: Vec<u32>) -> Self {
        let (indexes, marked) = (FxHashMap::default(), Vec::new());
        Self { rule, groups: Groups::new(ties), indexes, marked }
    }

    /// The rule.
    pub fn rule(&self) -> &R {
        &self.rule
    }
}

impl<R: Rule> Packing for Ranked<R> {
    fn name(&self) -> &'static str {
        self.rule.name()
    }

    fn placed(&mut self, shape: &Arc<Shape>, placement: &Placement) {
        if self.rule.placed(shape, placement.node) {
            self.marked.push(placement.node);
        }
    }

    fn released(&mut self, shape: &Arc<Shape>, placement: &Placement) {
        if self.rule.released(shape, placement.node) {
            self.marked.push(placement.node);
        }
    }

    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice> {
        let Self { rule, groups, indexes, marked } = self;
        if groups.forget_other(cluster) {
            indexes.clear();
        }
        groups.update(cluster, marked, |node| rule.features(node));
        marked.clear();
        if indexes.len() >= MAX_SHAPES && !indexes.contains_key(shape) {
            indexes.clear();
        }
        let index = indexes.entry(Arc::clone(shape)).or_default();
        index.catch_up(groups, |(id, features)| {
            let state = cluster.states().state(id)?;
            let candidate = Candidate { cluster, id, state, features, shape };
            fit::fits(cluster, state, shape).then(|| rule.score(&candidate))
        });
        let (best, second) = index.best()?;
        let node = groups.node(best.rank)?;
        let gpus = rule.gpus(cluster, node, shape)?;
        let runner_up = second.and_then(|second| {
            Some(Rival { node: groups.node(second.rank)?, score: second.score.into() })
        });
        let placement = Placement { node, gpus };
        Some(Choice { placement, score: best.score.into(), runner_up })
    }
}

/// A whole number for a formula that the source computes in floating point; exact.
pub(super) fn float(whole: i64) -> f64 {
    f64::from(i32::try_from(whole).unwrap_or(if whole < 0 { i32::MIN } else { i32::MAX }))
}

/// The whole part of a number, as the source cuts scores.
#[expect(clippy::cast_possible_truncation, reason = "cutting is what the source does")]
pub(super) fn truncated(score: f64) -> i32 {
    score as i32
}
