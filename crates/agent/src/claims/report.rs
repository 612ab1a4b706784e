//! Tells people why a claim was refused: a condition on the claim's device and an event; and of claims for
//! parts of GPUs what they got. Never in the way of a prepare: reports go to a worker. A refusal that cannot
//! be sent is dropped, for the kubelet repeats it; what a claim got, and that it is refused no more, is sent
//! until it arrives or the claim is given back.

mod pending;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, Patch, PatchParams, PostParams};
use octavo_api::{Refusal, names};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::{AllocatedDevice, ShareFinding};
use crate::checkpoint::{Record, RecordState};
use crate::node::ClaimRef;
use pending::Pending;
pub use pending::{Fact, MigFact};
use status::{event_of, status_of};

/// The same refusal of the same claim is reported once in this time, however often the kubelet tries.
const REPEAT_INTERVAL: Duration = Duration::from_mins(10);
/// Reports that may wait; more are dropped.
const MAX_QUEUED: usize = 64;
/// Refusals that are remembered against repetition.
const MAX_REMEMBERED: usize = 1024;
/// How long the API server may take for one report.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Actions of events.
const PREPARE: &str = "Prepare";
const WATCH: &str = "Watch";

/// Takes reports; must not block.
pub trait Reporter: Send + Sync {
    /// A claim was refused; the devices are those that it was allocated, where that is known.
    fn refused(&self, claim: &ClaimRef, devices: &[ReportedDevice], refusal: &Refusal);

    /// A claim that was reported as refused is prepared now, or a claim got what its devices' facts say.
    fn prepared(&self, claim: &ClaimRef, devices: &[ReportedDevice]);

    /// Something was found of a claim's containers while they run.
    fn found(&self, claim: &ClaimRef, reason: &'static str, message: &str);

    /// A claim was given back: nobody needs to know what it got.
    fn released(&self, uid: &str);
}

/// A device that a report is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedDevice {
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Share of the device, where it is given in parts.
    pub share_id: Option<String>,
    /// What the claim got, where the allocation does not say it.
    pub fact: Option<Fact>,
}

/// Reports to nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentReporter;

/// Reports to the API server through a [`ReportWorker`].
#[derive(Clone, Debug)]
pub struct KubeReporter {
    queue: mpsc::Sender<Report>,
    pending: Arc<Pending>,
}

/// Sends the reports of a [`KubeReporter`]; ends when the last of its clones is dropped.
pub struct ReportWorker {
    client: kube::Client,
    node: String,
    queue: mpsc::Receiver<Report>,
    pending: Arc<Pending>,
    told: ReportHistory,
}

/// A report on its way.
#[derive(Clone, Debug)]
struct Report {
    claim: ClaimRef,
    devices: Vec<ReportedDevice>,
    /// Reason and message of a refusal; `None` takes earlier reports back and tells the devices' facts.
    refusal: Option<(&'static str, String)>,
    /// What was being done: the event's action.
    action: &'static str,
}

/// What was told already, against repetition.
#[derive(Default)]
struct ReportHistory {
    by_claim: BTreeMap<String, (String, Instant)>,
}

impl ReportedDevice {
    /// The device of an allocation's result.
    pub(super) fn of(result: &AllocatedDevice) -> Self {
        let AllocatedDevice { pool, device, share_id, .. } = result.clone();
        Self { pool, device, share_id, fact: None }
    }

    /// The devices that a claim holds, with what it got of them; instances of those in `missing` are gone.
    pub(super) fn held(record: &Record, missing: &BTreeSet<String>) -> Vec<Self> {
        let devices = record.devices.iter().map(|held| Self {
            pool: held.pool.clone(),
            device: held.device.clone(),
            share_id: held.share_id.clone(),
            fact: Fact::of(held, record.prepared_at, missing.contains(&held.device)),
        });
        devices.collect()
    }

    /// Adds what was found of a share.
    pub(super) fn set_findings(&mut self, found: Vec<(ShareFinding, i64)>) {
        if let Some(Fact::Share { findings, .. }) = &mut self.fact {
            *findings = found;
        }
    }

    /// Whether two are one entry of a claim's status.
    fn is_same(&self, other: &Self) -> bool {
        self.pool == other.pool && self.device == other.device && self.share_id == other.share_id
    }
}

/// Reports what a prepared claim got, where there is something that its allocation does not say.
pub(super) fn report_facts(reporter: &dyn Reporter, record: &Record, missing: &BTreeSet<String>) {
    if record.state == RecordState::Prepared && record.has_facts() {
        reporter.prepared(&record.claim, &ReportedDevice::held(record, missing));
    }
}

/// Whether anybody is told of a refusal: a claim that is not there has nothing to write to, and without the
/// server nobody listens.
pub(super) fn is_reportable(refusal: &Refusal) -> bool {
    !matches!(
        refusal,
        Refusal::ClaimNotFound { .. }
            | Refusal::ClaimReplaced { .. }
            | Refusal::ApiUnavailable { .. }
            | Refusal::BadClaimUid { .. }
    )
}

impl Reporter for SilentReporter {
    fn refused(&self, _: &ClaimRef, _: &[ReportedDevice], _: &Refusal) {}

    fn prepared(&self, _: &ClaimRef, _: &[ReportedDevice]) {}

    fn found(&self, _: &ClaimRef, _: &'static str, _: &str) {}

    fn released(&self, _: &str) {}
}

impl KubeReporter {
    /// A reporter and the worker that somebody must run.
    pub fn new(client: kube::Client, node: String) -> (Self, ReportWorker) {
        let (sender, queue) = mpsc::channel(MAX_QUEUED);
        let pending = Arc::new(Pending::default());
        let reporter = Self { queue: sender, pending: Arc::clone(&pending) };
        (reporter, ReportWorker { client, node, queue, pending, told: ReportHistory::default() })
    }

