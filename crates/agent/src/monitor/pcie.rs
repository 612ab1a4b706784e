//! Reads the errors of GPUs' PCIe links that the kernel counts.

use std::path::Path;

use octavo_gpu::PciAddress;

use super::{Monitor, now};

/// Counters of a device's fatal errors, by Advanced Error Reporting. The kernel keeps them in its memory, so no read waits for the device.
const FATAL_ERRORS: &str = "aer_dev_fatal";
/// Before the sum in that file.
const TOTAL: &str = "TOTAL_ERR_FATAL ";

impl Monitor {
    /// Reads the fatal errors of all GPUs. A kernel without Advanced Error Reporting has none.
    pub(super) fn read_pcie_errors(&mut self) {
        let Some(sys_root) = &self.sys_root else { return };
        let gpus = self.snapshot.inventory.iter().flat_map(|found| &found.gpus);
        let found = gpus.filter_map(|gpu| Some((gpu.uuid.clone(), fatal(sys_root, gpu.pci)?)));
        for (uuid, count) in found.collect::<Vec<_>>() {
            self.health.pcie_errors(&uuid, count, now());
        }
    }
}

/// The fatal errors of a device since the node was started.
fn fatal(sys_root: &Path, device: PciAddress) -> Option<u64> {
    let folder = sys_root.join("bus/pci/devices").join(device.to_string());
    let text = std::fs::read_to_string(folder.join(FATAL_ERRORS)).ok()?;
    text.lines().find_map(|line| line.strip_prefix(TOTAL)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_fatal_errors_is_read() {
        let sys = tempfile::tempdir().unwrap();
        let device: PciAddress = "0000:18:00.0".parse().unwrap();
        assert_eq!(fatal(sys.path(), device), None);
        let folder = sys.path().join("bus/pci/devices/0000:18:00.0");
        std::fs::create_dir_all(&folder).unwrap();
        for (text, expected) in [
            ("DLP 1\nMalfTLP 2\nTOTAL_ERR_FATAL 3\n", Some(3)),
            ("TOTAL_ERR_FATAL many\n", None),
            ("DLP 1\n", None),
        ] {
            std::fs::write(folder.join(FATAL_ERRORS), text).unwrap();
            assert_eq!(fatal(sys.path(), device), expected, "{text}");
        }
    }
}
