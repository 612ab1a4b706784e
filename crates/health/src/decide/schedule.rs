//! Which remedies, tests and evictions begin, within the budget.

use std::collections::{BTreeMap, BTreeSet};

use super::decisions::Wait;
use super::{Domain, Facts};
use crate::budget::Use;
use crate::policy::{Mode, Policy};
use crate::reason::Reason;
use crate::remedy::Remedy;
use crate::signal::Attempt;
use crate::state::{Event, State, step};
use crate::unit::{DeviceId, Place, Unit};

impl Domain {
    /// Begins remedies and tests, oldest fence first. Returns why the others wait.
    pub(super) fn begin(&mut self, policy: &Policy, facts: Facts<'_>) -> BTreeMap<DeviceId, Wait> {
        let mut waits = BTreeMap::new();
        // Devices that a remedy of another one needs idle are not tested before it.
        let mut claimed = BTreeSet::new();
        let mut used = self.budget_in_use(facts);
        let mut drains = 0;
        for (device, needs) in self.candidates() {
            let Some(place) = facts.topology.place(device) else { continue };
            let group = facts.topology.devices(needs.reach(device, place));
            // It may have begun as part of the group of an earlier one.
            if self.needs(device) != Some(needs) {
                continue;
            }
            let wait = self
                .wait(policy, facts, device, needs, group)
                .or_else(|| (!Self::fits(policy, facts, &used, group)).then_some(Wait::Budget));
            let is_closed = self.closes_node(policy, device, needs);
            // A remedy that waits for a person holds up no test, unless the node is closed for it.
            if is_closed || !matches!(wait, Some(Wait::Observe | Wait::Person | Wait::Operator)) {
                claimed.extend(group.iter().filter(|member| **member != device).copied());
            }
            let is_occupied = group.iter().any(|member| {
                facts.occupied.contains(member)
                    && !(needs.is_from_outside() && self.is_stuck(policy, facts, *member))
            });
            // A permit comes once nothing that the remedy reaches has a client, so peers drain before it: new pods would put it off.
            let may_drain = match wait {
                None => is_occupied,
                Some(Wait::Permit) => !self.are_permits_stopped,
                Some(_) => false,
            };
            let has_room = drains < policy.budget.remedies(facts.topology.nodes());
            if is_closed || (may_drain && has_room) {
                drains += u64::from(group.len() > 1);
                self.drain_peers(policy, device, group, facts.now);
            }
            match wait.or(is_occupied.then_some(Wait::Clients)) {
                Some(wait) => {
                    waits.insert(device, wait);
                }
                None => self.begin_remedy(policy, facts, device, needs, group, &mut used),
            }
        }
        self.reset_idle(policy, facts, &mut used);
        self.begin_tests(policy, facts, &claimed, &mut waits);
        waits
    }

    /// Whether the node of a device takes no new pods until a person reboots it: the fault itself calls for a reboot, as XID 79 does. After
    /// resets or reboots in vain the others serve on, maybe for days.
    fn closes_node(&self, policy: &Policy, device: DeviceId, needs: Remedy) -> bool {
        let is_first =
            self.devices.get(&device).is_some_and(|known| known.track.tried == Remedy::Test);
        policy.mode == Mode::Act
            && needs == Remedy::Reboot
            && policy.by_person.contains(&needs)
            && is_first
    }

    /// Begins a remedy of a device on all that it reaches.
    pub(super) fn begin_remedy(
        &mut self,
        policy: &Policy,
        facts: Facts<'_>,
        device: DeviceId,
        needs: Remedy,
        group: &[DeviceId],
        used: &mut Use,
    ) {
        self.drain_peers(policy, device, group, facts.now);
        let attempt = self.new_attempt();
        for member in group {
            let is_own = *member == device || self.needs(*member) == Some(needs);
            let event = Event::RemedyBegins { remedy: needs, attempt, is_own };
            self.advance(policy, *member, event, facts.now);
        }
        used.add(&racks(facts, group));
    }

    /// Whether the budget has room for a remedy of some devices.
    pub(super) fn fits(policy: &Policy, facts: Facts<'_>, used: &Use, group: &[DeviceId]) -> bool {
        policy.budget.allows(used, facts.topology.nodes(), &racks(facts, group))
    }

