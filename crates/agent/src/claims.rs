//! Claims: preparing, unpreparing, and refusing them.
//!
//! ```text
//! prepare:   GET claim -> plan -> reserve in memory -> checkpoint on disk -> share limits -> CDI spec -> answer
//!            with MIG, after reserving: intent on disk -> MIG mode on -> create instances
//!            with time slices or MPS, then: compute mode, time slice -> MPS daemon
//! unprepare: remove CDI spec -> remove share limits -> end MPS daemons, reset modes -> destroy instances -> MIG mode off
//!            -> remove checkpoint -> forget
//! start:     read checkpoints, or CDI specs where they fail -> memory -> release half-made claims
//! ```
//!
//! Calls that change a GPU's instances or MIG mode run one at a time per GPU.
//!
//! At run time the in-memory state is authoritative, and files are written from it. Files are read at start only. Calls
//! for one claim run one after another; calls for different claims run in parallel. A call that the kubelet abandons
//! still runs to its end, so that memory and files agree.

mod active_shares;
mod adopt;
mod cdi_devices;
mod claim_holds;
mod conflict;
mod enforcement;
mod extent;
mod hook;
mod inventory;
mod mig;
mod plan;
mod prepare;
mod reader;
mod recover;
mod report;
mod shares;
mod sharing;
mod startup_cleanup;
#[cfg(test)]
mod tests;
mod unprepare;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use octavo_api::Refusal;
use octavo_api::config::OverflowPolicy;
use octavo_cdi::DriverFiles;
use octavo_enforcement::backend::Backends;
use octavo_enforcement::backend::MemoryEnforcement;
use octavo_gpu::Driver;
use octavo_node::{ClaimRef, NodePaths};

use crate::cdi::CdiFolder;
use crate::checkpoint::Store;
use crate::drain_gate::DrainGate;
use crate::gpu_mode::GpuModes;
use crate::keyed_mutex::KeyedMutex;
use crate::metrics::Metrics;
use crate::mps::MpsDaemons;
use crate::node::{DraDriver, PreparedDevice};
use claim_holds::ClaimHolds;

pub use octavo_node::files::StorageError;

pub(crate) use plan::{mismatched, parent_request, parse_bytes};
pub(crate) use prepare::refusal;

pub use crate::gpu_mode::MigManagement;
pub use crate::metrics::HeldCounts;
pub use inventory::{DeviceKind, KnownDevice};
pub use reader::{
    AllocatedClaim, AllocatedDevice, Allocation, ClaimReader, KubeReader, ReadError, claim_of,
};
pub use report::{
    Fact, KubeReporter, MigFact, ReportWorker, ReportedDevice, Reporter, SilentReporter, SwapFact,
    TimeFact,
};

/// The claims of a node. Cheap to clone; clones share their state.
#[derive(Clone)]
pub struct Claims {
    inner: Arc<Inner>,
}

/// Devices of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The claim. Name and namespace are empty if only the UID is known.
    pub claim: ClaimRef,
    /// Names of the devices that it has for itself.
    pub devices: Vec<String>,
    /// Names of the devices with admin access.
    pub admin_devices: Vec<String>,
    /// Whether the record was damaged, so that the claim may hold more or less.
    pub is_unresolved: bool,
}

/// Result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Claims that were released because their objects no longer exist.
    pub released: Vec<ClaimRef>,
    /// Claims whose missing or changed files were rewritten.
    pub repaired: Vec<ClaimRef>,
}

/// State found at start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Number of claims that hold devices.
    pub held: usize,
    /// Number of claims of an earlier boot, which were dropped.
    pub forgotten: usize,
    /// Number of claims that NVIDIA's DRA driver had prepared.
    pub adopted: usize,
    /// One sentence per damaged file: file, reason and consequence.
    pub damage: Vec<String>,
}

/// Why a node's claims could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The boot id cannot be read.
    #[error(
        "could not read the boot id {}: {error}; without it containers of an earlier boot cannot be distinguished from running ones; check `procRoot`", path.display()
    )]
    BootId {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        error: std::io::Error,
    },
    /// A file failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The node's GPUs as claims see them.
struct Devices {
    driver_version: String,
    by_name: BTreeMap<String, KnownDevice>,
    /// UUIDs of the GPUs with instances created for claims, now or earlier.
    dynamic: BTreeSet<String>,
    files: Arc<DriverFiles>,
    backends: Arc<Backends>,
}

