//! The ladder of remedies on nodes that do not report. Their agents begin no remedy and see no outcome, so a permit that is over says that
//! its remedy did not bring the node back.

use std::collections::{BTreeMap, BTreeSet};

use octavo_health::policy::Policy;
use octavo_health::reason::Reason;
use octavo_health::state::{State, Track};
use octavo_health::unit::DeviceId;

use super::domain::Members;
use crate::health::facts::seconds;

/// Raises what devices of such nodes need to the remedy of their permit, or to the next one if the permit is over. Returns the devices
/// whose permit is over: it stays in the spec, so that no controller begins again with the first remedy.
pub(super) fn climb(
    policy: &Policy,
    members: &Members<'_>,
    before: &mut BTreeMap<DeviceId, Track>,
    now: u64,
) -> BTreeSet<DeviceId> {
    let mut kept = BTreeSet::new();
    for (id, member) in members.concerned() {
        let permit = member.orders().and_then(|orders| orders.permit.as_ref());
        let permit = permit.filter(|permit| policy.by_template.contains(&permit.remedy));
        let (Some(permit), Ok(record)) = (permit, &member.device.record) else { continue };
        let Some(track) = before.get_mut(&id) else { continue };
        let is_of_next = u64::try_from(permit.after_attempt) == Ok(record.track.attempt.0);
        if !is_of_next || track.state.needs().is_none_or(|needs| needs > permit.remedy) {
            continue;
        }
        let since = seconds(&permit.since).unwrap_or_default().min(now);
        let is_over = now - since >= policy.rules.limit;
        // A node may be ready for a moment. What it needs is its agent's word, but a harsher remedy that was allowed goes on.
        let is_harsher = track.state.needs() < Some(permit.remedy);
        if member.is_node_ready() && (is_over || !is_harsher) {
            continue;
        }
        let reason = track.state.reason().unwrap_or(Reason::Lost);
        track.state = State::Fenced { reason, needs: permit.remedy };
        if is_over {
            let (failed, needs) = (permit.remedy, policy.rules.ladder.after(permit.remedy));
            track.state = State::Fenced { reason: Reason::RemedyFailed(failed), needs };
            track.since = since.saturating_add(policy.rules.limit);
            kept.insert(id);
        }
    }
    kept
}
