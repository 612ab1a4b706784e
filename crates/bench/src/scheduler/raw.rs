//! A scheduler's writes without decisions: each pod has its slot beforehand.
//!
//! Raw has what a scheduler has: a thread and a connection of its own, as many writes in flight as
//! Octavo's scheduler, and events that are written one after another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{JoinHandle, JoinSet};

use super::api::{Api, Kind};
use super::device_objects::{self, EXTENDED_REQUEST, FINALIZER};
use super::objects;
use super::observer::Observer;
use super::testbed::{Events, Testbed};

/// Writes in flight: those of Octavo's scheduler by default (`writesInFlight`).
const IN_FLIGHT: usize = 64;
/// How long a controller may take to make a pod's claim.
const CLAIM_TIMEOUT: Duration = Duration::from_mins(2);

/// A created pod and its slot.
#[derive(Clone, Debug)]
pub(super) struct SlottedPod {
    pub(super) name: String,
    pub(super) uid: String,
    /// Number of the node.
    pub(super) node: usize,
    /// Its GPU on the node.
    pub(super) gpu: usize,
}

/// The writes for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodWrites {
    /// The binding alone.
    Binding,
    /// The claim that is made from the pod's template gets the GPU, then the binding.
    TemplateClaim,
    /// A new claim for the pod's extended resources, the pod's status, then the binding.
    ExtendedClaim,
}

/// Ends when all pods are bound, or with the first error.
pub(super) type RawOutcome = JoinHandle<anyhow::Result<()>>;

/// Binds the pods that it is told of, until it is dropped.
pub(super) struct RawScheduler {
    runtime: Option<Runtime>,
    pods: UnboundedSender<SlottedPod>,
}

impl RawScheduler {
    /// Starts to bind `count` pods. The task ends when all are bound.
    pub(super) fn start(
        testbed: &Testbed,
        writes: PodWrites,
        count: usize,
    ) -> anyhow::Result<(Self, RawOutcome)> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("raw")
            .enable_all()
            .build()
            .context("start a thread for raw")?;
        let (pods, created) = mpsc::unbounded_channel();
        let (kubeconfig, observer) = (testbed.lab.kubeconfig(), Arc::clone(&testbed.observer));
        let has_events = testbed.events == Events::Same;
        let task = runtime.spawn(async move {
            let api = Api::connect_to(kubeconfig).await?;
            let created = match writes {
                PodWrites::TemplateClaim => with_claims(observer.clone(), created, count),
                _ => created,
            };
            bind_all(&api, &observer, created, writes, has_events, count).await
        });
        Ok((Self { runtime: Some(runtime), pods }, task))
    }

    /// Where pods are announced.
    pub(super) fn sender(&self) -> CreatedPods {
        CreatedPods(self.pods.clone())
    }
}

/// Announces pods to raw.
#[derive(Clone)]
pub(super) struct CreatedPods(UnboundedSender<SlottedPod>);

impl CreatedPods {
    /// A pod was created.
    pub(super) fn created(&self, pod: SlottedPod) {
        // Without a receiver the task has ended with an error, which is reported.
        let _ = self.0.send(pod);
    }
}

impl Drop for RawScheduler {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Pending writes are dropped; a runtime must not wait within another.
            runtime.shutdown_background();
        }
    }
}

/// The pods in the order in which their claims appear.
fn with_claims(
    observer: Arc<Observer>,
    mut created: UnboundedReceiver<SlottedPod>,
    count: usize,
) -> UnboundedReceiver<SlottedPod> {
    let (sender, ready) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut waiting: VecDeque<SlottedPod> = VecDeque::new();
        let mut left = count;
        while left > 0 {
            let found = observer
                .until("a claim of raw's pods", CLAIM_TIMEOUT, |seen| {
                    while let Ok(pod) = created.try_recv() {
                        waiting.push_back(pod);
                    }
                    let has_claim = |pod: &SlottedPod| seen.claims.contains_key(&pod.name);
                    let (ready, rest): (VecDeque<_>, _) = waiting.drain(..).partition(has_claim);
                    waiting = rest;
                    (!ready.is_empty()).then_some(ready)
                })
                .await;
            // A timeout closes the channel, which ends the binding with an error.
            let Ok(found) = found else { return };
            left = left.saturating_sub(found.len());
            for pod in found {
                let _ = sender.send(pod);
            }
        }
    });
    ready
}

