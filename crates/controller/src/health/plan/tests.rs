//! Plans of a cluster in memory: its orders are carried out, and its agents act.

mod clocks;
mod evictions;
mod permits;
mod records;
mod templates;

use std::collections::BTreeMap;

use octavo_api::health_policy::{HealthPolicySpec, HealthPolicyStatus};
use octavo_health::decide::Device as Record;
use octavo_health::policy::{Mode, Policy};
use octavo_health::reason::Reason;
use octavo_health::remedy::Remedy;
use octavo_health::signal::Attempt;
use octavo_health::state::{State, Track};

use super::{Eviction, MaintenancePlan, Memory, Plan, Urgency, plan};
use crate::health::facts::{
    Change, DeviceFacts, Facts, HealthFacts, Kind, NodeFacts, OrderFacts, PolicyFacts, Version,
    seconds,
};

/// An hour, in seconds.
const HOUR: u64 = 3_600;

/// A cluster.
struct Bench {
    facts: Facts,
    memory: Memory,
    now: u64,
}

/// A node of a test by its number.
fn node(number: usize) -> String {
    format!("n{number:02}")
}

fn selector() -> BTreeMap<String, String> {
    BTreeMap::from([("pool".to_owned(), "h100".to_owned())])
}

fn policy_facts(policy: Result<Policy, String>) -> PolicyFacts {
    PolicyFacts {
        version: Version { uid: "p".to_owned(), resource: "1".to_owned() },
        generation: Some(1),
        selector: selector(),
        policy,
        template: None,
        status: HealthPolicyStatus::default(),
    }
}

/// A policy for all nodes.
fn acting() -> Policy {
    let spec = HealthPolicySpec {
        node_selector: selector(),
        mode: Mode::Act,
        evict: true,
        ..HealthPolicySpec::default()
    };
    spec.check().unwrap()
}

fn fenced(needs: Remedy) -> State {
    State::Fenced { reason: Reason::Xid(48), needs }
}

impl Bench {
    /// Nodes with GPUs, all healthy and idle. Each node has a rack of its own.
    fn new(nodes: usize, gpus: usize) -> Self {
        let mut facts = Facts::default();
        facts.policies.insert("a".to_owned(), policy_facts(Ok(acting())));
        for number in 0..nodes {
            let labels = [("pool".to_owned(), "h100".to_owned())];
            let labels = crate::health::facts::labels(&labels);
            facts.nodes.insert(node(number), NodeFacts { labels, ..NodeFacts::default() });
            let device = |gpu: usize| DeviceFacts {
                uuid: format!("GPU-{number}-{gpu}").into(),
                name: format!("gpu-{gpu}"),
                record: Ok(Record::default()),
                island: 0,
                resets_alone: true,
                is_occupied: false,
            };
            let version = Version { uid: node(number), resource: "1".to_owned() };
            let devices = (0..gpus).map(device).collect();
            let health = HealthFacts { version, devices, ..HealthFacts::default() };
            facts.healths.insert(node(number), health);
        }
        facts.apply(Change::End(Kind::Maintenance));
        // A fault of long ago is no storm.
        Self { facts, memory: Memory::default(), now: 1_000 * HOUR }
    }

    fn policy(&mut self, change: impl FnOnce(&mut Policy)) {
        change(self.facts.policies.get_mut("a").unwrap().policy.as_mut().unwrap());
    }

    fn health(&mut self, number: usize) -> &mut HealthFacts {
        self.facts.healths.get_mut(&node(number)).unwrap()
    }

    fn device(&mut self, number: usize, gpu: usize) -> &mut DeviceFacts {
        &mut self.health(number).devices[gpu]
    }

    fn track(&mut self, number: usize, gpu: usize) -> &mut Track {
        &mut self.device(number, gpu).record.as_mut().unwrap().track
    }

    /// The agent reports a state since some seconds.
    fn report(&mut self, number: usize, gpu: usize, state: State, ago: u64) {
        let since = self.now - ago;
        let track = self.track(number, gpu);
        (track.state, track.since) = (state, since);
    }

    /// The agent begins the remedy that is allowed.
    fn begin(&mut self, number: usize, gpu: usize) {
        let uuid = self.device(number, gpu).uuid.clone();
        let orders = self.health(number).orders.iter().find(|orders| orders.uuid == uuid);
        let permit = orders.and_then(|orders| orders.permit.clone()).unwrap();
        let attempt = Attempt(u64::try_from(permit.after_attempt).unwrap() + 1);
        let state = State::Resetting { reason: Reason::Xid(48), remedy: permit.remedy };
        self.report(number, gpu, state, 0);
        self.track(number, gpu).attempt = attempt;
    }

    /// Plans, and carries the plan out.
    fn round(&mut self) -> Plan {
        let plan = plan(&self.facts, &mut self.memory, None, self.now);
        for orders in &plan.orders {
            let known = self.facts.healths.get_mut(&orders.node).unwrap();
            assert_eq!(known.version, orders.version);
            known.orders = orders
                .devices
                .iter()
                .map(|orders| OrderFacts {
                    uuid: orders.uuid.as_str().into(),
                    permit: orders.permit.clone(),
                    evicts_since: orders.evicts_since.as_deref().and_then(seconds),
                    copy: orders.history.clone().map(|copy| serde_json::from_value(copy).unwrap()),
                })
                .collect();
        }
        for status in &plan.statuses {
            let known = self.facts.policies.get_mut(&status.name).unwrap();
            known.status = status.status.clone();
        }
        plan
    }

    /// Another controller takes over.
    fn restart(&mut self) {
        self.memory = Memory::default();
    }

    /// The remedies that are allowed, as `node/gpu remedy`.
    fn permits(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, health) in &self.facts.healths {
            for orders in &health.orders {
                let device = health.devices.iter().find(|device| device.uuid == orders.uuid);
                if let (Some(device), Some(permit)) = (device, &orders.permit) {
                    found.push(format!("{name}/{} {}", device.name, permit.remedy.name()));
                }
            }
        }
        found
    }

    fn condition(&self, policy: &str, type_: &str) -> (String, String, String) {
        let status = &self.facts.policies[policy].status;
        let found = status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
        (found.status.clone(), found.reason.clone(), found.message.clone())
    }
}
