//! From the inventory of GPUs to the published devices. No I/O.
//!
//! Names, attributes, capacities and counters are those of NVIDIA's DRA driver, so that selectors written for it match.
//! Octavo's additions have their own domain.
//!
//! ```text
//! GPU --offer--> whole GPU, placements for MIG instances, existing instances
//!                  |-- whole GPU and placements draw from one counter set, so they exclude one another
//!                  `-- listed in the order that blocks the fewest further placements (order)
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

pub(crate) use taints::imex_taint;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use octavo_dra::{CounterSet, Device, DeviceTaint};
use octavo_gpu::mig::MigProfile;
use octavo_gpu::{Gpu, Inventory};

use crate::config::{DynamicMig, GpuShares, Owner};
use crate::health::Health;

pub use names::{MigName, counter_set_name, device_name, mig_name, parse_mig_name};
pub use notes::{Note, notes};
pub use offer::{Offer, foreign_instances, is_inconsistent, is_offered, needs_reset};

/// Placement of an instance: UUID of its GPU, first memory slice, number of slices.
pub type MadeInstance = (String, u32, u32);

/// Inputs for the offer of a node.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The GPUs and their instances.
    pub inventory: &'a Inventory,
    /// GPUs that are not well, by UUID.
    pub health: &'a Health,
    /// GPUs under dynamic MIG.
    pub dynamic: &'a DynamicMig,
    /// Instances created by the agent. Any other instance on a GPU under dynamic MIG is foreign.
    pub made: &'a BTreeSet<MadeInstance>,
    /// How claims share a GPU.
    pub shares: GpuShares,
    /// Whether shares are held to their part of the GPU's time.
    pub enforces_time: bool,
}

/// The published devices of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Counters from which the devices draw.
    pub counters: Vec<CounterSet>,
    /// The devices in the order in which an allocator should try them.
    pub devices: Vec<Device>,
    /// The devices for API servers without counters: no two share a part of a GPU.
    pub plain: Vec<Device>,
}

impl Offered {
    /// Taints the devices while a kernel module is not loaded that containers need.
    #[must_use]
    pub fn without_module(mut self, module: Option<&str>) -> Self {
        if let Some(module) = module {
            for device in self.devices.iter_mut().chain(&mut self.plain) {
                device.taints.push(taints::without_module(module));
            }
        }
        self
    }

    /// Taints the devices with the owner, so that no other scheduler allocates them.
    #[must_use]
    pub fn owned_by(mut self, owner: &Owner) -> Self {
        if let Some(taint) = owner_taint(owner) {
            for device in self.devices.iter_mut().chain(&mut self.plain) {
                device.taints.push(taint.clone());
            }
        }
        self
    }
}

/// The taint of an owner's devices.
pub(crate) fn owner_taint(owner: &Owner) -> Option<octavo_dra::DeviceTaint> {
    owner.scheduler().map(taints::owned_by)
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
        /// Existing instances come first, since they block nothing further.
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
    gpus.sort_by_key(|gpu| gpu.number);
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
    let mut sick = node.health.get(&gpu.uuid).map(taints::of_health).unwrap_or_default();
    sick.extend(taints::of_fabric(gpu));
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
    let rank = Rank::Whole { is_mig_capable: set.is_some(), minor: gpu.number };
    (rank, gpu::device(gpu, node, set, taints))
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

/// Existing instances of a GPU.
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
    Rank::Mig { size: order::rank(profile), is_place, gpu: Reverse(gpu.number), index }
}

#[cfg(test)]
mod tests;
