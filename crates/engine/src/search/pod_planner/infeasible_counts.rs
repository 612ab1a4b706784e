//! Why a pod fits no node: what each node lacks, counted.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::gpu::GpuFree;
use crate::node::{NodeClass, NodeId};
use crate::shape::{GpuDemand, Shape};

/// An obstacle that keeps a pod off a node, in the order of the checks: permanent ones first, then
/// those that may clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Obstacle {
    /// It lacks a feature that the pod needs (node selector, affinity).
    Selector,
    /// It has a property that the pod does not tolerate (taint).
    Taint,
    /// It has no GPUs.
    NoGpus,
    /// Its GPUs are of a disallowed model, or lack the MIG profile.
    Model,
    /// It is too small for the pod even when it is empty.
    TooSmall,
    /// It is not open for new pods: not ready, cordoned, held.
    Closed,
    /// No pod place is free.
    Pods,
    /// Too little CPU is free.
    Cpu,
    /// Too little memory is free.
    Memory,
    /// Enough GPU capacity is free, but too fragmented.
    Pieces,
    /// Too little of its GPUs is free.
    Gpus,
}

/// Nodes by obstacle; each node counts once, under its first obstacle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InfeasibleCounts {
    /// Obstacles and how many nodes have them.
    pub counts: BTreeMap<Obstacle, u64>,
    /// The first node that would fit if it were empty and open; none if no node would.
    pub template: Option<NodeId>,
}

impl InfeasibleCounts {
    /// Counts the obstacles of the nodes of a cluster for a pod of this shape. Nodes that fit are
    /// not counted.
    pub fn of(cluster: &Cluster, shape: &Shape) -> Self {
        let mut infeasible = Self::default();
        for (_, state, nodes) in cluster.states().iter() {
            let Some(obstacle) = obstacle(cluster, state, shape) else { continue };
            *infeasible.counts.entry(obstacle).or_default() += nodes.len() as u64;
            if obstacle > Obstacle::TooSmall {
                let first = nodes.first().copied();
                infeasible.template = [infeasible.template, first].into_iter().flatten().min();
            }
        }
        infeasible
    }

    /// All nodes that were counted.
    pub fn nodes(&self) -> u64 {
        self.counts.values().sum()
    }
}

impl Obstacle {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Selector => "excluded by labels or taints",
            Self::Taint => "untolerated taint",
            Self::NoGpus => "no GPUs",
            Self::Model => "another GPU model, or no such MIG profile",
            Self::TooSmall => "too small even when empty",
            Self::Closed => "closed for new pods",
            Self::Pods => "too many pods",
            Self::Cpu => "insufficient CPU",
            Self::Memory => "insufficient memory",
            Self::Pieces => "enough GPU capacity free, but fragmented",
            Self::Gpus => "insufficient GPU capacity",
        }
    }
}

impl fmt::Display for InfeasibleCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pod fits none of {} nodes", self.nodes())?;
        for (number, (obstacle, count)) in self.counts.iter().enumerate() {
            let mark = if number == 0 { ": " } else { ", " };
            write!(f, "{mark}{} ({count})", obstacle.words())?;
        }
        Ok(())
    }
}

impl std::error::Error for InfeasibleCounts {}

/// The obstacle that keeps a pod off a node in this state; none if it fits.
pub fn obstacle(cluster: &Cluster, state: &NodeState, shape: &Shape) -> Option<Obstacle> {
    if fit::fits(cluster, state, shape) {
        return None;
    }
    let class = &cluster.classes()[state.class.0 as usize];
    let has_gpus = shape.gpus.is_some();
    let (wanted, free) = (&shape.resources, &state.free);
    let lacks = |wanted: i64, free: i64| wanted > 0 && wanted > free;
    Some(if !class.features.has_all(shape.needs) {
        Obstacle::Selector
    } else if !shape.tolerates.has_all(class.taints) {
        Obstacle::Taint
    } else if has_gpus && class.gpus == 0 {
        Obstacle::NoGpus
    } else if has_gpus && !has_model(cluster, class, shape) {
        Obstacle::Model
    } else if !fit::fits(cluster, &empty(cluster, state), shape) {
        Obstacle::TooSmall
    } else if !state.is_open {
        Obstacle::Closed
    } else if lacks(wanted.pods, free.pods) {
        Obstacle::Pods
    } else if lacks(wanted.cpu_milli, free.cpu_milli) {
        Obstacle::Cpu
    } else if lacks(wanted.memory_mib, free.memory_mib) {
        Obstacle::Memory
    } else if is_in_pieces(cluster, class, state, shape) {
        Obstacle::Pieces
    } else {
        Obstacle::Gpus
    })
}

fn has_model(cluster: &Cluster, class: &NodeClass, shape: &Shape) -> bool {
    let model = cluster.models().get(usize::from(class.model.0));
    let has_profile = match &shape.gpus {
        GpuDemand::Mig { profile, .. } => {
            model.is_some_and(|model| model.profile(profile).is_some())
        }
        _ => true,
    };
    has_profile && shape.models.has(class.model)
}

/// The node with nothing allocated and all of it open.
fn empty(cluster: &Cluster, state: &NodeState) -> NodeState {
    let class = &cluster.classes()[state.class.0 as usize];
    let idle = cluster.models().get(usize::from(class.model.0)).map(GpuFree::idle);
    let gpus = idle.iter().flat_map(|idle| (0..class.gpus).map(|_| *idle)).collect();
    NodeState { class: state.class, is_open: true, free: class.capacity, gpus }
}

/// Whether the free compute and memory of all open GPUs would be enough in total.
fn is_in_pieces(cluster: &Cluster, class: &NodeClass, state: &NodeState, shape: &Shape) -> bool {
    let count = u64::from(shape.gpus.count());
    let model = cluster.models().get(usize::from(class.model.0));
    let (milli, memory) = match &shape.gpus {
        GpuDemand::None => return false,
        GpuDemand::Whole { .. } => {
            (u64::from(crate::gpu::WHOLE), model.map_or(0, |model| u64::from(model.memory_mib)))
        }
        GpuDemand::Share { milli, memory_mib, .. } => (u64::from(*milli), u64::from(*memory_mib)),
        GpuDemand::Mig { profile, .. } => model
            .and_then(|model| model.profile(profile))
            .map_or((0, 0), |profile| (u64::from(profile.milli), u64::from(profile.memory_mib))),
    };
    let open = state.gpus.iter().filter(|gpu| !gpu.is_closed);
    let free_milli: u64 = open.clone().map(|gpu| u64::from(gpu.milli)).sum();
    let free_memory: u64 = open.map(|gpu| u64::from(gpu.memory_mib)).sum();
    free_milli >= count * milli && free_memory >= count * memory
}