/// State shared by all calls.
struct Inner {
    node: String,
    paths: NodePaths,
    store: Store,
    cdi: CdiFolder,
    reader: Arc<dyn ClaimReader>,
    reporter: Arc<dyn Reporter>,
    devices: Mutex<Option<Arc<Devices>>>,
    modes: GpuModes,
    mps: MpsDaemons,
    holds: Mutex<ClaimHolds>,
    claim_locks: KeyedMutex,
    /// Held shared while writing a claim's own files, and exclusively while removing an instance from a claim.
    files: RwLock<()>,
    /// Whether leftovers of earlier processes on the GPUs were handled.
    is_cleaned_up: tokio::sync::Mutex<bool>,
    gate: DrainGate,
    /// UIDs of claims with a negative condition, which is withdrawn when they are prepared.
    refused: Mutex<BTreeSet<String>>,
    /// Options for shares prepared from now on.
    enforcement: Mutex<enforcement::EnforcementOptions>,
    active: active_shares::ActiveShares,
    /// Why the program of CDI hooks does not run on this node.
    hook_problem: Mutex<Option<String>>,
}

impl Claims {
    /// Opens the claims of a node. Blocks on files.
    ///
    /// Existing claims are read and those of an earlier boot dropped. Damaged files are moved aside, and the devices
    /// that they may hold are protected.
    pub fn open(
        paths: NodePaths,
        node: String,
        reader: Arc<dyn ClaimReader>,
        reporter: Arc<dyn Reporter>,
    ) -> Result<(Self, Opened), OpenError> {
        let store =
            Store::open(&DraDriver::GPU.checkpoint_folder(&paths.kubelet_root), &boot_id(&paths)?)?;
        Self::open_store(store, paths, node, reader, reporter)
    }

    /// Like [`Claims::open`], for a caller that holds the lock of the checkpoint folder until the claims are closed.
    pub(crate) fn open_locked(
        paths: NodePaths,
        node: String,
        reader: Arc<dyn ClaimReader>,
        reporter: Arc<dyn Reporter>,
    ) -> Result<(Self, Opened), OpenError> {
        let store = Store::open_locked(
            &DraDriver::GPU.checkpoint_folder(&paths.kubelet_root),
            &boot_id(&paths)?,
        )?;
        Self::open_store(store, paths, node, reader, reporter)
    }

    fn open_store(
        store: Store,
        paths: NodePaths,
        node: String,
        reader: Arc<dyn ClaimReader>,
        reporter: Arc<dyn Reporter>,
    ) -> Result<(Self, Opened), OpenError> {
        let cdi = CdiFolder::open(&paths.cdi_root, DraDriver::GPU)?;
        let adoption = adopt::Adoption::read(&paths, store.boot_id());
        let (holds, opened) = recover::recover(&store, &cdi, &adoption)?;
        shares::remove_leftovers(&paths, &holds)?;
        let modes = GpuModes::new(node.clone(), paths.driver_root_seen.clone());
        let mps = MpsDaemons::of(&paths);
        let inner = Inner {
            node,
            paths,
            store,
            cdi,
            reader,
            reporter,
            devices: Mutex::new(None),
            modes,
            mps,
            holds: Mutex::new(holds),
            claim_locks: KeyedMutex::default(),
            files: RwLock::default(),
            is_cleaned_up: tokio::sync::Mutex::default(),
            gate: DrainGate::default(),
            refused: Mutex::default(),
            enforcement: Mutex::default(),
            active: active_shares::ActiveShares::default(),
            hook_problem: Mutex::default(),
        };
        inner.publish_active_shares();
        inner.report_prepared();
        Ok((Self { inner: Arc::new(inner) }, opened))
    }

    /// Sets the node's GPUs and the driver's version. Until the first call every prepare is refused as `NotReady`.
    ///
    /// A new driver version triggers a search for the driver's files. Missing or outdated specs of held claims are
    /// rewritten.
    pub async fn set_devices(&self, driver_version: &str, known: Vec<KnownDevice>) {
        let (claims, driver_version) = (self.clone(), driver_version.to_owned());
        let task = tokio::spawn(async move {
            let Some(_permit) = claims.inner.gate.enter().await else { return Ok(()) };
            let inner = Arc::clone(&claims.inner);
            let take = move || inner.set_devices(driver_version, known);
            tokio::task::spawn_blocking(take).await?;
            claims.inner.startup_cleanup().await;
            claims.repair().await;
            Ok(())
        });
        if let Err(error) = task.await.flatten() {
            tracing::error!(%error, "the task that applies the node's devices failed");
        }
    }

