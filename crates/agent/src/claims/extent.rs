//! The amount of a GPU that a device takes, and the amounts that exclude each other.

use octavo_gpu::mig::MigPlacement;

use super::{DeviceKind, Devices};
use crate::checkpoint::{HeldDevice, HeldKind, HeldMig, HeldShare, Record};
use crate::gpu_mode::GpuMode;

/// How much of a GPU is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it.
    Whole,
    /// A part of its memory and time.
    Share(HeldShare),
    /// Some of its memory slices.
    Slices(MigPlacement),
}

impl Extent {
    /// The extent of a device in a record. A damaged record has names only: the node's devices tell what a name means.
    /// An unknown name counts as the whole GPU.
    pub(super) fn of(record: &Record, held: &HeldDevice, devices: &Devices) -> Self {
        if record.is_unresolved() && held.kind.is_whole() {
            let known = devices.by_name.get(&held.device).map(|device| &device.kind);
            return match known {
                Some(DeviceKind::MigPlacement { placement, .. }) => Self::Slices(*placement),
                Some(DeviceKind::MigInstance { instance, .. }) => Self::Slices(instance.placement),
                Some(DeviceKind::Gpu { .. }) | None => Self::Whole,
            };
        }
        match &held.kind {
            HeldKind::Whole => Self::Whole,
            HeldKind::Share(share) => Self::Share(*share),
            HeldKind::Mig(mig) => Self::Slices(mig.placement()),
        }
    }

    /// Whether two extents exclude each other on one GPU, by mode or by place. The sum of shares is checked elsewhere.
    pub(super) fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Slices(one), Self::Slices(two)) => one.overlaps(two),
            _ => !self.mode().admits(other.mode()),
        }
    }

    fn mode(self) -> GpuMode {
        match self {
            Self::Whole => GpuMode::Whole,
            Self::Share(_) => GpuMode::Shared,
            // For exclusion both kinds of instances are alike.
            Self::Slices(_) => GpuMode::DynamicMig,
        }
    }
}

impl HeldDevice {
    /// Whether both devices are on one GPU: by name, or by UUID if the GPU came back under another name.
    pub(super) fn is_of_same_gpu(&self, other: &Self) -> bool {
        gpu_name(&self.device) == gpu_name(&other.device)
            || (!self.uuid.is_empty() && self.uuid == other.uuid)
    }

    /// The device as text: `20Gi of gpu-0`.
    pub(super) fn words(&self) -> String {
        match self.kind {
            HeldKind::Share(share) => format!("{} of {}", share.words(), self.device),
            HeldKind::Whole | HeldKind::Mig(_) => self.device.clone(),
        }
    }
}

impl HeldShare {
    /// The share as text: `20Gi and 12.5% of the time`.
    pub(super) fn words(self) -> String {
        let bytes = i64::try_from(self.memory_bytes).unwrap_or(i64::MAX);
        let memory = octavo_dra::Quantity::binary(bytes);
        if self.compute_milli_percent == 0 {
            return memory.to_string();
        }
        let (percent, milli) =
            (self.compute_milli_percent / 1000, self.compute_milli_percent % 1000);
        let fraction = format!("{milli:03}");
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{memory} and {percent}{point}{fraction}% of the time")
    }

    /// The sum of two.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            compute_milli_percent: self
                .compute_milli_percent
                .saturating_add(other.compute_milli_percent),
        }
    }

    /// The difference, at least zero.
    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
            compute_milli_percent: self
                .compute_milli_percent
                .saturating_sub(other.compute_milli_percent),
        }
    }

    /// Whether it fits into another.
    pub(super) fn fits(self, room: Self) -> bool {
        self.memory_bytes <= room.memory_bytes
            && self.compute_milli_percent <= room.compute_milli_percent
    }
}

/// The instances to destroy when a claim is released, with the UUIDs of their GPUs. Instances of a damaged record are
/// derived from the device names.
pub(super) fn instances_of(
    record: &Record,
    devices: Option<&Devices>,
) -> Vec<(HeldDevice, HeldMig)> {
    let known = record.dynamic_mig().map(|(held, mig)| (held.clone(), mig.clone()));
    let mut instances: Vec<_> = known.collect();
    if !record.is_unresolved() {
        return instances;
    }
    for held in record.devices.iter().filter(|held| held.kind.is_whole() && !held.admin_access) {
        let known = devices.and_then(|devices| devices.by_name.get(&held.device));
        if let Some(device) = known
            && let DeviceKind::MigPlacement { profile, placement } = &device.kind
        {
            let held = HeldDevice { uuid: device.uuid.clone(), ..held.clone() };
            instances.push((held, super::plan::mig(profile, *placement, true, None)));
        }
    }
    instances
}

/// The part of a device name that identifies its GPU.
fn gpu_name(device: &str) -> &str {
    device.split_once("-mig-").map_or(device, |(gpu, _)| gpu)
}
