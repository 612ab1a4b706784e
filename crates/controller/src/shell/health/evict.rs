//! Evicts pods of devices out of service. Pods and claims are read only for the nodes of such devices.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use octavo_api::NodeHealth;
use octavo_api::names::{HEALTH_CONTROLLER, REASON_DEVICE_TAINT};
use octavo_kube_io::Backoff;
use octavo_kube_io::events::{EventType, Events};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::writes::api;
use crate::health::facts::{HealthFacts, date, unix};
use crate::health::plan::Eviction;
use crate::health::pods::{self, Victim};
use crate::shell::leader::{Leader, LeaderError};

/// Delays between looks at a node. Pods leave in their grace period, and a disruption budget may hold them.
const FIRST_DELAY: Duration = Duration::from_secs(2);
const MAX_DELAY: Duration = Duration::from_mins(1);
/// Nodes that are looked at at the same time.
const MAX_NODES: usize = 8;
/// The action of events.
const ACTION: &str = "Evict";
/// Most time of one event. Events are best effort.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Evicts while this process leads.
pub(super) struct Evictor {
    pub(super) client: Client,
    events: Events,
    pub(super) leader: Leader,
}

/// A node with evictions.
struct Node {
    evictions: Vec<Eviction>,
    backoff: Backoff,
    due: Instant,
}

impl Evictor {
    pub(super) fn new(client: Client, events: Events, leader: Leader) -> Self {
        Self { client, events, leader }
    }

    /// Goes on until the rounds end.
    pub(super) async fn run(self, mut wanted: watch::Receiver<Vec<Eviction>>) {
        let mut nodes = BTreeMap::new();
        loop {
            let due = nodes.values().map(|node: &Node| node.due).min();
            tokio::select! {
                changed = wanted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    renew(&mut nodes, &wanted.borrow_and_update());
                }
                () = at(due) => {}
            }
            let now = Instant::now();
            let (evictor, due) = (&self, nodes.iter_mut().filter(|(_, node)| node.due <= now));
            futures::stream::iter(due)
                .for_each_concurrent(MAX_NODES, |(name, node)| async move {
                    if let Err(error) = evictor.look(name, &node.evictions, Timestamp::now()).await {
                        tracing::debug!(node = %name, %error, "pods of devices out of service are left; it is tried again");
                    }
                    node.due = Instant::now() + node.backoff.next_delay();
                })
                .await;
        }
    }

    /// Evicts the pods of a node that are due. Devices that returned since the evictions were decided keep theirs. A pod that cannot be evicted delays no other; the last problem is returned.
    pub(super) async fn look(
        &self,
        node: &str,
        evictions: &[Eviction],
        now: Timestamp,
    ) -> Result<(), LeaderError> {
        if !self.leader.is_leading() {
            return Err(LeaderError::NotLeader);
        }
        let evictions = self.lasting(node, evictions).await?;
        if evictions.is_empty() {
            return Ok(());
        }
        let pods: Api<Pod> = Api::all(self.client.clone());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let mut problem = Ok(());
        for pod in pods.list(&of_node).await? {
            let claims = match self.claims(&pod, pods::claims_of(&pod)).await {
                Ok(claims) => claims,
                Err(error) => {
                    problem = Err(error.into());
                    continue;
                }
            };
            let Some(victim) = pods::victim(&pod, &claims, &evictions, unix(now)) else { continue };
            match self.end(&victim, now).await {
                Ok(()) => {}
                Err(LeaderError::NotLeader) => return Err(LeaderError::NotLeader),
                Err(error) => problem = Err(error),
            }
        }
        problem
    }

    /// Those evictions that still hold by the object of their node. The watch may be late.
    async fn lasting(&self, node: &str, evictions: &[Eviction]) -> kube::Result<Vec<Eviction>> {
        let object = api::<NodeHealth>(&self.client).get_opt(node).await?;
        let health = object.as_ref().map(HealthFacts::of).unwrap_or_default();
        let lasting = evictions.iter().filter(|eviction| health.evicts(&eviction.device));
        Ok(lasting.cloned().collect())
    }

    /// The claims of a pod with some names, those that exist.
    pub(super) async fn claims(
        &self,
        pod: &Pod,
        names: Vec<String>,
    ) -> kube::Result<Vec<ResourceClaim>> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let mut found = Vec::new();
        for name in names {
            found.extend(claims.get_opt(&name).await?);
        }
        Ok(found)
    }

    /// Ends a pod. One that is gone already is no failure.
    pub(super) async fn end(&self, victim: &Victim, now: Timestamp) -> Result<(), LeaderError> {
        let Victim { namespace, name, uid, .. } = victim;
        self.report(victim).await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        if !victim.is_deleted {
            // The API server writes the condition of such a pod itself, and asks disruption budgets.
            let (post, body) = (PostParams::default(), eviction(victim));
            let evict = pods.create_subresource::<Value, Value>("eviction", name, &post, &body);
            self.leader.write("evict-pod", evict).await?;
            return Ok(());
        }
        let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
        let delete = DeleteParams::default().preconditions(preconditions);
        let manager = PatchParams {
            field_manager: Some(HEALTH_CONTROLLER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Strategic(mark(victim, now));
        let mark = pods.patch_status(name, &manager, &patch);
        if self.leader.write("mark-pod", mark).await?.is_some() {
            self.leader.write("delete-pod", pods.delete(name, &delete)).await?;
        }
        Ok(())
    }

    async fn report(&self, victim: &Victim) {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(victim.namespace.clone()),
            name: Some(victim.name.clone()),
            uid: Some(victim.uid.clone()),
            ..ObjectReference::default()
        };
        let (reason, note) = (victim.reason, &victim.note);
        let event = self.events.record(&regarding, EventType::Warning, reason, ACTION, note);
        let _ = tokio::time::timeout(EVENT_TIMEOUT, event).await;
    }
}

/// Takes over the evictions that are wanted. A node whose evictions changed is looked at at once.
fn renew(nodes: &mut BTreeMap<String, Node>, wanted: &[Eviction]) {
    let mut by_node: BTreeMap<&str, Vec<Eviction>> = BTreeMap::new();
    for eviction in wanted {
        by_node.entry(&eviction.node).or_default().push(eviction.clone());
    }
    nodes.retain(|name, _| by_node.contains_key(name.as_str()));
    for (name, evictions) in by_node {
        if nodes.get(name).is_none_or(|node| node.evictions != evictions) {
            let backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);
            nodes.insert(name.to_owned(), Node { evictions, backoff, due: Instant::now() });
        }
    }
}

/// The eviction of a pod, and of no other one of its name. kube's own writes the options under a name that the API server does not know.
fn eviction(victim: &Victim) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim.name, "namespace": victim.namespace},
        "deleteOptions": {"preconditions": {"uid": victim.uid}},
    })
}

/// The condition of a pod that is deleted, as Kubernetes' own controller writes it before.
fn mark(victim: &Victim, now: Timestamp) -> Value {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": REASON_DEVICE_TAINT,
        "message": victim.note,
        "lastTransitionTime": date(unix(now)),
    });
    json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}})
}

pub(super) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
