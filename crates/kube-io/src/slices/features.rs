//! The device fields that an API server keeps.
//!
//! A server silently drops the fields of a feature that is off. The published devices must mean the
//! same with and without them. Without counters a MIG placement could be allocated beside the whole
//! GPU; without its taint a sick GPU could be allocated. A dry run, which stores nothing, therefore
//! probes the server first, and every write is read back.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1 as api;
use octavo_dra::{CounterSet, Device, TaintEffect};

use super::Pool;

/// An API feature whose fields our devices use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Counter sets and the draws of devices.
    Counters,
    /// Shares of a device: several claims, each with a part of its capacity.
    Shares,
    /// Taints on devices that keep pods away.
    Taints,
    /// Taints with the effect `None`, which Kubernetes 1.34 refuses.
    TaintsWithoutEffect,
}

/// Known features of a server: whether it keeps or drops their fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Features(BTreeMap<Feature, bool>);

/// The content of a pool as a given server can publish it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Content<'a> {
    pub(super) counters: &'a [CounterSet],
    pub(super) devices: Cow<'a, [Device]>,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 4] =
        [Self::Counters, Self::Shares, Self::Taints, Self::TaintsWithoutEffect];

    /// Name of the feature gate.
    pub fn gate(self) -> &'static str {
        match self {
            Self::Counters => "DRAPartitionableDevices",
            Self::Shares => "DRAConsumableCapacity",
            Self::Taints => "DRADeviceTaints",
            Self::TaintsWithoutEffect => "DRADeviceTaints of 1.35",
        }
    }

    /// Consequence for the devices if the fields are dropped.
    pub fn loss(self) -> &'static str {
        match self {
            Self::Counters => "GPUs that are opted into dynamic MIG are offered whole only",
            Self::Shares => {
                "GPUs are offered whole only, without shares, and a node's channel of ComputeDomains is for one claim at a time"
            }
            Self::Taints => {
                "unhealthy devices, and all devices of a node that a scheduler owns, are left out instead of tainted"
            }
            Self::TaintsWithoutEffect => {
                "slices do not say which devices are watched or on probation; events do"
            }
        }
    }

    fn is_used_by(self, pool: &Pool) -> bool {
        match self {
            Self::Counters => {
                !pool.counters.is_empty()
                    || pool.devices.iter().any(|device| !device.consumes.is_empty())
            }
            Self::Shares => pool.devices.iter().any(is_shared),
            Self::Taints => has_taint(pool, |effect| effect != TaintEffect::None),
            Self::TaintsWithoutEffect => has_taint(pool, |effect| effect == TaintEffect::None),
        }
    }

    /// Number of fields of the feature in a slice.
    fn count(self, spec: &api::ResourceSliceSpec) -> usize {
        let devices = spec.devices.iter().flatten();
        match self {
            Self::Counters => {
                let taken = devices.map(|device| device.consumes_counters.iter().flatten().count());
                taken.sum::<usize>() + spec.shared_counters.as_ref().map_or(0, Vec::len)
            }
            Self::Shares => {
                let policies = |device: &api::Device| {
                    let capacities = device.capacity.iter().flat_map(BTreeMap::values);
                    capacities.filter(|capacity| capacity.request_policy.is_some()).count()
                };
                let of = |device: &api::Device| {
                    usize::from(device.allow_multiple_allocations.is_some()) + policies(device)
                };
                devices.map(of).sum()
            }
            Self::Taints | Self::TaintsWithoutEffect => {
                let without_effect = self == Self::TaintsWithoutEffect;
                let taints = devices.flat_map(|device| device.taints.iter().flatten());
                taints.filter(|taint| (taint.effect == "None") == without_effect).count()
            }
        }
    }
}

impl Features {
    /// Compares a sent slice with the stored one. Returns the features whose loss was not yet
    /// known.
    pub(super) fn compare(
        &mut self,
        sent: &api::ResourceSlice,
        kept: &api::ResourceSlice,
    ) -> BTreeSet<Feature> {
        let mut lost = BTreeSet::new();
        for feature in Feature::ALL {
            let (sent, kept) = (feature.count(&sent.spec), feature.count(&kept.spec));
            if sent > 0 {
                let is_kept = kept >= sent;
                if self.0.insert(feature, is_kept) != Some(false) && !is_kept {
                    lost.insert(feature);
                }
            }
        }
        lost
    }

    /// Records the result of a probe.
    pub(super) fn set(&mut self, feature: Feature, is_kept: bool) {
        self.0.insert(feature, is_kept);
    }

    /// Records that existing slices have the fields of shares. This proves nothing for other
    /// features: a server keeps fields of existing slices after a feature is turned off, although
    /// allocators ignore them. Without the feature shares become whole GPUs, which is harmless. MIG
    /// placements without counters and sick GPUs without taints are not.
    pub(super) fn observe_shares(&mut self, has_shares: bool) {
        if has_shares {
            self.0.entry(Feature::Shares).or_insert(true);
        }
    }

    /// Forgets all that may have changed with the server. Only kept shares remain (see
    /// `observe_shares`).
    pub(super) fn forget_features(&mut self) {
        self.0.retain(|feature, is_kept| *is_kept && *feature == Feature::Shares);
    }

    /// Whether a pool uses a feature whose state is unknown.
    pub(super) fn is_unknown(&self, feature: Feature, pool: &Pool) -> bool {
        !self.0.contains_key(&feature) && feature.is_used_by(pool)
    }

    /// The dropped features that a pool uses.
    pub(super) fn missing(&self, pool: &Pool) -> BTreeSet<Feature> {
        let is_missing = |feature: &Feature| self.drops(*feature) && feature.is_used_by(pool);
        Feature::ALL.into_iter().filter(is_missing).collect()
    }

    /// The content of a pool for this server. Features of unknown state count as kept.
    pub(super) fn content<'a>(&self, pool: &'a Pool) -> Content<'a> {
        let is_plain = self.drops(Feature::Counters) && Feature::Counters.is_used_by(pool);
        let (devices, counters): (&[Device], &[CounterSet]) =
            if is_plain { (&pool.plain, &[]) } else { (&pool.devices, &pool.counters) };
        let mut devices = Cow::Borrowed(devices);
        if self.drops(Feature::Shares) {
            for device in devices.to_mut() {
                device.allow_multiple = false;
                device.capacity.values_mut().for_each(|capacity| capacity.policy = None);
            }
        }
        if self.drops(Feature::Taints) {
            let devices = devices.to_mut();
            devices.retain(|device| {
                device.taints.iter().all(|taint| taint.effect == TaintEffect::None)
            });
            for device in devices {
                device.taints.clear();
            }
        }
        if self.drops(Feature::TaintsWithoutEffect) {
            for device in devices.to_mut() {
                device.taints.retain(|taint| taint.effect != TaintEffect::None);
            }
        }
        Content { counters, devices }
    }

    /// Whether the server is known to drop a feature.
    pub(super) fn drops(&self, feature: Feature) -> bool {
        self.0.get(&feature) == Some(&false)
    }
}

fn has_taint(pool: &Pool, is_meant: impl Fn(TaintEffect) -> bool) -> bool {
    let taints = pool.devices.iter().flat_map(|device| &device.taints);
    taints.into_iter().any(|taint| is_meant(taint.effect))
}

/// Whether a slice has fields of shares.
pub(super) fn shows_shares(spec: &api::ResourceSliceSpec) -> bool {
    Feature::Shares.count(spec) > 0
}

fn is_shared(device: &Device) -> bool {
    device.allow_multiple || device.capacity.values().any(|capacity| capacity.policy.is_some())
}

#[cfg(test)]
mod tests;
