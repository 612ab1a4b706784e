//! The devices of one policy, and what is decided about them.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::node_health::Permit;
use octavo_health::budget::Breaker as OpenBreaker;
use octavo_health::decide::{Decisions, Device as Record, Domain, Facts as DomainFacts};
use octavo_health::policy::Policy;
use octavo_health::reason::Reason;
use octavo_health::remedy::Remedy;
use octavo_health::signal::{Attempt, Observation, Report, Signal};
use octavo_health::state::{Event, State, Track, step};
use octavo_health::unit::{DeviceId, Place, Topology, Unit};

use super::Breaker;
use super::drains::may_drain;
use super::ladder::climb;
use crate::health::checkpoints;
use crate::health::facts::{DeviceFacts, HealthFacts, NodeFacts, OrderFacts, seconds};
use crate::health::maintenance::EvictionBudget;

/// The devices of a policy.
#[derive(Debug, Default)]
pub(super) struct Members<'a> {
    nodes: Vec<MemberNode<'a>>,
    /// Devices of nodes on which something may be decided.
    concerned: Vec<DeviceId>,
}

/// A node of a policy.
#[derive(Clone, Copy, Debug)]
struct MemberNode<'a> {
    name: &'a str,
    facts: &'a NodeFacts,
    health: &'a HealthFacts,
    /// The number of its first device. The others follow, and then those of the next node.
    first: u32,
}

/// A device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    /// Number of its node.
    index: usize,
    /// Name of its node.
    pub(super) node: &'a str,
    facts: &'a NodeFacts,
    pub(super) health: &'a HealthFacts,
    pub(super) device: &'a DeviceFacts,
}

/// What is decided about the devices of a policy.
#[derive(Debug)]
pub(super) struct Decided<'a> {
    pub(super) policy: &'a Policy,
    pub(super) members: Members<'a>,
    /// What each device that is concerned is by its record at this time, before the decision.
    pub(super) before: BTreeMap<DeviceId, Track>,
    pub(super) decisions: Decisions,
    pub(super) domain: Domain,
    /// Devices that pods leave once they have saved their work, and since when.
    pub(super) drains: BTreeMap<DeviceId, u64>,
    /// Until when remedies are stopped, if they are.
    pub(super) stopped_until: Option<u64>,
    /// Devices whose permit is over, and stays until a harsher one takes its place.
    pub(super) kept: BTreeSet<DeviceId>,
}

/// What disturbs nodes beside the evictions of this decision, and what is known of their pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disturbed<'a> {
    /// Nodes that are drained for work on them, and since when.
    pub(super) draining: &'a BTreeMap<&'a str, u64>,
    /// Lost nodes whose members are due, and since when their turn is.
    pub(super) due: &'a BTreeMap<&'a str, u64>,
    /// Names of devices with a pod that can save its work, by node.
    pub(super) hooked: &'a BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Disturbed<'a> {
    /// Nodes that lose pods for work on them, or since they are lost.
    pub(super) fn nodes(self, stuck: u64, now: u64) -> impl Iterator<Item = &'a str> {
        let is_new = move |since: u64| now.saturating_sub(since) < stuck;
        self.draining
            .iter()
            .chain(self.due)
            .filter(move |(_, since)| is_new(**since))
            .map(|(node, _)| *node)
    }
}

impl<'a> Members<'a> {
    /// Adds a node with its devices.
    pub(super) fn add(&mut self, name: &'a str, facts: &'a NodeFacts, health: &'a HealthFacts) {
        let first = self.nodes.last().map_or(0, MemberNode::end);
        let node = MemberNode { name, facts, health, first };
        if !is_quiet(facts, health) {
            self.concerned.extend((first..node.end()).map(DeviceId));
        }
        self.nodes.push(node);
    }