    /// Devices that need a remedy, oldest fence first.
    fn candidates(&self) -> Vec<(DeviceId, Remedy)> {
        let mut candidates: Vec<(u64, DeviceId, Remedy)> = self
            .devices
            .iter()
            .filter_map(|(device, known)| {
                let needs = known.track.state.needs().filter(|needs| needs.is_automatic())?;
                Some((known.track.since, *device, needs))
            })
            .collect();
        candidates.sort_unstable();
        candidates.into_iter().map(|(_, device, needs)| (device, needs)).collect()
    }

    /// Why a device's remedy may not begin, apart from budget and clients.
    pub(super) fn wait(
        &self,
        policy: &Policy,
        facts: Facts<'_>,
        device: DeviceId,
        needs: Remedy,
        group: &[DeviceId],
    ) -> Option<Wait> {
        let node = facts.topology.place(device).map(|place| place.node);
        let is_held =
            |member: &DeviceId| self.devices.get(member).is_some_and(|known| known.track.is_held);
        let is_harsher = |member: &DeviceId| self.needs(*member) > Some(needs);
        let islands: BTreeSet<u32> = places(facts, group).map(|place| place.island).collect();
        if policy.mode == Mode::Observe {
            Some(Wait::Observe)
        } else if group.iter().any(is_held) {
            Some(Wait::Operator)
        } else if policy.mode == Mode::Fence || policy.by_person.contains(&needs) {
            Some(Wait::Person)
        } else if facts.permitted.is_some_and(|permitted| !permitted.contains(&device)) {
            Some(Wait::Permit)
        } else if self.breaker.is_open(facts.now) {
            Some(Wait::Storm)
        } else if group.iter().any(is_harsher) {
            Some(Wait::HarsherRemedy)
        } else if !needs.is_from_outside()
            && node.is_some_and(|node| self.not_ready.contains(&node))
        {
            Some(Wait::NodeNotReady)
        } else if islands.iter().any(|island| self.is_locked(facts, *island)) {
            Some(Wait::Island)
        } else {
            None
        }
    }

    /// Whether a remedy or a test runs in an island. Two at once would disturb each other over the links.
    fn is_locked(&self, facts: Facts<'_>, island: u32) -> bool {
        let is_busy = |state| matches!(state, State::Resetting { .. } | State::Verifying { .. });
        facts
            .topology
            .devices(Unit::Island(island))
            .iter()
            .any(|member| self.devices.get(member).is_some_and(|known| is_busy(known.track.state)))
    }

    /// Whether a device out of service has clients that do not leave: its eviction is long ago, or it needs a remedy from outside
    /// since long. A pod that saves its work has its time.
    fn is_stuck(&self, policy: &Policy, facts: Facts<'_>, device: DeviceId) -> bool {
        let Some(known) = self.devices.get(&device) else { return false };
        let is_long = |since| facts.now.saturating_sub(since) >= policy.rules.stuck;
        let state = known.track.state;
        let needs_outside = state.needs().is_some_and(Remedy::is_from_outside);
        let is_saving = facts.saving.is_some_and(|saving| saving.contains(&device));
        !state.may_run()
            && !is_saving
            && (known.evicts_since.is_some_and(is_long)
                || (needs_outside && is_long(known.track.since)))
    }

    /// Takes the peers of a device out of scheduling, so that they become idle for its remedy.
    fn drain_peers(&mut self, policy: &Policy, device: DeviceId, group: &[DeviceId], now: u64) {
        for member in group.iter().filter(|member| **member != device) {
            let is_in_service =
                self.devices.get(member).is_some_and(|known| known.track.state.is_in_service());
            if is_in_service {
                let reason = Reason::PeerRemedy;
                let event = Event::Suspected { reason, needs: Remedy::Test, is_own: false };
                self.advance(policy, *member, event, now);
            }
        }
    }

    /// Begins tests of idle devices that need nothing else.
    fn begin_tests(
        &mut self,
        policy: &Policy,
        facts: Facts<'_>,
        claimed: &BTreeSet<DeviceId>,
        waits: &mut BTreeMap<DeviceId, Wait>,
    ) {
        for (device, place) in facts.topology.places() {
            if self.needs(device) != Some(Remedy::Test) {
                continue;
            }
            if let Some(wait) = self.wait_for_test(policy, facts, device, place, claimed) {
                waits.insert(device, wait);
            } else {
                let event = Event::TestBegins(self.new_attempt());
                self.advance(policy, device, event, facts.now);
            }
        }
    }

