//! MIG: profiles, instances and their names, and the device nodes that give a process access to an
//! instance.

use std::fmt::Write;

pub use caps::{Capability, CapabilityError, MigCaps, caps, imex_management};

/// A GPU instance profile, as reported by the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigProfile {
    /// NVML's number of the profile: `NVML_GPU_INSTANCE_PROFILE_*`.
    pub number: u32,
    /// ID of the profile on this GPU, as `nvidia-smi mig -lgip` prints it. Creating an instance
    /// takes this ID.
    pub id: u32,
    /// Name of the profile with one compute instance that fills it, as in NVIDIA's DRA driver:
    /// `1g.10gb+me`.
    pub name: String,
    /// Slices and engines.
    pub shape: MigShape,
    /// Frame buffer of an instance in MiB.
    pub memory_mib: u64,
    /// Number of instances that fit on an empty GPU.
    pub instances: u32,
    /// Streaming multiprocessors of an instance.
    pub multiprocessors: u32,
    /// Copy engines of an instance.
    pub copy_engines: u32,
    /// Video decoders of an instance.
    pub decoders: u32,
    /// Video encoders of an instance.
    pub encoders: u32,
    /// JPEG engines of an instance.
    pub jpeg_engines: u32,
    /// Optical flow engines of an instance.
    pub ofa_engines: u32,
    /// Possible placements on an empty GPU, by first memory slice.
    pub placements: Vec<MigPlacement>,
}

/// An existing GPU instance and its compute instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    /// ID of the GPU instance on its GPU.
    pub gpu_instance: u32,
    /// ID of its profile, as [`MigProfile::id`].
    pub profile_id: u32,
    /// Its placement.
    pub placement: MigPlacement,
    /// Its compute instances, by ID. Octavo creates one that fills it. There is none between the
    /// two steps of its creation, and several if people divided it further.
    pub compute_instances: Vec<MigComputeInstance>,
}

/// A compute instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigComputeInstance {
    /// Id within its GPU instance.
    pub id: u32,
    /// `MIG-...`, the UUID of the pair in CUDA and NVML.
    pub uuid: String,
    /// NVML's index of the pair among the MIG devices of its GPU, as in `nvidia-smi -L`. There may be gaps.
    pub index: u32,
}

/// The memory slices of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MigPlacement {
    /// First memory slice.
    pub start: u32,
    /// Number of memory slices.
    pub size: u32,
}

/// The parts of a profile's name beside its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigShape {
    /// Slices of the compute instance.
    pub compute_slices: u32,
    /// Compute slices of the GPU instance.
    pub gpu_slices: u32,
    /// Engines that distinguish the profile from others of its size.
    pub variant: MigVariant,
}

/// Engines that distinguish a profile from others of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigVariant {
    /// The default profile, without a suffix.
    Plain,
    /// With media engines: `+me`.
    Media,
    /// With all media engines of the GPU: `+me.all`.
    AllMedia,
    /// Without the media engines of the default profile: `-me`.
    NoMedia,
    /// With graphics: `+gfx`.
    Graphics,
}

impl MigPlacement {
    /// Whether two placements share a memory slice.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.start.saturating_add(other.size)
            && other.start < self.start.saturating_add(self.size)
    }
}

impl MigShape {
    /// The shape of an instance with NVML profile `number` that one compute instance fills.
    /// `slices` is the slice count that the driver reports.
    pub fn of_profile(number: u32, slices: u32) -> Self {
        let variant = match number {
            // 1 and 2 slices REV1.
            7 | 8 => MigVariant::Media,
            // 1, 2, 4 and 3 slices GFX.
            10..=12 | 17 => MigVariant::Graphics,
            // 1 and 2 slices NO_ME.
            13 | 14 => MigVariant::NoMedia,
            // 1 and 2 slices ALL_ME.
            15 | 16 => MigVariant::AllMedia,
            _ => MigVariant::Plain,
        };
        Self { compute_slices: slices, gpu_slices: slices, variant }
    }

    /// The name of a profile with this shape and `memory_mib`, on a GPU with `total_bytes`. As in
    /// NVIDIA's tools, the share of memory is rounded up to eighths and multiplied with the total
    /// in whole GiB. Names therefore depend on the total that the driver reports.
    pub fn name(self, memory_mib: u64, total_bytes: u64) -> String {
        let Self { compute_slices, gpu_slices, variant } = self;
        let mut name = String::new();
        // Writing to a string cannot fail.
        if compute_slices != gpu_slices {
            let _ = write!(name, "{compute_slices}c.");
        }
        let _ = write!(name, "{gpu_slices}g.{}gb", gigabytes(memory_mib, total_bytes));
        name.push_str(match variant {
            MigVariant::Plain => "",
            MigVariant::Media => "+me",
            MigVariant::AllMedia => "+me.all",
            MigVariant::NoMedia => "-me",
            MigVariant::Graphics => "+gfx",
        });
        name
    }
}

/// The gigabytes in a profile's name.
fn gigabytes(memory_mib: u64, total_bytes: u64) -> u128 {
    if total_bytes == 0 {
        return 0;
    }
    let share = u128::from(memory_mib) << 20;
    let eighths = (share * 8).div_ceil(u128::from(total_bytes));
    let total_gib = u128::from(total_bytes).div_ceil(1 << 30);
    // Halves are rounded up.
    (eighths * total_gib + 4) / 8
}

mod caps;

#[cfg(test)]
mod tests;
