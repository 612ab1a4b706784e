//! Remedies of nodes that objects of another program apply: which objects should exist. Pure.
//!
//! An object should exist while a device of the node has the remedy in its record, as the agent began it by the controller's permit. An
//! agent of a node that is not ready begins nothing, so there the permit alone counts. The object has the node's name, so that there
//! never are two.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use octavo_api::health_policy::TemplateSpec;
use octavo_health::policy::Mode;
use octavo_health::remedy::Remedy;
use octavo_health::state::State;

use super::facts::{DeviceFacts, Facts, HealthFacts, NodeFacts};

/// What should exist, by the name of the policy.
pub type Remediations = BTreeMap<String, OfPolicy>;

/// What should exist for a policy with a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfPolicy {
    /// Name of the policy.
    pub name: String,
    /// UID of the policy, which owns the objects.
    pub uid: String,
    /// The template.
    pub template: TemplateSpec,
    /// The number of the attempt by node.
    pub nodes: BTreeMap<String, u64>,
}

/// The objects that should exist.
pub fn remediations(facts: &Facts) -> Remediations {
    let mut all: Remediations = BTreeMap::new();
    for (name, policy) in &facts.policies {
        let Some(template) = policy.template.clone().filter(|_| policy.policy.is_ok()) else {
            continue;
        };
        let (uid, nodes) = (policy.version.uid.clone(), BTreeMap::new());
        all.insert(name.clone(), OfPolicy { name: name.clone(), uid, template, nodes });
    }
    if all.is_empty() {
        return all;
    }
    for (name, health) in &facts.healths {
        let Some(node) = facts.nodes.get(name) else { continue };
        let Some((policy, known)) = facts.policies_of(node).next() else { continue };
        let acts = known.policy.as_ref().is_ok_and(|policy| policy.mode == Mode::Act);
        let Some(of_policy) = all.get_mut(policy).filter(|_| acts) else { continue };
        let attempts = health
            .devices
            .iter()
            .filter_map(|device| attempt(device, health, node, &of_policy.template.remedies));
        if let Some(attempt) = attempts.max() {
            of_policy.nodes.insert(name.clone(), attempt);
        }
    }
    all
}

/// The attempt of a device for which an object is to exist.
fn attempt(
    device: &DeviceFacts,
    health: &HealthFacts,
    node: &NodeFacts,
    remedies: &[Remedy],
) -> Option<u64> {
    let track = &device.record.as_ref().ok()?.track;
    match track.state {
        State::Resetting { remedy, .. } => remedies.contains(&remedy).then_some(track.attempt.0),
        state => {
            node.not_ready_since?;
            let orders = health.orders.iter().find(|orders| orders.uuid == device.uuid)?;
            let permit =
                orders.permit.as_ref().filter(|permit| remedies.contains(&permit.remedy))?;
            let is_of_next = u64::try_from(permit.after_attempt) == Ok(track.attempt.0);
            (is_of_next && state.needs() == Some(permit.remedy)).then_some(track.attempt.0 + 1)
        }
    }
}
