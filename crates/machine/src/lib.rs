//! A GPU node's hardware as one YAML document, and its state at run time.
//!
//! A *machine description* ([`Machine`]) lists a node's driver and GPUs, with their `PCIe` and NUMA
//! positions, `NVLink` and fabric. The simulated driver answers from it, and the lab builds nodes
//! from it. `octavo agent inventory --output yaml` writes one from real hardware. So all three use
//! the same facts. The shipped descriptions are in `machines/`.
//!
//! A *machine state* ([`State`]) is the part that changes in a running simulation: faults,
//! counters, events. Its file is beside the description and is replaced as a whole, by rename.

#![forbid(unsafe_code)]

mod change;
mod description;
mod error;
mod mig;
mod state;
mod state_file;

/// Minor number of the capability to manage IMEX channels: the first after all MIG instances of 32
/// GPUs.
pub const IMEX_MANAGEMENT_MINOR: u32 = 4323;

pub use change::change;
pub use description::{
    AddressingMode, Driver, Fabric, FabricState, Gpu, Machine, Mig, Model, Nic, NvLink, Simulation,
    SimulationClock, derive_uuid,
};
pub use error::MachineError;
pub use mig::{
    ComputeInstance, GpuInstance, MigActivation, MigCapability, MigComputeProfile, MigProfile,
    MigRefusal, MigState, MigTable, capability_text, mig_capabilities, mig_uuid,
};
pub use state::{
    CheckpointState, ClocksEventReason, Ecc, Event, EventKind, GpuState, ImexState, KernelFault,
    KernelModule, KernelState, NicState, NvLinkState, PcieState, RecoveryAction, ResetState, State,
};
pub use state_file::StateFile;
