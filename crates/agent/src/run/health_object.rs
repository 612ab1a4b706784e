//! The node's `NodeHealth`: its status is what the agent found, its spec what persons and the controller want.
//!
//! ```text
//! HealthPolicies, labels of the node --.
//! spec: orders, permits ---------------+--> Orders --> the driver's thread
//! claims that hold GPUs ---------------'                   |
//! status <---------------- devices of the snapshot <-------'
//!   '--- reports <-- CheckpointHooks <-- requests of the spec
//! ```
//!
//! The active agent alone does this. Without the custom resources there are no orders, and nothing is written.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use octavo_api::Condition;
use octavo_api::checkpoint::CheckpointReport;
use octavo_api::health_policy::HealthPolicy;
use octavo_api::names::{AGENT_CONTROLLER, CONDITION_HEALTHY, CONDITION_POLICY_ACCEPTED};
use octavo_api::node_health::{DeviceHealth, NodeHealth, NodeHealthStatus, is_in_service};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::node::NodeAgent;
use super::node_settings::NodeIdentity;
use super::serving::ActivePeriod;
use crate::checkpoint_hooks::{CheckpointHooks, HookPaths};
use crate::claims::{Claims, boot_id};
use crate::config::NodeConfig;
use crate::health::{Chosen, Orders, Policies};
use crate::mig_layout::ClosedParts;
use crate::monitor::{Snapshot, Waker};

/// Shortest time between two writes of the status.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// Time after which a status is written that differs in `observedGeneration` alone: another change is likely to come, and no program waits for it.
const GENERATION_INTERVAL: Duration = Duration::from_secs(5);
/// Time after which a refused write is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of looks at the claims of GPUs while one is out of service, and while a claim holds it: its remedy or test waits for that end.
const HOLDERS_INTERVAL: Duration = Duration::from_secs(2);
const HELD_INTERVAL: Duration = Duration::from_millis(250);

/// Follows the objects of a node's health.
pub(super) struct HealthObject {
    client: Client,
    config: Arc<NodeConfig>,
    claims: Claims,
    waker: Waker,
    snapshots: watch::Receiver<Snapshot>,
    identity: watch::Receiver<Option<NodeIdentity>>,
    boot_id: Option<String>,
    policies: Policies,
    object: Option<NodeHealth>,
    /// Pods that are to save their work.
    hooks: CheckpointHooks,
    reports: watch::Receiver<BTreeMap<String, CheckpointReport>>,
    /// What was last sent to the driver's thread.
    sent: Option<Orders>,
    /// What was last written.
    written: Option<NodeHealthStatus>,
}

impl HealthObject {
    /// The objects of an agent's node.
    pub(super) fn new(
        agent: &NodeAgent,
        client: Client,
        claims: Claims,
        period: &ActivePeriod,
    ) -> Self {
        let mut snapshots = agent.snapshots.clone();
        snapshots.mark_changed();
        let mut identity = agent.identity.subscribe();
        identity.mark_changed();
        let boot_id = boot_id(&agent.config.paths).ok();
        let hooks = CheckpointHooks::new(
            HookPaths::of(&agent.config),
            boot_id.clone().unwrap_or_default(),
            Arc::clone(&agent.shared.metrics),
            period.tasks.clone(),
        );
        Self {
            client,
            config: Arc::clone(&agent.config),
            claims,
            waker: agent.waker.clone(),
            snapshots,
            identity,
            boot_id,
            policies: Policies::default(),
            object: None,
            reports: hooks.reports(),
            hooks,
            sent: None,
            written: None,
        }
    }