    fn wait_for_test(
        &self,
        policy: &Policy,
        facts: Facts<'_>,
        device: DeviceId,
        place: &Place,
        claimed: &BTreeSet<DeviceId>,
    ) -> Option<Wait> {
        let is_resetting = |member: &DeviceId| {
            let state = self.devices.get(member).map(|known| known.track.state);
            matches!(state, Some(State::Resetting { .. }))
        };
        if policy.mode == Mode::Observe {
            Some(Wait::Observe)
        } else if self.devices.get(&device).is_some_and(|known| known.track.is_held) {
            Some(Wait::Operator)
        } else if self.breaker.is_open(facts.now) {
            Some(Wait::Storm)
        } else if claimed.contains(&device) {
            Some(Wait::HarsherRemedy)
        } else if self.not_ready.contains(&place.node) {
            Some(Wait::NodeNotReady)
        } else if facts.topology.devices(Unit::Island(place.island)).iter().any(is_resetting) {
            Some(Wait::Island)
        } else if facts.occupied.contains(&device) {
            Some(Wait::Clients)
        } else {
            let untestable = facts.untestable.is_some_and(|devices| devices.contains(&device));
            untestable.then_some(Wait::TestNotPossible)
        }
    }

    /// Grants evictions, oldest fence first, so that few nodes lose pods at once.
    pub(super) fn evict(&mut self, policy: &Policy, facts: Facts<'_>) {
        let may_evict = policy.mode == Mode::Act && policy.evict;
        let mut nodes = self.disturbed.clone();
        let mut waiting = Vec::new();
        for (device, known) in &mut self.devices {
            let is_out = !known.track.state.may_run();
            let since = known.evicts_since.filter(|_| may_evict && is_out);
            known.evicts_since = since.map(|since| since.min(facts.now));
            let place = facts.topology.place(*device);
            let Some(place) = place.filter(|_| is_out && facts.occupied.contains(device)) else {
                continue;
            };
            if let Some(since) = known.evicts_since {
                // Clients that do not leave hold up no other node.
                if facts.now.saturating_sub(since) < policy.rules.stuck {
                    nodes.insert(place.node);
                }
            } else if may_evict {
                waiting.push((known.track.since, *device, place.node));
            }
        }
        waiting.sort_unstable();
        let most = policy.budget.evictions(facts.topology.nodes());
        for (_, device, node) in waiting {
            let is_within = u64::try_from(nodes.len()).is_ok_and(|nodes| nodes < most);
            if (is_within || nodes.contains(&node))
                && let Some(known) = self.devices.get_mut(&device)
            {
                nodes.insert(node);
                known.evicts_since = Some(facts.now);
            }
        }
    }

    /// What of the budget the remedies that run use.
    fn budget_in_use(&self, facts: Facts<'_>) -> Use {
        let mut used = Use::default();
        for (unit, ..) in self.remedies(facts).keys() {
            used.add(&racks(facts, facts.topology.devices(*unit)));
        }
        used
    }

    /// The devices on which remedies run, by the part that a remedy reaches.
    pub(super) fn remedies(
        &self,
        facts: Facts<'_>,
    ) -> BTreeMap<(Unit, Remedy, Attempt), Vec<DeviceId>> {
        let mut remedies: BTreeMap<_, Vec<DeviceId>> = BTreeMap::new();
        for (device, known) in &self.devices {
            if let State::Resetting { remedy, .. } = known.track.state
                && let Some(place) = facts.topology.place(*device)
            {
                let reach = remedy.reach(*device, place);
                remedies.entry((reach, remedy, known.track.attempt)).or_default().push(*device);
            }
        }
        remedies
    }

    fn new_attempt(&mut self) -> Attempt {
        self.attempts = self.attempts.saturating_add(1);
        Attempt(self.attempts)
    }

    fn needs(&self, device: DeviceId) -> Option<Remedy> {
        self.devices.get(&device)?.track.state.needs()
    }

    pub(super) fn advance(&mut self, policy: &Policy, device: DeviceId, event: Event, now: u64) {
        if let Some(known) = self.devices.get_mut(&device) {
            known.track = step(&known.track, &policy.rules, event, now);
        }
    }
}

fn places<'a>(facts: Facts<'a>, devices: &'a [DeviceId]) -> impl Iterator<Item = &'a Place> {
    devices.iter().filter_map(move |device| facts.topology.place(*device))
}

fn racks(facts: Facts<'_>, devices: &[DeviceId]) -> BTreeSet<u32> {
    places(facts, devices).map(|place| place.rack).collect()
}
