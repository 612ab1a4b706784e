//! Reports to users: refusals as a condition on the claim's device and an event, and the prepared shares and MIG
//! instances in the claim's status.
//!
//! Reports go to a worker and never delay a prepare. A refusal that cannot be sent is dropped, since the kubelet
//! repeats it. The status of a prepared claim is retried until it is written or the claim is released.

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
use octavo_api::config::OverflowPolicy;
use octavo_api::{Refusal, names};
use octavo_kube_io::events::EventType;
use octavo_node::ClaimRef;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use octavo_enforcement::backend::BackendKind;
use octavo_enforcement::share::ShareFinding;

use super::AllocatedDevice;
use crate::checkpoint::Record;
use pending::Pending;
pub use pending::{Fact, MigFact, SwapFact, TimeFact};
use status::{event_of, status_of};

/// An identical refusal of a claim is reported once per interval, however often the kubelet retries.
const REPEAT_INTERVAL: Duration = Duration::from_mins(10);
/// Reports that may wait; more are dropped.
const MAX_QUEUED: usize = 64;
/// Refusals that are remembered against repetition.
const MAX_REMEMBERED: usize = 1024;
/// Timeout of one report.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Actions of events.
const PREPARE: &str = "Prepare";
const WATCH: &str = "Watch";

/// Takes reports; must not block.
pub trait Reporter: Send + Sync {
    /// A claim was refused. `devices` are its allocated devices, if known.
    fn refused(&self, claim: &ClaimRef, devices: &[ReportedDevice], refusal: &Refusal);

    /// A claim is prepared that was reported as refused, or whose devices have facts to report.
    fn prepared(&self, claim: &ClaimRef, devices: &[ReportedDevice]);

    /// A finding about a claim's containers at run time.
    fn found(&self, claim: &ClaimRef, kind: EventType, reason: &'static str, message: &str);

    /// A claim was released: its status needs no more updates.
    fn released(&self, uid: &str);
}

/// A device that a report is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedDevice {
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Share id, if the device is allocated in parts.
    pub share_id: Option<String>,
    /// Facts that the allocation does not contain.
    pub fact: Option<Fact>,
}

/// A reporter that discards all reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentReporter;

/// Reports to the API server through a [`ReportWorker`].
#[derive(Clone, Debug)]
pub struct KubeReporter {
    queue: mpsc::Sender<Report>,
    pending: Arc<Pending>,
}

/// Sends the reports of a [`KubeReporter`]. It ends when the last clone is dropped.
pub struct ReportWorker {
    client: kube::Client,
    node: String,
    queue: mpsc::Receiver<Report>,
    pending: Arc<Pending>,
    history: ReportHistory,
}

/// A report on its way.
#[derive(Clone, Debug)]
struct Report {
    claim: ClaimRef,
    devices: Vec<ReportedDevice>,
    /// Reason and message of a refusal or finding; `None` withdraws earlier reports and writes the devices' facts.
    refusal: Option<(&'static str, String)>,
    /// Type and action of the event.
    event: (EventType, &'static str),
}

/// Recent reports, against repetition.
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

    /// The devices of a claim with their facts. Instances in `missing` no longer exist.
    pub(super) fn held(record: &Record, missing: &BTreeSet<String>) -> Vec<Self> {
        let devices = record.devices.iter().map(|held| Self {
            pool: held.pool.clone(),
            device: held.device.clone(),
            share_id: held.share_id.clone(),
            fact: Fact::of(held, record.prepared_at, missing.contains(&held.device)),
        });
        devices.collect()
    }

    /// Sets the findings about a share, the policy that applies to it on a node with this weakest one, and whether the node
    /// gives leases of GPU time and moves memory to the host.
    pub(super) fn set_findings(
        &mut self,
        found: Vec<(ShareFinding, i64)>,
        min_overflow: OverflowPolicy,
        has_leases: bool,
        has_swap: bool,
    ) {
        if let Some(Fact::Share { backend, findings, overflow, time, swap, .. }) = &mut self.fact {
            *findings = found;
            if let Some(swap) = swap {
                swap.has_swap = has_swap;
            }
            time.has_leases = has_leases && *backend == Some(BackendKind::Guard);
            *overflow = overflow.map(|policy| policy.max(min_overflow));
        }
    }

    /// Whether both devices are one entry of the claim's status.
    fn is_same(&self, other: &Self) -> bool {
        self.pool == other.pool && self.device == other.device && self.share_id == other.share_id
    }
}

/// Whether a refusal can be reported: it needs an existing claim and a reachable server.
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

