//! Network cards with RDMA, as the kernel shows them in `/sys/class/infiniband`: those of `InfiniBand`, and those of Ethernet (`RoCE`).
//!
//! A card serves the GPUs that it shares a `PCIe` switch with: data goes from one to the other without the host's bridge.

mod pci_path;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub use pci_path::PciPath;

use crate::PciAddress;

/// Folder of the cards in sysfs.
const CLASS: &str = "class/infiniband";
/// States of a port that carries traffic: `ACTIVE` and `ACTIVE_DEFER` (`enum ib_port_state`).
const ACTIVE: [u32; 2] = [4, 5];

/// A network card. Its name may be another one after a boot, its address stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkCard {
    /// Name, such as `mlx5_0`.
    pub name: String,
    /// PCI address.
    pub pci: PciAddress,
    /// Its place in the `PCIe` tree.
    pub path: PciPath,
    /// Numbers of its ports, in order.
    pub ports: Vec<u32>,
}

/// What a port of a network card shows. Counters that the card does not have are `None`. They begin at zero when the card's driver is
/// loaded or a person clears them, and stay at their highest value: 65,535 symbol errors, and 255 of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkPort {
    /// Whether it carries traffic. One that is up and waits for its subnet manager does not.
    pub is_active: bool,
    /// Symbol errors (`symbol_error`).
    pub symbol_errors: Option<u64>,
    /// How often its link was lost for a moment, and recovered (`link_error_recovery`).
    pub recoveries: Option<u64>,
    /// How often its link went down (`link_downed`).
    pub downs: Option<u64>,
}

impl NetworkCard {
    /// The cards of a machine, by name; none if the kernel has no RDMA. Virtual functions are left out, and so are devices without a place
    /// on the PCI bus, such as those of software. Fails if the kernel's list cannot be read.
    pub fn all(sys_root: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(sys_root.join(CLASS)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut cards = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            cards.extend(name.to_str().and_then(|name| Self::read(sys_root, name)));
        }
        cards.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(cards)
    }

    /// The card with a name; `None` if it has just gone, too.
    fn read(sys_root: &Path, name: &str) -> Option<Self> {
        let folder = sys_root.join(CLASS).join(name);
        // `../../devices/pci0000:15/0000:15:01.0/0000:18:00.0/infiniband/mlx5_0`
        let target = fs::read_link(&folder).ok()?;
        let device = target.parent()?.parent()?;
        let pci: PciAddress = device.file_name()?.to_str()?.parse().ok()?;
        let is_virtual_function = folder.join("device/physfn").exists();
        if is_virtual_function {
            return None;
        }
        let path = PciPath::parse(device)?;
        let entries = fs::read_dir(folder.join("ports")).ok()?;
        let number =
            |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        let mut ports: Vec<u32> = entries.filter_map(number).collect();
        ports.sort_unstable();
        Some(Self { name: name.to_owned(), pci, path, ports })
    }

    /// What a port shows now. Fails if its state cannot be read.
    pub fn port(&self, sys_root: &Path, port: u32) -> io::Result<NetworkPort> {
        let folder = sys_root.join(CLASS).join(&self.name).join("ports").join(port.to_string());
        let is_active = is_active(&fs::read_to_string(folder.join("state"))?)?;
        let counters = folder.join("counters");
        Ok(NetworkPort {
            is_active,
            symbol_errors: counter(counters.join("symbol_error")),
            recoveries: counter(counters.join("link_error_recovery")),
            downs: counter(counters.join("link_downed")),
        })
    }

    /// The cards that serve a GPU, in their order: those with which it shares the nearest `PCIe` switch that has any. Cards that only the
    /// root complex connects with it serve no GPU in particular.
    pub fn serving<'a>(cards: &'a [Self], gpu: &PciPath) -> impl Iterator<Item = &'a Self> {
        let shared: Vec<usize> = cards.iter().map(|card| card.path.shared_bridges(gpu)).collect();
        let nearest = shared.iter().copied().max().unwrap_or_default();
        let pairs = cards.iter().zip(shared);
        pairs.filter(move |(_, shared)| nearest > 0 && *shared == nearest).map(|(card, _)| card)
    }
}

/// Whether a port with a state, such as `4: ACTIVE`, carries traffic.
fn is_active(state: &str) -> io::Result<bool> {
    let number = state.split(':').next().unwrap_or_default().trim().parse::<u32>();
    let malformed = |_| {
        let text = format!("`{}` is no state of a port, such as 4: ACTIVE", state.trim());
        io::Error::new(ErrorKind::InvalidData, text)
    };
    number.map(|number| ACTIVE.contains(&number)).map_err(malformed)
}

/// The value of a counter; `None` if the card does not have it, which some kernels say in words.
fn counter(path: PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