    pub(super) fn get(&self, id: DeviceId) -> Option<Member<'a>> {
        let index = self.nodes.partition_point(|node| node.first <= id.0).checked_sub(1)?;
        let node = &self.nodes[index];
        let device = node.health.devices.get(usize::try_from(id.0 - node.first).ok()?)?;
        Some(node.member(index, device))
    }

    /// All devices by their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (DeviceId, Member<'a>)> {
        let nodes = self.nodes.iter().enumerate();
        let devices = nodes.flat_map(|(index, node)| {
            node.health.devices.iter().map(move |device| node.member(index, device))
        });
        (0..).map(DeviceId).zip(devices)
    }

    /// Those of nodes on which something may be decided. Of a large cluster they are few, and the others take neither memory nor time.
    pub(super) fn concerned(&self) -> impl Iterator<Item = (DeviceId, Member<'a>)> {
        self.concerned.iter().filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// Whether a node is one of them.
    pub(super) fn has_node(&self, name: &str) -> bool {
        self.nodes.binary_search_by_key(&name, |node| node.name).is_ok()
    }

    /// All nodes, by name.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&'a str, &'a HealthFacts)> {
        self.nodes.iter().map(|node| (node.name, node.health))
    }

    /// A node without a rack has one of its own: nothing is known to be in the same.
    fn topology(&self) -> Topology {
        let (mut islands, mut racks) = (Numbers::default(), Numbers::default());
        let places = self.concerned().map(|(id, member)| {
            let rack = member.facts.rack.as_deref();
            let place = Place {
                island: islands.of((member.index, member.device.island)),
                nics: Vec::new(),
                node: number(member.index),
                rack: racks.of((rack.is_some(), rack.unwrap_or(member.node))),
                nvlink_domain: None,
                resets_alone: member.device.resets_alone,
            };
            (id, place)
        });
        let nodes = self.nodes.iter().filter(|node| !node.health.devices.is_empty());
        Topology::new(places.collect(), []).of_nodes(nodes.count())
    }

    /// Nodes that are not ready: an agent cannot report that.
    fn signals(&self, now: u64) -> Vec<Signal> {
        let not_ready = self.nodes.iter().enumerate().filter_map(|(index, node)| {
            Some(Signal {
                at: node.facts.not_ready_since?.min(now),
                unit: Unit::Node(number(index)),
                report: Report::Observation(Observation::NodeReady(false)),
            })
        });
        not_ready.collect()
    }
}

/// Whether nothing is to be decided about a node: it is ready, and by their records all its devices are in service and need nothing.
fn is_quiet(node: &NodeFacts, health: &HealthFacts) -> bool {
    let waits = State::Watch { reason: Reason::RemapPending };
    node.not_ready_since.is_none()
        && health.devices.iter().all(|device| {
            let track = device.record.as_ref().map(|record| &record.track);
            track.is_ok_and(|it| it.state.is_in_service() && it.state != waits && !it.is_held)
        })
}

