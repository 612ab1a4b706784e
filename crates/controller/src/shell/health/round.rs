//! Rounds: a plan of all policies, and its writes.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource};
use octavo_api::names::HEALTH_CONTROLLER;
use octavo_api::{HealthPolicy, NodeHealth};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::health::facts::{self, Change, Facts, Version};
use crate::health::plan::{Eviction, Memory, NodeOrders, Plan, PolicyStatus, plan};
use crate::shell::leader::{Leader, LeaderError};

/// Least time between two rounds.
const SHORTEST: Duration = Duration::from_secs(1);
/// Time between two rounds without a change: permits expire, breakers close.
const LONGEST: Duration = Duration::from_secs(10);
/// Writes at the same time.
const MAX_WRITES: usize = 16;
/// Writes of orders in a round, and of statuses. The rest is planned again in the next one.
const WRITES_OF_A_ROUND: usize = 256;

/// Plans and writes while this process leads.
pub(super) struct Rounds {
    client: Client,
    leader: Leader,
    /// Devices whose pods are to be evicted.
    evictions: watch::Sender<Vec<Eviction>>,
    pub(super) facts: Facts,
    memory: Memory,
}

/// A write of a round.
enum Write {
    Orders(NodeOrders),
    Status(Box<PolicyStatus>),
}

impl Rounds {
    pub(super) fn new(
        client: Client,
        leader: Leader,
        evictions: watch::Sender<Vec<Eviction>>,
    ) -> Self {
        let (facts, memory) = (Facts::default(), Memory::default());
        Self { client, leader, evictions, facts, memory }
    }

    /// Goes on until the watches end.
    pub(super) async fn run(mut self, mut changes: mpsc::Receiver<Change>) {
        let (mut last, mut due) = (Instant::now(), Instant::now());
        loop {
            tokio::select! {
                biased;
                () = sleep_until(due) => {
                    let wait = self.round(Timestamp::now()).await;
                    last = Instant::now();
                    due = last + wait;
                }
                change = changes.recv() => {
                    let Some(change) = change else { return };
                    self.facts.apply(change);
                    due = due.min(last + SHORTEST);
                }
            }
        }
    }

    /// One round. Returns the time until the next, if nothing changes.
    pub(super) async fn round(&mut self, now: Timestamp) -> Duration {
        if !self.leader.is_leading() {
            // What another leader does meanwhile is not known here.
            self.memory = Memory::default();
            self.evict(Vec::new());
            return SHORTEST;
        }
        if !self.facts.are_complete() {
            return SHORTEST;
        }
        let Plan { orders, statuses, evictions } =
            plan(&self.facts, &mut self.memory, facts::unix(now));
        // A breaker is written before what it stops, so that a leader that follows knows of it.
        let statuses = statuses.into_iter().map(|status| Write::Status(Box::new(status)));
        self.write(statuses.collect()).await;
        let is_more = orders.len() > WRITES_OF_A_ROUND;
        let is_done = self.write(orders.into_iter().map(Write::Orders).collect()).await;
        // An eviction is ordered before pods are evicted: a leader that follows counts it.
        self.evict(if is_done { evictions } else { self.ordered(evictions) });
        if is_more { SHORTEST } else { LONGEST }
    }

    /// Carries out writes. Returns whether all were done.
    async fn write(&mut self, writes: Vec<Write>) -> bool {
        let is_all = writes.len() <= WRITES_OF_A_ROUND;
        let (client, leader) = (&self.client, &self.leader);
        let results: Vec<_> = futures::stream::iter(writes.into_iter().take(WRITES_OF_A_ROUND))
            .map(|write| send(client, leader, write))
            .buffer_unordered(MAX_WRITES)
            .collect()
            .await;
        let mut is_done = is_all;
        let mut problem = None;
        for result in results {
            match result {
                Ok(Some(change)) => self.facts.apply(change),
                Ok(None) | Err(LeaderError::NotLeader) => is_done = false,
                Err(error) => {
                    is_done = false;
                    problem = Some(error);
                }
            }
        }
        if let Some(error) = problem {
            tracing::warn!(%error, "the health of nodes cannot be written; it is tried again");
        }
        is_done
    }

    /// Those evictions that stand in the objects of their nodes.
    fn ordered(&self, mut evictions: Vec<Eviction>) -> Vec<Eviction> {
        evictions.retain(|eviction| {
            let health = self.facts.healths.get(&eviction.node);
            health.is_some_and(|health| health.evicts(&eviction.device))
        });
        evictions
    }

    fn evict(&self, evictions: Vec<Eviction>) {
        self.evictions.send_if_modified(|known| {
            let is_new = *known != evictions;
            *known = evictions;
            is_new
        });
    }
}

async fn send(
    client: &Client,
    leader: &Leader,
    write: Write,
) -> Result<Option<Change>, LeaderError> {
    let params = PatchParams::apply(HEALTH_CONTROLLER).force();
    match write {
        Write::Orders(NodeOrders { node, version, devices, .. }) => {
            let body = body::<NodeHealth>(&node, &version, "spec", &json!({"devices": devices}));
            let api = api::<NodeHealth>(client);
            let patch = Patch::Apply(&body);
            let written = leader.write("node-health", api.patch(&node, &params, &patch)).await?;
            Ok(written.map(|object| Change::Put(node, facts::health(&object))))
        }
        Write::Status(status) => {
            let PolicyStatus { name, version, status } = *status;
            let body = body::<HealthPolicy>(&name, &version, "status", &json!(status));
            let api = api::<HealthPolicy>(client);
            let patch = Patch::Apply(&body);
            let write = api.patch_status(&name, &params, &patch);
            let written = leader.write("health-policy-status", write).await?;
            Ok(written.map(|object| Change::Put(name, facts::policy(&object))))
        }
    }
}

pub(super) fn api<K: Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

/// A part of an object in server-side apply, for the version on which it was decided.
fn body<K: Resource<DynamicType = ()>>(
    name: &str,
    version: &Version,
    part: &str,
    value: &Value,
) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name, "uid": version.uid, "resourceVersion": version.resource},
        part: value,
    })
}
