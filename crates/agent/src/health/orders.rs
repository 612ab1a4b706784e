//! What the API server has for the agent of a node: policy, orders of persons, permits of the controller.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use octavo_api::health_policy::{HealthPolicySpec, HealthPolicyStatus};
use octavo_api::node_health::{NodeHealth, PolicyInForce};
use octavo_health::policy::Policy;
use octavo_health::remedy::Remedy;
use octavo_health::signal::{Attempt, Word};
use octavo_health::xid;

/// What is wanted of a node's agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// The policy by which it decides.
    pub(crate) policy: Policy,
    /// The last order about each GPU, by UUID: its number, and the word.
    pub(crate) words: BTreeMap<String, (i64, Word)>,
    /// Remedies that the controller permits, by UUID.
    pub(crate) permits: BTreeMap<String, Permit>,
    /// UUIDs of GPUs that claims or pods of a device plugin hold.
    pub(crate) held: BTreeSet<String>,
    /// Whether permits come.
    pub(crate) stops: Stops,
}

/// What keeps the controller from permitting remedies, by the status of the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stops {
    /// Until when the circuit breaker is open, in seconds of Unix time.
    open_until: u64,
    /// Whether as many remedies run as the budget allows.
    is_budget_used: bool,
}

impl Stops {
    fn of(status: &HealthPolicyStatus, policy: &Policy) -> Self {
        let number = |number: i64| u64::try_from(number).unwrap_or_default();
        let until = status.breaker_open_until.as_ref().and_then(|until| until.parse().ok());
        let open_until = until.map_or(0, |until: jiff::Timestamp| number(until.as_second()));
        let nodes = usize::try_from(status.nodes).unwrap_or_default();
        let is_budget_used = nodes > 0 && number(status.remedies) >= policy.budget.remedies(nodes);
        Self { open_until, is_budget_used }
    }

    /// Whether no permit comes now.
    pub(crate) fn is_stopped(self, now: u64) -> bool {
        self.is_budget_used || now < self.open_until
    }
}

/// A remedy that the controller permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    /// The device's last attempt. A later one ends the permit.
    pub(crate) after: Attempt,
    /// The remedy.
    pub(crate) remedy: Remedy,
    /// Since when, in seconds of Unix time.
    pub(crate) since: u64,
}

/// The policy of a node, and what is to be said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The values by which the agent decides. Without a policy devices are fenced and tested, and nothing else is done.
    pub(crate) policy: Policy,
    /// The policy in force.
    pub(crate) in_force: Option<PolicyInForce>,
    /// Why the policy of the node cannot be used.
    pub(crate) refused: Option<String>,
    /// What keeps the controller from permitting remedies.
    pub(crate) stops: Stops,
}

/// The policies of the cluster, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies(BTreeMap<String, WrittenPolicy>);

/// A policy as it was read.
#[derive(Clone, Debug)]
struct WrittenPolicy {
    generation: i64,
    selector: BTreeMap<String, String>,
    /// Its values, or why they cannot be used.
    values: Result<Policy, String>,
    /// What the controller says of it, if that can be read.
    status: HealthPolicyStatus,
}

impl Orders {
    /// Whether an XID says something of the device, and not of the application alone.
    pub(crate) fn concerns_device(&self, number: u32) -> bool {
        xid::class_by(number, &self.policy.xid_classes).concerns_device()
    }

    /// What a node's object wants, with a policy.
    pub(crate) fn of(policy: Policy, object: Option<&NodeHealth>, held: BTreeSet<String>) -> Self {
        let devices = object.iter().flat_map(|object| &object.spec.devices);
        // The controller alone evicts, within the budget of all nodes. A taint with the effect NoExecute would have Kubernetes delete
        // pods at once, without regard to their disruption budgets.
        let policy = Policy { evict: false, ..policy };
        let mut orders = Self { policy, held, ..Self::default() };
        for device in devices {
            if let Some(order) = &device.order {
                orders.words.insert(device.uuid.clone(), (order.number, order.word.into()));
            }
            if let Some(permit) = &device.permit {
                let after = Attempt(u64::try_from(permit.after_attempt).unwrap_or(u64::MAX));
                let since = permit.since.parse().map_or(0, jiff::Timestamp::as_second);
                let since = u64::try_from(since).unwrap_or_default();
                let permit = Permit { after, remedy: permit.remedy, since };
                orders.permits.insert(device.uuid.clone(), permit);
            }
        }
        orders
    }
}

impl Policies {
    /// Takes a policy as the API server has it. One of a later version may have fields that this agent does not know.
    pub(crate) fn insert(&mut self, object: &DynamicObject) {
        let spec = object.data.get("spec").cloned().unwrap_or_default();
        let status = object.data.get("status").cloned().map(serde_json::from_value);
        let selector = spec.get("nodeSelector").cloned().unwrap_or_default();
        let found = WrittenPolicy {
            generation: object.metadata.generation.unwrap_or_default(),
            selector: serde_json::from_value(selector).unwrap_or_default(),
            values: serde_json::from_value::<HealthPolicySpec>(spec)
                .map_err(|error| error.to_string())
                .and_then(|spec| spec.check().map_err(|error| error.to_string())),
            status: status.and_then(Result::ok).unwrap_or_default(),
        };
        self.0.insert(object.name_any(), found);
    }

    /// Removes a policy.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The first policy by name that selects a node with some labels. One that is not valid is refused, and no other takes its place:
    /// a policy that an administrator did not choose might disturb more.
    pub(crate) fn choose(&self, labels: &BTreeMap<String, String>) -> Chosen {
        let selects = |(_, policy): &(&String, &WrittenPolicy)| {
            !policy.selector.is_empty()
                && policy.selector.iter().all(|(name, value)| labels.get(name) == Some(value))
        };
        let Some((name, found)) = self.0.iter().find(selects) else { return Chosen::default() };
        match &found.values {
            Ok(policy) => {
                let (name, generation) = (name.clone(), found.generation);
                let in_force = PolicyInForce { name, generation, mode: policy.mode };
                let stops = Stops::of(&found.status, policy);
                Chosen { policy: policy.clone(), in_force: Some(in_force), refused: None, stops }
            }
            Err(error) => {
                let refused = Some(format!("HealthPolicy {name}: {error}"));
                Chosen { refused, ..Chosen::default() }
            }
        }
    }
}

#[cfg(test)]
mod tests;