    /// Follows them until the node passes to another agent.
    pub(super) async fn follow(mut self) {
        let kind = ApiResource::erase::<HealthPolicy>(&());
        let policies: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        // Requests of a later controller must not hide the others.
        let kind = ApiResource::erase::<NodeHealth>(&());
        let objects: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let own = format!("metadata.name={}", self.config.node_name);
        let own = watcher::Config::default().fields(&own);
        let mut policies =
            pin!(watcher::watcher(policies, watcher::Config::default()).default_backoff());
        let mut objects = pin!(watcher::watcher(objects, own).default_backoff());
        let mut relisted = Policies::default();
        let mut relisted_object = None;
        let mut is_listed = (false, false);
        let mut has_objects = true;
        let mut write_at: Option<Instant> = None;
        let mut generation_at: Option<Instant> = None;
        loop {
            let look_at = self.holders_interval().map(|interval| Instant::now() + interval);
            let wake_at = [write_at.or(generation_at), look_at].into_iter().flatten().min();
            tokio::select! {
                changed = self.snapshots.changed() => if changed.is_err() { return },
                changed = self.identity.changed() => if changed.is_err() { return },
                changed = self.reports.changed() => if changed.is_err() { return },
                Some(event) = policies.next() => match event {
                    Ok(Event::Init) => relisted = Policies::default(),
                    Ok(Event::InitApply(policy)) => relisted.insert(&policy),
                    Ok(Event::InitDone) => {
                        self.policies = std::mem::take(&mut relisted);
                        is_listed.0 = true;
                    }
                    Ok(Event::Apply(policy)) => self.policies.insert(&policy),
                    Ok(Event::Delete(policy)) => self.policies.remove(&policy.name_any()),
                    Err(error) => {
                        is_listed.0 |= is_absent(&error);
                        tracing::debug!(%error, "policies of health cannot be read");
                    }
                },
                Some(event) = objects.next() => match event {
                    Ok(Event::Apply(object)) => self.take(Some(object)),
                    Ok(Event::InitApply(object)) => relisted_object = Some(object),
                    // A fence stays, whatever becomes of the object.
                    Ok(Event::Delete(_)) => {
                        self.written = None;
                        self.take(None);
                    }
                    Ok(Event::InitDone) => {
                        self.take(relisted_object.take());
                        (is_listed.1, has_objects) = (true, true);
                    }
                    // What was wanted stays until the list is there.
                    Ok(Event::Init) => relisted_object = None,
                    Err(error) => {
                        is_listed.1 |= is_absent(&error);
                        has_objects &= !is_absent(&error);
                        tracing::debug!(%error, "the node's health cannot be read");
                    }
                },
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
            }
            // Without the node's labels its policy is not known.
            if is_listed != (true, true) || self.identity.borrow().is_none() {
                continue;
            }
            let chosen = self.send_orders();
            let is_due = write_at.is_none_or(|at| at <= Instant::now());
            if !has_objects {
                generation_at = None;
            }
            if !is_due || !has_objects {
                continue;
            }
            let has_waited = generation_at.is_some_and(|at| at <= Instant::now());
            let written = self.write(&chosen, has_waited).await;
            if !matches!(written, Ok(Written::GenerationLater)) {
                generation_at = None;
            }
            write_at = match written {
                Ok(Written::Nothing) => None,
                Ok(Written::Status) => Some(Instant::now() + WRITE_INTERVAL),
                Ok(Written::GenerationLater) => {
                    generation_at.get_or_insert(Instant::now() + GENERATION_INTERVAL);
                    None
                }
                Err(error) => {
                    tracing::warn!(node = %self.config.node_name, %error, "the node's health is not written yet");
                    Some(Instant::now() + RETRY_INTERVAL)
                }
            };
        }
    }

    /// Takes the node's object, or that there is none.
    fn take(&mut self, object: Option<DynamicObject>) {
        match object.map(read::read).transpose() {
            Ok(read) => {
                let (object, requests) = read.unzip();
                self.object = object;
                let requests: Vec<Value> = requests.unwrap_or_default();
                self.hooks.set_requests(&requests);
            }
            Err(error) => {
                tracing::warn!(node = %self.config.node_name, %error, "the node's health cannot be read; what was last wanted holds");
            }
        }
    }

    /// How often it is looked who holds the GPUs that are out of service; `None` without such a GPU.
    fn holders_interval(&self) -> Option<Duration> {
        let snapshot = self.snapshots.borrow();
        let mut out = snapshot.devices.iter().filter(|it| !is_in_service(&it.state)).peekable();
        out.peek()?;
        let held = self.sent.as_ref().map(|orders| &orders.held);
        let is_held = |device: &DeviceHealth| held.is_some_and(|it| it.contains(&device.uuid));
        Some(if out.any(is_held) { HELD_INTERVAL } else { HOLDERS_INTERVAL })
    }

    /// Sends what is wanted to the driver's thread, if it has changed.
    fn send_orders(&mut self) -> Chosen {
        let labels = self.identity.borrow_and_update().clone().unwrap_or_default().labels;
        let chosen = self.policies.choose(&labels);
        let held = self.held();
        let orders = Orders::of(chosen.policy.clone(), self.object.as_ref(), held);
        let orders = Orders { stops: chosen.stops, ..orders };
        if self.sent.as_ref() != Some(&orders) {
            self.waker.set_orders(orders.clone());
            self.sent = Some(orders);
        }
        chosen
    }

    /// The GPUs that claims hold.
    fn held(&mut self) -> BTreeSet<String> {
        let snapshot = self.snapshots.borrow_and_update();
        let is_held = |uuid: &String| {
            let mut parts = ClosedParts::default();
            parts.add_gpu(uuid);
            !self.claims.holders(&parts).is_empty()
        };
        snapshot.devices.iter().map(|device| device.uuid.clone()).filter(is_held).collect()
    }

