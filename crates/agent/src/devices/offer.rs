//! As what a GPU is offered.

use std::collections::BTreeSet;

use octavo_gpu::Gpu;
use octavo_gpu::mig::{MigInstance, MigProfile};

use super::{MadeInstance, Node};

/// As what a GPU is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// As a whole, of which claims may have shares.
    Whole,
    /// As a whole, or in MIG instances that are made as claims ask for them.
    WholeOrMig,
    /// In MIG instances that are made as claims ask for them.
    DynamicMig,
    /// As the MIG instances that are there.
    Instances,
    /// Not at all: what the agent made is still held, and goes with its claims.
    Nothing,
}

impl Offer {
    /// What holds for a GPU of a node.
    pub fn of(node: &Node<'_>, gpu: &Gpu) -> Self {
        if node.dynamic.has(gpu.minor) && supports_mig(gpu) {
            return match (needs_reset(gpu), is_on(gpu)) {
                (false, _) => Self::WholeOrMig,
                (true, true) => Self::DynamicMig,
                (true, false) => Self::Whole,
            };
        }
        if is_on(gpu) {
            return Self::Instances;
        }
        // What was read of it may be older than the instances.
        if has_made(node, gpu) { Self::Nothing } else { Self::Whole }
    }

    /// Whether instances are made as claims ask for them.
    pub fn is_dynamic(self) -> bool {
        matches!(self, Self::WholeOrMig | Self::DynamicMig)
    }

    /// What holds where the API server keeps no counters: alternatives would not exclude one
    /// another, so nothing is cut.
    pub(super) fn without_counters(node: &Node<'_>, gpu: &Gpu) -> Self {
        match Self::of(node, gpu) {
            Self::WholeOrMig if gpu.mig_instances.is_empty() && !has_made(node, gpu) => Self::Whole,
            Self::WholeOrMig | Self::DynamicMig => Self::Instances,
            offer => offer,
        }
    }
}

/// Whether something is on a GPU that does not agree with what is known of it: what was read may be
/// old, and should be read again before it is told.
pub fn is_inconsistent(node: &Node<'_>) -> bool {
    node.inventory.gpus.iter().any(|gpu| match Offer::of(node, gpu) {
        Offer::WholeOrMig | Offer::DynamicMig => foreign(node, gpu).next().is_some(),
        Offer::Whole | Offer::Instances | Offer::Nothing => has_made(node, gpu),
    })
}

/// Whether a GPU can be used whole as it was read: one in MIG mode serves no process that is not in
/// an instance.
pub fn is_offered(gpu: &Gpu) -> bool {
    !is_on(gpu)
}

/// Whether a change of a GPU's MIG mode takes effect with a reset only: nothing can do that while
/// containers use its neighbours on NVLink, so such a GPU stays in the mode that it is in.
pub fn needs_reset(gpu: &Gpu) -> bool {
    gpu.architecture == "Ampere"
}

/// Whether MIG can cut a GPU.
pub(super) fn supports_mig(gpu: &Gpu) -> bool {
    gpu.mig.is_some() && gpu.mig_profiles.iter().any(|profile| !profile.placements.is_empty())
}

/// Whether a GPU was in MIG mode when it was read.
pub(super) fn is_on(gpu: &Gpu) -> bool {
    gpu.mig.is_some_and(|mig| mig.enabled)
}

/// Whether the agent made an instance on a GPU that is still there.
pub(super) fn has_made(node: &Node<'_>, gpu: &Gpu) -> bool {
    node.made.iter().any(|(uuid, ..)| *uuid == gpu.uuid)
}

/// Whether an instance is one that the agent made.
pub(super) fn is_made(node: &Node<'_>, gpu: &Gpu, instance: &MigInstance) -> bool {
    let placement = instance.placement;
    node.made.contains(&(gpu.uuid.clone(), placement.start, placement.size))
}

/// The instances of a GPU that the agent did not make.
pub(super) fn foreign<'a>(
    node: &'a Node<'_>,
    gpu: &'a Gpu,
) -> impl Iterator<Item = &'a MigInstance> {
    gpu.mig_instances.iter().filter(move |instance| !is_made(node, gpu, instance))
}

/// The places of all instances on GPUs that the agent cuts which it did not make.
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
