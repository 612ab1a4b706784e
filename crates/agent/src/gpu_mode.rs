//! What each GPU is used as, and the only code that changes GPUs.
//!
//! A GPU has one mode at a time. Claims ask for a GPU's turn, and change the GPU through it alone.
//!
//! ```text
//!            a claim for all of it            claims for shares
//!   Whole <------------------------> Free <-----------------------> Shared
//!                                     ^ ^
//!      instances of an administrator  | |  the first instance made for a claim: MIG mode on
//!   StaticMig <-----------------------+ +------------------------------------> DynamicMig
//!                                          after the last one: MIG mode off
//! ```
//!
//! | crash point | what is done |
//! |---|---|
//! | `mig.mode-on` | MIG mode is on, no instance is there |
//! | `mig.created` | the instance is there, no file names it |
//! | `mig.destroyed` | the instance is gone, the claim's record is there |
//! | `mig.mode-off` | MIG mode is off, the claim's record is there |
//! | `layout.destroyed` | an instance of the former layout is gone |
//! | `layout.mode-pending` | the GPU's MIG mode waits for a reset, and the driver is closed |
//! | `layout.reset` | the GPU was reset into the MIG mode of its layout, and the driver is closed |
//! | `layout.mode-set` | the GPU has the MIG mode of its layout, and no instance |
//! | `layout.created` | an instance of the layout is there |
//! | `sharing.exclusive` | one process alone may have contexts, the MPS daemon is not asked for |
//! | `sharing.time-slice` | the time slice is set, the claim's record is there |
//!
//! The mode of a GPU is computed from the claims that hold it, whose records survive a crash: a stored one could
//! contradict them. [`GpuMode::admits`] is the rule that claims are checked by. While the driver is released, no GPU has a turn.

mod instances;
mod minors;
mod reset;
mod sharing;
mod turn;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use octavo_api::Refusal;
use octavo_gpu::{Driver, DriverHandle};
use octavo_node::ClaimRef;

use crate::checkpoint::HeldKind;
use crate::keyed_mutex::{KeyedGuard, KeyedMutex};
use crate::metrics::Metrics;

pub(crate) use instances::{is_made, whole_instance};
pub(crate) use reset::reset_to_mode;
pub(crate) use sharing::SharingError;
pub(crate) use turn::{ChangeError, GpuTurn};

use minors::MovedMinors;

/// What a GPU is used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuMode {
    /// Nothing uses it.
    Free,
    /// One claim has all of it.
    Whole,
    /// Claims have parts of its memory and time.
    Shared,
    /// Claims have MIG instances that an administrator made.
    StaticMig,
    /// Claims have MIG instances that were made for them.
    DynamicMig,
}

/// Allowed changes of MIG mode and instances on a node's GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigManagement {
    /// UUIDs of the GPUs under dynamic MIG; `None` until known. On other GPUs only instances created by Octavo are
    /// destroyed.
    pub gpus: Option<BTreeSet<String>>,
    /// UUIDs of the GPUs whose MIG mode changes only with a reset. A reset needs an administrator, so the mode stays.
    pub fixed: BTreeSet<String>,
}

/// The owner of the modes of a node's GPUs.
pub(crate) struct GpuModes {
    node: String,
    /// The driver's root, as this process sees it.
    driver_root: PathBuf,
    /// One lock for each GPU's MIG mode and instances, by UUID.
    locks: KeyedMutex,
    driver: Mutex<DriverHandle>,
    /// Whether the driver is released, so that nothing may begin to use it.
    is_released: AtomicBool,
    management: Mutex<MigManagement>,
    minors: Arc<MovedMinors>,
    metrics: OnceLock<Arc<Metrics>>,
}

impl GpuMode {
    /// The mode for a device of this kind.
    pub(crate) fn of(kind: &HeldKind) -> Self {
        match kind {
            HeldKind::Whole => Self::Whole,
            HeldKind::Share(_) => Self::Shared,
            HeldKind::Mig(mig) if mig.is_dynamic => Self::DynamicMig,
            HeldKind::Mig(_) => Self::StaticMig,
        }
    }