async fn bind_all(
    api: &Api,
    observer: &Arc<Observer>,
    mut created: UnboundedReceiver<SlottedPod>,
    writes: PodWrites,
    has_events: bool,
    count: usize,
) -> anyhow::Result<()> {
    let events = has_events.then(|| event_writer(api));
    let mut in_flight = JoinSet::new();
    for _ in 0..count {
        while in_flight.len() >= IN_FLIGHT {
            finish_one(&mut in_flight, events.as_ref()).await?;
        }
        let pod = created.recv().await.context("raw's pods ended before all were bound")?;
        let (api, observer) = (api.clone(), Arc::clone(observer));
        in_flight.spawn(async move {
            match writes {
                PodWrites::Binding => bind(&api, &pod).await?,
                PodWrites::TemplateClaim => bind_with_template(&api, &observer, &pod).await?,
                PodWrites::ExtendedClaim => bind_with_extended(&api, &pod).await?,
            }
            anyhow::Ok(pod)
        });
    }
    while !in_flight.is_empty() {
        finish_one(&mut in_flight, events.as_ref()).await?;
    }
    Ok(())
}

async fn finish_one(
    in_flight: &mut JoinSet<anyhow::Result<SlottedPod>>,
    events: Option<&UnboundedSender<SlottedPod>>,
) -> anyhow::Result<()> {
    let Some(bound) = in_flight.join_next().await else { return Ok(()) };
    let pod = bound??;
    if let Some(events) = events {
        let _ = events.send(pod);
    }
    Ok(())
}

/// Writes an event for each pod, one after another, as the recorders of both schedulers do.
fn event_writer(api: &Api) -> UnboundedSender<SlottedPod> {
    let api = api.clone();
    let (sender, mut bound) = mpsc::unbounded_channel::<SlottedPod>();
    tokio::spawn(async move {
        while let Some(pod) = bound.recv().await {
            let node = objects::node_name(pod.node);
            let event = objects::scheduled_event(&pod.name, &pod.uid, &node);
            if let Err(error) = api.create(Kind::Events, &event).await {
                super::print_progress(&format!("an event of raw: {error:#}"));
                return;
            }
        }
    });
    sender
}

/// The decoded part of a written object.
#[derive(Deserialize)]
struct Written {
    metadata: Meta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    uid: String,
    resource_version: String,
}

/// The UID of an object that was created, from the answer.
pub(super) fn uid(answer: &str) -> anyhow::Result<String> {
    Ok(read(answer)?.uid)
}

/// Gives a GPU to the claim that was created, from the answer, and reserves it for the pod.
pub(super) async fn allocate_created(
    api: &Api,
    claim: &str,
    request: &str,
    pod: &SlottedPod,
) -> anyhow::Result<()> {
    allocate(api, &read(claim)?, request, pod).await
}

async fn bind(api: &Api, pod: &SlottedPod) -> anyhow::Result<()> {
    let binding = objects::binding(&pod.name, &objects::node_name(pod.node));
    api.post(Kind::Pods, &format!("{}/binding", pod.name), &binding).await
}

/// Gives the pod's claim its GPU, then binds the pod.
async fn bind_with_template(
    api: &Api,
    observer: &Observer,
    pod: &SlottedPod,
) -> anyhow::Result<()> {
    let claim = observer.seen().claims.get(&pod.name).map(|claim| claim.name.clone());
    let claim = claim.with_context(|| format!("the claim of {} went", pod.name))?;
    let change = json!({"metadata": {"finalizers": [FINALIZER]}});
    let written = read(&api.merge(Kind::Claims, &claim, &change).await?)?;
    allocate(api, &written, "gpu", pod).await?;
    bind(api, pod).await
}

/// Creates the claim for the pod's extended resources, allocates the GPU, updates the pod's status
/// and binds the pod.
async fn bind_with_extended(api: &Api, pod: &SlottedPod) -> anyhow::Result<()> {
    let claim = device_objects::extended_claim(&pod.name, &pod.uid);
    let written = read(&api.create(Kind::Claims, &claim).await?)?;
    allocate(api, &written, EXTENDED_REQUEST, pod).await?;
    let status = device_objects::extended_status(&written.name);
    api.merge(Kind::Pods, &format!("{}/status", pod.name), &status).await?;
    bind(api, pod).await
}

async fn allocate(api: &Api, claim: &Meta, request: &str, pod: &SlottedPod) -> anyhow::Result<()> {
    if claim.resource_version.is_empty() {
        bail!("the API server gave claim {} no version", claim.name);
    }
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "name": claim.name, "uid": claim.uid, "resourceVersion": claim.resource_version,
        },
        // Every update carries the spec; a status update leaves it unchanged.
        "spec": {"devices": {"requests": [
            {"name": request, "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ]}},
        "status": device_objects::allocated(request, (pod.node, pod.gpu), (&pod.name, &pod.uid)),
    });
    api.put(Kind::Claims, &format!("{}/status", claim.name), &object).await
}

fn read(answer: &str) -> anyhow::Result<Meta> {
    let written: Written = serde_json::from_str(answer).context("read what was written")?;
    Ok(written.metadata)
}
