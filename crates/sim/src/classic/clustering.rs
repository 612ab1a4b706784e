//! Clustering: pods of a kind together.

use std::collections::BTreeMap;

use super::ranked::{Candidate, Rule};
use octavo_engine::node::NodeId;
use octavo_engine::shape::{GpuDemand, Shape};

/// The kind of MIG instances, which the source does not have. Kind 0 is shares. Whole GPUs have
/// their count as kind, as no node has more than 64.
const MIG: u8 = 127;

/// The rule of `GpuClusteringScore`. It needs to see every pod that is placed or leaves.
#[derive(Clone, Debug, Default)]
pub struct Clustering {
    /// By node: the number of pods of each kind.
    pods: Vec<BTreeMap<u8, u32>>,
}

impl Rule for Clustering {
    fn name(&self) -> &'static str {
        "clustering"
    }

    fn score(&mut self, candidate: &Candidate<'_>) -> i32 {
        let Some(kind) = kind(&candidate.shape.gpus) else { return 0 };
        let kind_bit = 1_u128 << kind;
        let base = match candidate.features {
            0 => 25,
            features if features == kind_bit => 75,
            features if features & kind_bit != 0 => 50,
            _ => 0,
        };
        // Of 8000 on small nodes, too.
        let used = 25 * (8000 - candidate.left().gpu_milli()) / 8000;
        base + i32::try_from(used).unwrap_or(0)
    }

    fn features(&self, node: NodeId) -> u128 {
        let kinds = self.pods.get(node.0 as usize).into_iter().flat_map(BTreeMap::keys);
        kinds.fold(0, |features, kind| features | 1 << kind)
    }

    fn placed(&mut self, shape: &Shape, node: NodeId) -> bool {
        let Some(kind) = kind(&shape.gpus) else { return false };
        let index = node.0 as usize;
        if self.pods.len() <= index {
            self.pods.resize(index + 1, BTreeMap::new());
        }
        let pods = self.pods[index].entry(kind).or_default();
        *pods += 1;
        *pods == 1
    }

    fn released(&mut self, shape: &Shape, node: NodeId) -> bool {
        let Some(kind) = kind(&shape.gpus) else { return false };
        let Some(kinds) = self.pods.get_mut(node.0 as usize) else { return false };
        match kinds.get_mut(&kind) {
            Some(pods) if *pods > 1 => *pods -= 1,
            Some(_) => return kinds.remove(&kind).is_some(),
            None => {}
        }
        false
    }
}

/// The kind of a pod; none without GPUs.
fn kind(demand: &GpuDemand) -> Option<u8> {
    match demand {
        GpuDemand::None => None,
        GpuDemand::Share { .. } => Some(0),
        GpuDemand::Whole { count } => u8::try_from(*count).ok().filter(|kind| *kind < MIG),
        GpuDemand::Mig { .. } => Some(MIG),
    }
}