    /// Hands a report to the worker.
    fn send(&self, report: Report) {
        if let Err(error) = self.queue.try_send(report) {
            tracing::debug!(%error, "a report on a claim was dropped");
        }
    }
}

impl Reporter for KubeReporter {
    fn refused(&self, claim: &ClaimRef, devices: &[ReportedDevice], refusal: &Refusal) {
        if is_reportable(refusal) {
            // How it stood before is not how it stands now.
            self.pending.remove(&claim.uid);
            let (refusal, action) = (Some((refusal.reason(), refusal.to_string())), PREPARE);
            self.send(Report { claim: claim.clone(), devices: devices.to_vec(), refusal, action });
        }
    }

    fn found(&self, claim: &ClaimRef, reason: &'static str, message: &str) {
        // Without devices no condition is written, only the event.
        let (refusal, action) = (Some((reason, message.to_owned())), WATCH);
        self.send(Report { claim: claim.clone(), devices: Vec::new(), refusal, action });
    }

    fn prepared(&self, claim: &ClaimRef, devices: &[ReportedDevice]) {
        let (claim, devices) = (claim.clone(), devices.to_vec());
        self.pending.put(Report { claim, devices, refusal: None, action: PREPARE });
    }

    fn released(&self, uid: &str) {
        self.pending.remove(uid);
    }
}

impl ReportWorker {
    /// Sends reports until all reporters are gone and what they left was tried.
    pub async fn run(mut self) {
        loop {
            // What waits in the queue is older than what is due, and may be of the same claim.
            let is_closed = match self.queue.try_recv() {
                Ok(report) => {
                    self.take(report).await;
                    continue;
                }
                Err(error) => error == TryRecvError::Disconnected,
            };
            if let Some((report, sequence)) = self.pending.due() {
                let is_done = self.tell(&report).await;
                self.pending.complete(&report.claim.uid, sequence, is_done);
                continue;
            }
            if is_closed {
                return;
            }
            let pending = Arc::clone(&self.pending);
            tokio::select! {
                report = self.queue.recv() => {
                    if let Some(report) = report {
                        self.take(report).await;
                    }
                }
                () = pending.wait() => {}
            }
        }
    }

    /// Sends a report of the queue, if it says anything new.
    async fn take(&mut self, report: Report) {
        if !self.told.record_if_new(&report, Instant::now()) {
            return;
        }
        let claim = report.claim.to_string();
        match tokio::time::timeout(TIMEOUT, self.send(&report)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(claim, %error, "could not report on a claim");
                // A server that says no says it again; one that was not reached is tried with the
                // kubelet's next attempt.
                if !is_final(&error) {
                    self.told.forget(&report);
                }
            }
            Err(_) => {
                tracing::warn!(claim, "reporting on a claim took too long");
                self.told.forget(&report);
            }
        }
    }

    /// Tells how a prepared claim stands; says whether that need not be tried again.
    async fn tell(&mut self, report: &Report) -> bool {
        self.told.forget(report);
        let claim = report.claim.to_string();
        match tokio::time::timeout(TIMEOUT, self.send_condition(report)).await {
            Ok(Ok(())) => true,
            // The claim is gone, and with it who would read it.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => true,
            Ok(Err(error)) => {
                tracing::warn!(claim, %error, "could not tell how a claim stands; trying again");
                false
            }
            Err(_) => {
                tracing::warn!(claim, "telling how a claim stands took too long; trying again");
                false
            }
        }
    }

    /// Sends one report: condition first, since it lasts, then the event, which must not need it.
    async fn send(&self, report: &Report) -> kube::Result<()> {
        let condition = self.send_condition(report).await;
        let event = self.send_event(report).await;
        condition.and(event)
    }

    /// Writes the condition on the claim's devices, or takes it away.
    async fn send_condition(&self, report: &Report) -> kube::Result<()> {
        let claim = &report.claim;
        if !report.devices.is_empty() {
            let api = Api::<ResourceClaim>::namespaced(self.client.clone(), &claim.namespace);
            let status = status_of(report, jiff::Timestamp::now());
            let params = PatchParams::apply(names::AGENT).force();
            api.patch_status(&claim.name, &params, &Patch::Apply(status)).await?;
        }
        Ok(())
    }

    /// Makes the event of a refusal.
    async fn send_event(&self, report: &Report) -> kube::Result<()> {
        let claim = &report.claim;
        if let Some((reason, message)) = &report.refusal {
            let api = Api::<Event>::namespaced(self.client.clone(), &claim.namespace);
            let event = event_of(claim, &self.node, report.action, reason, message);
            api.create(&PostParams::default(), &event).await?;
        }
        Ok(())
    }
}

impl ReportHistory {
    /// Whether a report says something new; remembers it.
    fn record_if_new(&mut self, report: &Report, now: Instant) -> bool {
        let uid = &report.claim.uid;
        let Some((reason, message)) = &report.refusal else { return true };
        self.by_claim.retain(|_, (_, at)| now.duration_since(*at) < REPEAT_INTERVAL);
        let text = format!("{reason}: {message}");
        if self.by_claim.get(uid).is_some_and(|(told, _)| *told == text) {
            return false;
        }
        if self.by_claim.len() < MAX_REMEMBERED || self.by_claim.contains_key(uid) {
            self.by_claim.insert(uid.clone(), (text, now));
        }
        true
    }

    /// Forgets what was told of a claim: it could not be sent, or holds no more.
    fn forget(&mut self, report: &Report) {
        self.by_claim.remove(&report.claim.uid);
    }
}

/// Whether the server understood and said no.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}
