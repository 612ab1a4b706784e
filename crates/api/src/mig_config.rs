//! Layouts of MIG devices by name, as NVIDIA's MIG manager knows them: files of the form of mig-parted 0.15 (`version: v1`,
//! `mig-configs`), and the names that need no file.
//!
//! ```yaml
//! version: v1
//! mig-configs:
//!   half-and-half:
//!   - devices: [0, 1]              # or all
//!     device-filter: "0x233010DE"  # device and vendor, one or a list; none: every GPU
//!     mig-enabled: true
//!     mig-devices: {"1g.10gb": 2, "3g.40gb": 1}
//! ```

mod builtin;
mod decode;

use std::collections::BTreeMap;

pub use builtin::{BuiltinLayout, BuiltinLayoutError};
pub use decode::decode;

/// All layouts of a file, by name. Never empty.
pub type MigLayouts = BTreeMap<String, MigLayout>;

/// Which MIG devices the GPUs of a node have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigLayout {
    /// The parts, in order of the file. Of several that mean a GPU the last counts. Never empty.
    pub entries: Vec<LayoutEntry>,
}

/// The MIG devices of some GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutEntry {
    /// PCI device and vendor, packed as NVML does (device in the high half). Empty: every GPU.
    pub device_ids: Vec<u32>,
    /// NVML indices; `None`: all.
    pub gpus: Option<Vec<u32>>,
    /// MIG devices by profile, such as `1g.10gb+me`, none of them with the count 0. `None`: MIG mode is off.
    pub devices: Option<BTreeMap<String, u32>>,
}

impl MigLayout {
    /// The entry for the GPU with this index and packed PCI id. `None`: the GPU stays as it is.
    pub fn entry(&self, index: u32, pci_device_id: u32) -> Option<&LayoutEntry> {
        let is_meant = |entry: &&LayoutEntry| {
            let is_model = entry.device_ids.is_empty() || entry.device_ids.contains(&pci_device_id);
            is_model && entry.gpus.as_ref().is_none_or(|gpus| gpus.contains(&index))
        };
        self.entries.iter().rfind(is_meant)
    }
}

#[cfg(test)]
mod tests;