    /// Whether a GPU that is used in this mode can serve a claim for that mode, too, as far as its size permits. The two
    /// kinds of MIG meet on a GPU that came under dynamic MIG while claims had its instances.
    pub(crate) fn admits(self, wanted: Self) -> bool {
        match self {
            Self::Free => true,
            Self::Whole => wanted == Self::Free,
            Self::Shared => matches!(wanted, Self::Free | Self::Shared),
            Self::StaticMig | Self::DynamicMig => wanted == Self::Free || wanted.is_mig(),
        }
    }

    /// Whether the GPU's MIG mode is on.
    pub(crate) fn is_mig(self) -> bool {
        matches!(self, Self::StaticMig | Self::DynamicMig)
    }
}

impl GpuModes {
    pub(crate) fn new(node: String, driver_root: PathBuf) -> Self {
        Self {
            node,
            driver_root,
            locks: KeyedMutex::default(),
            driver: Mutex::default(),
            is_released: AtomicBool::new(false),
            management: Mutex::default(),
            minors: Arc::default(),
            metrics: OnceLock::new(),
        }
    }

    /// Sets the driver. It is not kept open here.
    pub(crate) fn set_driver(&self, driver: Option<&Arc<dyn Driver>>) {
        let open = driver.map(DriverHandle::of).unwrap_or_default();
        *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = open;
    }

    /// Sets whether the driver is released.
    pub(crate) fn set_released(&self, is_released: bool) {
        self.is_released.store(is_released, Ordering::Relaxed);
    }

    /// Sets the GPUs under dynamic MIG.
    pub(crate) fn set_management(&self, management: MigManagement) {
        *self.management() = management;
    }

    /// Sets the metrics for operations on GPUs. A second call changes nothing.
    pub(crate) fn set_metrics(&self, metrics: Arc<Metrics>) {
        let _ = self.metrics.set(metrics);
    }

    /// Refuses a claim while the driver is released: its containers would hold the driver.
    pub(crate) fn check_not_released(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        if self.is_released.load(Ordering::Relaxed) { Err(self.closed(claim)) } else { Ok(()) }
    }

    /// The GPUs under dynamic MIG; `None` until known.
    pub(crate) fn managed(&self) -> Option<BTreeSet<String>> {
        self.management().gpus.clone()
    }

    /// The driver; `None` while it is closed.
    pub(crate) fn driver(&self) -> Option<Arc<dyn Driver>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner).get()
    }

    /// A GPU's minor number, of which the last read said `read`: a claim may have moved it since.
    pub(crate) fn minor(&self, uuid: &str, read: u32) -> u32 {
        self.minors.of(uuid, read)
    }

    /// Refuses a claim while the driver is closed.
    pub(crate) fn check_open(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        self.driver().map(drop).ok_or_else(|| self.closed(claim))
    }

    /// Waits for a GPU's turn. A refusal while the driver is closed.
    pub(crate) async fn turn(&self, uuid: &str, claim: &ClaimRef) -> Result<GpuTurn, Refusal> {
        self.turn_or_lock(uuid).await.map_err(|_| self.closed(claim))
    }

    /// Waits for a GPU's turn. While the driver is closed or released, the GPU's lock alone.
    pub(crate) async fn turn_or_lock(&self, uuid: &str) -> Result<GpuTurn, KeyedGuard> {
        let lock = self.locks.lock(uuid).await;
        let is_released = self.is_released.load(Ordering::Relaxed);
        let Some(driver) = self.driver().filter(|_| !is_released) else { return Err(lock) };
        Ok(GpuTurn {
            _lock: lock,
            driver,
            node: self.node.clone(),
            driver_root: self.driver_root.clone(),
            is_fixed: self.management().fixed.contains(uuid),
            minors: Arc::clone(&self.minors),
            metrics: self.metrics.get().cloned(),
        })
    }

    fn closed(&self, claim: &ClaimRef) -> Refusal {
        Refusal::DriverClosed { claim: claim.to_string(), node: self.node.clone() }
    }

    /// Never held across an await.
    fn management(&self) -> MutexGuard<'_, MigManagement> {
        self.management.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
