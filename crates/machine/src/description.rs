use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::MachineError;

/// Description of a GPU node.
///
/// All GPUs of a machine have the same model, as in every commercial system. Properties of the
/// single GPU (position, identity) are in [`Gpu`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    /// Short name, the stem of its file: `dgx-h100`.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// The installed driver.
    pub driver: Driver,
    /// Properties shared by all GPUs of the machine.
    pub model: Model,
    /// `NVLink` fabric of the machine's GPUs; `None` without `NVSwitch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// The GPUs, in NVML index order.
    pub gpus: Vec<Gpu>,
    /// Network cards with RDMA, each with one port. One that shares a root complex with a GPU is behind a `PCIe` switch with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<Nic>,
    /// Behaviour of simulated GPUs; does not describe real ones.
    #[serde(default, skip_serializing_if = "Simulation::is_default")]
    pub simulation: Simulation,
}

/// Versions of the installed driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Driver {
    /// Kernel and user driver: `580.95.05`.
    pub version: String,
    /// Highest supported CUDA version, `major.minor`: `13.0`.
    pub cuda: String,
    /// Version of the management library: `13.580.95.05`.
    pub nvml: String,
}

/// Properties shared by all GPUs of a machine.
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
    /// Total frame buffer as reported by NVML, in MiB.
    pub memory_mib: u64,
    /// Part of `memory_mib` reserved by driver and firmware, in MiB.
    #[serde(default)]
    pub reserved_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// PCI device and vendor in NVML's packed form: `0x233010DE`.
    pub pci_device_id: String,
    /// PCI subsystem device and vendor in the same form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_subsystem_id: Option<String>,
    /// Addressing of device memory from the host, if the driver reports it.
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
    /// `NVLink` of one GPU; `None` without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlink: Option<NvLink>,
    /// Multi-instance capability; `None` without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Mig>,
}

/// Addressing of device memory from the host's CPU (`nvmlDeviceAddressingModeType_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressingMode {
    /// The driver reports none.
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
    /// Whether the links end in `NVSwitches`. Otherwise they are divided evenly among the other
    /// GPUs.
    pub switched: bool,
}

/// Multi-instance capability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mig {
    /// Key of the profile table, [`MigTable`](crate::MigTable): `h100-80`.
    pub table: String,
    /// Whether a change of the mode needs a GPU reset, as on A100.
    #[serde(default)]
    pub mode_needs_reset: bool,
    /// Whether MIG mode is on when the driver is loaded.
    #[serde(default)]
    pub enabled: bool,
}

/// An `NVLink` fabric and the machine's position in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fabric {
    /// Cluster UUID, as `8-4-4-4-12` hex digits; all zero on a fabric within one chassis.
    pub cluster_uuid: String,
    /// Clique within the cluster.
    pub clique_id: u32,
    /// State of the registration with the fabric manager.
    #[serde(default)]
    pub state: FabricState,
}

impl Fabric {
    /// Whether it spans several nodes, which share memory through IMEX channels. A fabric within one chassis does not.
    pub fn spans_nodes(&self) -> bool {
        self.cluster_uuid.bytes().any(|byte| !matches!(byte, b'0' | b'-'))
    }
}

/// State of a GPU's registration with its fabric (`nvmlGpuFabricState_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FabricState {
    /// The GPU supports no fabric.
    NotSupported,
    /// Registration has not begun.
    NotStarted,
    /// Registration is in progress.
    InProgress,
    /// The GPU is a member.
    #[default]
    Completed,
}

/// One GPU: its identity and position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gpu {
    /// `GPU-...`; if `None`, instantiation derives one ([`derive_uuid`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Number of the device node `/dev/nvidiaN`.
    pub minor: u32,
    /// Position on the baseboard, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<u32>,
    /// PCI address, `domain:bus:device.function` with a four-digit domain: `0000:1b:00.0`.
    pub pci: String,
    /// `PCIe` root complex, as sysfs names it: `pci0000:15`.
    pub pcie_root: String,
    /// NUMA node of the root complex; `None` if the firmware reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Board serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// A network card with RDMA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nic {
    /// Name in `/sys/class/infiniband`: `mlx5_0`.
    pub name: String,
    /// PCI address, as that of a GPU.
    pub pci: String,
    /// `PCIe` root complex, as sysfs names it: `pci0000:15`.
    pub pcie_root: String,
    /// NUMA node of the root complex; `None` if the firmware reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
}

impl Machine {
    /// The network cards that serve the GPU with an index.
    pub fn nics_of(&self, index: u32) -> impl Iterator<Item = &Nic> {
        let gpu = usize::try_from(index).ok().and_then(|index| self.gpus.get(index));
        let root = gpu.map(|gpu| &gpu.pcie_root);
        self.nics.iter().filter(move |nic| root == Some(&nic.pcie_root))
    }

    /// Whether its GPUs are in an `NVLink` fabric of several nodes.
    pub fn has_multi_node_fabric(&self) -> bool {
        self.fabric.as_ref().is_some_and(Fabric::spans_nodes)
    }

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

    /// The description as YAML, readable by [`Machine::parse`].
    pub fn to_yaml(&self) -> Result<String, MachineError> {
        serde_saphyr::to_string(self).map_err(|e| MachineError::Parse(e.to_string()))
    }

    /// Gives every GPU without a UUID one derived from `node`. So the same node always has the same
    /// GPUs, and no two nodes share one.
    pub fn instantiate(&mut self, node: &str) {
        for gpu in &mut self.gpus {
            if gpu.uuid.is_none() {
                gpu.uuid = Some(derive_uuid(node, gpu.minor));
            }
        }
    }

    /// Checks constraints beyond the types: unique minors, addresses and UUIDs, and well-formed PCI
    /// addresses, packed ids and versions.
    pub fn check(&self) -> Result<(), MachineError> {
        crate::description::check::check(self)
    }
}

/// A UUID in NVML's form for GPU `minor` of `node`; deterministic.
pub fn derive_uuid(node: &str, minor: u32) -> String {
    // FNV-1a, twice with different offsets: for identity, not for security.
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
