//! Devices whose pods are evicted, and those that wait for the budget.

use octavo_api::health_taint::key_and_value;
use octavo_health::policy::Mode;
use octavo_health::reason::Reason;
use octavo_health::state::Track;

use super::domain::{Decided, Member, is_dead};
use super::{Eviction, Urgency};

/// Devices whose pods are to be evicted.
pub(super) fn evictions<'a>(decided: &'a Decided<'a>) -> impl Iterator<Item = Eviction> + 'a {
    let left = decided.decisions.evictions.iter().chain(decided.drains.keys()).copied();
    left.filter_map(|id| {
        let member = decided.members.get(id)?;
        let record = member.device.record.as_ref().ok()?;
        let is_ordered = member.orders().is_some_and(|orders| orders.evicts_since.is_some());
        if !is_ordered && !member.is_node_readable() {
            return None;
        }
        let urgency = if decided.drains.contains_key(&id) {
            Urgency::AtCheckpoint
        } else {
            urgency(record.track.state.reason())
        };
        Some(eviction(&member, &record.track, decided.evicts_since(id)?, urgency))
    })
}

/// Devices whose pods are to be evicted and are not yet, since the budget has no room for them. None of a policy that only observes.
pub(super) fn waiting<'a>(decided: &'a Decided<'a>) -> impl Iterator<Item = Eviction> + 'a {
    let may_evict = decided.policy.mode == Mode::Act && decided.policy.evict;
    let occupied = decided.members.concerned().filter(move |(id, member)| {
        may_evict && member.device.is_occupied && decided.evicts_since(*id).is_none()
    });
    occupied.filter_map(|(_, member)| {
        let track = &member.device.record.as_ref().ok()?.track;
        let is_left = !track.state.may_run() && member.is_node_readable();
        is_left.then(|| eviction(&member, track, track.since, urgency(track.state.reason())))
    })
}

/// The eviction of a device since a time.
fn eviction(member: &Member<'_>, track: &Track, since: u64, urgency: Urgency) -> Eviction {
    let reason = track.state.reason();
    Eviction {
        node: member.node.to_owned(),
        device: member.device.name.clone(),
        taint: key_and_value(reason, track.state.name()),
        reason: reason.map(|reason| reason.to_string()).unwrap_or_default(),
        since,
        urgency,
    }
}

/// How pods leave a device out of service.
fn urgency(reason: Option<Reason>) -> Urgency {
    if reason.is_some_and(is_dead) { Urgency::Deleted } else { Urgency::Evicted }
}
