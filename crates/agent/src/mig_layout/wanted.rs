//! What a layout means for a GPU. No I/O.

use std::collections::BTreeMap;

use octavo_api::mig_config::{BuiltinLayout, MigLayout};
use octavo_gpu::Gpu;
use octavo_gpu::mig::{MigProfile, MigVariant};

/// A layout of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamedLayout {
    /// Of a file.
    OfFile(MigLayout),
    /// Computed from each GPU's profiles.
    Builtin(BuiltinLayout),
}

/// What a GPU should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GpuLayout {
    /// MIG mode is off.
    Off,
    /// MIG mode is on, with so many devices of each profile.
    On(BTreeMap<String, u32>),
}

/// Why a GPU cannot have a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LayoutError {
    /// The GPU has no MIG mode.
    #[error("GPU {gpu} has no MIG mode; leave it out of the layout's devices")]
    NoMig {
        /// NVML index.
        gpu: u32,
    },
    /// No GPU has MIG.
    #[error("no GPU of this node has MIG mode")]
    NoMigAnywhere,
    /// The GPU has no such profile.
    #[error("GPU {gpu} has no MIG profile {profile}; it has {known}")]
    NoProfile {
        /// NVML index.
        gpu: u32,
        /// The profile.
        profile: String,
        /// The GPU's profiles.
        known: String,
    },
    /// The MIG mode has to change, and changes only with a reset.
    #[error(
        "GPU {gpu} changes its MIG mode only with a reset, which `migReset: none` forbids: run `nvidia-smi -i {gpu} -mig {switch}` \
         while nothing uses it, then reset the GPU or reboot the node"
    )]
    NeedsReset {
        /// NVML index.
        gpu: u32,
        /// The mode: 1 is on.
        switch: u8,
    },
    /// The devices do not fit together.
    #[error("GPU {gpu} has no room for {devices}")]
    NoRoom {
        /// NVML index.
        gpu: u32,
        /// The devices.
        devices: String,
    },
    /// The GPU is under dynamic MIG.
    #[error(
        "GPU {gpu} is under dynamic MIG, where claims make its devices; remove it from the node's label \
         octavo.dev/dynamic-mig, or from the layout"
    )]
    Dynamic {
        /// NVML index.
        gpu: u32,
    },
}

impl NamedLayout {
    /// What a GPU should be. `None`: it stays as it is.
    ///
    /// # Errors
    ///
    /// The GPU cannot have the layout.
    pub(crate) fn of(&self, gpu: &Gpu) -> Result<Option<GpuLayout>, LayoutError> {
        let layout = match self {
            Self::OfFile(layout) => {
                let Some(entry) = layout.entry(gpu.index, gpu.pci_device_id) else {
                    return Ok(None);
                };
                match &entry.devices {
                    None => GpuLayout::Off,
                    Some(devices) => GpuLayout::On(devices.clone()),
                }
            }
            // A GPU without MIG is not meant.
            Self::Builtin(_) if gpu.mig.is_none() => return Ok(None),
            Self::Builtin(BuiltinLayout::Disabled) => GpuLayout::Off,
            Self::Builtin(BuiltinLayout::Enabled) => GpuLayout::On(BTreeMap::new()),
            // As in mig-parted, GPU models without the profiles are not meant.
            Self::Builtin(BuiltinLayout::Balanced) => match balanced(gpu) {
                Some(devices) => GpuLayout::On(devices),
                None => return Ok(None),
            },
            Self::Builtin(BuiltinLayout::Profile(name)) => {
                let plain = |name: &str| name.replace('+', ".");
                let same = |profile: &&MigProfile| plain(&profile.name) == plain(name);
                let Some(profile) = gpu.mig_profiles.iter().find(same) else { return Ok(None) };
                GpuLayout::On(BTreeMap::from([(profile.name.clone(), profile.instances)]))
            }
        };
        match (&layout, gpu.mig) {
            (GpuLayout::On(_), None) => Err(LayoutError::NoMig { gpu: gpu.index }),
            _ => Ok(Some(layout)),
        }
    }

    /// Why it means none of these GPUs, if it is computed from them. A file's may mean none.
    pub(crate) fn means_none(&self, gpus: &[Gpu]) -> Option<LayoutError> {
        let Self::Builtin(layout) = self else { return None };
        if gpus.iter().any(|gpu| !matches!(self.of(gpu), Ok(None))) {
            return None;
        }
        let Some(gpu) = gpus.iter().find(|gpu| gpu.mig.is_some()) else {
            return Some(LayoutError::NoMigAnywhere);
        };
        Some(match layout {
            BuiltinLayout::Profile(profile) => no_profile(gpu, profile),
            _ => no_profile(gpu, "1g, 2g or 3g"),
        })
    }
}

/// Two devices with one slice, one with two, and on GPUs with seven slices one with three. Of profiles with as many slices the one
/// with the least memory.
/// `None`: the GPU lacks one.
fn balanced(gpu: &Gpu) -> Option<BTreeMap<String, u32>> {
    let plain = gpu.mig_profiles.iter().filter(|it| it.shape.variant == MigVariant::Plain);
    let slices = plain.clone().map(|it| it.shape.gpu_slices).max().unwrap_or_default();
    let counts: &[(u32, u32)] =
        if slices >= 7 { &[(1, 2), (2, 1), (3, 1)] } else { &[(1, 2), (2, 1)] };
    let devices = counts.iter().map(|(slices, count)| {
        let same = plain.clone().filter(|it| it.shape.gpu_slices == *slices);
        let smallest = same.max_by_key(|it| it.instances)?;
        Some((smallest.name.clone(), *count))
    });
    devices.collect()
}

pub(super) fn no_profile(gpu: &Gpu, profile: &str) -> LayoutError {
    let known: Vec<&str> = gpu.mig_profiles.iter().map(|it| it.name.as_str()).collect();
    LayoutError::NoProfile { gpu: gpu.index, profile: profile.to_owned(), known: known.join(", ") }
}

#[cfg(test)]
mod tests;
