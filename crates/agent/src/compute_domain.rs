//! The driver `compute-domain.nvidia.com`: channels by which pods enter a `ComputeDomain`, and the daemons of domains.
//!
//! ```text
//! prepare of a daemon:  GET claim -> plan -> reserve -> checkpoint -> CDI spec -> answer
//! prepare of a channel: GET claim -> plan -> wait for the domain, without a lock -> the same
//! unprepare:            end a waiting prepare -> remove CDI spec -> remove checkpoint -> forget
//! start:                read checkpoints; a damaged one holds every device until its claim is gone
//! ```
//!
//! The rules are in `docs/design/compute-domains.md`, after NVIDIA's driver (kubernetes-sigs/dra-driver-nvidia-gpu).

mod holds;
mod host_service;
mod obstacle;
mod plan;
mod pool;
mod record;
mod spec;
#[cfg(test)]
mod tests;
mod wait;
mod waiters;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use octavo_api::Refusal;
use octavo_api::imex::ImexServices;
use octavo_cdi::DriverFiles;
use octavo_kube_io::events::{EventType, Events};
use octavo_node::files::{StorageError, is_plain_name};
use octavo_node::{ClaimRef, NodePaths, failpoint};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::cdi::{CdiFolder, spec_text};
use crate::checkpoint::Store;
use crate::claims::{ClaimReader, OpenError, Opened, boot_id};
use crate::config::Imex;
use crate::drain_gate::DrainGate;
use crate::fabric::Fabric;
use crate::keyed_mutex::KeyedMutex;
use crate::monitor::Snapshot;
use crate::node::{DraDriver, PreparedDevice};
use holds::{DomainHolds, Missing};
use plan::{Plan, WaitFor};
use record::DomainRecord;
use waiters::{Waiter, Waiters};

pub(crate) use pool::pool;
pub(crate) use record::DomainCounts;
pub(crate) use spec::CHANNELS;

/// Time for an event about a prepared claim.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The node, as claims of domains see it.
pub(crate) struct DomainNode {
    /// Its name.
    pub(crate) name: String,
    /// Its paths.
    pub(crate) paths: NodePaths,
    /// Namespace in which daemons run.
    pub(crate) namespace: String,
    /// The IMEX services.
    pub(crate) imex: Imex,
    /// State of its GPUs.
    pub(crate) snapshots: watch::Receiver<Snapshot>,
}

/// The claims of a node on channels and daemons. Cheap to clone; clones share their state.
#[derive(Clone)]
pub(crate) struct DomainClaims {
    inner: Arc<Inner>,
}

struct Inner {
    node: DomainNode,
    store: Store<DomainRecord>,
    cdi: CdiFolder,
    reader: Arc<dyn ClaimReader>,
    client: Client,
    events: Events,
    holds: Mutex<DomainHolds>,
    claim_locks: KeyedMutex,
    gate: DrainGate,
    waiters: Waiters,
    /// The driver's files, with the version for which they were searched.
    files: Mutex<Option<(String, Arc<DriverFiles>)>>,
}

/// Outcome of the first half of a prepare.
enum Begun {
    /// The claim is prepared.
    Prepared(Vec<PreparedDevice>),
    /// The domain must be ready first.
    Waiting(Box<Plan>, WaitFor),
}

impl DomainClaims {
    /// Opens the claims of a node. Blocks on files. The caller holds the node's lock until they are closed.
    pub(crate) fn open(
        node: DomainNode,
        reader: Arc<dyn ClaimReader>,
        client: Client,
        events: Events,
    ) -> Result<(Self, Opened), OpenError> {
        let driver = DraDriver::COMPUTE_DOMAIN;
        let folder = driver.checkpoint_folder(&node.paths.kubelet_root);
        let store = Store::open_locked(&folder, &boot_id(&node.paths)?)?;
        let cdi = CdiFolder::open(&node.paths.cdi_root, driver)?;
        let (holds, opened) = DomainHolds::recover(&store, &cdi)?;
        let inner = Inner {
            node,
            store,
            cdi,
            reader,
            client,
            events,
            holds: Mutex::new(holds),
            claim_locks: KeyedMutex::default(),
            gate: DrainGate::default(),
            waiters: Waiters::default(),
            files: Mutex::default(),
        };
        Ok((Self { inner: Arc::new(inner) }, opened))
    }