    /// Sets the GPUs under dynamic MIG. Call it before [`Claims::set_devices`]. Until then no unclaimed instance is
    /// destroyed.
    pub fn set_mig_management(&self, management: MigManagement) {
        self.inner.modes.set_management(management);
    }

    /// Sets the memory enforcement of shares prepared from now on. Prepared shares keep theirs. The default depends on
    /// the driver's capabilities.
    pub fn set_memory_enforcement(&self, setting: MemoryEnforcement) {
        self.inner.set_memory_enforcement(setting);
    }

    /// Takes whether processes with a guard have leases of GPU time, for the conditions of shares.
    pub fn set_has_leases(&self, has_leases: bool) {
        self.inner.set_has_leases(has_leases);
    }

    /// Sets the namespaces whose shares are prepared without enforcement from now on. Prepared shares keep theirs.
    pub fn set_exempt_namespaces(&self, namespaces: BTreeSet<String>) {
        self.inner.set_exempt_namespaces(namespaces);
    }

    /// Whether shares that are prepared now are held to their part of the GPU's time.
    pub(crate) fn enforces_time(&self) -> bool {
        self.inner.enforces_time()
    }

    /// Takes whether the node moves memory of shares to the host. Otherwise shares with a `memoryLimit` above their request are refused.
    pub fn set_has_swap(&self, has_swap: bool) {
        self.inner.set_has_swap(has_swap);
    }

    /// Sets the weakest overflow policy that a share can have. A stricter setting applies to prepared shares, too. The
    /// default is [`OverflowPolicy::Kill`].
    pub fn set_min_overflow(&self, policy: OverflowPolicy) {
        self.inner.set_min_overflow(policy);
    }

    /// Sets the driver, which creates MIG instances; without it such claims wait. The driver is not kept open here:
    /// later calls fail once it is dropped elsewhere.
    pub async fn set_driver(&self, driver: Option<&Arc<dyn Driver>>) {
        if let Some(driver) = driver {
            self.inner.set_has_limits(driver.has_memory_limits());
        }
        self.inner.modes.set_driver(driver);
        let claims = self.clone();
        let task = tokio::spawn(async move {
            if let Some(_permit) = claims.inner.gate.enter().await {
                claims.inner.startup_cleanup().await;
            }
        });
        if let Err(error) = task.await {
            tracing::error!(%error, "the task that applies the driver failed");
        }
    }

    /// Sets whether the driver is released. Then no claim is prepared, because its containers would hold the driver.
    pub fn set_released(&self, is_released: bool) {
        self.inner.modes.set_released(is_released);
    }

    /// Sets the metrics for operations on GPUs.
    pub(crate) fn set_metrics(&self, metrics: Arc<Metrics>) {
        self.inner.modes.set_metrics(metrics);
    }

    /// Makes a claim's devices ready. Idempotent.
    pub async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, Refusal> {
        prepare::check_uid(claim)?;
        let (inner, asked) = (Arc::clone(&self.inner), claim.clone());
        // A separate task runs to its end even if the kubelet abandons the call.
        let task = tokio::spawn(async move {
            let Some(_permit) = inner.gate.enter().await else {
                return Err(inner.handed_over(&asked));
            };
            let _turn = inner.claim_locks.lock(&asked.uid).await;
            inner.prepare(&asked).await
        });
        task.await.unwrap_or_else(|error| Err(prepare::interrupted(claim, &error)))
    }

