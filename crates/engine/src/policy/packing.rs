//! Packing of single pods: the node and the GPUs of a pod.

pub mod domains;
pub mod price;

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::placement::Placement;
use crate::shape::Shape;

/// A policy that chooses a placement for one pod at a time.
///
/// It reads changes through [`Cluster::log`], so only changed nodes are evaluated. It never refuses
/// a pod that fits some open node (it is work-conserving).
pub trait Packing: Send {
    /// Its name, as on the command line.
    fn name(&self) -> &'static str;

    /// The number of score units in a millionth of a GPU's future use. Decisions report the packing
    /// price in such millionths. 1 if scores are in that unit already or have no such meaning.
    fn scores_per_millionth(&self) -> i64 {
        1
    }

    /// Records the arrival of a pod with this shape, whether or not it is placed. Policies learn
    /// the demand here.
    fn arrived(&mut self, shape: &Arc<Shape>) {
        let _ = shape;
    }

    /// Records the placement of a pod with this shape, by any component. Policies that consider the
    /// running pods of a node learn them here. Pods that ran before the policy started are recorded
    /// too.
    fn placed(&mut self, shape: &Arc<Shape>, placement: &Placement) {
        let _ = (shape, placement);
    }

    /// A pod that was [`Self::placed`] has left.
    fn released(&mut self, shape: &Arc<Shape>, placement: &Placement) {
        let _ = (shape, placement);
    }

    /// The best placement for a pod now; none if it fits no open node.
    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice>;
}

/// A placement and its score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The place.
    pub placement: Placement,
    /// Its score by the policy's own measure; more is better.
    pub score: i64,
    /// The best score of a node in another state, if there is one.
    pub runner_up: Option<Rival>,
}

/// The best alternative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The node.
    pub node: crate::node::NodeId,
    /// Its score.
    pub score: i64,
}
