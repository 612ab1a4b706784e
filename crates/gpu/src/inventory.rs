//! The facts that were read about a node's GPUs, as plain values.

use std::collections::BTreeSet;
use std::fmt;

use crate::mig::{MigInstance, MigProfile};
use crate::{Driver, DriverError, PciAddress};

/// All facts about a node, read at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// Versions of the installed driver.
    pub versions: DriverVersions,
    /// Readable GPUs, in NVML index order.
    pub gpus: Vec<Gpu>,
    /// GPUs that the driver counts but that cannot be read.
    pub unreadable: Vec<UnreadableGpu>,
}

/// Versions of the installed driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverVersions {
    /// Driver version as the driver prints it, such as `580.95.05`.
    pub driver: String,
    /// Highest supported CUDA version, as (major, minor).
    pub cuda: (u32, u32),
    /// Version of the management library as it prints it.
    pub nvml: String,
}

/// A process that holds memory on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its PID in the caller's PID namespace; 0 if it has none there.
    pub pid: u32,
    /// Memory in bytes; `None` if the driver does not report it, as in some virtual machines.
    pub used_bytes: Option<u64>,
}

/// A GPU that the driver counts but that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableGpu {
    /// NVML index.
    pub index: u32,
    /// The driver's error.
    pub error: DriverError,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// NVML index, the order of enumeration in this boot.
    pub index: u32,
    /// Number of the device node `/dev/nvidiaN`.
    pub minor: u32,
    /// `GPU-...`.
    pub uuid: String,
    /// Number in the names of its devices. It is the minor number with which the GPU was first read,
    /// and stays if a change of MIG mode gives it another: claims have these names.
    pub number: u32,
    /// Product name: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Brand, as NVIDIA's DRA driver prints it: `Nvidia`, `Tesla`.
    pub brand: String,
    /// Architecture: `Hopper`.
    pub architecture: String,
    /// CUDA compute capability as (major, minor).
    pub compute_capability: (u32, u32),
    /// Frame buffer in bytes, as NVML's total.
    pub memory_bytes: u64,
    /// The part of `memory_bytes` that driver and firmware reserve. Where the driver does not report
    /// it, it is measured while the GPU is idle; `None` until then.
    pub reserved_bytes: Option<u64>,
    /// Streaming multiprocessors, if reported.
    pub multiprocessors: Option<u32>,
    /// PCI address.
    pub pci: PciAddress,
    /// PCI device and vendor, packed as NVML does (device in the high half).
    pub pci_device_id: u32,
    /// PCI subsystem device and vendor, packed in the same way.
    pub pci_subsystem_id: u32,
    /// PCIe root complex by its name in sysfs (`pci0000:15`), if known.
    pub pcie_root: Option<String>,
    /// NUMA node; `None` if the firmware does not name one.
    pub numa_node: Option<u32>,
    /// Position on the baseboard, if any.
    pub module: Option<u32>,
    /// Serial number of the board, if reported.
    pub serial: Option<String>,
    /// Memory addressing mode, if reported.
    pub addressing_mode: Option<AddressingMode>,
    /// Whether ECC is on; `None` if the GPU has no ECC.
    pub ecc: Option<bool>,
    /// Power limit in milliwatts, if reported.
    pub power_limit_milliwatts: Option<u32>,
    /// Highest SM clock in MHz, if reported.
    pub sm_clock_mhz: Option<u32>,
    /// Highest memory clock in MHz, if reported.
    pub memory_clock_mhz: Option<u32>,
    /// Active NVLink links; `None` if there are none.
    pub nvlink: Option<NvLink>,
    /// NVLink fabric; `None` if the driver does not report one.
    pub fabric: Option<Fabric>,
    /// MIG mode; `None` if the GPU has none.
    pub mig: Option<Mig>,
    /// MIG profiles by NVML profile number; empty if the GPU has no MIG mode.
    pub mig_profiles: Vec<MigProfile>,
    /// Existing GPU instances by placement; empty if the mode is off.
    pub mig_instances: Vec<MigInstance>,
}

impl Gpu {
    /// What programs can have of a part of the GPU's memory, in bytes: the part less its portion of what driver and
    /// firmware reserve, in whole MiB and at least one. The parts of all of the memory then fit into the rest.
    pub fn usable_part(part_bytes: u64, memory_bytes: u64, reserved_bytes: u64) -> u64 {
        const MIB: u64 = 1 << 20;
        let usable = u128::from(memory_bytes.saturating_sub(reserved_bytes));
        let part = u128::from(part_bytes) * usable / u128::from(memory_bytes.max(1));
        let part = u64::try_from(part).unwrap_or(part_bytes).min(part_bytes);
        (part / MIB * MIB).max(MIB.min(part_bytes))
    }
}

