//! Visits nodes on which work is in progress: counts the pods with GPUs, and evicts them where their turn has come.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use octavo_api::Maintenance;
use octavo_kube_io::Backoff;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::evict::{Evictor, at};
use super::round::Finding;
use super::writes::api;
use crate::health::facts::{MaintenanceFacts, unix};
use crate::health::maintenance::Visit;
use crate::health::pods::{self, Guest};
use crate::shell::leader::LeaderError;

/// Delays between visits of a node that has pods. They leave in their grace period, and a disruption budget may hold them.
const FIRST_DELAY: Duration = Duration::from_secs(2);
const MAX_DELAY: Duration = Duration::from_mins(1);
/// Time to the next visit of a node without pods: one may have been placed before the taint was seen.
const EMPTY_DELAY: Duration = Duration::from_mins(5);
/// The same for the first visits.
const EARLY_VISITS: u32 = 3;
/// Nodes that are visited at the same time.
const MAX_NODES: usize = 8;

/// Visits while this process leads.
pub(super) struct Visitor {
    evictor: Evictor,
    findings: mpsc::Sender<Finding>,
}

/// A node that is visited.
struct Node {
    visit: Visit,
    backoff: Backoff,
    due: Instant,
}

impl Visitor {
    pub(super) fn new(evictor: Evictor, findings: mpsc::Sender<Finding>) -> Self {
        Self { evictor, findings }
    }

    /// Goes on until the rounds end.
    pub(super) async fn run(self, mut wanted: watch::Receiver<Vec<Visit>>) {
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        loop {
            let due = nodes.values().map(|node| node.due).min();
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
            let (visitor, due) = (&self, nodes.iter_mut().filter(|(_, node)| node.due <= now));
            futures::stream::iter(due)
                .for_each_concurrent(MAX_NODES, |(name, node)| async move {
                    let left = visitor.visit(&node.visit, Timestamp::now()).await;
                    let delay = node.backoff.next_delay();
                    let is_empty = matches!(left, Ok(0)) && node.backoff.failures() > EARLY_VISITS;
                    node.due = Instant::now() + if is_empty { EMPTY_DELAY } else { delay };
                    if let Err(error) = left {
                        tracing::debug!(node = %name, %error, "pods of a node in maintenance are left; it is tried again");
                    }
                })
                .await;
        }
    }

    /// Counts the pods with GPUs that are to leave, and evicts them if it is their turn. A pod that cannot be evicted delays no other; the
    /// last problem is returned.
    pub(super) async fn visit(&self, visit: &Visit, now: Timestamp) -> Result<usize, LeaderError> {
        let Evictor { client, leader, .. } = &self.evictor;
        if !leader.is_leading() {
            return Err(LeaderError::NotLeader);
        }
        let pods: Api<Pod> = Api::all(client.clone());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={}", visit.node));
        let (mut left, mut problem) = (0, None);
        let mut victims = Vec::new();
        for pod in pods.list(&of_node).await? {
            let claims = match self.evictor.claims(&pod, pods::held_by(&pod)).await {
                Ok(claims) => claims,
                Err(error) => {
                    // It may have a GPU.
                    left += 1;
                    problem = Some(error.into());
                    continue;
                }
            };
            match pods::guest(&pod, &claims, &visit.note) {
                None => {}
                Some(Guest::Leaves) => left += 1,
                Some(Guest::Stays(victim)) => {
                    left += 1;
                    victims.push(victim);
                }
            }
        }
        // The rounds may have ended.
        let _ = self.findings.send(Finding::Pods(visit.node.clone(), left)).await;
        if visit.is_drained && !victims.is_empty() && self.is_in_force(visit, now).await? {
            for victim in &victims {
                match self.evictor.end(victim, now).await {
                    Ok(()) => {}
                    Err(LeaderError::NotLeader) => return Err(LeaderError::NotLeader),
                    Err(error) => problem = Some(error),
                }
            }
        }
        problem.map_or(Ok(left), Err)
    }

    /// Whether the work still drains the node, by its object. The watch may be late.
    async fn is_in_force(&self, visit: &Visit, now: Timestamp) -> kube::Result<bool> {
        let object = api::<Maintenance>(&self.evictor.client).get_opt(&visit.maintenance).await?;
        let drains = |object| MaintenanceFacts::of(object).drains(&visit.node, unix(now));
        Ok(object.as_ref().is_some_and(drains))
    }
}

/// Takes over the visits that are wanted. A node is visited at once when its turn to be drained comes.
fn renew(nodes: &mut BTreeMap<String, Node>, wanted: &[Visit]) {
    let by_node: BTreeMap<&str, &Visit> =
        wanted.iter().map(|visit| (visit.node.as_str(), visit)).collect();
    nodes.retain(|name, _| by_node.contains_key(name.as_str()));
    for (name, visit) in by_node {
        if nodes.get(name).is_none_or(|node| node.visit != *visit) {
            let backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);
            let node = Node { visit: visit.clone(), backoff, due: Instant::now() };
            nodes.insert(name.to_owned(), node);
        }
    }
}
