//! Files about the driver under `/proc`.

use std::fmt::Write as _;
use std::path::Path;

use octavo_machine::{
    AddressingMode, Gpu, IMEX_MANAGEMENT_MINOR, Machine, State, capability_text, mig_capabilities,
};

use super::driver_root::LIBRARY_DIR;
use super::tree::Tree;

/// Parameters of the kernel module that tools read, with their defaults.
const PARAMETERS: &[(&str, &str)] = &[
    ("ResmanDebugLevel", "4294967295"),
    ("RmLogonRC", "1"),
    ("ModifyDeviceFiles", "1"),
    ("DeviceFileUID", "0"),
    ("DeviceFileGID", "0"),
    ("DeviceFileMode", "438"),
    ("EnableMSI", "1"),
    ("EnableGpuFirmware", "18"),
    ("EnableStreamMemOPs", "0"),
    ("NVreg_CreateImexChannel0", "0"),
    ("ImexChannelCount", "2048"),
];

/// Minor numbers of the capabilities to configure and to monitor MIG, the lowest of all.
const MIG_MINORS: [(&str, u32); 2] = [("config", 1), ("monitor", 2)];

/// Mode of these capabilities' nodes: root only.
const ROOT_ONLY_MODE: u32 = 0o400;

/// Path of the table of MIG capabilities within the node's folder.
pub(super) const MIG_TABLE: &str = "proc/driver/nvidia-caps";

pub(super) fn write(tree: &Tree<'_>, machine: &Machine, boot_id: &str) -> anyhow::Result<()> {
    tree.file("proc/sys/kernel/random/boot_id", &format!("{boot_id}\n"))?;
    let state = State::read(&tree.path(&Path::new(LIBRARY_DIR).join("state.json")))?;
    tree.file("proc/devices", &state.proc_devices())?;
    tree.file("proc/modules", &state.proc_modules())?;
    let driver = Path::new("proc/driver/nvidia");
    tree.file(driver.join("version"), &version(machine))?;
    tree.file(driver.join("params"), &parameters())?;
    for gpu in &machine.gpus {
        tree.file(
            driver.join("gpus").join(&gpu.pci).join("information"),
            &gpu_information(machine, gpu),
        )?;
    }
    let capabilities = driver.join("capabilities");
    if machine.model.mig.is_some() {
        for (name, minor) in MIG_MINORS {
            let text = capability_text(minor, ROOT_ONLY_MODE);
            tree.file(capabilities.join("mig").join(name), &text)?;
        }
    }
    if has_channels(machine) {
        let text = capability_text(IMEX_MANAGEMENT_MINOR, ROOT_ONLY_MODE);
        tree.file(capabilities.join("fabric-imex-mgmt"), &text)?;
    }
    Ok(())
}

fn version(machine: &Machine) -> String {
    // Only NVIDIA's Grace systems report hardware address translation (ATS).
    let grace = machine.model.addressing_mode == Some(AddressingMode::Ats);
    format!(
        "NVRM version: NVIDIA UNIX Open Kernel Module for {}  {}  Release Build  (simulated)\n\
         GCC version:  gcc version 13.3.0 (simulated)\n",
        if grace { "aarch64" } else { "x86_64" },
        machine.driver.version
    )
}

fn parameters() -> String {
    PARAMETERS.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}: {value}");
        text
    })
}

fn gpu_information(machine: &Machine, gpu: &Gpu) -> String {
    format!(
        "Model: \t\t {}\nIRQ:   \t\t {}\nGPU UUID: \t {}\nVideo BIOS: \t 00.00.00.00.00\n\
         Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n\
         Bus Location: \t {}\nDevice Minor: \t {}\nGPU Firmware: \t {}\nGPU Excluded:\t No\n",
        machine.model.name,
        // Any number that is unique per GPU.
        100 + gpu.minor,
        gpu.uuid.as_deref().unwrap_or("GPU-????????-????-????-????-????????????"),
        gpu.pci,
        gpu.minor,
        machine.driver.version,
    )
}

/// The table of MIG capabilities, the same for all nodes of a machine.
pub(super) fn mig_minors(machine: &Machine) -> String {
    let fixed = MIG_MINORS.iter().map(|(name, minor)| format!("{name} {minor}\n"));
    let of_instances = mig_capabilities(machine);
    let of_instances = of_instances
        .iter()
        .map(|capability| format!("{} {}\n", capability.name(), capability.minor()));
    fixed.chain(of_instances).collect()
}

/// Whether the machine's fabric spans hosts, which communicate through IMEX channels.
pub(super) fn has_channels(machine: &Machine) -> bool {
    machine.fabric.as_ref().is_some_and(octavo_machine::Fabric::spans_nodes)
}
