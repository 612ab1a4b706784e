//! Converts a node's published devices to GPUs of the engine, and allocations to parts of them.
//!
//! Read are the attributes that NVIDIA's DRA driver and Octavo publish: `type`, `productName`,
//! `profile`, `parentUUID`, NUMA node and PCIe root; the capacities `memory` and `compute`; the
//! counters `memory-slice-N`. The engine's model is coarser than the devices. It decides the node
//! and the parts; the allocator of `octavo_dra` decides the devices.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use octavo_dra::{
    AllocationResult, AttributeValue, Capacity, CounterSet, Device, DeviceTaint, Quantity,
    TaintEffect,
};

use crate::cluster::MAX_GPUS;
use crate::gpu::{GpuModel, MigProfile, Slices, WHOLE};
use crate::node::Links;
use crate::placement::GpuPart;

const MIB: i128 = 1 << 20;

/// GPUs of a node as its pool publishes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDevices {
    /// Their model. Watts are not published and stay 0.
    pub model: GpuModel,
    /// Links between them.
    pub links: Links,
    /// The fabric clique, where all of them are in one.
    pub clique: Option<String>,
    /// The GPUs by index, each with the name of the device for the whole GPU.
    pub gpus: Vec<PublishedGpu>,
    /// Fixed MIG instances. Their GPU is not published, so the engine does not place on them.
    pub fixed_instances: Vec<String>,
    mig_placements: BTreeMap<String, MigPlacement>,
}

/// A GPU as it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedGpu {
    /// Name of its device.
    pub device: String,
    /// Whether a taint keeps new pods away.
    pub is_closed: bool,
    /// Whether parts of it may be given to several claims.
    pub is_shareable: bool,
}

/// The role of a published device in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role<'a> {
    /// A whole GPU.
    Gpu {
        /// Its index.
        gpu: u16,
    },
    /// A place for a MIG instance.
    MigInstance {
        /// Index of its GPU.
        gpu: u16,
        /// The profile.
        profile: &'a str,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MigPlacement {
    gpu: u16,
    profile: String,
    slices: Slices,
}

/// Why devices are not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DevicesError {
    /// GPUs of several models in one node.
    #[error("the node has GPUs of several models: {}; the engine knows one model a node", .0.join(", "))]
    MixedModels(Vec<String>),
    /// More GPUs than a node can have.
    #[error("the node has {0} GPUs; at most {MAX_GPUS} are possible")]
    TooMany(usize),
}

