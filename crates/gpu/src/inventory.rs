//! What was read of a node's GPUs: plain values.

use std::fmt;

use crate::mig::{MigInstance, MigProfile};
use crate::{Driver, DriverError};

/// Everything a node has, read at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// Versions of the installed driver.
    pub versions: DriverVersions,
    /// GPUs that could be read, in NVML index order.
    pub gpus: Vec<Gpu>,
    /// GPUs that the driver counts but that could not be read.
    pub unreadable: Vec<UnreadableGpu>,
}

/// Versions of the installed driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverVersions {
    /// Driver, as it prints itself: `580.95.05`.
    pub driver: String,
    /// Highest CUDA version served, as (major, minor).
    pub cuda: (u32, u32),
    /// Management library, as it prints itself.
    pub nvml: String,
}

/// A process that has memory on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its pid, in the pid namespace of who asks; 0 where it has none there.
    pub pid: u32,
    /// Memory in bytes; `None` where the driver does not tell, as in some virtual machines.
    pub used_bytes: Option<u64>,
}

/// A GPU that the driver counts but that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableGpu {
    /// NVML index.
    pub index: u32,
    /// What the driver said.
    pub error: DriverError,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// NVML index: the order of this boot's enumeration.
    pub index: u32,
    /// Number of the device node `/dev/nvidiaN`.
    pub minor: u32,
    /// `GPU-...`.
    pub uuid: String,
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
    /// Part of `memory_bytes` that driver and firmware keep, in bytes, where it is told.
    pub reserved_bytes: Option<u64>,
    /// Streaming multiprocessors, where they are told.
    pub multiprocessors: Option<u32>,
    /// PCI address.
    pub pci: PciAddress,
    /// PCI device and vendor, packed as NVML does (device in the high half).
    pub pci_device_id: u32,
    /// PCI subsystem device and vendor, packed alike.
    pub pci_subsystem_id: u32,
    /// PCIe root complex, as sysfs names it (`pci0000:15`); `None` where sysfs does not tell.
    pub pcie_root: Option<String>,
    /// NUMA node; `None` where the firmware gives none.
    pub numa_node: Option<u32>,
    /// Position on the baseboard, where there is one.
    pub module: Option<u32>,
    /// Board serial number, where it is told.
    pub serial: Option<String>,
    /// Memory addressing mode, where it is told.
    pub addressing_mode: Option<AddressingMode>,
    /// Whether error correction is on; `None` where there is none.
    pub ecc: Option<bool>,
    /// Power limit in milliwatts, where it is told.
    pub power_limit_milliwatts: Option<u32>,
    /// Highest SM clock in MHz, where it is told.
    pub sm_clock_mhz: Option<u32>,
    /// Highest memory clock in MHz, where it is told.
    pub memory_clock_mhz: Option<u32>,
    /// Active links of NVLink; `None` where there are none.
    pub nvlink: Option<NvLink>,
    /// NVLink fabric; `None` where the driver knows none.
    pub fabric: Option<Fabric>,
    /// MIG mode; `None` where the GPU has no such mode.
    pub mig: Option<Mig>,
    /// What it can be cut into, in order of NVML's profile numbers; empty where it has no MIG mode.
    pub mig_profiles: Vec<MigProfile>,
    /// GPU instances that it has, in order of their placement; empty with the mode off.
    pub mig_instances: Vec<MigInstance>,
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
    /// Number of active links to each GPU of the node, by NVML index; empty when switched.
    pub peers: Vec<(u32, u32)>,
}

/// State of a GPU's membership in an NVLink fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// How far the registration is.
    pub state: FabricState,
    /// NVML return code of the registration; 0 is success.
    pub status: u32,
    /// Cluster and clique, once registered with a cluster whose UUID is not all zero.
    pub clique: Option<Clique>,
    /// Cluster UUID as told, all zero included.
    pub cluster_uuid: String,
    /// Clique number as told.
    pub clique_id: u32,
    /// Health mask as NVML packs it; `None` where the driver is too old to tell.
    pub health_mask: Option<u32>,
}

/// How far a GPU's registration with its fabric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricState {
    /// The GPU knows no fabric.
    NotSupported,
    /// Registration has not begun.
    NotStarted,
    /// Registration is under way.
    InProgress,
    /// The GPU is a member.
    Completed,
}

/// The set of GPUs within which NVLink reaches: prints as `<cluster uuid>.<clique>`.
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
    /// There is none.
    None,
    /// Heterogeneous memory management in software.
    Hmm,
    /// Address translation services in hardware.
    Ats,
}

/// A PCI address; prints in sysfs's form, `0000:1b:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device.
    pub device: u8,
    /// Function.
    pub function: u8,
}

/// Health of a GPU at one moment, as the driver tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuHealth {
    /// What the driver advises; `None` where it is too old to tell.
    pub recovery_action: Option<RecoveryAction>,
    /// Uncorrected memory errors since the driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// Corrected memory errors since the driver was loaded.
    pub corrected_errors: Option<u64>,
    /// Whether a row remap failed.
    pub remap_failed: Option<bool>,
    /// Whether a row remap waits for a reset.
    pub remap_pending: Option<bool>,
}

/// What the driver advises to do with a GPU (`nvmlDeviceGpuRecoveryAction_t`).
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
    /// Recover the IMEX domain that the GPU is in.
    RecoverImexDomain,
    /// A value that this version of Octavo does not know.
    Other(u32),
}

impl Inventory {
    /// Reads all that the driver tells of the node.
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

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
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