    /// Makes a claim's devices ready. Idempotent. Waits for a domain until `deadline`.
    pub(crate) async fn prepare(
        &self,
        claim: &ClaimRef,
        deadline: Instant,
    ) -> Result<Vec<PreparedDevice>, Refusal> {
        // Before the claim is read: an unprepare from now on must end this call.
        let waiter = self.inner.waiters.join(&claim.uid);
        let begun = self.work(claim, {
            let waiter = waiter.clone();
            |inner, claim| async move { inner.begin(&claim, &waiter).await }
        });
        let (mut plan, wait) = match begun.await? {
            Begun::Prepared(devices) => return Ok(devices),
            Begun::Waiting(plan, wait) => (plan, wait),
        };
        // In the caller's task and without a lock: an abandoned call waits no longer.
        let admitted = self.inner.wait(claim, &wait, deadline, &waiter).await?;
        plan.record.set_channel(admitted.channel);
        self.inner.check_host_service(claim, &wait).await?;
        let devices = self
            .work(claim, |inner, claim| async move {
                check_waiter(&claim, &waiter)?;
                inner.hold(*plan).await
            })
            .await?;
        if let Some(missing) = admitted.missing {
            self.report_missing(claim, &wait, &missing);
        }
        Ok(devices)
    }

    /// Reports that a claim was prepared although members of its domain are missing. The kubelet does not wait for it.
    fn report_missing(&self, claim: &ClaimRef, domain: &WaitFor, missing: &str) {
        let domain = domain.full_name();
        tracing::warn!(%claim, %domain, missing, "prepared without all members");
        let note = format!("prepared although ComputeDomain {domain} is not complete: {missing}");
        let (events, claim) = (self.inner.events.clone(), wait::claim_reference(claim));
        tokio::spawn(async move {
            let warning = EventType::Warning;
            let event = events.record(&claim, warning, "MembersMissing", "Prepare", &note);
            if timeout(EVENT_TIMEOUT, event).await.is_err() {
                tracing::debug!("an event about a claim was not recorded in time");
            }
        });
    }

    /// Releases a claim's devices. Idempotent. Needs no API server.
    pub(crate) async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        self.inner.waiters.cancel(&claim.uid);
        self.work(claim, |inner, claim| async move { inner.release(&claim).await }).await
    }

    /// Releases claims without an object and rewrites missing specs. Call it every ten minutes.
    ///
    /// A claim that is found missing for the first time keeps its devices until a call 30 s later, since its containers may
    /// still be ending.
    pub(crate) async fn sweep(&self) -> Vec<ClaimRef> {
        let claims = self.inner.holds().claims();
        let mut released = Vec::new();
        for claim in claims {
            let gone = self.work(&claim, |inner, claim| async move {
                let is_gone = inner.is_gone(&claim).await;
                if is_gone {
                    inner.release(&claim).await?;
                } else {
                    inner.repair(&claim.uid).await?;
                }
                Ok(is_gone)
            });
            match gone.await {
                Ok(true) => released.push(claim),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "a claim of a ComputeDomain was not swept"),
            }
        }
        released
    }

    /// Ends waiting calls, refuses new ones and waits for running ones. Afterwards no file of the node is touched.
    pub(crate) async fn close(&self) {
        self.inner.waiters.close();
        self.inner.gate.close().await;
    }

    /// Whether a claim without an object still keeps its devices for its grace period.
    pub(crate) fn has_gone(&self) -> bool {
        self.inner.holds().has_missing()
    }

    /// The IMEX services of the node.
    pub(crate) fn services(&self) -> ImexServices {
        self.inner.node.imex.services()
    }

    /// How many devices claims hold.
    pub(crate) fn counts(&self) -> DomainCounts {
        self.inner.holds().counts()
    }

    /// Works on a claim, to the end even if the caller leaves. Work on one claim runs one after another.
    async fn work<T, F>(
        &self,
        claim: &ClaimRef,
        work: impl FnOnce(Arc<Inner>, ClaimRef) -> F + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send,
    {
        if !is_plain_name(&claim.uid) {
            return Err(Refusal::BadClaimUid { uid: claim.uid.clone() });
        }
        let (inner, asked) = (Arc::clone(&self.inner), claim.clone());
        let task = tokio::spawn(async move {
            let Some(_permit) = inner.gate.enter().await else {
                return Err(inner.handed_over(&asked));
            };
            let _turn = inner.claim_locks.lock(&asked.uid).await;
            work(Arc::clone(&inner), asked).await
        });
        let interrupted = |error: tokio::task::JoinError| {
            let (claim, error) = (claim.to_string(), error.to_string());
            Err(Refusal::Interrupted { claim, error })
        };
        task.await.unwrap_or_else(interrupted)
    }
}

