//! Fragmentation gradient descent: the node, and the GPU, with the smallest loss of free GPUs for
//! typical pods.

use std::sync::Arc;

use smallvec::SmallVec;

use super::ranked::{Candidate, Rule, truncated};
use octavo_engine::cluster::Cluster;
use octavo_engine::cluster::log::ClusterId;
use octavo_engine::cluster::states::StateId;
use octavo_engine::fit;
use octavo_engine::fragmentation::{NodeResidual, TypicalPods, without};
use octavo_engine::gpu::GpuFree;
use octavo_engine::node::NodeId;
use octavo_engine::pick::{FreeLevel, Gpus};
use octavo_engine::placement::GpuParts;
use octavo_engine::shape::{GpuDemand, Shape};

/// The rule of `FGDScore`: `100 / (1 + exp(-x))`, truncated to a whole number, where `x` is the
/// decrease of the node's fragments in GPUs. 50 means that they stay, or shrink by less than 0.04
/// GPUs.
///
/// Truncation is not a defect. Without it the policy allocates less, because ties are missing, and
/// ties fill one node after another.
#[derive(Clone, Debug)]
pub struct Fgd {
    typical: Arc<TypicalPods>,
    /// The cluster whose states are known.
    cluster_id: ClusterId,
    /// Fragments by slot of the state, with the generation.
    fragments: Vec<Option<(u32, f64)>>,
}

impl Fgd {
    /// Measures by these typical pods.
    pub fn new(typical: Arc<TypicalPods>) -> Self {
        Self { typical, cluster_id: ClusterId::default(), fragments: Vec::new() }
    }

    fn fragment(&mut self, cluster: &Cluster, id: StateId, left: &NodeResidual<'_>) -> f64 {
        let cluster_id = cluster.log().cluster_id();
        if std::mem::replace(&mut self.cluster_id, cluster_id) != cluster_id {
            self.fragments.clear();
        }
        let slot = id.slot as usize;
        if self.fragments.len() <= slot {
            self.fragments.resize(slot + 1, None);
        }
        match self.fragments[slot] {
            Some((generation, fragment)) if generation == id.generation => fragment,
            _ => {
                let fragment = self.typical.fragment(left);
                self.fragments[slot] = Some((id.generation, fragment));
                fragment
            }
        }
    }

    /// The score if this is what is left of the GPUs afterwards.
    fn score_with(
        &self,
        before: f64,
        left: &NodeResidual<'_>,
        shape: &Shape,
        gpus: &[GpuFree],
    ) -> i32 {
        let cpu_milli = left.cpu_milli - shape.resources.cpu_milli;
        let after = self.typical.fragment(&NodeResidual { cpu_milli, gpus, ..*left });
        let gain = (before - after) / 1000.0;
        truncated(1.0 / (1.0 + libm::exp(-gain)) * 100.0)
    }

    /// Scores of a share on each fitting level of GPUs, in the order of the GPUs.
    fn levels(&self, before: f64, left: &NodeResidual<'_>, shape: &Shape) -> Levels {
        let GpuDemand::Share { milli, memory_mib, .. } = shape.gpus else { return Levels::new() };
        let mut levels = Levels::new();
        for (index, gpu) in left.gpus.iter().enumerate() {
            let level = FreeLevel::of(gpu);
            let is_known = levels.iter().any(|(known, _)| *known == level);
            if is_known || !fit::share_fits(gpu, milli, memory_mib) {
                continue;
            }
            let mut gpus: SmallVec<[GpuFree; 8]> = left.gpus.into();
            gpus[index].milli -= milli;
            gpus[index].memory_mib -= memory_mib;
            levels.push((level, self.score_with(before, left, shape, &gpus)));
        }
        levels
    }
}

type Levels = SmallVec<[(FreeLevel, i32); 8]>;

/// Whether each fitting GPU is tried. Otherwise the pod gets the default choice.
fn is_one_share(shape: &Shape) -> bool {
    matches!(shape.gpus, GpuDemand::Share { count: 1, .. })
}

impl Rule for Fgd {
    fn name(&self) -> &'static str {
        "fgd"
    }

    fn score(&mut self, candidate: &Candidate<'_>) -> i32 {
        let (left, shape) = (candidate.left(), candidate.shape);
        let before = self.fragment(candidate.cluster, candidate.id, &left);
        if is_one_share(shape) {
            let levels = self.levels(before, &left, shape);
            return levels.iter().map(|(_, score)| *score).max().unwrap_or(0);
        }
        let parts = candidate.gpus().demanded(&shape.gpus).unwrap_or_default();
        self.score_with(before, &left, shape, &without(left.gpus, &parts))
    }

    fn gpus(&mut self, cluster: &Cluster, node: NodeId, shape: &Shape) -> Option<GpuParts> {
        let gpus = Gpus::of_node(cluster, node);
        let GpuDemand::Share { count: 1, milli, memory_mib } = shape.gpus else {
            return gpus.demanded(&shape.gpus);
        };
        let left = NodeResidual::of_node(cluster, node);
        let before = self.fragment(cluster, cluster.state(node), &left);
        let levels = self.levels(before, &left, shape);
        let best = levels.iter().map(|(_, score)| *score).max()?;
        // Of GPUs with equal scores the lowest, even if its level is looser.
        let (level, _) = levels.iter().find(|(_, score)| *score == best)?;
        gpus.share_at(milli, memory_mib, *level)
    }
}
