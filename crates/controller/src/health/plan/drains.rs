//! Devices that pods leave at a checkpoint: those that are suspect. Only pods that can save their work leave, and only once they have,
//! within the budget of evictions. The others run to their end.

use std::collections::{BTreeMap, BTreeSet};

use octavo_health::policy::{Mode, Policy};
use octavo_health::state::State;
use octavo_health::unit::DeviceId;

use super::Candidate;
use super::domain::{Decided, Disturbed, Member};

/// Whether pods with a hook are to leave a device.
pub(super) fn may_drain(policy: &Policy, member: &Member<'_>, state: State) -> bool {
    let is_suspect = member.device.record.is_ok() && matches!(state, State::Suspect { .. });
    let acts = policy.mode == Mode::Act && policy.evict;
    // An agent that does not report asks no pod.
    acts && is_suspect && member.device.is_occupied && member.is_node_ready()
}

impl Decided<'_> {
    /// Devices that pods may leave, once one of these is known to have a hook.
    pub(super) fn candidates(&self) -> impl Iterator<Item = Candidate> {
        let waiting = self.waiting().into_iter();
        waiting.filter_map(|id| {
            let member = self.members.get(id)?;
            Some(Candidate { node: member.node.to_owned(), device: member.device.name.clone() })
        })
    }

    /// Lets further devices be drained, longest suspect first, if few nodes lose pods now.
    pub(super) fn drain(&mut self, disturbed: Disturbed<'_>, now: u64) {
        let budget = self.eviction_budget(now);
        if budget.is_stopped {
            return;
        }
        let mut busy: BTreeSet<&str> = budget.busy.iter().map(String::as_str).collect();
        let stuck = self.policy.rules.stuck;
        busy.extend(disturbed.nodes(stuck, now).filter(|node| self.members.has_node(node)));
        let mut granted = BTreeMap::new();
        for id in self.waiting() {
            let Some(member) = self.members.get(id) else { continue };
            let hooked = disturbed.hooked.get(member.node);
            if !hooked.is_some_and(|devices| devices.contains(&member.device.name)) {
                continue;
            }
            let is_within = u64::try_from(busy.len()).is_ok_and(|nodes| nodes < budget.most);
            if is_within || busy.contains(member.node) {
                busy.insert(member.node);
                granted.insert(id, now);
            }
        }
        self.drains.extend(granted);
    }

    /// Devices that could be drained and are not, longest suspect first.
    fn waiting(&self) -> Vec<DeviceId> {
        let mut waiting: Vec<(u64, DeviceId)> = self
            .members
            .concerned()
            .filter_map(|(id, member)| {
                let track = self.before.get(&id)?;
                let is_waiting = !self.drains.contains_key(&id);
                (is_waiting && may_drain(self.policy, &member, track.state))
                    .then_some((track.since, id))
            })
            .collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, id)| id).collect()
    }
}