impl Inner {
    /// The first half of a prepare. The caller holds the claim's lock.
    async fn begin(self: &Arc<Self>, claim: &ClaimRef, waiter: &Waiter) -> Result<Begun, Refusal> {
        check_waiter(claim, waiter)?;
        let prepared = self.holds().prepared(&claim.uid);
        if let Some(record) = prepared {
            self.repair(&claim.uid).await?;
            return Ok(Begun::Prepared(record.prepared()));
        }
        let name = claim.to_string();
        let read = self.reader.read(claim).await;
        let object = read
            .map_err(|error| Refusal::ApiUnavailable { claim: name.clone(), error: error.0 })?
            .ok_or_else(|| Refusal::ClaimNotFound { claim: name.clone() })?;
        if object.claim.uid != claim.uid {
            let (asked, found) = (claim.uid.clone(), object.claim.uid);
            return Err(Refusal::ClaimReplaced { claim: name, asked, found });
        }
        let fabric = self.fabric(claim)?;
        let plan = plan::plan(&object, &self.node, &fabric, self.store.boot_id())?;
        self.holds().check_free(&plan.record)?;
        match plan.wait_for.clone() {
            Some(wait) => Ok(Begun::Waiting(Box::new(plan), wait)),
            None => self.hold(plan).await.map(Begun::Prepared),
        }
    }

    /// Refuses while the host's IMEX service is not ready, if the host has one.
    async fn check_host_service(&self, claim: &ClaimRef, domain: &WaitFor) -> Result<(), Refusal> {
        let Imex::OfHost { socket } = &self.node.imex else { return Ok(()) };
        let checked = host_service::check(&self.node.paths, socket).await;
        checked.map_err(|problem| Refusal::ComputeDomainNotReady {
            claim: claim.to_string(),
            domain: domain.full_name(),
            problem,
        })
    }

    /// The second half: reserves the devices and writes the files. The caller holds the claim's lock.
    async fn hold(self: &Arc<Self>, plan: Plan) -> Result<Vec<PreparedDevice>, Refusal> {
        let record = plan.record;
        let text = self.spec(&record).await?;
        {
            let mut holds = self.holds();
            holds.check_free(&record)?;
            holds.check_channels(&record)?;
            holds.insert(record.clone());
        }
        failpoint::hit("domain.reserved");
        let devices = record.prepared();
        self.files(&record.claim.clone(), move |inner| {
            inner.store.write(&record)?;
            failpoint::hit("domain.checkpoint-written");
            inner.write_spec(&record.claim.uid, text.as_deref())
        })
        .await?;
        Ok(devices)
    }

    /// Forgets a claim: spec, checkpoint, memory. The caller holds the claim's lock.
    async fn release(self: &Arc<Self>, claim: &ClaimRef) -> Result<(), Refusal> {
        let uid = claim.uid.clone();
        self.files(claim, move |inner| {
            inner.cdi.remove(&uid)?;
            failpoint::hit("domain.cdi-removed");
            inner.store.remove(&uid)?;
            inner.holds().remove(&uid);
            Ok(())
        })
        .await
    }

    /// Writes the spec of a prepared claim where it is missing or changed. Nodes and files of the driver may have changed.
    async fn repair(self: &Arc<Self>, uid: &str) -> Result<(), Refusal> {
        let Some(record) = self.holds().prepared(uid) else { return Ok(()) };
        let text = self.spec(&record).await?;
        self.files(&record.claim.clone(), move |inner| {
            if !inner.store.is_intact(&record) {
                inner.store.write(&record)?;
            }
            match &text {
                Some(text) if inner.cdi.has_text(&record.claim.uid, text) => Ok(()),
                text => inner.write_spec(&record.claim.uid, text.as_deref()),
            }
        })
        .await
    }

