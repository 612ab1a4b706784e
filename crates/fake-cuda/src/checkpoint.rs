//! Checkpoints of processes (`cuCheckpointProcessLock` and so on), which other processes ask for.
//!
//! A process has a thread that answers requests ([`server`]), as the real driver has its restore thread. All steps run on it, so the
//! state of a process is the process's own: it survives the end of any caller, and ends with the process. A caller that ends while
//! it waits for a lock leaves the process running.
//!
//! From NVIDIA's header: the states, which state each step needs, that a lock blocks further calls and has a timeout after which the
//! process runs on. From reports of users: managed memory, memory shared between processes and MIG make a checkpoint fail, a lock
//! waits for submitted work. Our reading, for want of a source: such a process stays locked, and one in the state FAILED has its
//! calls answered with `CUDA_ERROR_UNKNOWN`.

pub(crate) mod client;
mod message;
pub(crate) mod server;
mod target;

pub(crate) use message::{GpuPair, Request};
