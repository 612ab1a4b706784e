//! Checkpoints of processes: their GPU memory moves to the host, and back.
//!
//! CUDA's driver can do this to a process from outside, since 570 (`cuCheckpointProcessLock` and so on; NVIDIA's program for
//! it is called `cuda-checkpoint`). The process's calls wait meanwhile, and its GPU memory, contexts included, is free for others.
//!
//! ```text
//! error   why a step failed, and the exit code that says so: pure
//! steps   the steps of an action, whatever the process's state: pure
//! driver  libcuda.so.1, the only unsafe code
//! command octavo process-checkpoint
//! ```
//!
//! The agent runs the command as a process of its own. So the agent itself has no driver of CUDA loaded, and a step that hangs in
//! the driver ends with that process.

mod command;
mod driver;
mod error;
mod steps;

pub use command::{ProcessCheckpointArgs, run};
pub use error::CheckpointError;
pub use steps::Action;
