//! Tells people why a claim was refused: a condition on the claim's device and an event. Never in the
//! way of a prepare: reports go to a worker, and one that cannot be sent is dropped.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, Patch, PatchParams, PostParams};
use octavo_api::{Refusal, names};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::AllocatedDevice;
use crate::checkpoint::HeldDevice;
use crate::node::ClaimRef;

/// The same refusal of the same claim is reported once in this time, however often the kubelet tries.
const REPEAT_AFTER: Duration = Duration::from_mins(10);
/// Reports that may wait; more are dropped.
const QUEUE: usize = 64;
/// Refusals that are remembered against repetition.
const REMEMBERED: usize = 1024;
/// Longest note of an event that the API takes.
const NOTE_LIMIT: usize = 1024;
/// How long the API server may take for one report.
const DEADLINE: Duration = Duration::from_secs(10);

/// Takes reports; must not block.
pub trait Reporter: Send + Sync {
    /// A claim was refused; the devices are those that it was allocated, where that is known.
    fn refused(&self, claim: &ClaimRef, devices: &[ReportedDevice], refusal: &Refusal);

    /// A claim that was reported as refused is prepared now.
    fn prepared(&self, claim: &ClaimRef, devices: &[ReportedDevice]);
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
}

/// Reports to nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentReporter;

/// Reports to the API server through a [`ReportWorker`].
#[derive(Clone, Debug)]
pub struct KubeReporter {
    queue: mpsc::Sender<Report>,
}

/// Sends the reports of a [`KubeReporter`]; ends when the last of its clones is dropped.
pub struct ReportWorker {
    client: kube::Client,
    node: String,
    queue: mpsc::Receiver<Report>,
    told: Told,
}

/// A report on its way.
#[derive(Debug)]
struct Report {
    claim: ClaimRef,
    devices: Vec<ReportedDevice>,
    /// Reason and message of a refusal; `None` takes earlier reports back.
    refusal: Option<(&'static str, String)>,
}

/// What was told already, against repetition.
#[derive(Default)]
struct Told {
    by_claim: BTreeMap<String, (String, Instant)>,
}

impl ReportedDevice {
    /// The device of an allocation's result.
    pub(super) fn of(result: &AllocatedDevice) -> Self {
        let AllocatedDevice { pool, device, share_id, .. } = result.clone();
        Self { pool, device, share_id }
    }

    /// A device that a claim holds.
    pub(super) fn held(held: &HeldDevice) -> Self {
        Self { pool: held.pool.clone(), device: held.device.clone(), share_id: None }
    }
}

/// Whether anybody is told of a refusal: a claim that is not there has nothing to write to, and without the
/// server nobody listens.
pub(super) fn is_told(refusal: &Refusal) -> bool {
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
}

impl KubeReporter {
    /// A reporter and the worker that somebody must run.
    pub fn new(client: kube::Client, node: String) -> (Self, ReportWorker) {
        let (sender, queue) = mpsc::channel(QUEUE);
        (Self { queue: sender }, ReportWorker { client, node, queue, told: Told::default() })
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
        if is_told(refusal) {
            let refusal = Some((refusal.reason(), refusal.to_string()));
            self.send(Report { claim: claim.clone(), devices: devices.to_vec(), refusal });
        }
    }

    fn prepared(&self, claim: &ClaimRef, devices: &[ReportedDevice]) {
        self.send(Report { claim: claim.clone(), devices: devices.to_vec(), refusal: None });
    }
}

impl ReportWorker {
    /// Sends reports until all reporters are gone.
    pub async fn run(mut self) {
        while let Some(report) = self.queue.recv().await {
            if !self.told.is_news(&report, Instant::now()) {
                continue;
            }
            let claim = report.claim.to_string();
            match tokio::time::timeout(DEADLINE, self.send(&report)).await {
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
            let status = status_of(report, &jiff::Timestamp::now().strftime("%FT%TZ").to_string());
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
            let event = event_of(claim, &self.node, reason, message);
            api.create(&PostParams::default(), &event).await?;
        }
        Ok(())
    }
}

impl Told {
    /// Whether a report says something new; remembers it.
    fn is_news(&mut self, report: &Report, now: Instant) -> bool {
        let uid = &report.claim.uid;
        let Some((reason, message)) = &report.refusal else {
            self.by_claim.remove(uid);
            return true;
        };
        self.by_claim.retain(|_, (_, at)| now.duration_since(*at) < REPEAT_AFTER);
        let text = format!("{reason}: {message}");
        if self.by_claim.get(uid).is_some_and(|(told, _)| *told == text) {
            return false;
        }
        if self.by_claim.len() < REMEMBERED || self.by_claim.contains_key(uid) {
            self.by_claim.insert(uid.clone(), (text, now));
        }
        true
    }

    /// Forgets a report that could not be sent.
    fn forget(&mut self, report: &Report) {
        self.by_claim.remove(&report.claim.uid);
    }
}

/// Whether the server understood and said no.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

/// The part of the claim's status that is ours: one entry a device, none where all is well. The UID
/// keeps it from another claim of the same name.
fn status_of(report: &Report, now: &str) -> Value {
    let condition = report.refusal.as_ref().map(|(reason, message)| {
        json!({
            "type": names::CONDITION_READY,
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        })
    });
    // A claim may have a device twice, once for administration: two entries of one key are refused.
    let mut devices: Vec<&ReportedDevice> = Vec::new();
    for device in &report.devices {
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    let entries = condition.iter().flat_map(|condition| {
        devices.iter().map(move |device| {
            let mut entry = json!({
                "driver": names::DRIVER,
                "pool": device.pool,
                "device": device.device,
                "conditions": [condition],
            });
            if let (Some(share_id), Some(entry)) = (&device.share_id, entry.as_object_mut()) {
                entry.insert("shareID".to_owned(), json!(share_id));
            }
            entry
        })
    });
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": report.claim.name, "uid": report.claim.uid},
        "status": {"devices": entries.collect::<Vec<_>>()},
    })
}

/// A warning about a claim.
fn event_of(claim: &ClaimRef, node: &str, reason: &str, message: &str) -> Event {
    let note = message.char_indices().take_while(|(at, c)| at + c.len_utf8() <= NOTE_LIMIT);
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", claim.name.chars().take(200).collect::<String>())),
            namespace: Some(claim.namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Prepare".to_owned()),
        event_time: Some(MicroTime(jiff::Timestamp::now())),
        note: Some(note.map(|(_, c)| c).collect()),
        reason: Some(reason.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some("resource.k8s.io/v1".to_owned()),
            kind: Some("ResourceClaim".to_owned()),
            name: Some(claim.name.clone()),
            namespace: Some(claim.namespace.clone()),
            uid: Some(claim.uid.clone()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(names::AGENT_CONTROLLER.to_owned()),
        reporting_instance: Some(node.to_owned()),
        type_: Some("Warning".to_owned()),
        ..Event::default()
    }
}
