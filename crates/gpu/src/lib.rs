//! GPUs as facts: inventory, topology, fabric and health, read through the driver.
//!
//! [`Driver`] is the interface to a driver library. [`nvml`] is its backend for NVIDIA's
//! `libnvidia-ml.so.1` and for libraries with the same symbols. [`Inventory`] holds the result as
//! plain values, the same for real and simulated hardware. [`NetworkCard`]s are read from the kernel's files.

mod char_devices;
mod describe;
mod driver;
mod handle;
mod inventory;
mod kernel_log;
pub mod mig;
mod network_cards;
pub mod nvml;
mod pci_address;
mod pci_devices;
pub mod programs;
mod root;
mod telemetry;
pub mod xid;

pub use char_devices::CharDevices;
pub use describe::{DescribeError, describe};
pub use driver::{
    ComputeMode, Driver, DriverError, EventStream, GpuEvent, GpuEventKind, MemoryLimits,
};
pub use handle::DriverHandle;
pub use inventory::{
    AddressingMode, Clique, DriverVersions, Fabric, FabricState, Gpu, GpuHealth, GpuProcess,
    Inventory, Mig, NvLink, RecoveryAction, UnreadableGpu,
};
pub use kernel_log::{KernelLog, KernelLogError, KernelLogEvent, KernelLogPosition};
pub use network_cards::{NetworkCard, NetworkPort, PciPath};
pub use pci_address::{PciAddress, PciAddressError};
pub use pci_devices::gpus_on_bus;
pub use telemetry::{GpuTelemetry, NvLinkTelemetry, PcieLink, Slowdown};
