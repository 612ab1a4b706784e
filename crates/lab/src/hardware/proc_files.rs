//! What the kernel tells of the driver under `/proc`.

use std::fmt::Write as _;
use std::path::Path;

use octavo_machine::{AddressingMode, Gpu, Machine};

use super::device_nodes::has_channels;
use super::tree::Tree;

/// Character devices of the driver and their major numbers; only the first is fixed.
const MAJORS: &[(u32, &str)] = &[
    (195, "nvidia"),
    (195, "nvidia-modeset"),
    (195, "nvidiactl"),
    (234, "nvidia-nvswitch"),
    (235, "nvidia-nvlink"),
    (236, "nvidia-caps"),
    (237, "nvidia-caps-imex-channels"),
    (508, "nvidia-uvm"),
];

/// Parameters of the kernel module that tools read, at their defaults.
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

pub(super) fn write(tree: &Tree<'_>, machine: &Machine, boot_id: &str) -> anyhow::Result<()> {
    tree.file("proc/sys/kernel/random/boot_id", &format!("{boot_id}\n"))?;
    tree.file("proc/devices", &devices())?;
    let driver = Path::new("proc/driver/nvidia");
    tree.file(driver.join("version"), &version(machine))?;
    tree.file(driver.join("params"), &parameters())?;
    for gpu in &machine.gpus {
        tree.file(driver.join("gpus").join(&gpu.pci).join("information"), &gpu_of(machine, gpu))?;
    }
    let capabilities = driver.join("capabilities");
    if machine.model.mig.is_some() {
        tree.file(capabilities.join("mig/config"), &capability(1))?;
        tree.file(capabilities.join("mig/monitor"), &capability(2))?;
    }
    if has_channels(machine) {
        tree.file(capabilities.join("fabric-imex-mgmt"), &capability(3))?;
    }
    Ok(())
}

fn devices() -> String {
    let mut text = "Character devices:\n  1 mem\n  5 /dev/tty\n 10 misc\n".to_owned();
    for (major, name) in MAJORS {
        let _ = writeln!(text, "{major:3} {name}");
    }
    text.push_str("226 drm\n\nBlock devices:\n259 blkext\n");
    text
}

fn version(machine: &Machine) -> String {
    // The systems whose memory the GPU addresses in hardware are those of NVIDIA's own CPU.
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

fn gpu_of(machine: &Machine, gpu: &Gpu) -> String {
    format!(
        "Model: \t\t {}\nIRQ:   \t\t {}\nGPU UUID: \t {}\nVideo BIOS: \t 00.00.00.00.00\n\
         Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n\
         Bus Location: \t {}\nDevice Minor: \t {}\nGPU Firmware: \t {}\nGPU Excluded:\t No\n",
        machine.model.name,
        // Any number that is the GPU's own.
        100 + gpu.minor,
        gpu.uuid.as_deref().unwrap_or("GPU-????????-????-????-????-????????????"),
        gpu.pci,
        gpu.minor,
        machine.driver.version,
    )
}

/// How the driver tells which node under `/dev/nvidia-caps` stands for a capability.
fn capability(minor: u32) -> String {
    format!("DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n")
}
