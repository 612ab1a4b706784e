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

use tokio::sync::watch;

pub(crate) use host::ContainerMemory;
pub(crate) use mover::{MoveError, MoveSizes, Moved, Mover, MovingShare};
pub(crate) use record::{forget, living, remove_record, swapped};

/// How memory of shares is swapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapSettings {
    /// Memory of the host that swapped processes may take together.
    pub host: HostBudget,
    /// Root of the driver's files, as this process sees it.
    pub driver_root: PathBuf,
}

/// Memory of the host that swapped processes may take together. It may change.
#[derive(Clone, Debug)]
pub struct HostBudget(watch::Receiver<Option<u64>>);

impl HostBudget {
    /// One of so many bytes, for ever; `None` means half of the host's memory.
    pub fn of(bytes: Option<u64>) -> Self {
        Self::changing(bytes).1
    }

    /// One that the sender changes.
    pub(crate) fn changing(bytes: Option<u64>) -> (watch::Sender<Option<u64>>, Self) {
        let (sender, receiver) = watch::channel(bytes);
        (sender, Self(receiver))
    }

    /// In bytes, as of now; `None` means half of the host's memory.
    pub fn bytes(&self) -> Option<u64> {
        *self.0.borrow()
    }
}

impl PartialEq for HostBudget {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for HostBudget {}