impl NodeDevices {
    /// Reads the devices and counter sets of a complete pool. `is_tolerated` selects the taints to
    /// ignore: those that Octavo's own scheduler sets.
    pub fn read<'a>(
        devices: impl IntoIterator<Item = &'a Device>,
        counters: impl IntoIterator<Item = &'a CounterSet>,
        is_tolerated: impl Fn(&DeviceTaint) -> bool,
    ) -> Result<Self, DevicesError> {
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for device in devices {
            match text(device, "type") {
                Some("gpu") => whole.push(device),
                Some("mig") => parts.push(device),
                _ => {}
            }
        }
        whole.sort_by_key(|device| (number(&device.name), device.name.clone()));
        if whole.len() > usize::from(MAX_GPUS) {
            return Err(DevicesError::TooMany(whole.len()));
        }
        let names: BTreeSet<_> = whole.iter().filter_map(|gpu| text(gpu, "productName")).collect();
        if names.len() > 1 {
            let names = names.into_iter().map(str::to_owned).collect();
            return Err(DevicesError::MixedModels(names));
        }
        let is_closed = |device: &Device| {
            let keeps_away = |taint: &DeviceTaint| taint.effect != TaintEffect::None;
            device.taints.iter().any(|taint| keeps_away(taint) && !is_tolerated(taint))
        };
        let published = |device: &&Device| PublishedGpu {
            device: device.name.clone(),
            is_closed: is_closed(device),
            is_shareable: device.allow_multiple,
        };
        let cliques: BTreeSet<_> =
            whole.iter().map(|gpu| text(gpu, "octavo.dev/fabricClique")).collect();
        let clique = match cliques.first() {
            Some(Some(clique)) if cliques.len() == 1 => Some((*clique).to_owned()),
            _ => None,
        };
        let mut found = Self {
            model: GpuModel {
                name: names.first().copied().unwrap_or_default().to_owned(),
                memory_mib: whole.iter().map(|gpu| memory(gpu)).min().unwrap_or(0),
                idle_watts: 0,
                full_watts: 0,
                mig: Vec::new(),
            },
            links: links(&whole),
            clique,
            gpus: whole.iter().map(published).collect(),
            fixed_instances: Vec::new(),
            mig_placements: BTreeMap::new(),
        };
        let counters: BTreeMap<_, _> =
            counters.into_iter().map(|set| (set.name.as_str(), set)).collect();
        for part in parts {
            found.add_part(part, &whole, &counters);
        }
        found.model.mig.sort();
        Ok(found)
    }

    /// The GPU part of an allocated device. `None` if the engine does not count the device: another
    /// device type, a fixed MIG instance, or admin access.
    pub fn part(&self, result: &AllocationResult) -> Option<GpuPart> {
        if result.admin_access {
            return None;
        }
        if let Some(place) = self.mig_placements.get(&result.device) {
            return Some(self.model.profile(&place.profile)?.part(place.gpu, place.slices));
        }
        let index = self.gpus.iter().position(|gpu| gpu.device == result.device)?;
        let gpu = u16::try_from(index).ok()?;
        let all = self.model.memory_mib;
        let consumed = |name: &str| result.consumed.get(name);
        let memory_mib = consumed("memory").map_or(all, |amount| mib_up(*amount)).min(all);
        // A claim with all memory has the whole GPU: a plain claim requests no compute and consumes
        // all memory.
        let milli = match consumed("compute") {
            Some(percent) if memory_mib < all => milli_from_percent(*percent),
            _ => WHOLE,
        };
        Some(GpuPart { gpu, milli, slices: Slices::NONE, memory_mib })
    }

    /// The role of a device; `None` for an unknown device.
    pub fn role(&self, device: &str) -> Option<Role<'_>> {
        if let Some(place) = self.mig_placements.get(device) {
            return Some(Role::MigInstance { gpu: place.gpu, profile: &place.profile });
        }
        let index = self.gpus.iter().position(|gpu| gpu.device == device)?;
        u16::try_from(index).ok().map(|gpu| Role::Gpu { gpu })
    }

    /// Name of the device to allocate for a part: the GPU, or the MIG device of that profile.
    pub fn device(&self, part: &GpuPart, profile: Option<&str>) -> Option<&str> {
        let Some(profile) = profile else {
            return self.gpus.get(usize::from(part.gpu)).map(|gpu| gpu.device.as_str());
        };
        let is_it = |place: &MigPlacement| {
            place.gpu == part.gpu && place.slices == part.slices && place.profile == profile
        };
        self.mig_placements.iter().find(|(_, place)| is_it(place)).map(|(name, _)| name.as_str())
    }

    fn add_part(
        &mut self,
        part: &Device,
        whole: &[&Device],
        counters: &BTreeMap<&str, &CounterSet>,
    ) {
        let set = part.consumes.first().map(|taken| taken.counter_set.as_str());
        let parent = set.and_then(|set| {
            whole.iter().position(|gpu| gpu.consumes.iter().any(|taken| taken.counter_set == set))
        });
        let gpu = parent.and_then(|parent| u16::try_from(parent).ok());
        let profile = text(part, "profile").map(str::to_owned);
        let (Some(gpu), Some(profile), Some(taken)) = (gpu, profile, part.consumes.first()) else {
            self.fixed_instances.push(part.name.clone());
            return;
        };
        let slice = |name: &String| name.strip_prefix("memory-slice-")?.parse::<u8>().ok();
        let taken_slices = taken.counters.keys().filter_map(slice);
        let slices = taken_slices
            .fold(Slices::NONE, |all, slice_index| all.plus(Slices::range(slice_index, 1)));
        let (size, Some(start)) = (slices.count(), slices.first()) else {
            self.fixed_instances.push(part.name.clone());
            return;
        };
        // The media engines are there once: `+me` profiles exclude one another.
        let has_media = profile.ends_with("+me");
        let slices = if has_media { slices.plus(Slices::MEDIA) } else { slices };
        let total = set.and_then(|set| counters.get(set)?.counters.get("multiprocessors"));
        let consumed_units = taken.counters.get("multiprocessors");
        let milli = match (consumed_units, total) {
            (Some(consumed_units), Some(total)) if total.value() > 0 => {
                u16::try_from(consumed_units.value() * i128::from(WHOLE) / total.value())
                    .unwrap_or(WHOLE)
            }
            _ => 0,
        };
        let known = self.model.mig.iter_mut().find(|known| known.name == profile);
        if let Some(known) = known {
            if !known.starts.contains(&start) {
                known.starts.push(start);
                known.starts.sort_unstable();
            }
        } else {
            self.model.mig.push(MigProfile {
                name: profile.clone(),
                milli: milli.min(WHOLE),
                memory_mib: memory(part),
                size,
                starts: vec![start],
                has_media,
            });
        }
        self.mig_placements.insert(part.name.clone(), MigPlacement { gpu, profile, slices });
    }
}

