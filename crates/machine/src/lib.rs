//! A GPU node's hardware as one YAML document, and what happens to it while it runs.
//!
//! A *machine description* ([`Machine`]) says what a node is made of: driver, GPUs, their
//! `PCIe` and NUMA places, `NVLink` and fabric. The simulated driver answers from it, the lab
//! builds nodes from it, and `octavo agent inventory --output yaml` writes one from real
//! hardware, so the three always speak of the same facts. The descriptions that ship with
//! Octavo lie in `machines/`.
//!
//! A *machine state* ([`State`]) is the part that changes under a running simulation: faults,
//! counters, events. It lies beside the description and is replaced whole, by rename.

#![forbid(unsafe_code)]

mod change;
mod description;
mod error;
mod mig;
mod state;
mod state_file;

pub use change::change;
pub use description::{
    AddressingMode, Driver, Fabric, FabricState, Gpu, Machine, Mig, Model, NvLink, Simulation,
    SimulationClock, derive_uuid,
};
pub use error::MachineError;
pub use mig::{
    ComputeInstance, GpuInstance, MigActivation, MigCapability, MigComputeProfile, MigProfile,
    MigRefusal, MigState, MigTable, capability_text, mig_capabilities, mig_uuid,
};
pub use state::{Ecc, Event, EventKind, GpuState, KernelFault, KernelState, RecoveryAction, State};
pub use state_file::StateFile;
