//! From what was read of the GPUs to the devices that are published: pure.
//!
//! Names, attributes, capacities and counters are those of NVIDIA's DRA driver, so that selectors
//! written for it match. What Octavo adds has its own domain.
//!
//! ```text
//! GPU --offer--> whole, places for MIG instances, instances that are there
//!                  |-- the whole and the places take from one counter set, and so exclude one another
//!                  `-- listed in the order that harms what is left least (order)
//! ```

mod attributes;
mod counters;
mod gpu;
mod mig;
mod names;
mod notes;
mod offer;
pub mod order;
mod taints;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use octavo_dra::{CounterSet, Device, DeviceTaint};
use octavo_gpu::mig::MigProfile;
use octavo_gpu::{Gpu, Inventory};

use crate::config::{DynamicMig, Owner};
use crate::health::Health;

pub use names::{MigName, counter_set_name, device_name, mig_name, parse_mig_name};
pub use notes::{Note, notes};
pub use offer::{Offer, foreign_instances, is_inconsistent, is_offered, needs_reset};

/// The place of an instance, such as one that the agent made: UUID of its GPU, first memory slice, number of slices.
pub type MadeInstance = (String, u32, u32);

/// All that decides what a node offers.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// What was read.
    pub inventory: &'a Inventory,
    /// GPUs that are not well, by UUID.
    pub health: &'a Health,
    /// GPUs that MIG cuts as claims ask for it.
    pub dynamic: &'a DynamicMig,
    /// The instances that the agent made. Any other on a GPU that it cuts is somebody else's.
    pub made: &'a BTreeSet<MadeInstance>,
}

/// What a node publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Counters from which the devices draw.
    pub counters: Vec<CounterSet>,
    /// The devices in the order in which an allocator should try them.
    pub devices: Vec<Device>,
    /// The devices where the API server keeps no counters: no two have a part of a GPU in common.
    pub plain: Vec<Device>,
}

impl Offered {
    /// The same on a node of this owner: what one scheduler owns no other gives.
    #[must_use]
    pub fn owned_by(mut self, owner: &Owner) -> Self {
        if let Some(scheduler) = owner.scheduler() {
            for device in self.devices.iter_mut().chain(&mut self.plain) {
                device.taints.push(taints::owned_by(scheduler));
            }
        }
        self
    }
}

/// Where a device stands in the list: see [`order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Whole {
        is_mig_capable: bool,
        minor: u32,
    },
    Mig {
        /// Memory slices, compute slices, multiprocessors, engines that are scarce.
        size: [u32; 4],
        /// Instances that are there cost nobody anything: they come first.
        is_place: bool,
        gpu: Reverse<u32>,
        /// Order within GPU and profile.
        index: usize,
    },
}

/// All devices of a node.
pub fn offered(node: &Node<'_>) -> Offered {
    let counters = |gpu| counter_set_of(node, gpu);
    let mut gpus: Vec<_> = node.inventory.gpus.iter().collect();
    gpus.sort_by_key(|gpu| gpu.minor);
    let counters: Vec<_> = gpus.into_iter().filter_map(counters).collect();
    let devices = list(node, Offer::of);
    let plain = if counters.is_empty() { Vec::new() } else { list(node, Offer::without_counters) };
    Offered { counters, devices, plain }
}

fn list(node: &Node<'_>, offer: impl Fn(&Node<'_>, &Gpu) -> Offer) -> Vec<Device> {
    let mut ranked: Vec<(Rank, Device)> = Vec::new();
    for gpu in &node.inventory.gpus {
        ranked.extend(devices_of(node, gpu, offer(node, gpu)));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, device)| device).collect()
}

fn counter_set_of(node: &Node<'_>, gpu: &Gpu) -> Option<CounterSet> {
    match Offer::of(node, gpu) {
        Offer::WholeOrMig | Offer::DynamicMig => counters::counter_set(gpu),
        Offer::Whole | Offer::Instances | Offer::Nothing => None,
    }
}

fn devices_of(node: &Node<'_>, gpu: &Gpu, offer: Offer) -> Vec<(Rank, Device)> {
    let sick = node.health.get(&gpu.uuid).map(taints::of_health).unwrap_or_default();
    let set = || counters::counter_set(gpu);
    match offer {
        Offer::Whole => vec![whole(node, gpu, None, sick)],
        Offer::WholeOrMig => {
            let set = set();
            let mut devices = places(node, gpu, &sick);
            let mut taints = sick;
            taints.extend(has_foreign(node, gpu).then(taints::foreign));
            devices.push(whole(node, gpu, set.as_ref(), taints));
            devices
        }
        Offer::DynamicMig => places(node, gpu, &sick),
        Offer::Instances => instances(node, gpu, &sick),
        Offer::Nothing => Vec::new(),
    }
}

fn whole(
    node: &Node<'_>,
    gpu: &Gpu,
    set: Option<&CounterSet>,
    taints: Vec<DeviceTaint>,
) -> (Rank, Device) {
    let rank = Rank::Whole { is_mig_capable: set.is_some(), minor: gpu.minor };
    (rank, gpu::device(gpu, &node.inventory.versions, set, taints))
}

/// Every place at which an instance could be made.
fn places(node: &Node<'_>, gpu: &Gpu, sick: &[DeviceTaint]) -> Vec<(Rank, Device)> {
    let mut devices = Vec::new();
    for profile in &gpu.mig_profiles {
        let placements = order::least_harm(&gpu.mig_profiles, profile);
        for (index, placement) in placements.into_iter().enumerate() {
            let is_blocked =
                offer::foreign(node, gpu).any(|other| other.placement.overlaps(placement));
            let mut taints = sick.to_vec();
            taints.extend(is_blocked.then(taints::foreign));
            let versions = &node.inventory.versions;
            let device = mig::place(gpu, versions, profile, placement, taints);
            devices.push((rank(gpu, profile, true, index), device));
        }
    }
    devices
}

/// The instances that are there.
fn instances(node: &Node<'_>, gpu: &Gpu, sick: &[DeviceTaint]) -> Vec<(Rank, Device)> {
    let device = |(index, instance)| {
        let profile = offer::profile_of(gpu, instance)?;
        let mut taints = sick.to_vec();
        taints.extend(offer::is_made(node, gpu, instance).then(taints::withdrawn));
        let device = mig::instance(gpu, &node.inventory.versions, profile, instance, taints)?;
        Some((rank(gpu, profile, false, index), device))
    };
    gpu.mig_instances.iter().enumerate().filter_map(device).collect()
}

fn has_foreign(node: &Node<'_>, gpu: &Gpu) -> bool {
    offer::foreign(node, gpu).next().is_some()
}

fn rank(gpu: &Gpu, profile: &MigProfile, is_place: bool, index: usize) -> Rank {
    Rank::Mig { size: order::rank(profile), is_place, gpu: Reverse(gpu.minor), index }
}

#[cfg(test)]
mod tests;