fn text<'a>(device: &'a Device, name: &str) -> Option<&'a str> {
    match device.attributes.get(name) {
        Some(AttributeValue::String(value)) => Some(value),
        _ => None,
    }
}

fn memory(device: &Device) -> u32 {
    let amount = |capacity: &Capacity| mib(capacity.value);
    device.capacity.get("memory").map_or(0, amount)
}

fn mib(amount: Quantity) -> u32 {
    u32::try_from((amount.value() / MIB).max(0)).unwrap_or(u32::MAX)
}

/// A consumed amount in MiB, rounded up: a partly used MiB is not free.
fn mib_up(amount: Quantity) -> u32 {
    u32::try_from((amount.value().max(0) + MIB - 1) / MIB).unwrap_or(u32::MAX)
}

/// Percent as thousandths, rounded up: a share never gets less than requested.
fn milli_from_percent(percent: Quantity) -> u16 {
    let milli = percent.checked_mul(10).map_or(i128::from(WHOLE), Quantity::value);
    u16::try_from(milli.clamp(0, WHOLE.into())).unwrap_or(WHOLE)
}

/// The trailing number of a device name: `gpu-10` comes after `gpu-9`.
fn number(name: &str) -> u32 {
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
}

/// Groups of GPUs by NUMA node and by PCIe root, where these separate the GPUs.
fn links(whole: &[&Device]) -> Links {
    let numa = |gpu: &&Device| gpu.attributes.get("resource.kubernetes.io/numaNode").cloned();
    let root = |gpu: &&Device| gpu.attributes.get("resource.kubernetes.io/pcieRoot").cloned();
    let levels: [Vec<Option<AttributeValue>>; 2] =
        [whole.iter().map(numa).collect(), whole.iter().map(root).collect()];
    let mut groups: Vec<Vec<u8>> = Vec::new();
    for values in levels {
        let distinct: BTreeSet<_> = values.iter().collect();
        let is_known = values.iter().all(Option::is_some);
        // A level with one GPU per group, or with a single group, carries no information.
        if is_known && distinct.len() > 1 && distinct.len() < values.len() {
            let index = |value| distinct.iter().position(|known| *known == value);
            let group = |value| index(value).and_then(|index| u8::try_from(index).ok());
            groups.push(values.iter().map(|value| group(value).unwrap_or(u8::MAX)).collect());
        }
    }
    groups.dedup();
    Links(groups)
}
