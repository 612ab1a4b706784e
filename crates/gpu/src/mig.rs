//! MIG: what a GPU can be cut into, what the pieces are called, and which device nodes let a
//! process use one.

use std::fmt::Write;

pub use caps::{MigCaps, MigCapsError, caps};

/// A GPU instance profile of a GPU, as its driver tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigProfile {
    /// NVML's number of the profile: `NVML_GPU_INSTANCE_PROFILE_*`.
    pub number: u32,
    /// Id of the profile on this GPU, as `nvidia-smi mig -lgip` prints it and as creating an
    /// instance takes it.
    pub id: u32,
    /// Name with one compute instance on all of it, as NVIDIA's DRA driver prints it: `1g.10gb+me`.
    pub name: String,
    /// Slices and engines beside them.
    pub shape: MigShape,
    /// Frame buffer of an instance in MiB.
    pub memory_mib: u64,
    /// How many instances fit an empty GPU.
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
    /// Where an instance could be on an empty GPU, by first memory slice.
    pub placements: Vec<MigPlacement>,
}

/// A GPU instance that is there, with the compute instance that fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    /// Id of the GPU instance on its GPU.
    pub gpu_instance: u32,
    /// Id of the GPU instance's profile, as [`MigProfile::id`].
    pub profile_id: u32,
    /// Where it is.
    pub placement: MigPlacement,
    /// Its compute instances, in order of id: one that fills it where it was made for a claim,
    /// none between the two steps of making it, several where people cut it further.
    pub compute_instances: Vec<MigComputeInstance>,
}

/// A compute instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigComputeInstance {
    /// Id within its GPU instance.
    pub id: u32,
    /// `MIG-...`: what CUDA and NVML know the pair by.
    pub uuid: String,
}

/// Memory slices that an instance takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MigPlacement {
    /// First memory slice.
    pub start: u32,
    /// Number of memory slices.
    pub size: u32,
}

/// What a profile's name says beside its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigShape {
    /// Slices of the compute instance.
    pub compute_slices: u32,
    /// Compute slices of the GPU instance.
    pub gpu_slices: u32,
    /// Engines that set the profile apart from others of its size.
    pub variant: MigVariant,
}

/// Engines that set a profile apart from others of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigVariant {
    /// The profile that is meant without further words.
    Plain,
    /// With media engines: `+me`.
    Media,
    /// With all media engines of the GPU: `+me.all`.
    AllMedia,
    /// Without media engines where the plain profile has them: `-me`.
    NoMedia,
    /// With graphics: `+gfx`.
    Graphics,
}

impl MigPlacement {
    /// Whether two take a memory slice in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.start.saturating_add(other.size)
            && other.start < self.start.saturating_add(self.size)
    }
}

impl MigShape {
    /// The shape of an instance of NVML's profile `number` that one compute instance fills;
    /// `slices` is what the driver tells as its slice count.
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

    /// Name of a profile of this shape with `memory_mib` of a GPU that has `total_bytes`, as
    /// NVIDIA's tools compute it: the share of the memory is rounded up to eighths, and taken of
    /// the total in whole GiB. Names therefore move with the total that a driver reports.
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

/// The whole number of gigabytes in a profile's name.
fn gigabytes(memory_mib: u64, total_bytes: u64) -> u128 {
    if total_bytes == 0 {
        return 0;
    }
    let share = u128::from(memory_mib) << 20;
    let eighths = (share * 8).div_ceil(u128::from(total_bytes));
    let total_gib = u128::from(total_bytes).div_ceil(1 << 30);
    // A half is rounded up.
    (eighths * total_gib + 4) / 8
}

mod caps;

#[cfg(test)]
mod tests;
