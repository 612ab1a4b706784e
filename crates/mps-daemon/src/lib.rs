//! `octavo mps-daemon`: runs the daemons of NVIDIA's Multi-Process Service (MPS) on a node, as its agent asks for them.
//!
//! ```text
//! agent --spec.json--> folder of a daemon --> nvidia-cuda-mps-control -f <-- clients, by pipe/ and shm/
//!       <-status.json--                       limits by its commands
//! ```
//!
//! It is a program of its own because a daemon must outlive the agent: its end ends its clients. For the same reason a daemon with
//! clients is not restarted for a change, and the pod of this program is not replaced by an update.
//!
//! Rules of the daemon are those of NVIDIA's documentation of MPS; its answers are those of driver 580.

#![forbid(unsafe_code)]

mod args;
mod control;
mod daemon;
mod enter;
mod process;
mod run;
mod shm;
mod watch;

pub use args::{CheckArgs, EnterArgs, MpsDaemonArgs, MpsDaemonCommand, RunArgs};
pub use enter::enter;
pub use run::run;
