//! Positions of the GPUs and network cards in the `PCIe` tree, as in sysfs.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use octavo_machine::{Machine, State};

use super::nic_files;
use super::tree::Tree;

/// Major number of DRM devices.
const DRM_MAJOR: u32 = 226;
/// Counters of a device's fatal errors, by the kernel's Advanced Error Reporting.
const FATAL_ERRORS: &str = "aer_dev_fatal";
/// First minor number of the kernel's render nodes.
const FIRST_RENDER_NODE: u32 = 128;

pub(super) fn write(tree: &Tree<'_>, machine: &Machine, state: &State) -> anyhow::Result<()> {
    let (device, vendor) = split_packed_id(&machine.model.pci_device_id)?;
    let subsystem = machine.model.pci_subsystem_id.as_deref().map(split_packed_id).transpose()?;
    for (index, gpu) in (0..).zip(&machine.gpus) {
        let folder = write_device(tree, &gpu.pcie_root, &gpu.pci, gpu.numa_node)?;
        tree.file(folder.join("vendor"), &format!("0x{vendor:04x}\n"))?;
        tree.file(folder.join("device"), &format!("0x{device:04x}\n"))?;
        if let Some((device, vendor)) = subsystem {
            tree.file(folder.join("subsystem_vendor"), &format!("0x{vendor:04x}\n"))?;
            tree.file(folder.join("subsystem_device"), &format!("0x{device:04x}\n"))?;
        }
        // A display-class 3D controller without connectors.
        tree.file(folder.join("class"), "0x030200\n")?;
        tree.file(folder.join(FATAL_ERRORS), &fatal_errors(state, index))?;
        let render = FIRST_RENDER_NODE + gpu.minor;
        for (name, minor) in
            [(format!("card{}", gpu.minor), gpu.minor), (format!("renderD{render}"), render)]
        {
            tree.file(
                folder.join("drm").join(name).join("dev"),
                &format!("{DRM_MAJOR}:{minor}\n"),
            )?;
        }
    }
    nic_files::write(tree, machine, &state.nics)
}

/// Writes what changes of devices that are there. The files may be read meanwhile.
pub(super) fn update(tree: &Tree<'_>, machine: &Machine, state: &State) -> anyhow::Result<()> {
    for (index, gpu) in (0..).zip(&machine.gpus) {
        let folder = Path::new("sys/bus/pci/devices").join(&gpu.pci);
        tree.replace(&folder.join(FATAL_ERRORS), &fatal_errors(state, index))?;
    }
    nic_files::update(tree, machine, &state.nics)
}

/// Fatal errors of the link of a GPU, by its NVML index, as the kernel shows them.
fn fatal_errors(state: &State, index: u32) -> String {
    let errors = state.gpus.get(&index).map_or(0, |gpu| gpu.pcie.fatal_errors);
    format!("Undefined 0\nDLP 0\nSDES 0\nMalfTLP {errors}\nTOTAL_ERR_FATAL {errors}\n")
}

/// Places a device on the bus. Returns its folder.
pub(super) fn write_device(
    tree: &Tree<'_>,
    pcie_root: &str,
    pci: &str,
    numa_node: Option<u32>,
) -> anyhow::Result<PathBuf> {
    let path = device_path(pcie_root, pci)?;
    let folder = Path::new("sys/devices").join(&path);
    let numa_node = numa_node.map_or_else(|| "-1".to_owned(), |node| node.to_string());
    tree.file(folder.join("numa_node"), &format!("{numa_node}\n"))?;
    let link = Path::new("sys/bus/pci/devices").join(pci);
    tree.link(link, Path::new("../../../devices").join(&path))?;
    Ok(folder)
}

/// The sysfs path from the root complex to a device: a root port, then a switch if the bus numbers
/// permit one. Devices under one root share the switch.
fn device_path(pcie_root: &str, pci: &str) -> anyhow::Result<PathBuf> {
    let malformed = || format!("{pci} below {pcie_root} is not a PCI address");
    let (domain, root_bus) =
        pcie_root.trim_start_matches("pci").split_once(':').with_context(malformed)?;
    let bus = pci.split(':').nth(1).with_context(malformed)?;
    let parse_hex = |text: &str| u32::from_str_radix(text, 16).with_context(malformed);
    let (root, bus) = (parse_hex(root_bus)?, parse_hex(bus)?);
    let mut path = PathBuf::from(pcie_root);
    path.push(format!("{domain}:{root:02x}:01.0"));
    if bus > root + 2 {
        path.push(format!("{domain}:{:02x}:00.0", root + 1));
        // One downstream port per device. The number is arbitrary; the low bits of the bus serve.
        path.push(format!("{domain}:{:02x}:{:02x}.0", root + 2, bus % 32));
    }
    path.push(pci);
    Ok(path)
}

/// Splits an id that NVML packs into device and vendor.
fn split_packed_id(packed: &str) -> anyhow::Result<(u32, u32)> {
    let id = u32::from_str_radix(packed.trim_start_matches("0x"), 16)
        .with_context(|| format!("{packed} is not a packed PCI id"))?;
    Ok((id >> 16, id & 0xffff))
}