/// Active links of a GPU's NVLink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvLink {
    /// NVLink generation, as NVML's version enum counts it.
    pub version: u32,
    /// Number of active links.
    pub links: u32,
    /// Whether the links end in switches.
    pub switched: bool,
    /// Number of active links to each GPU of the node, by NVML index; empty if switched.
    pub peers: Vec<(u32, u32)>,
}

/// A GPU's membership in an NVLink fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// State of the registration.
    pub state: FabricState,
    /// NVML return code of the registration; 0 is success.
    pub status: u32,
    /// Cluster and clique, once registered with a cluster whose UUID is not all zero.
    pub clique: Option<Clique>,
    /// Cluster UUID as reported, even if it is all zero.
    pub cluster_uuid: String,
    /// Clique ID as reported.
    pub clique_id: u32,
    /// Health mask as packed by NVML; `None` if the driver is too old.
    pub health_mask: Option<u32>,
}

/// State of a GPU's registration with its fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricState {
    /// The GPU does not support fabrics.
    NotSupported,
    /// Registration has not started.
    NotStarted,
    /// Registration is in progress.
    InProgress,
    /// The GPU is registered.
    Completed,
}

/// A set of GPUs that NVLink connects; prints as `<cluster uuid>.<clique>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Clique {
    /// Cluster UUID.
    pub cluster: String,
    /// Clique within the cluster.
    pub id: u32,
}

/// MIG mode of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mig {
    /// Whether the mode is on now.
    pub enabled: bool,
    /// Whether it will be on after the next reset.
    pub pending: bool,
}

/// How the host's CPU addresses device memory; prints as NVIDIA's DRA driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressingMode {
    /// None.
    None,
    /// Heterogeneous memory management in software.
    Hmm,
    /// Address translation services in hardware.
    Ats,
}

/// Health of a GPU at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuHealth {
    /// The driver's advice; `None` if the driver is too old.
    pub recovery_action: Option<RecoveryAction>,
    /// Uncorrected memory errors since the driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// Corrected memory errors since the driver was loaded.
    pub corrected_errors: Option<u64>,
    /// Whether a row remap failed.
    pub remap_failed: Option<bool>,
    /// Whether a row remap is pending until a reset.
    pub remap_pending: Option<bool>,
}

/// The recovery action that the driver advises (`nvmlDeviceGpuRecoveryAction_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryAction {
    /// Nothing.
    None,
    /// Reset the GPU.
    GpuReset,
    /// Reboot the node.
    NodeReboot,
    /// Drain peer-to-peer traffic.
    DrainP2p,
    /// Drain, then reset the GPU.
    DrainAndReset,
    /// Recover the GPU's IMEX domain.
    RecoverImexDomain,
    /// A value unknown to this version.
    Other(u32),
}

impl Inventory {
    /// Reads all facts about the node.
    pub fn read(driver: &dyn Driver) -> Result<Self, DriverError> {
        let versions = driver.versions()?;
        let (mut gpus, mut unreadable) = (Vec::new(), Vec::new());
        for gpu in driver.gpus()? {
            match gpu {
                Ok(gpu) => gpus.push(gpu),
                Err(gpu) => unreadable.push(gpu),
            }
        }
        Ok(Self { versions, gpus, unreadable })
    }
}

impl Inventory {
    /// Gives the GPUs that `known` has the numbers that they have there. If two would have the same,
    /// each gets its minor number.
    pub fn keep_numbers(&mut self, known: &Self) {
        for gpu in &mut self.gpus {
            if let Some(known) = known.gpus.iter().find(|known| known.uuid == gpu.uuid) {
                gpu.number = known.number;
            }
        }
        let mut numbers = BTreeSet::new();
        if !self.gpus.iter().all(|gpu| numbers.insert(gpu.number)) {
            self.gpus.iter_mut().for_each(|gpu| gpu.number = gpu.minor);
        }
    }
}

impl fmt::Display for Clique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.cluster, self.id)
    }
}

impl fmt::Display for AddressingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Hmm => "HMM",
            Self::Ats => "ATS",
        })
    }
}

#[cfg(test)]
mod tests;