    /// Writes the status if it has changed, also if only the generation has and that `has_waited`. Makes the object first.
    async fn write(&mut self, chosen: &Chosen, has_waited: bool) -> Result<Written, kube::Error> {
        let Some((identity, devices)) = self.identity.borrow().clone().zip(self.devices()) else {
            return Ok(Written::Nothing);
        };
        let status = self.status(chosen, &devices);
        if let Some(written) = self.written.as_ref().filter(|_| self.object.is_some()) {
            if *written == status {
                return Ok(Written::Nothing);
            }
            let observed_generation = written.observed_generation;
            let is_same = *written == NodeHealthStatus { observed_generation, ..status.clone() };
            if is_same && !has_waited {
                return Ok(Written::GenerationLater);
            }
        }
        let api: Api<NodeHealth> = Api::all(self.client.clone());
        let name = &self.config.node_name;
        if self.object.is_none() {
            let owner =
                json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": identity.uid});
            let owner = serde_json::from_value(owner).map_err(kube::Error::SerdeError)?;
            let metadata = ObjectMeta {
                name: Some(name.clone()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            };
            let new = NodeHealth { metadata, ..NodeHealth::default() };
            match api.create(&PostParams::default(), &new).await {
                Ok(object) => self.object = Some(object),
                // The watch is behind.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error),
            }
        }
        let patch = json!({
            "apiVersion": "octavo.dev/v1alpha1",
            "kind": "NodeHealth",
            "metadata": {"name": name},
            "status": status,
        });
        let params = PatchParams::apply(AGENT_CONTROLLER).force();
        api.patch_status(name, &params, &Patch::Apply(&patch)).await?;
        self.written = Some(status);
        Ok(Written::Status)
    }

    /// The GPUs that the status has; `None` as long as none are known. Before the driver was open, those of the record, or those that an
    /// earlier agent wrote: reports of checkpoints do not wait for a driver.
    fn devices(&self) -> Option<Arc<[DeviceHealth]>> {
        let snapshot = self.snapshots.borrow();
        if snapshot.inventory.is_some() || !snapshot.devices.is_empty() {
            return Some(Arc::clone(&snapshot.devices));
        }
        let status = self.object.as_ref()?.status.as_ref()?;
        Some(status.devices.clone().into())
    }

    fn status(&self, chosen: &Chosen, devices: &[DeviceHealth]) -> NodeHealthStatus {
        let out: Vec<&str> = devices
            .iter()
            .filter(|device| !is_in_service(&device.state))
            .map(|device| device.name.as_str())
            .collect();
        // The watch may be behind the last write.
        let old = self.object.as_ref().and_then(|object| object.status.as_ref());
        let old = self.written.as_ref().or(old);
        let condition = |type_: &str, is_true: bool, reason: &str, message: String| {
            let status = if is_true { "True" } else { "False" };
            let known = old.into_iter().flat_map(|old| &old.conditions);
            let same =
                known.into_iter().find(|known| known.type_ == type_ && known.status == status);
            Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                last_transition_time: same
                    .map_or_else(now, |known| known.last_transition_time.clone()),
                observed_generation: None,
            }
        };
        let healthy = if out.is_empty() {
            condition(CONDITION_HEALTHY, true, "AllInService", String::new())
        } else {
            let message = format!("out of service: {}", out.join(", "));
            condition(CONDITION_HEALTHY, false, "DevicesOutOfService", message)
        };
        let accepted = match (&chosen.refused, &chosen.in_force) {
            (Some(error), _) => {
                condition(CONDITION_POLICY_ACCEPTED, false, "InvalidPolicy", error.clone())
            }
            (None, Some(_)) => {
                condition(CONDITION_POLICY_ACCEPTED, true, "PolicyInForce", String::new())
            }
            (None, None) => {
                let message = "no HealthPolicy selects the node: devices are fenced and tested, and remedies are a person's";
                condition(CONDITION_POLICY_ACCEPTED, true, "NoPolicy", message.to_owned())
            }
        };
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        NodeHealthStatus {
            observed_generation: self.object.as_ref().and_then(|object| object.metadata.generation),
            boot_id: self.boot_id.clone(),
            policy: chosen.in_force.clone(),
            in_service: count(devices.len() - out.len()),
            total: count(devices.len()),
            devices: devices.to_vec(),
            checkpoints: self.reports.borrow().values().cloned().collect(),
            conditions: vec![healthy, accepted],
        }
    }
}

/// Whether the API server has no such objects, or none for this agent: the chart may leave them out. Then there are no orders.
fn is_absent(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if matches!(status.code, 403 | 404))
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// Nothing: it has not changed.
    Nothing,
    /// Nothing yet: the generation alone is another.
    GenerationLater,
    /// The status.
    Status,
}

fn now() -> String {
    Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string()
}
