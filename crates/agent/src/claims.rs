//! Claims: what the kubelet asks for, what was given, and what is refused.
//!
//! ```text
//! prepare:   GET claim -> plan -> reserve in memory -> checkpoint on disk -> shares' limits -> CDI spec -> answer
//!            with MIG, after reserving: intention on disk -> mode on -> instances made
//! unprepare: CDI spec away -> shares' limits away -> instances destroyed -> mode off -> checkpoint away -> memory
//! start:     checkpoints, and where they fail CDI specs -> memory -> what was half-made is taken back
//! ```
//!
//! What is done to a GPU's instances and its MIG mode is done by one call at a time for a GPU.
//!
//! While the agent runs its memory is the truth and files follow it; files are read at start only. Calls for
//! one claim take turns, calls for different claims do not wait for one another. A call that the kubelet
//! gives up runs to its end all the same, so that memory and files stay one.

mod active_shares;
mod cdi_devices;
mod claim_holds;
mod conflict;
mod drain_gate;
mod enforcement;
mod extent;
mod inventory;
mod keyed_mutex;
mod mig;
mod plan;
mod prepare;
mod reader;
mod recover;
mod report;
mod shares;
mod startup_cleanup;
#[cfg(test)]
mod tests;
mod unprepare;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use octavo_api::Refusal;
use octavo_gpu::Driver;

use crate::cdi::{CdiFolder, DriverFiles};
use crate::checkpoint::Store;
use crate::config::MemoryEnforcement;
use crate::enforcement::Backends;
use crate::metrics::Metrics;
use crate::monitor::DriverHandle;
use crate::node::{ClaimRef, DRIVER_NAME, NodePaths, PreparedDevice};
use claim_holds::ClaimHolds;
use drain_gate::DrainGate;
use keyed_mutex::KeyedMutex;

pub use crate::checkpoint::StorageError;
pub(crate) use shares::{CONTEXT_BYTES, share_folder};

pub use active_shares::{ActiveShare, ShareFinding, Status};
pub use inventory::{DeviceKind, KnownDevice, MigManagement};
pub use reader::{
    AllocatedClaim, AllocatedDevice, Allocation, ClaimReader, KubeReader, ReadError, claim_of,
};
pub use report::{
    Fact, KubeReporter, MigFact, ReportWorker, ReportedDevice, Reporter, SilentReporter,
};

/// A node's claims. Cheap to clone; clones are the same claims.
#[derive(Clone)]
pub struct Claims {
    inner: Arc<Inner>,
}

/// What a claim holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The claim; name and namespace are empty where only the UID is known.
    pub claim: ClaimRef,
    /// Names of the devices that it has for itself.
    pub devices: Vec<String>,
    /// Names of the devices that it has for administration, beside others.
    pub admin_devices: Vec<String>,
    /// Whether its record was damaged and it may hold more or less than this.
    pub is_unresolved: bool,
}

/// How many devices claims have for themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldCounts {
    /// Whole GPUs.
    pub gpus: usize,
    /// Shares of GPUs.
    pub shares: usize,
    /// MIG instances.
    pub mig: usize,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Claims whose objects were gone: cleaned up.
    pub released: Vec<ClaimRef>,
    /// Claims whose files were missing or changed: written again.
    pub repaired: Vec<ClaimRef>,
}

/// What was found at start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Number of claims that hold devices.
    pub held: usize,
    /// Number of claims of an earlier boot that were forgotten.
    pub forgotten: usize,
    /// What was damaged, one sentence each with file, reason and consequence.
    pub damage: Vec<String>,
}

/// Why a node's claims could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The boot cannot be told apart from others.
    #[error(
        "could not read the boot id {}: {error}; without it containers of an earlier boot cannot be told from running ones, see `procRoot`", path.display()
    )]
    BootId {
        /// The file.
        path: PathBuf,
        /// What the system said.
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
    /// UUIDs of the GPUs on which instances are or were made for claims.
    dynamic: BTreeSet<String>,
    files: Arc<DriverFiles>,
    backends: Arc<Backends>,
}

/// What all calls share.
struct Inner {
    node: String,
    paths: NodePaths,
    store: Store,
    cdi: CdiFolder,
    reader: Arc<dyn ClaimReader>,
    reporter: Arc<dyn Reporter>,
    devices: Mutex<Option<Arc<Devices>>>,
    mig_management: Mutex<MigManagement>,
    holds: Mutex<ClaimHolds>,
    claim_locks: KeyedMutex,
    /// KeyedMutex at a GPU's mode and instances, by UUID.
    gpu_locks: KeyedMutex,
    driver: Mutex<DriverHandle>,
    /// Shared by who writes a claim's own files; alone has it who takes an instance away from a claim.
    files: RwLock<()>,
    /// Whether what earlier processes left on the GPUs was dealt with.
    is_cleaned_up: tokio::sync::Mutex<bool>,
    metrics: OnceLock<Arc<Metrics>>,
    gate: DrainGate,
    /// UIDs of claims with a condition that says no: to be taken back when they are prepared.
    refused: Mutex<BTreeSet<String>>,
    /// What holds shares that are prepared from now on.
    enforcement: Mutex<enforcement::EnforcementOptions>,
    active: active_shares::ActiveShares,
}

