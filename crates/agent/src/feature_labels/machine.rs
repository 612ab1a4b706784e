//! What of the machine besides its GPUs' driver is in labels.

use std::path::{Path, PathBuf};

use octavo_gpu::Gpu;

use super::vgpu::{Vgpu, vgpu};

/// What is known of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MachineFacts {
    /// The machine's type as its firmware names it; empty if unknown.
    pub(super) machine_type: String,
    /// PCI classes of the GPUs, base class and subclass; empty if unknown.
    pub(super) pci_classes: Vec<u32>,
    /// The GPUs that are virtual.
    pub(super) vgpus: Vec<Vgpu>,
    /// When the agent began to serve the node, in seconds since 1970.
    pub(super) started: i64,
}

impl MachineFacts {
    /// Reads them. What cannot be read is unknown.
    pub(super) fn read(
        sys_root: &Path,
        machine_type_file: &str,
        gpus: &[Gpu],
        started: i64,
    ) -> Self {
        let device = |gpu: &Gpu| sys_root.join("bus/pci/devices").join(gpu.pci.to_string());
        let class = |gpu: &Gpu| {
            let text = std::fs::read_to_string(device(gpu).join("class")).ok()?;
            let number = u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()?;
            // Without the programming interface.
            Some(number >> 8)
        };
        let config = |gpu: &Gpu| vgpu(&std::fs::read(device(gpu).join("config")).ok()?);
        let machine_type =
            std::fs::read_to_string(seen(sys_root, machine_type_file)).unwrap_or_default();
        Self {
            machine_type: machine_type.trim().to_owned(),
            pci_classes: gpus.iter().map(class).collect::<Option<_>>().unwrap_or_default(),
            vgpus: gpus.iter().filter_map(config).collect(),
            started,
        }
    }
}

/// The path of a file in `/sys` where the agent sees that.
fn seen(sys_root: &Path, file: &str) -> PathBuf {
    let file = Path::new(file);
    file.strip_prefix("/sys").map_or_else(|_| file.to_owned(), |inner| sys_root.join(inner))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing;

    #[test]
    fn a_machine_s_facts_are_read_and_may_be_missing() {
        let sys = tempfile::tempdir().unwrap();
        let gpus = testing::inventory(2).gpus;
        let file = "/sys/class/dmi/id/product_name";
        let read = || MachineFacts::read(sys.path(), file, &gpus, 7);
        assert_eq!(read(), MachineFacts { started: 7, ..MachineFacts::default() });
        let place = sys.path().join("class/dmi/id");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("product_name"), "DGX H100\n").unwrap();
        for (gpu, class) in gpus.iter().zip(["0x030200\n", "0x030000\n"]) {
            assert_eq!(read().pci_classes, [0; 0], "of one GPU it is unknown");
            let device = sys.path().join("bus/pci/devices").join(gpu.pci.to_string());
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("class"), class).unwrap();
        }
        assert_eq!(read().machine_type, "DGX H100");
        assert_eq!(read().pci_classes, [0x0302, 0x0300]);
    }
}
