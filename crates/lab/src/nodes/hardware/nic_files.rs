//! Network cards with RDMA, as in sysfs. Each has one port.

use std::collections::BTreeMap;
use std::path::Path;

use octavo_machine::{Machine, NicState};

use super::sys_files;
use super::tree::Tree;

/// States of network cards by name; a missing card is well.
pub(super) type NicStates = BTreeMap<String, NicState>;

/// Folder of the cards, each a link to its device.
const CLASS: &str = "sys/class/infiniband";
/// Folder of the port within that of its card.
const PORT: &str = "ports/1";

/// Writes the cards of a machine.
pub(super) fn write(tree: &Tree<'_>, machine: &Machine, states: &NicStates) -> anyhow::Result<()> {
    for nic in &machine.nics {
        let device = sys_files::write_device(tree, &nic.pcie_root, &nic.pci, nic.numa_node)?;
        // An InfiniBand controller of Mellanox.
        tree.file(device.join("vendor"), "0x15b3\n")?;
        tree.file(device.join("class"), "0x020700\n")?;
        let card = device.join("infiniband").join(&nic.name);
        tree.link(card.join("device"), Path::new("../../..").join(&nic.pci))?;
        let port = card.join(PORT);
        tree.file(port.join("link_layer"), "InfiniBand\n")?;
        for (file, text) in port_files(states.get(&nic.name)) {
            tree.file(port.join(file), &text)?;
        }
        let target = Path::new("../..").join(card.strip_prefix("sys").unwrap_or(&card));
        tree.link(Path::new(CLASS).join(&nic.name), target)?;
    }
    Ok(())
}

/// Writes the states of cards that are there, and may be read meanwhile.
pub(super) fn update(tree: &Tree<'_>, machine: &Machine, states: &NicStates) -> anyhow::Result<()> {
    for nic in &machine.nics {
        let port = Path::new(CLASS).join(&nic.name).join(PORT);
        for (file, text) in port_files(states.get(&nic.name)) {
            tree.replace(&port.join(file), &text)?;
        }
    }
    Ok(())
}

/// What changes of a port: files and their contents.
fn port_files(state: Option<&NicState>) -> [(&'static str, String); 5] {
    let NicState { is_down, symbol_errors, recoveries, downs } = state.copied().unwrap_or_default();
    let (logical, physical) =
        if is_down { ("1: DOWN", "2: Polling") } else { ("4: ACTIVE", "5: LinkUp") };
    let line = |value: &dyn std::fmt::Display| format!("{value}\n");
    [
        ("state", line(&logical)),
        ("phys_state", line(&physical)),
        ("counters/symbol_error", line(&symbol_errors)),
        ("counters/link_error_recovery", line(&recoveries)),
        ("counters/link_downed", line(&downs)),
    ]
}
