//! Moves memory of shares between the GPU and the host, so that shares may have more than their requests.
//!
//! ```text
//! plan        whose processes are moved, and how much each share may have: pure
//! mover       moves the processes of one share, each on a thread of its own
//! checkpoint  the steps of the driver, by a program of their own
//! pages       moves by the guards of a share, which leave the processes on the GPU
//! host        whether the host, and the containers, have room
//! record      which processes are on the host, in a file beside the share's folder
//! ```
//!
//! The watchdog observes the shares and carries the plan out ([`crate::watchdog`]). The design is in
//! `docs/design/memory-swap.md`.

mod checkpoint;
mod host;
mod mover;
mod pages;
pub(crate) mod plan;
mod record;

use std::path::PathBuf;

pub(crate) use host::ContainerMemory;
pub(crate) use mover::{MoveError, MoveSizes, Moved, Mover, MovingShare};
pub(crate) use record::{forget, living, remove_record, swapped};

/// How memory of shares is swapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapSettings {
    /// Memory of the host that swapped processes may take together, in bytes; `None` means half of it.
    pub host_bytes: Option<u64>,
    /// Root of the driver's files, as this process sees it.
    pub driver_root: PathBuf,
}
