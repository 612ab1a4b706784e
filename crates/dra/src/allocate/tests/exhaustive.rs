//! A brute-force search: it enumerates all choices in order and checks each as a whole.

use std::collections::{BTreeMap, BTreeSet};

use super::fixtures::World;
use super::random::TOTAL;
use crate::*;

/// A device chosen for an alternative.
#[derive(Clone)]
pub(super) struct Given<'w> {
    pub(super) claim: usize,
    pub(super) request: String,
    pub(super) ask: &'w DeviceRequest,
    pub(super) device: &'w Device,
}

/// The amount for a memory request by the policy: at least 1 and odd, or as requested.
fn memory(given: &Given<'_>) -> Option<i128> {
    let capacity = given.device.capacity.get("memory")?;
    let asked = given.ask.capacity.get("memory").map(|asked| asked.value());
    Some(match (&capacity.policy, asked) {
        (None, None) => capacity.value.value(),
        (None, Some(asked)) => asked,
        (Some(_), None) => 1,
        (Some(_), Some(asked)) => asked + 1 - asked % 2,
    })
}

/// Whether the chosen devices are valid together, beside the allocated ones.
fn is_valid(world: &World, claims: &[&Claim], all: &[Given<'_>]) -> bool {
    let held = |device: &str| {
        let results = world.claims.iter().flat_map(|claim| &claim.allocation);
        let results = results.flat_map(|allocation| &allocation.results);
        results.filter(|one| !one.admin_access && one.device == device).collect::<Vec<_>>()
    };
    let mut drawn: i128 = 0;
    for device in &world.slices[1].devices {
        if !held(&device.name).is_empty() {
            drawn += draws(device);
        }
    }
    let mut whole: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    let mut parts: BTreeMap<&str, i128> = BTreeMap::new();
    for given in all {
        let device = given.device;
        let name = device.name.as_str();
        let held = held(name);
        let takers = whole.entry(name).or_default();
        let is_taken = if given.ask.admin_access {
            takers.contains(&given.claim)
        } else {
            !takers.is_empty() || held.iter().any(|one| one.share_id.is_none())
        };
        let is_wanted = given.ask.selectors.iter().all(|selector| {
            let AttributeValue::String(size) = &device.attributes["size"] else { return false };
            selector.ends_with(&format!("\"{size}\""))
        });
        let is_tolerated = device.taints.is_empty() || !given.ask.tolerations.is_empty();
        let has_names = given.ask.capacity.keys().all(|name| device.capacity.contains_key(name));
        if is_taken || !is_wanted || !is_tolerated || !has_names {
            return false;
        }
        let held_memory: i128 =
            held.iter().flat_map(|one| one.consumed.values()).map(|one| one.value()).sum();
        let has_drawn_counters = held.iter().any(|one| !one.consumed.is_empty());
        if device.allow_multiple {
            if !parts.contains_key(name) && !has_drawn_counters {
                drawn += draws(device);
            }
        } else {
            takers.insert(given.claim);
            drawn += draws(device);
        }
        let part = parts.entry(name).or_default();
        if let Some(memory) = memory(given) {
            let before = if device.allow_multiple { *part } else { 0 };
            let most = device.capacity["memory"].value.value();
            let is_outside = device.capacity["memory"].policy.is_some() && memory > most;
            if is_outside || held_memory + before + memory > most {
                return false;
            }
            *part += memory;
        }
        if draws(device) > 0 && drawn > TOTAL.into() {
            return false;
        }
    }
    claims.iter().enumerate().all(|(index, claim)| holds(claim, index, all))
}

fn draws(device: &Device) -> i128 {
    let amounts = device.consumes.iter().flat_map(|one| one.counters.values());
    amounts.map(|amount| amount.value()).sum()
}

/// Whether the constraints of a claim hold.
fn holds(claim: &Claim, index: usize, all: &[Given<'_>]) -> bool {
    claim.constraints.iter().all(|constraint| {
        let covered = all.iter().filter(|given| {
            let name = given.request.split('/').next().unwrap().to_owned();
            let names = &constraint.requests;
            given.claim == index && (names.is_empty() || names.contains(&name))
        });
        let racks: Vec<_> = covered.map(|given| given.device.attributes.get("rack")).collect();
        let different: BTreeSet<_> = racks.iter().collect();
        let is_held = match constraint.rule {
            Rule::Match(_) => different.len() <= 1,
            Rule::Distinct(_) => different.len() == racks.len(),
        };
        is_held && racks.iter().all(Option::is_some)
    })
}

/// The first valid choice, in order.
pub(super) fn first_valid<'w>(world: &'w World, claims: &'w [&'w Claim]) -> Option<Vec<Given<'w>>> {
    let slots: Vec<(usize, &Request)> = claims
        .iter()
        .enumerate()
        .flat_map(|(index, claim)| claim.requests.iter().map(move |request| (index, request)))
        .collect();
    let devices: Vec<&Device> = world.slices.iter().flat_map(|slice| &slice.devices).collect();
    fill(world, claims, &slots, &devices, &mut Vec::new())
}

fn fill<'w>(
    world: &World,
    claims: &[&Claim],
    slots: &[(usize, &'w Request)],
    devices: &[&'w Device],
    before: &mut Vec<Given<'w>>,
) -> Option<Vec<Given<'w>>> {
    let Some(((claim, request), rest)) = slots.split_first() else { return Some(before.clone()) };
    let alternatives: Vec<(String, &DeviceRequest)> = match &request.ask {
        Ask::Exactly(ask) => vec![(request.name.clone(), ask)],
        Ask::FirstAvailable(list) => {
            list.iter().map(|(name, ask)| (format!("{}/{name}", request.name), ask)).collect()
        }
    };
    for (request, ask) in alternatives {
        let Count::Exactly(count) = ask.count else { return None };
        for choice in choices(devices.len(), usize::try_from(count).unwrap()) {
            let length = before.len();
            before.extend(choice.into_iter().map(|index| Given {
                claim: *claim,
                request: request.clone(),
                ask,
                device: devices[index],
            }));
            if is_valid(world, claims, before)
                && let Some(found) = fill(world, claims, rest, devices, before)
            {
                return Some(found);
            }
            before.truncate(length);
        }
    }
    None
}

/// All subsets of `0..size` with `count` elements, in order.
fn choices(size: usize, count: usize) -> Vec<Vec<usize>> {
    match count {
        0 => vec![Vec::new()],
        _ => (0..size)
            .flat_map(|last| {
                let shorter = choices(last, count - 1).into_iter();
                shorter.map(move |mut choice| {
                    choice.push(last);
                    choice
                })
            })
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
    }
}
