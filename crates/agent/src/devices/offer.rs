//! The form in which a GPU is offered.

use std::collections::BTreeSet;

use octavo_gpu::Gpu;
use octavo_gpu::mig::{MigInstance, MigProfile};

use super::{MadeInstance, Node};

/// The form in which a GPU is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// As a whole, of which claims may have shares.
    Whole,
    /// As a whole, or as dynamic MIG instances.
    WholeOrMig,
    /// As dynamic MIG instances only.
    DynamicMig,
    /// As its existing MIG instances.
    Instances,
    /// Not at all: claims still hold instances created by the agent.
    Nothing,
}

impl Offer {
    /// The offer for a GPU of a node.
    pub fn of(node: &Node<'_>, gpu: &Gpu) -> Self {
        if node.dynamic.has(gpu) && supports_mig(gpu) {
            return match (needs_reset(gpu), is_on(gpu)) {
                (false, _) => Self::WholeOrMig,
                (true, true) => Self::DynamicMig,
                (true, false) => Self::Whole,
            };
        }
        if is_on(gpu) {
            return Self::Instances;
        }
        // The inventory may be older than the instances.
        if has_made(node, gpu) { Self::Nothing } else { Self::Whole }
    }

    /// Whether instances are created on demand.
    pub fn is_dynamic(self) -> bool {
        matches!(self, Self::WholeOrMig | Self::DynamicMig)
    }

    /// The offer for API servers without counters. Alternatives would not exclude one another there, so dynamic MIG is
    /// off.
    pub(super) fn without_counters(node: &Node<'_>, gpu: &Gpu) -> Self {
        match Self::of(node, gpu) {
            Self::WholeOrMig if gpu.mig_instances.is_empty() && !has_made(node, gpu) => Self::Whole,
            Self::WholeOrMig | Self::DynamicMig => Self::Instances,
            offer => offer,
        }
    }
}

/// Whether any GPU has instances that contradict the offer. The inventory may be outdated and should be read again
/// before it is published.
pub fn is_inconsistent(node: &Node<'_>) -> bool {
    node.inventory.gpus.iter().any(|gpu| match Offer::of(node, gpu) {
        Offer::WholeOrMig | Offer::DynamicMig => foreign(node, gpu).next().is_some(),
        Offer::Whole | Offer::Instances | Offer::Nothing => has_made(node, gpu),
    })
}

/// Whether a GPU can be used as a whole. A GPU in MIG mode serves only processes in instances.
pub fn is_offered(gpu: &Gpu) -> bool {
    !is_on(gpu)
}

/// Whether a change of MIG mode needs a GPU reset. A reset is impossible while containers use its NVLink neighbours, so
/// such a GPU keeps its mode.
pub fn needs_reset(gpu: &Gpu) -> bool {
    gpu.architecture == "Ampere"
}

/// Whether a GPU supports MIG.
pub(super) fn supports_mig(gpu: &Gpu) -> bool {
    gpu.mig.is_some() && gpu.mig_profiles.iter().any(|profile| !profile.placements.is_empty())
}

/// Whether a GPU was in MIG mode when it was read.
pub(super) fn is_on(gpu: &Gpu) -> bool {
    gpu.mig.is_some_and(|mig| mig.enabled)
}

/// Whether instances created by the agent still exist on a GPU.
pub(super) fn has_made(node: &Node<'_>, gpu: &Gpu) -> bool {
    node.made.iter().any(|(uuid, ..)| *uuid == gpu.uuid)
}

/// Whether the agent created an instance.
pub(super) fn is_made(node: &Node<'_>, gpu: &Gpu, instance: &MigInstance) -> bool {
    let placement = instance.placement;
    node.made.contains(&(gpu.uuid.clone(), placement.start, placement.size))
}

/// The foreign instances of a GPU.
pub(super) fn foreign<'a>(
    node: &'a Node<'_>,
    gpu: &'a Gpu,
) -> impl Iterator<Item = &'a MigInstance> {
    gpu.mig_instances.iter().filter(move |instance| !is_made(node, gpu, instance))
}

/// Placements of all foreign instances on GPUs under dynamic MIG.
pub fn foreign_instances(node: &Node<'_>) -> BTreeSet<MadeInstance> {
    let gpus = node.inventory.gpus.iter().filter(|gpu| Offer::of(node, gpu).is_dynamic());
    let places = gpus.flat_map(|gpu| {
        foreign(node, gpu).map(|found| {
            let place = found.placement;
            (gpu.uuid.clone(), place.start, place.size)
        })
    });
    places.collect()
}

/// The profile of an instance.
pub(super) fn profile_of<'a>(gpu: &'a Gpu, instance: &MigInstance) -> Option<&'a MigProfile> {
    gpu.mig_profiles.iter().find(|profile| profile.id == instance.profile_id)
}
