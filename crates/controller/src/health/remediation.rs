//! Remedies of nodes that objects of another program apply: which objects should exist. Pure.
//!
//! An object should exist while a device of the node has the remedy in its record, as the agent began it by the controller's permit. An
//! agent of a node that is not ready begins nothing, so there the permit alone counts, for the time of a remedy. The object has the node's
//! name, so that there never are two.
//!
//! The status of a policy names the template of which objects may exist before one is made. So they are found and deleted when the policy
//! has another template, none, or is not valid.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use octavo_api::health_policy::TemplateSpec;
use octavo_api::node_health::Permit;
use octavo_health::policy::{Mode, Policy};
use octavo_health::remedy::Remedy;
use octavo_health::state::{Event, State, Track, step};

use super::facts::{DeviceFacts, Facts, seconds};

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
    /// Whether objects are made of it. If not, those that exist are deleted.
    pub is_in_use: bool,
    /// The number of the attempt by node.
    pub nodes: BTreeMap<String, u64>,
    /// The same of nodes that are ready and whose agents have not reported yet. An object that exists there stays: a node that is ready
    /// for a moment does not get its remedy twice.
    pub stays: BTreeMap<String, u64>,
}

/// The objects that should exist at a time, in seconds since 1970.
pub fn remediations(facts: &Facts, now: u64) -> Remediations {
    let mut all: Remediations = BTreeMap::new();
    for (name, policy) in &facts.policies {
        let Some(noted) = &policy.status.template else { continue };
        let usable = policy.usable_template().filter(|it| it.makes_objects_of(noted));
        let of_policy = OfPolicy {
            name: name.clone(),
            uid: policy.version.uid.clone(),
            template: usable.unwrap_or(noted).clone(),
            is_in_use: usable.is_some(),
            nodes: BTreeMap::new(),
            stays: BTreeMap::new(),
        };
        all.insert(name.clone(), of_policy);
    }
    if all.is_empty() {
        return all;
    }
    for (name, health) in &facts.healths {
        let Some(node) = facts.nodes.get(name) else { continue };
        let Some((policy, known)) = facts.policies_of(node).next() else { continue };
        let acting = known.policy.as_ref().ok().filter(|policy| policy.mode == Mode::Act);
        let of_policy = all.get_mut(policy).filter(|of_policy| of_policy.is_in_use);
        let (Some(policy), Some(of_policy)) = (acting, of_policy) else { continue };
        let remedies = &of_policy.template.remedies;
        let tracks = health.devices.iter().filter_map(|device| {
            let track = &device.record.as_ref().ok()?.track;
            // An agent that does not report cannot say that the time of a remedy is over.
            let is_ready = node.not_ready_since.is_none();
            let passed = || step(track, &policy.rules, Event::Time, now);
            Some((device, if is_ready { *track } else { passed() }))
        });
        let tracks: Vec<(&DeviceFacts, Track)> = tracks.collect();
        let begun = tracks.iter().filter_map(|(_, track)| begun(track, remedies)).max();
        let permitted = tracks.iter().filter_map(|(device, track)| {
            let orders = health.orders.iter().find(|orders| orders.uuid == device.uuid)?;
            let permit = orders.permit.as_ref().filter(|it| remedies.contains(&it.remedy))?;
            permitted_attempt(permit, track, policy, now)
        });
        let permitted = permitted.max();
        // One that runs is not disturbed by what comes next.
        if let Some(attempt) = begun.or(permitted.filter(|_| node.not_ready_since.is_some())) {
            of_policy.nodes.insert(name.clone(), attempt);
        } else if let Some(attempt) = permitted {
            of_policy.stays.insert(name.clone(), attempt);
        }
    }
    all
}

/// The attempt of a device whose remedy runs.
fn begun(track: &Track, remedies: &[Remedy]) -> Option<u64> {
    match track.state {
        State::Resetting { remedy, .. } => remedies.contains(&remedy).then_some(track.attempt.0),
        _ => None,
    }
}

/// The attempt that a permit allows on a node whose agent cannot begin it. Each remedy after one that did not bring the node back is
/// another attempt.
fn permitted_attempt(permit: &Permit, track: &Track, policy: &Policy, now: u64) -> Option<u64> {
    let needs = track.state.needs()?;
    let is_of_next = u64::try_from(permit.after_attempt) == Ok(track.attempt.0);
    let since = seconds(&permit.since).unwrap_or_default();
    if !is_of_next || needs > permit.remedy || now.saturating_sub(since) >= policy.rules.limit {
        return None;
    }
    let ladder = policy.rules.ladder.remedies().iter();
    let failed = ladder.filter(|remedy| (needs..permit.remedy).contains(remedy)).count();
    Some(track.attempt.0 + 1 + u64::try_from(failed).unwrap_or_default())
}