/// Numbers for values, in the order in which they come.
struct Numbers<T>(BTreeMap<T, u32>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Numbers<T> {
    fn of(&mut self, value: T) -> u32 {
        let next = number(self.0.len());
        *self.0.entry(value).or_insert(next)
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Decides about the devices of a policy.
pub(super) fn decide<'a>(
    policy: &'a Policy,
    members: Members<'a>,
    memory: &mut Breaker,
    disturbed: Disturbed<'_>,
    now: u64,
) -> Decided<'a> {
    let topology = members.topology();
    let mut before: BTreeMap<DeviceId, Track> =
        members.concerned().map(|(id, member)| (id, member.track(policy, now))).collect();
    let kept = climb(policy, &members, &mut before, now);
    let mut devices: BTreeMap<DeviceId, Record> = BTreeMap::new();
    let mut occupied = BTreeSet::new();
    let mut drains = BTreeMap::new();
    for (id, member) in members.concerned() {
        let record = member.device.record.as_ref();
        let history = record.map(|record| record.history).unwrap_or_default();
        let is_occupied = member.device.is_occupied || record.is_err();
        if is_occupied {
            occupied.insert(id);
        }
        // An eviction ends when its pods have left.
        let evicts_since = member.orders().and_then(|orders| orders.evicts_since);
        if let Some(since) = evicts_since.filter(|_| may_drain(policy, &member, before[&id].state))
        {
            drains.insert(id, since.min(now));
        }
        let evicts_since = evicts_since.filter(|_| is_occupied && !before[&id].state.may_run());
        // A drain that becomes an eviction has its whole time. One that no longer counts in the budget takes its turn.
        let evicts_since = if member.was_drained() {
            evicts_since
                .filter(|since| now.saturating_sub(*since) < policy.rules.stuck)
                .map(|_| now)
        } else {
            evicts_since
        };
        devices.insert(id, Record { track: before[&id], history, evicts_since });
    }
    for (id, member) in members.concerned() {
        let Some(permit) = member.orders().and_then(|orders| orders.permit.as_ref()) else {
            continue;
        };
        if !is_open(permit, &member, &before[&id], policy) || kept.contains(&id) {
            continue;
        }
        // Where nothing says how the remedy goes, it does not end.
        let since = match &member.device.record {
            Ok(_) => seconds(&permit.since).unwrap_or_default().min(now),
            Err(_) => now,
        };
        if now - since >= policy.rules.limit {
            // Its agent did not begin. Others go first, so that one node delays none.
            if let Some(record) = devices.get_mut(&id) {
                record.track.since = now;
            }
        } else if let Some(place) = topology.place(id) {
            let reach = topology.devices(permit.remedy.reach(id, place));
            let is_in_use =
                |device: &DeviceId| occupied.contains(device) && before[device].state.may_run();
            if member.is_node_readable() && reach.iter().any(is_in_use) {
                // Pods that may run came meanwhile. Without its remedy the permit is withdrawn.
                continue;
            }
            for device in reach {
                if let Some(record) = devices.get_mut(device) {
                    record.track = permitted(&record.track, permit.remedy, since);
                }
                // The permit alone evicts no pods.
                if before[device].state.may_run() {
                    occupied.remove(device);
                }
            }
        }
    }
    memory.note(&members, now);
    let mut breaker = OpenBreaker::open_until(memory.until);
    for (index, node) in members.nodes.iter().enumerate() {
        if let Some(at) = memory.fenced.get(node.name) {
            breaker.note(number(index), *at);
        }
    }
    let busy: BTreeSet<&str> = disturbed.nodes(policy.rules.stuck, now).collect();
    let is_new = |since: u64| now.saturating_sub(since) < policy.rules.stuck;
    let drained = drains.iter().filter(|(_, since)| is_new(**since));
    let drained = drained.filter_map(|(id, _)| Some(members.get(*id)?.index));
    let nodes = members.nodes.iter().enumerate();
    let nodes = nodes.filter(|(_, node)| busy.contains(node.name)).map(|(index, _)| index);
    let nodes = nodes.chain(drained).map(number).collect();
    let mut domain = Domain::restored(devices, breaker).disturbed(nodes);
    let (topology, occupied) = (&topology, &occupied);
    let saves = |(_, member): &(DeviceId, Member<'_>)| checkpoints::is_saving(member.health, now);
    let saving: BTreeSet<DeviceId> = members.concerned().filter(saves).map(|(id, _)| id).collect();
    let facts = DomainFacts {
        permitted: None,
        untestable: None,
        saving: Some(&saving),
        now,
        topology,
        occupied,
    };
    let decisions = domain.decide(policy, facts, &members.signals(now));
    memory.until = domain.breaker().until();
    let window = policy.breaker.window;
    memory.fenced.retain(|_, at| now.saturating_sub(*at) < window);
    let stopped_until = domain.is_storm(now).then_some(memory.until);
    let mut decided =
        Decided { policy, members, before, decisions, domain, drains, stopped_until, kept };
    decided.drain(disturbed, now);
    decided
}

impl Decided<'_> {
    /// What evictions for other reasons may touch beside those of this decision.
    pub(super) fn eviction_budget(&self, now: u64) -> EvictionBudget {
        let is_new = |id: &&DeviceId| {
            let since = self.evicts_since(**id);
            since.is_some_and(|since| now.saturating_sub(since) < self.policy.rules.stuck)
        };
        let left = self.decisions.evictions.iter().chain(self.drains.keys()).filter(is_new);
        let busy = left.filter_map(|id| Some(self.members.get(*id)?.node.to_owned()));
        EvictionBudget {
            most: self.policy.budget.evictions(self.members.nodes.len()),
            busy: busy.collect(),
            is_stopped: self.stopped_until.is_some(),
            stuck: self.policy.rules.stuck,
        }
    }

    /// Since when pods leave a device.
    pub(super) fn evicts_since(&self, id: DeviceId) -> Option<u64> {
        let evicted = self.domain.devices.get(&id).and_then(|known| known.evicts_since);
        self.drains.get(&id).copied().or(evicted)
    }
}

impl<'a> MemberNode<'a> {
    /// The number after that of its last device.
    fn end(&self) -> u32 {
        self.first.saturating_add(number(self.health.devices.len()))
    }

    fn member(&self, index: usize, device: &'a DeviceFacts) -> Member<'a> {
        Member { index, node: self.name, facts: self.facts, health: self.health, device }
    }
}

impl<'a> Member<'a> {
    /// What was ordered for it.
    pub(super) fn orders(&self) -> Option<&'a OrderFacts> {
        self.health.orders.iter().find(|orders| orders.uuid == self.device.uuid)
    }

    /// Whether its node is ready.
    pub(super) fn is_node_ready(&self) -> bool {
        self.facts.not_ready_since.is_none()
    }

    /// Whether all records of its node can be read. If not, nothing new begins there.
    pub(super) fn is_node_readable(&self) -> bool {
        self.health.devices.iter().all(|device| device.record.is_ok())
    }

    /// Whether its pods were to leave at a checkpoint until now: the copy of its record, which is written with orders, says that it was
    /// suspect, and its record says otherwise.
    fn was_drained(&self) -> bool {
        let copy = self.orders().and_then(|orders| orders.copy.as_ref());
        let (Some(copy), Ok(record)) = (copy, &self.device.record) else { return false };
        matches!(copy.track.state, State::Suspect { .. })
            && !record.track.state.may_run()
            && record.track.attempt >= copy.track.attempt
    }

    /// What the device is by its record at a time. A record that cannot be read stops the remedies of its node, and ends nothing.
    fn track(&self, policy: &Policy, now: u64) -> Track {
        let orders = self.orders();
        let track = if let Ok(record) = &self.device.record {
            step(&record.track, &policy.rules, Event::Time, now)
        } else {
            let (reason, needs) = (Reason::Operator, Remedy::Test);
            let is_evicted = orders.is_some_and(|orders| orders.evicts_since.is_some());
            let state = if is_evicted {
                State::Fenced { reason, needs }
            } else {
                // Out of service, and no new eviction.
                State::Suspect { reason, needs }
            };
            Track { state, since: now, ..Track::default() }
        };
        Track { is_held: track.is_held || !self.is_node_readable(), ..track }
    }
}

impl Breaker {
    /// Notes when devices left service. Clocks of nodes differ, so what is new since the last look counts from now. What is there at the
    /// first look, after a start, is as old as the records say.
    fn note(&mut self, members: &Members<'_>, now: u64) {
        let known = self.seen.take();
        let mut seen = BTreeSet::new();
        for (_, member) in members.all() {
            let Ok(record) = &member.device.record else { continue };
            let Some(since) = left_service(&record.track) else { continue };
            let fence = (member.device.uuid.clone(), since);
            let at = match &known {
                None => Some(since.min(now)),
                Some(known) => (!known.contains(&fence)).then_some(now),
            };
            if let Some(at) = at {
                let last = self.fenced.entry(member.node.to_owned()).or_default();
                *last = at.max(*last);
            }
            seen.insert(fence);
        }
        self.seen = Some(seen);
    }
}

/// When a sign or a fault took the device out of service. A remedy or a test that failed is no new fault, and the state during
/// one says no more when the fault was.
fn left_service(track: &Track) -> Option<u64> {
    match track.state {
        State::Suspect { reason, .. }
        | State::Fenced { reason, .. }
        | State::Retired { reason } => {
            let is_new = !matches!(
                reason,
                Reason::Operator
                    | Reason::PeerRemedy
                    | Reason::RemedyFailed(_)
                    | Reason::TestFailed
                    | Reason::NodeNotReady
            );
            is_new.then_some(track.since)
        }
        _ => None,
    }
}

/// Whether no process can use the device any more.
pub(super) fn is_dead(reason: Reason) -> bool {
    matches!(reason, Reason::Lost | Reason::Xid(79))
}

/// What a device needs, also one that waits in service for a reset.
pub(super) fn needs(track: &Track, policy: &Policy) -> Option<Remedy> {
    match track.state {
        State::Watch { reason: Reason::RemapPending } => {
            Some(policy.rules.ladder.at_least(Remedy::ResetFunction))
        }
        state => state.needs(),
    }
}

/// Whether the agent may still act upon a permit: the device has had no later attempt, and still needs the remedy. One of a device
/// whose record cannot be read counts.
fn is_open(permit: &Permit, member: &Member<'_>, before: &Track, policy: &Policy) -> bool {
    let Ok(record) = &member.device.record else { return true };
    u64::try_from(permit.after_attempt) == Ok(record.track.attempt.0)
        && needs(before, policy) == Some(permit.remedy)
}

/// A device for which a remedy is allowed counts as one for which it runs.
fn permitted(track: &Track, remedy: Remedy, since: u64) -> Track {
    match track.state {
        State::Resetting { .. } | State::Retired { .. } => *track,
        state => {
            let reason = state.reason().unwrap_or(Reason::PeerRemedy);
            // The same for all devices that one remedy reaches.
            let attempt = Attempt(0);
            Track { state: State::Resetting { reason, remedy }, since, attempt, ..*track }
        }
    }
}
