//! Multi-instance GPUs: the partitions of a model, and the instances of a simulated GPU.
//!
//! ```text
//! GPU ── GPU instance (memory slices, engines) ── compute instance (multiprocessors)
//!          profile and placement from MigTable      fills the GPU instance, or a part of it
//! ```
//!
//! Numbers and ids are NVML's. A profile's *number* in NVML's enumeration is the same on every GPU.
//! Its *id* is printed by `nvidia-smi mig -lgip` and used to create an instance.

use crate::description::derive_uuid;

pub use capabilities::{MigCapability, capability_text, mig_capabilities};
pub use instances::{ComputeInstance, GpuInstance, MigActivation, MigRefusal, MigState};

/// The possible partitions of one GPU model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigTable {
    /// Key in machine descriptions: `h100-80`.
    pub key: &'static str,
    /// Compute slices of the GPU: 7, or 4 on small models.
    pub compute_slices: u32,
    /// Memory slices of the GPU: 8, or 4 on small models.
    pub memory_slices: u32,
    /// Profiles, sorted by number.
    pub profiles: Vec<MigProfile>,
}

/// A GPU instance profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigProfile {
    /// Name: `1g.10gb+me`.
    pub name: &'static str,
    /// NVML's number: `NVML_GPU_INSTANCE_PROFILE_*`.
    pub number: u32,
    /// Id on this GPU.
    pub id: u32,
    /// Compute slices of an instance.
    pub compute_slices: u32,
    /// Memory slices of an instance.
    pub memory_slices: u32,
    /// Number of instances that fit an empty GPU.
    pub instances: u32,
    /// First memory slices of the possible placements.
    pub starts: &'static [u32],
    /// Frame buffer in MiB.
    pub memory_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Video decoders.
    pub decoders: u32,
    /// JPEG engines.
    pub jpeg_engines: u32,
    /// Optical flow engines.
    pub ofa_engines: u32,
}

/// A compute instance profile within GPU instances of one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigComputeProfile {
    /// NVML's number, `NVML_COMPUTE_INSTANCE_PROFILE_*`; also its id.
    pub number: u32,
    /// Compute slices of an instance.
    pub compute_slices: u32,
    /// First compute slices of the possible placements within the GPU instance.
    pub starts: Vec<u32>,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
}

/// NVML's numbers of compute instance profiles, by compute slices.
const COMPUTE_PROFILES: [(u32, u32); 5] = [(1, 0), (2, 1), (3, 2), (4, 3), (7, 4)];

impl MigTable {
    /// The table with that key.
    pub fn find(key: &str) -> Option<Self> {
        tables::find(key)
    }

    /// Keys of all tables.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        tables::keys()
    }

    /// The profile with that id.
    pub fn profile(&self, id: u32) -> Option<&MigProfile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// The profile with that number.
    pub fn profile_numbered(&self, number: u32) -> Option<&MigProfile> {
        self.profiles.iter().find(|profile| profile.number == number)
    }

    /// The profile of that name.
    pub fn profile_named(&self, name: &str) -> Option<&MigProfile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// Id of the GPU instance of a profile at a first memory slice. Drivers number the halves,
    /// quarters and eighths of a GPU, so the id encodes the placement. Id 0 is the whole GPU, 1 and
    /// 2 are the halves, 3 to 6 the quarters, 7 to 14 the eighths.
    pub fn instance_id(&self, profile: &MigProfile, start: u32) -> u32 {
        let size = profile.memory_slices.max(1);
        (self.memory_slices / size).saturating_sub(1) + start / size
    }
}

impl MigProfile {
    /// The compute instance profiles within GPU instances of this profile: single slices, pairs,
    /// and halves in the largest. The last profile fills the GPU instance.
    pub fn compute_profiles(&self) -> Vec<MigComputeProfile> {
        let all = self.compute_slices;
        let offered = |slices: u32| slices == all || slices < all && (slices <= 2 || all == 7);
        COMPUTE_PROFILES
            .iter()
            .filter(|&&(slices, _)| offered(slices))
            .map(|&(slices, number)| MigComputeProfile {
                number,
                compute_slices: slices,
                starts: (0..=all - slices).step_by(slices.next_power_of_two() as usize).collect(),
                multiprocessors: if slices == all {
                    self.multiprocessors
                } else {
                    // Multiprocessors come in pairs.
                    (self.multiprocessors * slices / all) & !1
                },
            })
            .collect()
    }

    /// The compute instance profile with that number within GPU instances of this profile.
    pub fn compute_profile(&self, number: u32) -> Option<MigComputeProfile> {
        self.compute_profiles().into_iter().find(|profile| profile.number == number)
    }
}

/// UUID `MIG-...` of the MIG device of a compute instance. As with real drivers it follows from the
/// GPU and the ids, so a device created again at the same placement has the same UUID.
pub fn mig_uuid(gpu_uuid: &str, gpu_instance: u32, compute_instance: u32) -> String {
    let derived = derive_uuid(&format!("{gpu_uuid}/{gpu_instance}"), compute_instance);
    derived.replacen("GPU-", "MIG-", 1)
}

pub(crate) mod capabilities;
mod instances;
mod tables;

#[cfg(test)]
mod tests;
