//! A simulated GPU that the processes of a machine share: a file that each of them maps.
//!
//! The GPU has memory and time. Memory is counted per process: each has a slot whose size only it
//! changes, and the total never exceeds the capacity. Time is work that processes submit. Processes
//! with work take turns, as hardware slices time between contexts. Both
//! simulated libraries use the same file: the CUDA library uses the GPU, and the NVML library
//! reports its users.
//!
//! Nothing needs repair after a crash. A living process holds a lock on one byte of the file,
//! through its own open file (`F_OFD_SETLK`). The kernel drops the lock however the process ends,
//! and other processes clear slots without a lock. The total over all slots is only a cache. It is
//! recomputed whenever a slot is cleared or the holder of the GPU's lock has died.
//!
//! The file is trusted: a process that may map it can write anything into it. This is a simulation.
//!
//! Nodes of one NVLink fabric share memory through files ([`fabric`]), while their IMEX services are connected ([`imex`]).
//!
//! The crate also has what both libraries need at their C interface: the location of the machine
//! ([`locate`]), and pointer arguments ([`pointers`]).

mod absence;
mod blocks;
mod clock;
pub mod contexts;
pub mod driver_client;
pub mod fabric;
mod file;
mod gpu;
mod identity;
pub mod imex;
mod layout;
pub mod locate;
mod lock;
mod memory;
pub mod mps;
mod node_id;
pub mod pointers;
pub mod privilege;
mod process;
mod process_handle;
pub mod process_socket;
mod queue;
mod remote;
mod turns;

pub use absence::Footprint;
pub use blocks::{BlockId, FileIdentity};
pub use gpu::{Clock, FakeGpu};
pub use layout::{BLOCKS, SLOTS};
pub use node_id::NodeId;
pub use process::Process;
pub use process_handle::ProcessHandle;
pub use remote::RemoteProcess;

/// Work that never ends, in nanoseconds of GPU time: longer than any other work.
pub const ENDLESS: u64 = 1 << 60;

#[cfg(test)]
mod tests;