    fn found(&self, _: &ClaimRef, _: EventType, _: &'static str, _: &str) {}

    fn released(&self, _: &str) {}
}

impl KubeReporter {
    /// A reporter, and its worker, which the caller must run.
    pub fn new(client: kube::Client, node: String) -> (Self, ReportWorker) {
        let (sender, queue) = mpsc::channel(MAX_QUEUED);
        let pending = Arc::new(Pending::default());
        let reporter = Self { queue: sender, pending: Arc::clone(&pending) };
        (reporter, ReportWorker { client, node, queue, pending, history: ReportHistory::default() })
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
            // The former status no longer applies.
            self.pending.remove(&claim.uid);
            let refusal = Some((refusal.reason(), refusal.to_string()));
            let (claim, devices) = (claim.clone(), devices.to_vec());
            self.send(Report { claim, devices, refusal, event: (EventType::Warning, PREPARE) });
        }
    }

    fn found(&self, claim: &ClaimRef, kind: EventType, reason: &'static str, message: &str) {
        // Without devices no condition is written, only the event.
        let (refusal, event) = (Some((reason, message.to_owned())), (kind, WATCH));
        self.send(Report { claim: claim.clone(), devices: Vec::new(), refusal, event });
    }

    fn prepared(&self, claim: &ClaimRef, devices: &[ReportedDevice]) {
        let (claim, devices) = (claim.clone(), devices.to_vec());
        let event = (EventType::Normal, PREPARE);
        self.pending.put(Report { claim, devices, refusal: None, event });
    }

    fn released(&self, uid: &str) {
        self.pending.remove(uid);
    }
}

impl ReportWorker {
    /// Sends reports until all reporters are dropped and the remaining reports were tried.
    pub async fn run(mut self) {
        loop {
            // Queued reports are older than due ones and may belong to the same claim.
            let is_closed = match self.queue.try_recv() {
                Ok(report) => {
                    self.take(report).await;
                    continue;
                }
                Err(error) => error == TryRecvError::Disconnected,
            };
            if let Some((report, sequence)) = self.pending.due() {
                let is_done = self.write_status(&report).await;
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

    /// Sends a queued report unless it repeats an earlier one.
    async fn take(&mut self, report: Report) {
        if !self.history.record_if_new(&report, Instant::now()) {
            return;
        }
        let claim = report.claim.to_string();
        match tokio::time::timeout(TIMEOUT, self.send(&report)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(claim, %error, "could not report on a claim");
                // A rejecting server rejects it again. An unreachable server is retried with the kubelet's next
                // attempt.
                if !is_final(&error) {
                    self.history.forget(&report);
                }
            }
            Err(_) => {
                tracing::warn!(claim, "reporting on a claim took too long");
                self.history.forget(&report);
            }
        }
    }

    /// Writes the status of a prepared claim; returns whether no retry is needed.
    async fn write_status(&mut self, report: &Report) -> bool {
        self.history.forget(report);
        let claim = report.claim.to_string();
        match tokio::time::timeout(TIMEOUT, self.send_condition(report)).await {
            Ok(Ok(())) => true,
            // The claim no longer exists.
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

    /// Sends one report: first the condition, which lasts, then the event. Neither depends on the other.
    async fn send(&self, report: &Report) -> kube::Result<()> {
        let condition = self.send_condition(report).await;
        let event = self.send_event(report).await;
        condition.and(event)
    }

    /// Writes or withdraws the condition on the claim's devices.
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
            let event = event_of(claim, &self.node, report.event, reason, message);
            api.create(&PostParams::default(), &event).await?;
        }
        Ok(())
    }
}

impl ReportHistory {
    /// Records a report; returns whether it differs from the last one.
    fn record_if_new(&mut self, report: &Report, now: Instant) -> bool {
        let uid = &report.claim.uid;
        let Some((reason, message)) = &report.refusal else { return true };
        self.by_claim.retain(|_, (_, at)| now.duration_since(*at) < REPEAT_INTERVAL);
        let text = format!("{reason}: {message}");
        if self.by_claim.get(uid).is_some_and(|(last, _)| *last == text) {
            return false;
        }
        if self.by_claim.len() < MAX_REMEMBERED || self.by_claim.contains_key(uid) {
            self.by_claim.insert(uid.clone(), (text, now));
        }
        true
    }

    /// Drops the last report of a claim, because it was not sent or no longer holds.
    fn forget(&mut self, report: &Report) {
        self.by_claim.remove(&report.claim.uid);
    }
}

/// Whether the server rejected the request for good.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}