    fn write_spec(&self, uid: &str, text: Option<&str>) -> Result<(), StorageError> {
        match text {
            Some(text) => self.cdi.write_text(uid, text)?,
            None => self.cdi.remove(uid)?,
        }
        failpoint::hit("domain.cdi-written");
        Ok(())
    }

    /// The text of a claim's spec; `None` if no container needs one.
    async fn spec(self: &Arc<Self>, record: &DomainRecord) -> Result<Option<String>, Refusal> {
        let (inner, record) = (Arc::clone(self), record.clone());
        let claim = record.claim.clone();
        let task = tokio::task::spawn_blocking(move || {
            let inventory = inner.node.snapshots.borrow().inventory.clone();
            let files =
                inventory.as_ref().map(|inventory| inner.driver_files(&inventory.versions.driver));
            let facts = spec::Facts {
                paths: &inner.node.paths,
                node: &inner.node.name,
                inventory: inventory.as_deref(),
                files: files.as_deref(),
            };
            Ok(spec::spec(&facts, &record)?.map(|spec| spec_text(&spec)))
        });
        task.await.unwrap_or_else(|error| {
            let (claim, error) = (claim.to_string(), error.to_string());
            Err(Refusal::Interrupted { claim, error })
        })
    }

    /// The driver's files, searched once for each version. Blocks.
    fn driver_files(&self, version: &str) -> Arc<DriverFiles> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match &*files {
            Some((known, files)) if known == version => Arc::clone(files),
            _ => {
                let found = DriverFiles::discover(&self.node.paths.driver_root_seen, version);
                let (_, found) = files.insert((version.to_owned(), Arc::new(found)));
                Arc::clone(found)
            }
        }
    }

    /// Forgets the driver's files, so that they are searched again.
    fn forget_driver_files(&self) {
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether a claim has no object for the second time, 30 s after the first.
    async fn is_gone(&self, claim: &ClaimRef) -> bool {
        if claim.name.is_empty() {
            // A damaged record that no longer names its claim: only the kubelet can give it back.
            return false;
        }
        let is_missing = match self.reader.read(claim).await {
            Ok(object) => object.is_none_or(|object| object.claim.uid != claim.uid),
            Err(_) => return false,
        };
        let missing = if is_missing { Missing::Since(Instant::now()) } else { Missing::No };
        self.holds().set_missing(&claim.uid, missing)
    }

    /// The node's fabric; refused while it is not known or not up.
    fn fabric(&self, claim: &ClaimRef) -> Result<Fabric, Refusal> {
        let (claim, node) = (claim.to_string(), self.node.name.clone());
        let inventory = self.node.snapshots.borrow().inventory.clone();
        let Some(inventory) = inventory else { return Err(Refusal::NotReady { claim, node }) };
        match Fabric::of(&inventory) {
            Fabric::NotUp(problem) => Err(Refusal::FabricNotReady { claim, problem, node }),
            fabric => Ok(fabric),
        }
    }

    /// Does work on files, to its end.
    async fn files(
        self: &Arc<Self>,
        claim: &ClaimRef,
        work: impl FnOnce(&Self) -> Result<(), StorageError> + Send + 'static,
    ) -> Result<(), Refusal> {
        let inner = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&inner)).await.map_err(|error| {
            Refusal::Interrupted { claim: claim.to_string(), error: error.to_string() }
        })?;
        done.map_err(|error| crate::claims::refusal(&error))
    }

    fn handed_over(&self, claim: &ClaimRef) -> Refusal {
        Refusal::HandedOver { claim: claim.to_string(), node: self.node.name.clone() }
    }

    fn holds(&self) -> MutexGuard<'_, DomainHolds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a prepare whose claim was unprepared.
fn check_waiter(claim: &ClaimRef, waiter: &Waiter) -> Result<(), Refusal> {
    if waiter.is_cancelled() { Err(taken_back(claim)) } else { Ok(()) }
}

/// The claim was unprepared.
fn taken_back(claim: &ClaimRef) -> Refusal {
    let (claim, error) = (claim.to_string(), "the kubelet took it back meanwhile".to_owned());
    Refusal::Interrupted { claim, error }
}
