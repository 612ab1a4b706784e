//! What a GPU is: inventory, topology, fabric and health, read through the driver.
//!
//! [`Driver`] is all that the rest of Octavo knows of a driver library; [`nvml`] is its one
//! backend and speaks to NVIDIA's `libnvidia-ml.so.1`, or to anything with the same symbols.
//! [`Inventory`] is what was read: plain values, the same for real and simulated hardware.

mod describe;
mod driver;
mod inventory;
pub mod mig;
pub mod nvml;
pub mod xid;

pub use describe::{DescribeError, describe};
pub use driver::{Driver, DriverError, EventStream, GpuEvent, GpuEventKind, MemoryLimits};
pub use inventory::{
    AddressingMode, Clique, DriverVersions, Fabric, FabricState, Gpu, GpuHealth, GpuProcess,
    Inventory, Mig, NvLink, PciAddress, RecoveryAction, UnreadableGpu,
};