    /// Releases a claim's devices. Idempotent.
    pub async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        prepare::check_uid(claim)?;
        let (inner, asked) = (Arc::clone(&self.inner), claim.clone());
        let task = tokio::spawn(async move {
            let Some(_permit) = inner.gate.enter().await else {
                return Err(inner.handed_over(&asked));
            };
            let _turn = inner.claim_locks.lock(&asked.uid).await;
            inner.unprepare(&asked).await
        });
        task.await.unwrap_or_else(|error| Err(prepare::interrupted(claim, &error)))
    }

    /// Releases claims without an object and rewrites missing files. Call it every ten minutes.
    ///
    /// A claim that is found missing for the first time keeps its GPUs until a later call, since its containers may
    /// still be ending.
    pub async fn sweep(&self) -> Swept {
        self.sweep_at(Instant::now()).await
    }

    /// Like [`Claims::sweep`], at the given time. Claims found missing 30 s earlier are released.
    pub async fn sweep_at(&self, now: Instant) -> Swept {
        let claims = self.clone();
        let task = tokio::spawn(async move {
            let Some(_permit) = claims.inner.gate.enter().await else { return Swept::default() };
            let released = claims.inner.sweep_gone(now).await;
            claims.inner.startup_cleanup().await;
            claims.inner.release_half_made().await;
            Swept { released, repaired: claims.repair().await }
        });
        task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the sweep of the claims failed");
            Swept::default()
        })
    }

    /// Refuses new calls and waits for running ones. Afterwards no file of the node is touched, so another agent may
    /// take over.
    pub async fn close(&self) {
        self.inner.gate.close().await;
    }

    /// Whether a claim without an object still keeps its devices for its grace period.
    pub fn has_gone(&self) -> bool {
        self.inner.holds().has_gone()
    }

    /// Devices of every claim, in order of UID.
    pub fn holdings(&self) -> Vec<Holding> {
        self.inner.holds().holdings()
    }

    /// How many devices claims have for themselves.
    pub fn counts(&self) -> HeldCounts {
        self.inner.holds().counts()
    }

    /// Placements of existing or requested dynamic MIG instances: GPU UUID, first memory slice, number of slices.
    /// Instances elsewhere are not Octavo's.
    pub fn mig_in_use(&self) -> BTreeSet<(String, u32, u32)> {
        self.inner.holds().slices(|_, is_dynamic| is_dynamic)
    }

    /// Rewrites missing or changed files.
    async fn repair(&self) -> Vec<ClaimRef> {
        let mut repaired = Vec::new();
        let uids = self.inner.holds().uids();
        for uid in uids {
            // A call that works on the claim also writes its files.
            let Some(turn) = self.inner.claim_locks.try_lock(&uid) else { continue };
            let inner = Arc::clone(&self.inner);
            let task = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                inner.repair(&uid)
            });
            match task.await {
                Ok(Ok(claim)) => repaired.extend(claim),
                Ok(Err(error)) => tracing::warn!(%error, "could not rewrite a claim's files"),
                Err(error) => {
                    tracing::error!(%error, "the task that rewrites a claim's files failed");
                }
            }
        }
        repaired
    }
}

/// The current boot of a node.
pub(crate) fn boot_id(paths: &NodePaths) -> Result<String, OpenError> {
    let path = paths.proc_root.join("sys/kernel/random/boot_id");
    match std::fs::read_to_string(&path) {
        Ok(boot_id) => Ok(boot_id.trim().to_owned()),
        Err(error) => Err(OpenError::BootId { path, error }),
    }
}

impl Inner {
    /// The refusal of a call that arrived after the node was handed over.
    fn handed_over(&self, claim: &ClaimRef) -> Refusal {
        Refusal::HandedOver { claim: claim.to_string(), node: self.node.clone() }
    }

    /// The holds, locked; never across an await.
    fn holds(&self) -> std::sync::MutexGuard<'_, ClaimHolds> {
        // No statement leaves the holds inconsistent, so a panic elsewhere cannot either.
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claims with a negative condition, locked. Never hold it across an await.
    fn refused(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The devices as last set.
    fn devices(&self) -> Option<Arc<Devices>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets new devices and searches the driver's files if its version is new.
    fn set_devices(&self, driver_version: String, known: Vec<KnownDevice>) {
        let (files, backends) = match self.devices() {
            // Missing files may appear later, when the driver's container is ready.
            Some(old) if old.driver_version == driver_version && !old.files.mounts.is_empty() => {
                (Arc::clone(&old.files), Arc::clone(&old.backends))
            }
            _ => self.find_files(&driver_version),
        };
        let is_place =
            |device: &&KnownDevice| matches!(device.kind, DeviceKind::MigPlacement { .. });
        let dynamic = known.iter().filter(is_place).map(|device| device.uuid.clone()).collect();
        let by_name = known.into_iter().map(|device| (device.name.clone(), device)).collect();
        let devices = Devices { driver_version, by_name, dynamic, files, backends };
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(devices));
    }

    /// Searches the files of a driver version and prepares the enforcement backends for them.
    fn find_files(&self, driver_version: &str) -> (Arc<DriverFiles>, Arc<Backends>) {
        let files = DriverFiles::discover(&self.paths.driver_root_seen, driver_version);
        let backends = Backends::make(&self.paths, &files);
        (Arc::new(files), Arc::new(backends))
    }
}
