//! What the programs of a node share: its paths, names of claims, files that survive a crash, MPS daemons, and
//! points at which tests crash them.

#![forbid(unsafe_code)]

mod claim;
pub mod failpoint;
pub mod files;
mod host_mount;
pub mod mps;
mod paths;

pub use claim::ClaimRef;
pub use host_mount::{HostMount, HostMountError};
pub use paths::{HOOK_PROGRAM, NodePaths, beneath};
