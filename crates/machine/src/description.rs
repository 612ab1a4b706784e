use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::MachineError;

/// What a GPU node is made of.
///
/// All GPUs of a machine are of one model, as in every system that is sold; what differs from
/// GPU to GPU (place, identity) stands in [`Gpu`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    /// Short name, the stem of the file it ships in: `dgx-h100`.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// The installed driver.
    pub driver: Driver,
    /// What every GPU of the machine has in common.
    pub model: Model,
    /// `NVLink` fabric that the machine's GPUs belong to; absent on machines without `NVSwitch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// The GPUs, in NVML index order.
    pub gpus: Vec<Gpu>,
    /// How simulated GPUs compute; says nothing about real ones.
    #[serde(default, skip_serializing_if = "Simulation::is_default")]
    pub simulation: Simulation,
}

/// Versions of the installed driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Driver {
    /// Kernel and user driver: `580.95.05`.
    pub version: String,
    /// Highest CUDA version that the driver serves, `major.minor`: `13.0`.
    pub cuda: String,
    /// Version of the management library: `13.580.95.05`.
    pub nvml: String,
}

/// What every GPU of a machine has in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Model {
    /// Product name as NVML prints it: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Brand as NVML's enum names it, without prefix: `Nvidia`, `Tesla`.
    pub brand: String,
    /// Architecture: `Turing`, `Ampere`, `Ada`, `Hopper`, `Blackwell`.
    pub architecture: String,
    /// CUDA compute capability, `major.minor`: `9.0`.
    pub compute_capability: String,
    /// Frame buffer that NVML reports as total, in MiB.
    pub memory_mib: u64,
    /// Part of `memory_mib` that driver and firmware keep for themselves, in MiB.
    #[serde(default)]
    pub reserved_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// PCI device and vendor, as NVML packs them: `0x233010DE`.
    pub pci_device_id: String,
    /// PCI subsystem device and vendor, packed alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_subsystem_id: Option<String>,
    /// How device memory is addressed from the host, where the driver reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressing_mode: Option<AddressingMode>,
    /// Whether memory has error correction.
    pub ecc: bool,
    /// Board power limit in watts.
    pub power_limit_watts: u32,
    /// Highest SM clock in MHz.
    pub sm_clock_mhz: u32,
    /// Highest memory clock in MHz.
    pub memory_clock_mhz: u32,
    /// `NVLink` of one GPU; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlink: Option<NvLink>,
    /// Multi-instance capability; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Mig>,
}

/// How the host's CPU addresses device memory (`nvmlDeviceAddressingModeType_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressingMode {
    /// The driver reports that there is none.
    None,
    /// Heterogeneous memory management in software.
    #[serde(rename = "HMM")]
    Hmm,
    /// Address translation services in hardware.
    #[serde(rename = "ATS")]
    Ats,
}

/// `NVLink` of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NvLink {
    /// Generation: 3 on A100, 4 on Hopper, 5 on Blackwell.
    pub version: u32,
    /// Active links per GPU.
    pub links: u32,
    /// Whether the links end in `NVSwitches`; otherwise they end in the other GPUs, evenly.
    pub switched: bool,
}

/// Multi-instance capability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mig {
    /// Key of the profile table that applies, [`MigTable`](crate::MigTable): `h100-80`.
    pub table: String,
    /// Whether the mode changes only with a GPU reset, as on A100.
    #[serde(default)]
    pub mode_needs_reset: bool,
    /// Whether MIG mode is on when the driver is loaded.
    #[serde(default)]
    pub enabled: bool,
}

/// An `NVLink` fabric and the machine's place in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fabric {
    /// Cluster UUID, as `8-4-4-4-12` hex digits; all zero on a fabric within one chassis.
    pub cluster_uuid: String,
    /// Clique within the cluster.
    pub clique_id: u32,
    /// How far the registration with the fabric manager is.
    #[serde(default)]
    pub state: FabricState,
}

/// State of a GPU's registration with its fabric (`nvmlGpuFabricState_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FabricState {
    /// The GPU knows no fabric.
    NotSupported,
    /// Registration has not begun.
    NotStarted,
    /// Registration is under way.
    InProgress,
    /// The GPU is a member.
    #[default]
    Completed,
}

/// One GPU: its identity and place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gpu {
    /// `GPU-...`; where absent, whoever instantiates the machine derives one
    /// ([`derive_uuid`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Number of the device node `/dev/nvidiaN`.
    pub minor: u32,
    /// Position on the baseboard, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<u32>,
    /// PCI address, `domain:bus:device.function` with a four-digit domain: `0000:1b:00.0`.
    pub pci: String,
    /// `PCIe` root complex, as sysfs names it: `pci0000:15`.
    pub pcie_root: String,
    /// NUMA node of the root complex; absent where the firmware gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Board serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

impl Machine {
    /// Reads and checks a description.
    pub fn read(path: &Path) -> Result<Self, MachineError> {
        let text = std::fs::read_to_string(path).map_err(|source| MachineError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text)
    }

    /// Parses and checks a description.
    pub fn parse(text: &str) -> Result<Self, MachineError> {
        let machine: Self =
            serde_saphyr::from_str(text).map_err(|e| MachineError::Parse(e.to_string()))?;
        machine.check()?;
        Ok(machine)
    }

    /// The description as YAML, fit for [`Machine::parse`].
    pub fn to_yaml(&self) -> Result<String, MachineError> {
        serde_saphyr::to_string(self).map_err(|e| MachineError::Parse(e.to_string()))
    }

    /// Gives every GPU without a UUID one that is derived from `node`, so that the same node
    /// always has the same GPUs and no two nodes share one.
    pub fn instantiate(&mut self, node: &str) {
        for gpu in &mut self.gpus {
            if gpu.uuid.is_none() {
                gpu.uuid = Some(derive_uuid(node, gpu.minor));
            }
        }
    }

    /// Checks what the types alone cannot: unique minors, addresses and UUIDs, well-formed
    /// PCI addresses, packed ids and versions.
    pub fn check(&self) -> Result<(), MachineError> {
        crate::description::check::check(self)
    }
}

/// A UUID in NVML's form for GPU `minor` of `node`: the same inputs give the same UUID.
pub fn derive_uuid(node: &str, minor: u32) -> String {
    // FNV-1a, twice with different offsets: identity, not security.
    let hash = |offset: u64| {
        node.bytes()
            .chain([0])
            .chain(minor.to_le_bytes())
            .fold(offset, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142));
    format!(
        "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

mod check;
mod simulation;

pub use simulation::{Simulation, SimulationClock};

#[cfg(test)]
mod tests;
