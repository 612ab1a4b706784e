//! Places in the `PCIe` tree.

use std::fs;
use std::path::Path;

use crate::PciAddress;

/// The way from a host bridge to a PCI device: the bridge's name (`pci0000:15`), the addresses of the bridges after it, and that of the
/// device. A root port is the first bridge. What shares it is behind one switch, since a root port has one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciPath(Vec<String>);

impl PciPath {
    /// The way to the device with an address; `None` if the kernel does not list it.
    pub fn of(sys_root: &Path, pci: PciAddress) -> Option<Self> {
        let link = sys_root.join("bus/pci/devices").join(pci.to_string());
        Self::parse(&fs::read_link(link).ok()?)
    }

    /// The way that the path of a device in sysfs names; `None` if it is not on a PCI bus. Of several host bridges the last one counts:
    /// a controller of storage may have one of its own below the first.
    pub(super) fn parse(device: &Path) -> Option<Self> {
        let parts: Vec<&str> =
            device.components().filter_map(|part| part.as_os_str().to_str()).collect();
        let bridge = parts.iter().rposition(|part| is_host_bridge(part))?;
        Some(Self(parts[bridge..].iter().map(|part| (*part).to_owned()).collect()))
    }

    /// How many bridges the ways to two devices have in common, below the host bridge.
    pub fn shared_bridges(&self, other: &Self) -> usize {
        let pairs = self.0.iter().zip(&other.0);
        pairs.take_while(|(one, other)| one == other).count().saturating_sub(1)
    }
}

/// Whether a part of a path is a host bridge: `pci0000:15`.
fn is_host_bridge(part: &str) -> bool {
    part.strip_prefix("pci").is_some_and(|bus| bus.contains(':'))
}
