//! Orders for agents: permits, evictions, and copies of records.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_api::node_health::{DeviceOrders, Permit};
use octavo_health::decide::Device as Record;
use octavo_health::remedy::Remedy;
use octavo_health::state::Track;
use octavo_health::unit::DeviceId;

use super::NodeOrders;
use super::domain::{Decided, Member, needs};
use crate::health::facts::{HealthFacts, OrderFacts, date};

/// The orders of all nodes of a policy that are to be written.
pub(super) fn of<'a>(decided: &'a Decided<'a>, now: u64) -> impl Iterator<Item = NodeOrders> + 'a {
    let remedies: BTreeMap<DeviceId, Remedy> = decided
        .decisions
        .remedies
        .iter()
        .flat_map(|applied| applied.devices.iter().map(|device| (*device, applied.remedy)))
        .collect();
    // Devices are numbered in the order of nodes. Node by node, so that a large cluster takes no memory for what does not change.
    let mut devices = decided.members.all();
    decided.members.nodes().filter_map(move |(name, health)| {
        let of_node = devices.by_ref().take(health.devices.len());
        let wanted = of_node.map(|(id, member)| OrderFacts {
            uuid: member.device.uuid.clone(),
            permit: permit(decided, id, &member, remedies.get(&id).copied(), now),
            evicts_since: decided.evicts_since(id),
            copy: copy(member.device.record.as_ref().ok(), member.orders()),
        });
        write(name, health, wanted.collect())
    })
}

/// The orders of a node to which no policy applies: copies alone.
pub(super) fn without_policy(name: &str, health: &HealthFacts) -> Option<NodeOrders> {
    let wanted = health.devices.iter().map(|device| {
        let orders = health.orders.iter().find(|orders| orders.uuid == device.uuid);
        OrderFacts {
            uuid: device.uuid.clone(),
            copy: copy(device.record.as_ref().ok(), orders),
            ..OrderFacts::default()
        }
    });
    write(name, health, wanted.collect())
}

/// The permit of a device, if its remedy may begin and its agent did not yet.
fn permit(
    decided: &Decided<'_>,
    id: DeviceId,
    member: &Member<'_>,
    remedy: Option<Remedy>,
    now: u64,
) -> Option<Permit> {
    // In a storm nothing begins, also what was allowed before.
    let Some(remedy) = remedy.filter(|_| decided.stopped_until.is_none()) else {
        let old = member.orders().and_then(|orders| orders.permit.clone());
        return old.filter(|_| decided.kept.contains(&id));
    };
    let record = member.device.record.as_ref().ok()?;
    let before = decided.before.get(&id)?;
    // Peers that the remedy reaches need none.
    if needs(before, decided.policy) != Some(remedy) {
        return None;
    }
    let after_attempt = i64::try_from(record.track.attempt.0).unwrap_or(i64::MAX);
    let since = decided.domain.devices.get(&id).map_or(now, |known| known.track.since);
    Some(Permit { after_attempt, remedy, since: date(since) })
}

/// The copy of a record: that of the last change of the device's state. Time at work alone is worth no write, and a node that lost its
/// disk does not overwrite what is known of its devices.
fn copy(record: Option<&Record>, orders: Option<&OrderFacts>) -> Option<Record> {
    let old = orders.and_then(|orders| orders.copy.as_ref());
    let Some(record) = record else { return old.cloned() };
    let is_newer = match old {
        Some(old) => {
            lasting(&old.track) != lasting(&record.track)
                && record.track.attempt >= old.track.attempt
        }
        None => lasting(&record.track) != Track::default(),
    };
    if is_newer { Some(Record { evicts_since: None, ..record.clone() }) } else { old.cloned() }
}

/// A track without its time, which each warning renews.
fn lasting(track: &Track) -> Track {
    Track { since: 0, ..*track }
}

/// The write of a node's orders, if they differ. A node with a record that cannot be read is left as it is.
fn write(name: &str, health: &HealthFacts, mut wanted: Vec<OrderFacts>) -> Option<NodeOrders> {
    if health.devices.iter().any(|device| device.record.is_err()) {
        return None;
    }
    // A device that is not there now may return, and its fence is not to be lost.
    let is_there = |uuid: &str| health.devices.iter().any(|device| *device.uuid == *uuid);
    let gone = health.orders.iter().filter(|orders| !is_there(&orders.uuid));
    let kept = gone.filter_map(|orders| {
        let copy = orders.copy.clone().filter(|copy| !copy.track.state.is_in_service())?;
        Some(OrderFacts { uuid: orders.uuid.clone(), copy: Some(copy), ..OrderFacts::default() })
    });
    wanted.extend(kept);
    let is_empty = |orders: &OrderFacts| {
        orders.permit.is_none() && orders.evicts_since.is_none() && orders.copy.is_none()
    };
    wanted.retain(|orders| !is_empty(orders));
    let by_device = |orders: &[OrderFacts]| -> BTreeMap<Arc<str>, OrderFacts> {
        let orders = orders.iter().filter(|orders| !is_empty(orders));
        orders.map(|orders| (orders.uuid.clone(), orders.clone())).collect()
    };
    if by_device(&wanted) == by_device(&health.orders) {
        return None;
    }
    let acts = |orders: &[OrderFacts]| -> BTreeMap<Arc<str>, OrderFacts> {
        let without_copy = |orders: &OrderFacts| OrderFacts { copy: None, ..orders.clone() };
        by_device(&orders.iter().map(without_copy).collect::<Vec<_>>())
    };
    let are_copies = acts(&wanted) == acts(&health.orders);
    let devices = wanted.into_iter().map(|orders| DeviceOrders {
        uuid: orders.uuid.to_string(),
        order: None,
        permit: orders.permit,
        evicts_since: orders.evicts_since.map(date),
        history: orders.copy.and_then(|copy| serde_json::to_value(copy).ok()),
    });
    Some(NodeOrders {
        node: name.to_owned(),
        version: health.version.clone(),
        devices: devices.collect(),
        are_copies,
    })
}