impl Claims {
    /// Opens a node's claims: reads what was given before, forgets what an earlier boot gave, puts damaged
    /// files aside and protects what they may hold. Blocks on files.
    pub fn open(
        paths: NodePaths,
        node: String,
        reader: Arc<dyn ClaimReader>,
        reporter: Arc<dyn Reporter>,
    ) -> Result<(Self, Opened), OpenError> {
        let store = Store::open(&checkpoint_folder(&paths), &boot_id(&paths)?)?;
        Self::open_store(store, paths, node, reader, reporter)
    }

    /// The same where the caller holds the lock of the checkpoint folder, until the claims are closed.
    pub(crate) fn open_locked(
        paths: NodePaths,
        node: String,
        reader: Arc<dyn ClaimReader>,
        reporter: Arc<dyn Reporter>,
    ) -> Result<(Self, Opened), OpenError> {
        let store = Store::open_locked(&checkpoint_folder(&paths), &boot_id(&paths)?)?;
        Self::open_store(store, paths, node, reader, reporter)
    }

    fn open_store(
        store: Store,
        paths: NodePaths,
        node: String,
        reader: Arc<dyn ClaimReader>,
        reporter: Arc<dyn Reporter>,
    ) -> Result<(Self, Opened), OpenError> {
        let cdi = CdiFolder::open(&paths.cdi_root)?;
        let (holds, opened) = recover::recover(&store, &cdi)?;
        shares::remove_leftovers(&paths, &holds)?;
        // An earlier process may not have come to it. Of instances that are gone it told more than is known.
        for record in holds.records().into_iter().filter(|record| !record.lacks_instance()) {
            report::report_facts(&*reporter, &record, &BTreeSet::new());
        }
        let inner = Inner {
            node,
            paths,
            store,
            cdi,
            reader,
            reporter,
            devices: Mutex::new(None),
            mig_management: Mutex::default(),
            holds: Mutex::new(holds),
            claim_locks: KeyedMutex::default(),
            gpu_locks: KeyedMutex::default(),
            driver: Mutex::default(),
            files: RwLock::default(),
            is_cleaned_up: tokio::sync::Mutex::default(),
            metrics: OnceLock::new(),
            gate: DrainGate::default(),
            refused: Mutex::default(),
            enforcement: Mutex::default(),
            active: active_shares::ActiveShares::default(),
        };
        inner.publish_active_shares();
        Ok((Self { inner: Arc::new(inner) }, opened))
    }

