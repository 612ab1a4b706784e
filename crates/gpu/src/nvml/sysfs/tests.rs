use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{numa_node, pcie_root};
use crate::PciAddress;

const PCI: PciAddress = PciAddress { domain: 8, bus: 0x1b, device: 0, function: 0 };

fn sysfs(target: &str, numa: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let devices = root.path().join("bus/pci/devices");
    fs::create_dir_all(&devices).unwrap();
    let device = devices.join(target);
    fs::create_dir_all(&device).unwrap();
    fs::write(device.join("numa_node"), numa).unwrap();
    symlink(target, devices.join("0008:1b:00.0")).unwrap();
    root
}

#[test]
fn the_root_is_the_first_component_that_names_one() {
    let sys = sysfs("../../../devices/pci0008:15/0008:15:01.0/0008:1b:00.0", "1\n");
    assert_eq!(pcie_root(sys.path(), PCI).as_deref(), Some("pci0008:15"));
    assert_eq!(numa_node(sys.path(), PCI), Some(1));
}

#[test]
fn a_device_behind_a_bridge_of_the_platform_has_the_root_below_it() {
    let sys = sysfs("../../../devices/LNXSYSTM:00/PNP0A08:00/pci0008:1b/0008:1b:00.0", "-1\n");
    assert_eq!(pcie_root(sys.path(), PCI).as_deref(), Some("pci0008:1b"));
    assert_eq!(numa_node(sys.path(), PCI), None, "-1 is no node");
}

#[test]
fn a_device_that_sysfs_does_not_know_has_neither() {
    let nowhere = Path::new("/nonexistent");
    assert_eq!(pcie_root(nowhere, PCI), None);
    assert_eq!(numa_node(nowhere, PCI), None);
}
