//! What the API server has for the agent of a node: policy, orders of persons, permits of the controller.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::health_policy::HealthPolicy;
use octavo_api::node_health::{NodeHealth, PolicyInForce};
use octavo_health::policy::Policy;
use octavo_health::remedy::Remedy;
use octavo_health::signal::{Attempt, Word};

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
}

/// A remedy that the controller permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    /// The device's last attempt. A later one ends the permit.
    pub(crate) after: Attempt,
    /// The remedy.
    pub(crate) remedy: Remedy,
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
}

impl Orders {
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
                let permit = Permit { after, remedy: permit.remedy };
                orders.permits.insert(device.uuid.clone(), permit);
            }
        }
        orders
    }
}

impl Chosen {
    /// The first policy by name that selects a node with some labels. One that is not valid is refused, and no other takes its place:
    /// a policy that an administrator did not choose might disturb more.
    pub(crate) fn of<'a>(
        policies: impl IntoIterator<Item = &'a HealthPolicy>,
        labels: &BTreeMap<String, String>,
    ) -> Self {
        let selects = |policy: &&HealthPolicy| {
            let selector = &policy.spec.node_selector;
            !selector.is_empty()
                && selector.iter().all(|(name, value)| labels.get(name) == Some(value))
        };
        let name = |policy: &HealthPolicy| policy.metadata.name.clone().unwrap_or_default();
        let Some(found) = policies.into_iter().filter(selects).min_by_key(|policy| name(policy))
        else {
            return Self::default();
        };
        match found.spec.check() {
            Ok(policy) => {
                let generation = found.metadata.generation.unwrap_or_default();
                let in_force = PolicyInForce { name: name(found), generation, mode: policy.mode };
                Self { policy, in_force: Some(in_force), refused: None }
            }
            Err(error) => {
                let refused = format!("HealthPolicy {}: {error}", name(found));
                Self { refused: Some(refused), ..Self::default() }
            }
        }
    }
}

#[cfg(test)]
mod tests;
