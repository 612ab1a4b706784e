//! Resets that wait for an idle device while it stays in service: a row remap takes effect at the next reset.

use super::{Domain, Facts};
use crate::budget::Use;
use crate::policy::Policy;
use crate::reason::Reason;
use crate::remedy::Remedy;
use crate::state::{Event, State};

impl Domain {
    /// Resets devices with a pending row remap, if all that the reset reaches is idle. Nothing is drained for it, and remedies of
    /// faults have gone before it.
    pub(super) fn reset_idle(&mut self, policy: &Policy, facts: Facts<'_>, used: &mut Use) {
        let needs = policy.rules.ladder.at_least(Remedy::ResetFunction);
        if !needs.is_automatic() {
            return;
        }
        let reason = Reason::RemapPending;
        for (device, place) in facts.topology.places() {
            let state = self.devices.get(&device).map(|known| known.track.state);
            if state != Some(State::Watch { reason }) {
                continue;
            }
            let group = facts.topology.devices(needs.reach(device, place));
            let is_idle = group.iter().all(|member| !facts.occupied.contains(member));
            if is_idle
                && self.wait(policy, facts, device, needs, group).is_none()
                && Self::fits(policy, facts, used, group)
            {
                let event = Event::Suspected { reason, needs, is_own: false };
                self.advance(policy, device, event, facts.now);
                self.begin_remedy(policy, facts, device, needs, group, used);
            }
        }
    }
}
