//! Packing one by one: which node, and which of its GPUs, a single pod gets.

pub mod classic;
pub mod price;

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::placement::Placement;
use crate::shape::Shape;

/// A rule that chooses a place for one pod at a time.
///
/// A policy sees what changed through [`Cluster::log`], so that it looks at changed nodes only. It
/// never refuses a pod that fits some open node (it is work-conserving).
pub trait Packing: Send {
    /// Its name, as on the command line.
    fn name(&self) -> &'static str;

    /// How much of its scores is a millionth of a GPU's future use: what decisions give as the packing
    /// price is counted in those. 1 where scores are that already, or have no such meaning.
    fn scores_per_millionth(&self) -> i64 {
        1
    }

    /// A pod of this shape has arrived; it may or may not find a place. Policies that learn what is
    /// asked for learn it here.
    fn arrived(&mut self, shape: &Arc<Shape>) {
        let _ = shape;
    }

    /// A pod of this shape was put there, by whomever. Policies that look at what runs on a node,
    /// beside what is left of it, learn it here; pods that ran before the policy began are told, too.
    fn placed(&mut self, shape: &Arc<Shape>, placement: &Placement) {
        let _ = (shape, placement);
    }

    /// A pod that was [`Self::placed`] has left.
    fn released(&mut self, shape: &Arc<Shape>, placement: &Placement) {
        let _ = (shape, placement);
    }

    /// The best place for a pod now; none if it fits no open node.
    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice>;
}

/// A place and how good it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The place.
    pub placement: Placement,
    /// Its score by the policy's own measure; more is better.
    pub score: i64,
    /// The best score of a node in another state, if there was one.
    pub runner_up: Option<Rival>,
}

/// The best place that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The node.
    pub node: crate::node::NodeId,
    /// Its score.
    pub score: i64,
}
