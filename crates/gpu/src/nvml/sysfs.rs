//! The kernel's facts about a PCI device.

use std::fs;
use std::path::{Path, PathBuf};

use crate::PciAddress;

/// The root complex of a device: the first component of its link's target that names one, as
/// KEP-4381 defines `resource.kubernetes.io/pcieRoot`.
pub(super) fn pcie_root(sys_root: &Path, pci: PciAddress) -> Option<String> {
    let target = fs::read_link(device(sys_root, pci)).ok()?;
    target
        .components()
        .filter_map(|part| part.as_os_str().to_str())
        .find(|part| part.starts_with("pci"))
        .map(str::to_owned)
}

/// The NUMA node of a device. The kernel writes -1 if the firmware names none.
pub(super) fn numa_node(sys_root: &Path, pci: PciAddress) -> Option<u32> {
    let text = fs::read_to_string(device(sys_root, pci).join("numa_node")).ok()?;
    text.trim().parse().ok()
}

fn device(sys_root: &Path, pci: PciAddress) -> PathBuf {
    sys_root.join("bus/pci/devices").join(pci.to_string())
}

#[cfg(test)]
mod tests;