    /// Tells which GPUs the node has and which driver serves them. Before the first call every prepare is
    /// refused as `NotReady`. The driver's files are looked for when its version is new; specs of held
    /// claims that are missing or out of date are written again.
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
            tracing::error!(%error, "taking the node's devices was cut short");
        }
    }

    /// Tells which GPUs Octavo cuts; to be told before the devices. Until it is known nothing is destroyed that no
    /// claim has.
    pub fn set_mig_management(&self, cut: MigManagement) {
        *self.inner.mig_management() = cut;
    }

    /// Tells what holds shares that are prepared from now on; those that are prepared keep what they have. Until
    /// it is told it is chosen by what the driver can.
    pub fn set_memory_enforcement(&self, setting: MemoryEnforcement) {
        self.inner.set_memory_enforcement(setting);
    }

    /// Gives access to the driver, which makes MIG instances; without one they wait. What is asked of it later
    /// fails once the driver is dropped elsewhere: it is not kept open here.
    pub async fn set_driver(&self, driver: Option<&Arc<dyn Driver>>) {
        let open = driver.map(DriverHandle::of).unwrap_or_default();
        if let Some(driver) = driver {
            self.inner.set_has_limits(driver.has_memory_limits());
        }
        *self.inner.driver.lock().unwrap_or_else(PoisonError::into_inner) = open;
        let claims = self.clone();
        let task = tokio::spawn(async move {
            if let Some(_permit) = claims.inner.gate.enter().await {
                claims.inner.startup_cleanup().await;
            }
        });
        if let Err(error) = task.await {
            tracing::error!(%error, "taking the driver was cut short");
        }
    }

    /// Counts what is done to GPUs in these metrics.
    pub(crate) fn set_metrics(&self, metrics: Arc<Metrics>) {
        // ReportHistory twice, the first stays.
        let _ = self.inner.metrics.set(metrics);
    }

    /// Makes a claim's devices ready; repeating it changes nothing and gives the same answer.
    pub async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, Refusal> {
        prepare::check_uid(claim)?;
        let (inner, asked) = (Arc::clone(&self.inner), claim.clone());
        // A task of its own runs to its end when the kubelet gives up the call.
        let task = tokio::spawn(async move {
            let Some(_permit) = inner.gate.enter().await else {
                return Err(inner.handed_over(&asked));
            };
            let _turn = inner.claim_locks.lock(&asked.uid).await;
            inner.prepare(&asked).await
        });
        task.await.unwrap_or_else(|error| Err(prepare::interrupted(claim, &error)))
    }

    /// Takes a claim's devices back; a claim that holds none is done already.
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

    /// Cleans up after claims that are gone and writes missing files again; to be called every ten minutes.
    /// A claim that is found to be gone for the first time keeps its GPUs until a later call: its containers
    /// may still be ending.
    pub async fn sweep(&self) -> Swept {
        self.sweep_at(Instant::now()).await
    }

    /// The same, with the time told: what was gone half a minute before is cleaned up.
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
            tracing::error!(%error, "looking at the claims was cut short");
            Swept::default()
        })
    }

    /// Refuses all that comes from now on and waits for the work that is under way: afterwards nothing here
    /// touches a file of the node, which may have another agent then.
    pub async fn close(&self) {
        self.inner.gate.close().await;
    }

    /// Whether a claim was found gone that still keeps its devices for a while.
    pub fn has_gone(&self) -> bool {
        self.inner.holds().has_gone()
    }

    /// What every claim holds, in order of UID.
    pub fn holdings(&self) -> Vec<Holding> {
        self.inner.holds().holdings()
    }

    /// How many devices claims have for themselves.
    pub fn counts(&self) -> HeldCounts {
        self.inner.holds().counts()
    }

    /// Where claims have MIG instances that are made for them, or are getting them: UUID of the GPU, first
    /// memory slice, number of slices. Instances elsewhere are not Octavo's.
    pub fn mig_in_use(&self) -> BTreeSet<(String, u32, u32)> {
        self.inner.holds().slices(|_, is_dynamic| is_dynamic)
    }

    /// Writes again what is missing or changed on disk.
    async fn repair(&self) -> Vec<ClaimRef> {
        let mut repaired = Vec::new();
        let uids = self.inner.holds().uids();
        for uid in uids {
            // A claim that is being worked on gets its files from that work.
            let Some(turn) = self.inner.claim_locks.try_lock(&uid) else { continue };
            let inner = Arc::clone(&self.inner);
            let task = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                inner.repair(&uid)
            });
            match task.await {
                Ok(Ok(claim)) => repaired.extend(claim),
                Ok(Err(error)) => tracing::warn!(%error, "could not write a claim's files again"),
                Err(error) => tracing::error!(%error, "writing a claim's files was cut short"),
            }
        }
        repaired
    }
}

/// Folder of a node's checkpoints.
fn checkpoint_folder(paths: &NodePaths) -> PathBuf {
    paths.kubelet_root.join("plugins").join(DRIVER_NAME).join("checkpoint")
}

/// The current boot of a node.
fn boot_id(paths: &NodePaths) -> Result<String, OpenError> {
    let path = paths.proc_root.join("sys/kernel/random/boot_id");
    match std::fs::read_to_string(&path) {
        Ok(boot_id) => Ok(boot_id.trim().to_owned()),
        Err(error) => Err(OpenError::BootId { path, error }),
    }
}

impl Inner {
    /// The answer to a call that came when the node was another agent's.
    fn handed_over(&self, claim: &ClaimRef) -> Refusal {
        Refusal::HandedOver { claim: claim.to_string(), node: self.node.clone() }
    }

    /// The holds, locked; never across an await.
    fn holds(&self) -> std::sync::MutexGuard<'_, ClaimHolds> {
        // ClaimHolds are whole between statements: a panic elsewhere leaves nothing half-done.
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claims with a condition that says no, locked; never across an await.
    fn refused(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What may be done to the GPUs, locked; never across an await.
    fn mig_management(&self) -> std::sync::MutexGuard<'_, MigManagement> {
        self.mig_management.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The devices as last told.
    fn devices(&self) -> Option<Arc<Devices>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes new devices, and finds the driver's files where its version is new.
    fn set_devices(&self, driver_version: String, known: Vec<KnownDevice>) {
        let (files, backends) = match self.devices() {
            // Files that were not found may come later, when the driver's container is ready.
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

    /// Looks for the files of a driver version, and makes what walls need of them.
    fn find_files(&self, driver_version: &str) -> (Arc<DriverFiles>, Arc<Backends>) {
        let files = DriverFiles::discover(&self.paths.driver_root_seen, driver_version);
        let backends = Backends::make(&self.paths, &files);
        (Arc::new(files), Arc::new(backends))
    }
}
