//! The GPUs of a node that a pod gets.
//!
//! GPUs of less risk come first: those of more risk are taken only if the others do not suffice. Rules
//! by request; ties go to the lower index:
//!
//! * whole GPUs: idle ones with the smallest distances. Among equally near sets, the one that
//!   breaks up the fewest groups (`nearest`). If all GPUs are equally near: the lowest ones;
//! * shares: the tightest fitting GPUs, each share on another GPU. A policy may name a free level
//!   instead ([`share_at`]);
//! * MIG instances: the placements after which the most instances of the largest profiles still fit
//!   (`mig_placement`).

mod mig_placement;
mod nearest;
#[cfg(test)]
mod tests;

use octavo_health::risk::RiskClass;
use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::gpu::{GpuFree, GpuModel, Slices, WHOLE};
use crate::node::{Links, NodeId};
use crate::placement::{GpuPart, GpuParts, Placement};
use crate::shape::{GpuDemand, Shape};

/// The GPUs to choose from: those of a node, or those of a state. Their order differs if they are
/// equally near.
#[derive(Clone, Copy, Debug)]
pub struct Gpus<'a> {
    /// Their model; none where there are no GPUs.
    pub model: Option<&'a GpuModel>,
    /// Links between them.
    pub links: &'a Links,
    /// Free capacity of each.
    pub free: &'a [GpuFree],
}

/// The default placement of a pod on a node; none exactly if the pod does not fit now.
pub fn default_placement(cluster: &Cluster, node: NodeId, shape: &Shape) -> Option<Placement> {
    let state = cluster.states().state(cluster.state(node))?;
    if !fit::fits(cluster, state, shape) {
        return None;
    }
    let gpus = Gpus::of_node(cluster, node).demanded(&shape.gpus)?;
    Some(Placement { node, gpus })
}

/// A share of the lowest GPU of a node with exactly this free level.
pub fn share_at(
    cluster: &Cluster,
    node: NodeId,
    milli: u16,
    memory_mib: u32,
    level: FreeLevel,
) -> Option<GpuParts> {
    Gpus::of_node(cluster, node).share_at(milli, memory_mib, level)
}

/// The free level of a shared GPU, by the order in which shares are given. GPUs of one level are
/// equivalent for any share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FreeLevel {
    /// How likely it fails.
    pub risk: RiskClass,
    /// Compute in thousandths of the GPU.
    pub milli: u16,
    /// Memory in MiB.
    pub memory_mib: u32,
}

impl FreeLevel {
    /// The level of a GPU.
    pub fn of(gpu: &GpuFree) -> Self {
        Self { risk: gpu.risk, milli: gpu.milli, memory_mib: gpu.memory_mib }
    }
}

impl<'a> Gpus<'a> {
    /// The GPUs of a node, by index.
    pub fn of_node(cluster: &'a Cluster, node: NodeId) -> Self {
        let class = cluster.class(node);
        let model = cluster.models().get(usize::from(class.model.0));
        Self { model, links: &class.links, free: cluster.gpus(node) }
    }

    /// The GPUs of a state. A choice is worth as much as on any node in the state, but indices may
    /// differ.
    pub fn of_state(cluster: &'a Cluster, state: &'a NodeState) -> Self {
        let class = &cluster.classes()[state.class.0 as usize];
        let model = cluster.models().get(usize::from(class.model.0));
        Self { model, links: &class.links, free: &state.gpus }
    }

    /// The default parts for a demand.
    pub fn demanded(&self, demand: &GpuDemand) -> Option<GpuParts> {
        let most = self.free.iter().map(|gpu| gpu.risk).max().unwrap_or_default();
        for class in RiskClass::ALL.into_iter().take_while(|class| *class < most) {
            let mut free: SmallVec<[GpuFree; 8]> = self.free.into();
            free.iter_mut().for_each(|gpu| gpu.is_closed |= gpu.risk > class);
            if let Some(parts) = (Gpus { free: &free, ..*self }).of_any_risk(demand) {
                return Some(parts);
            }
        }
        self.of_any_risk(demand)
    }

    fn of_any_risk(&self, demand: &GpuDemand) -> Option<GpuParts> {
        match demand {
            GpuDemand::None => Some(GpuParts::new()),
            GpuDemand::Whole { count } => self.whole(*count),
            GpuDemand::Share { count, milli, memory_mib } => {
                self.share(*count, *milli, *memory_mib)
            }
            GpuDemand::Mig { count, profile } => self.mig(*count, profile),
        }
    }

    /// Idle GPUs.
    pub fn whole(&self, count: u16) -> Option<GpuParts> {
        let is_idle = |gpu: &u16| self.free[usize::from(*gpu)].is_idle();
        let idle: nearest::Indices = self.indices().filter(is_idle).collect();
        let chosen = nearest::choose(self.links, &idle, count.into())?;
        let memory_mib = self.model.map_or(0, |model| model.memory_mib);
        Some(parts(&chosen, WHOLE, memory_mib))
    }

    /// Shares of the tightest GPUs of the least risk: the least free compute, then the least free memory.
    pub fn share(&self, count: u16, milli: u16, memory_mib: u32) -> Option<GpuParts> {
        let fits = |gpu: &u16| fit::share_fits(&self.free[usize::from(*gpu)], milli, memory_mib);
        if count == 1 {
            // `min_by_key` takes the first of equals.
            let level = |gpu: &u16| FreeLevel::of(&self.free[usize::from(*gpu)]);
            let gpu = self.indices().filter(fits).min_by_key(level)?;
            return Some(parts(&[gpu], milli, memory_mib));
        }
        let mut fitting: nearest::Indices = self.indices().filter(fits).collect();
        fitting.sort_by_key(|gpu| (FreeLevel::of(&self.free[usize::from(*gpu)]), *gpu));
        let chosen = fitting.get_mut(..count.into())?;
        chosen.sort_unstable();
        Some(parts(chosen, milli, memory_mib))
    }

    /// A share of the first GPU of exactly this level.
    pub fn share_at(&self, milli: u16, memory_mib: u32, level: FreeLevel) -> Option<GpuParts> {
        let gpu = self.indices().find(|gpu| {
            let gpu = &self.free[usize::from(*gpu)];
            FreeLevel::of(gpu) == level && fit::share_fits(gpu, milli, memory_mib)
        })?;
        Some(parts(&[gpu], milli, memory_mib))
    }

    /// MIG instances.
    pub fn mig(&self, count: u16, profile: &str) -> Option<GpuParts> {
        let model = self.model?;
        mig_placement::choose(model, self.free, model.profile(profile)?, count.into())
    }

    fn indices(&self) -> impl Iterator<Item = u16> + use<> {
        0..u16::try_from(self.free.len()).unwrap_or(u16::MAX)
    }
}

fn parts(gpus: &[u16], milli: u16, memory_mib: u32) -> GpuParts {
    let part = |gpu: &u16| GpuPart { gpu: *gpu, milli, slices: Slices::NONE, memory_mib };
    gpus.iter().map(part).collect::<SmallVec<_>>()
}
