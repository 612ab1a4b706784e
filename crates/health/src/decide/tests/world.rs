//! A world of random faults around a domain, and what must hold in it.

use proptest::prelude::*;

use super::{policy, topology, xid};
use crate::HOUR;
use crate::budget::Budget;
use crate::decide::{Applied, Decisions, Domain, Facts, Wait};
use crate::policy::Policy;
use crate::reason::Reason;
use crate::signal::{Attempt, NicPort, Observation, Outcome, RecoveryAction, Report, Signal, Word};
use crate::state::{Effect, State};
use crate::unit::{DeviceId, Topology, Unit};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const NODES: u32 = 8;
pub(super) const GPUS: u32 = 3;
const DEVICES: u32 = NODES * GPUS;

/// Anything that decides as [`Domain::decide`] does, or not quite.
pub(super) type Decider<'a> =
    dyn FnMut(&mut Domain, &Policy, Facts<'_>, &[Signal]) -> Decisions + 'a;

/// One step of a random run.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    /// Seconds that pass, and whether the clock is an hour behind.
    passes: u64,
    is_behind: bool,
    signals: Vec<(Unit, Report)>,
    /// How each remedy or test that runs goes: it may go on.
    outcomes: Vec<Option<bool>>,
    /// Devices that get and lose clients.
    arrivals: BTreeSet<u32>,
    departures: BTreeSet<u32>,
}

/// A random run.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) resets_alone: bool,
    pub(super) turns: Vec<Turn>,
}

fn unit() -> impl Strategy<Value = Unit> {
    prop_oneof![
        8 => (0..DEVICES).prop_map(|device| Unit::Device(DeviceId(device))),
        1 => (100..100 + DEVICES).prop_map(Unit::Instance),
        1 => (0..DEVICES).prop_map(Unit::Nic),
        1 => (0..NODES).prop_map(Unit::Island),
        1 => (0..NODES + 1).prop_map(Unit::Node),
        1 => (0..2_u32).prop_map(Unit::NvlinkDomain),
    ]
}

fn unasked(outcome: Outcome) -> impl Strategy<Value = Report> {
    (0..20_u64).prop_map(move |attempt| Report::Outcome { attempt: Attempt(attempt), outcome })
}

fn report() -> impl Strategy<Value = Report> {
    let observed = |observation| Just(Report::Observation(observation)).boxed();
    let action = prop_oneof![
        Just(RecoveryAction::None),
        Just(RecoveryAction::GpuReset),
        Just(RecoveryAction::NodeReboot),
        Just(RecoveryAction::DrainP2p),
        Just(RecoveryAction::DrainAndReset),
    ];
    let number =
        prop_oneof![Just(31), Just(48), Just(63), Just(64), Just(74), Just(79), 0..175_u32];
    let word =
        prop_oneof![4 => Just(Word::Fence), 4 => Just(Word::Release), 1 => Just(Word::Retire)];
    prop_oneof![
        12 => (number, 0..5_u64).prop_map(|(number, job)| xid(number, job)),
        4 => action.prop_map(|action| Report::Observation(Observation::RecoveryAction(action))),
        1 => observed(Observation::RemappedRows { is_pending: true, has_failed: false }),
        1 => observed(Observation::Nvlink { inactive: 1, recoveries: 0 }),
        1 => observed(Observation::Fabric { is_healthy: false }),
        1 => observed(Observation::Nic(NicPort { is_down: true, ..NicPort::default() })),
        1 => observed(Observation::Lost),
        1 => any::<bool>().prop_map(|ready| Report::Observation(Observation::NodeReady(ready))),
        1 => word.prop_map(Report::Word),
        // Reports that nothing asked for.
        1 => unasked(Outcome::Remedied),
        1 => unasked(Outcome::Refused),
        1 => unasked(Outcome::Failed),
        1 => unasked(Outcome::NotTried),
    ]
}

fn turn(report: impl Strategy<Value = Report>) -> impl Strategy<Value = Turn> {
    let devices = || proptest::collection::btree_set(0..DEVICES, 0..6);
    let outcome = proptest::option::of(proptest::bool::weighted(0.7));
    (
        0..2_000_u64,
        proptest::bool::weighted(0.1),
        proptest::collection::vec((unit(), report), 0..4),
        proptest::collection::vec(outcome, 8),
        devices(),
        devices(),
    )
        .prop_map(|(passes, is_behind, signals, outcomes, arrivals, departures)| Turn {
            passes,
            is_behind,
            signals,
            outcomes,
            arrivals,
            departures,
        })
}

fn script_of(report: impl Strategy<Value = Report>) -> impl Strategy<Value = Script> {
    (any::<bool>(), proptest::collection::vec(turn(report), 1..30))
        .prop_map(|(resets_alone, turns)| Script { resets_alone, turns })
}

/// Any signals.
pub(super) fn script() -> impl Strategy<Value = Script> {
    script_of(report())
}

/// Errors of one application alone.
pub(super) fn script_of_one_job() -> impl Strategy<Value = Script> {
    let failed = proptest::collection::vec((0..DEVICES).prop_map(DeviceId), 1..9);
    script_of(prop_oneof![
        4 => prop_oneof![Just(13), Just(31), Just(43), Just(45)].prop_map(|number| xid(number, 7)),
        1 => failed.prop_map(|suspects| Report::Observation(Observation::JobFailed { suspects })),
    ])
}

/// The policy of the runs: a budget of two remedies, and a breaker that a third of the nodes opens.
pub(super) fn tested_policy() -> Policy {
    let mut policy = policy();
    policy.budget = Budget { remedies_percent: 25, remedies_per_rack: 1, evictions_percent: 25 };
    policy.breaker.percent = 33;
    policy
}

/// A run: the world, the domain, and what was decided last.
pub(super) struct World {
    pub(super) policy: Policy,
    topology: Topology,
    pub(super) domain: Domain,
    occupied: BTreeSet<DeviceId>,
    now: u64,
    last: Decisions,
    /// When each remedy that runs began, by a clock that only went backwards since.
    began: BTreeMap<Attempt, u64>,
    /// Outcomes so far, and whether each is reported again in every later turn.
    ended: Vec<(Unit, Report)>,
    repeats: bool,
}

impl World {
    pub(super) fn new(resets_alone: bool) -> Self {
        Self {
            policy: tested_policy(),
            topology: topology(NODES, GPUS, resets_alone),
            domain: Domain::default(),
            occupied: BTreeSet::new(),
            now: 10 * HOUR,
            last: Decisions::default(),
            began: BTreeMap::new(),
            ended: Vec::new(),
            repeats: false,
        }
    }

    /// A world that reports each outcome again in every later turn.
    pub(super) fn repeating(self) -> Self {
        Self { repeats: true, ..self }
    }

    /// Runs all turns. Returns all decisions, or what did not hold.
    pub(super) fn run(
        &mut self,
        decider: &mut Decider<'_>,
        turns: &[Turn],
    ) -> Result<Vec<Decisions>, String> {
        let mut all = Vec::new();
        for turn in turns {
            self.now += turn.passes;
            let now = if turn.is_behind { self.now - HOUR } else { self.now };
            for device in &turn.arrivals {
                // Pods come only where no taint keeps them away.
                let effect = self.last.fences.get(&DeviceId(*device)).map(|fence| fence.effect);
                if effect.is_none_or(|effect| effect == Effect::None) {
                    self.occupied.insert(DeviceId(*device));
                }
            }
            for device in &turn.departures {
                self.occupied.remove(&DeviceId(*device));
            }
            let mut reports = turn.signals.clone();
            let ended = self.outcomes(&turn.outcomes);
            if self.repeats {
                reports.extend(self.ended.iter().cloned());
                self.ended.extend(ended.iter().cloned());
            }
            reports.extend(ended);
            self.decide(decider, now, reports)?;
            all.push(self.last.clone());
        }
        Ok(all)
    }

    /// Lets all that runs end well, and time pass, until nothing is left to do. Operators' fences are released.
    pub(super) fn settle(&mut self, decider: &mut Decider<'_>) -> Result<(), String> {
        let ready = Report::Observation(Observation::NodeReady(true));
        let mut reports: Vec<_> =
            (0..NODES).map(|node| (Unit::Node(node), ready.clone())).collect();
        let held = self.domain.devices.iter().filter(|(_, known)| known.track.is_held);
        let release =
            |(device, _): (&DeviceId, _)| (Unit::Device(*device), Report::Word(Word::Release));
        reports.extend(held.map(release));
        for _ in 0..600 {
            self.now += HOUR / 6;
            let (now, well) = (self.now, vec![Some(true); 64]);
            reports.extend(self.outcomes(&well));
            self.decide(decider, now, std::mem::take(&mut reports))?;
            for device in self.last.evictions.iter().chain(&self.last.drains) {
                self.occupied.remove(device);
            }
        }
        let left: Vec<_> = self
            .domain
            .devices
            .iter()
            .filter(|(_, known)| {
                let state = known.track.state;
                // A bad history fades in weeks.
                let is_bad = state == State::Watch { reason: Reason::HighRisk };
                !is_bad && !matches!(state.name(), "Healthy" | "Retired")
            })
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("neither returned nor retired: {left:?}"))
        }
    }

    /// The outcomes of what runs, in order.
    fn outcomes(&self, outcomes: &[Option<bool>]) -> Vec<(Unit, Report)> {
        let remedies =
            self.last.remedies.iter().map(|applied| {
                (applied.unit, applied.attempt, [Outcome::Refused, Outcome::Remedied])
            });
        let tests = self.last.tests.iter().map(|test| {
            (Unit::Device(test.device), test.attempt, [Outcome::Failed, Outcome::Passed])
        });
        let ends = remedies.chain(tests).zip(outcomes.iter().cycle());
        ends.filter_map(|((unit, attempt, ends), outcome)| {
            let outcome = ends[usize::from((*outcome)?)];
            Some((unit, Report::Outcome { attempt, outcome }))
        })
        .collect()
    }

    fn decide(
        &mut self,
        decider: &mut Decider<'_>,
        now: u64,
        reports: Vec<(Unit, Report)>,
    ) -> Result<(), String> {
        let signal = |(unit, report)| Signal { at: now, unit, report };
        let signals: Vec<Signal> = reports.into_iter().map(signal).collect();
        let (topology, occupied) = (&self.topology, &self.occupied);
        let facts =
            Facts { now, topology, occupied, permitted: None, untestable: None, saving: None };
        let decisions = decider(&mut self.domain, &self.policy, facts, &signals);
        let before = std::mem::replace(&mut self.last, decisions);
        self.check_returns(&before, &signals)?;
        self.check_fences(&before, &signals)?;
        self.check_ends(now, &signals)?;
        self.check_remedies(&before)
    }

    /// A remedy is decided until its outcome or its limit, so no other one meets it in its island.
    fn check_ends(&mut self, now: u64, signals: &[Signal]) -> Result<(), String> {
        let mut runs = BTreeMap::new();
        for applied in &self.last.remedies {
            let began = self.began.remove(&applied.attempt).unwrap_or(now);
            runs.insert(applied.attempt, began.min(now));
        }
        let ended = std::mem::replace(&mut self.began, runs);
        let is_reported = |ended: &Attempt| {
            signals.iter().any(|signal| {
                matches!(&signal.report, Report::Outcome { attempt, .. } if attempt == ended)
            })
        };
        let is_early = |(attempt, began): &(&Attempt, &u64)| {
            now.saturating_sub(**began) < self.policy.rules.limit && !is_reported(attempt)
        };
        match ended.iter().find(is_early) {
            Some((attempt, _)) => Err(format!("{attempt:?} is forgotten while it runs")),
            None => Ok(()),
        }
    }

    /// No fence is lost without a test that passed or an operator's word.
    fn check_returns(&self, before: &Decisions, signals: &[Signal]) -> Result<(), String> {
        for device in out_of_service(before).difference(&out_of_service(&self.last)) {
            let is_returned = |signal: &Signal| {
                let ends = matches!(
                    signal.report,
                    Report::Outcome { outcome: Outcome::Passed, .. } | Report::Word(Word::Release)
                );
                ends && self.topology.devices(signal.unit).contains(device)
            };
            if !signals.iter().any(is_returned) {
                return Err(format!("the fence of {device:?} is lost"));
            }
        }
        Ok(())
    }

    /// Nothing is fenced beyond the nodes of the parts that signals are about, or that wait for a remedy.
    fn check_fences(&self, before: &Decisions, signals: &[Signal]) -> Result<(), String> {
        let named = signals.iter().flat_map(|signal| self.topology.devices(signal.unit));
        let waiting = before.waits.keys().chain(self.last.waits.keys());
        let running = self.last.remedies.iter().flat_map(|applied| &applied.devices);
        let node = |device: &DeviceId| self.topology.place(*device).map(|place| place.node);
        let nodes: BTreeSet<_> = named.chain(waiting).chain(running).filter_map(node).collect();
        let (now, earlier) = (out_of_service(&self.last), out_of_service(before));
        let is_elsewhere =
            |device: &DeviceId| node(device).is_none_or(|node| !nodes.contains(&node));
        match now.difference(&earlier).copied().find(is_elsewhere) {
            Some(device) => Err(format!("{device:?} is fenced, and nothing named its node")),
            None => Ok(()),
        }
    }

    /// Remedies keep to the budget, touch no device with clients (a reboot may, if they are stuck), and do not begin in a storm.
    fn check_remedies(&self, before: &Decisions) -> Result<(), String> {
        let remedies = &self.last.remedies;
        // A device may be retired while a remedy of its group runs on.
        let ran =
            |applied: &Applied| before.remedies.iter().any(|one| one.attempt == applied.attempt);
        let mut by_rack: BTreeMap<u32, u64> = BTreeMap::new();
        for applied in remedies {
            let devices = self.topology.devices(applied.unit);
            let places = devices.iter().filter_map(|device| self.topology.place(*device));
            for rack in places.map(|place| place.rack).collect::<BTreeSet<_>>() {
                *by_rack.entry(rack).or_default() += 1;
            }
            if ran(applied) {
                continue;
            }
            let was_out =
                |device| before.fences.get(device).is_some_and(|fence| !fence.state.may_run());
            let is_stuck = |device| applied.remedy.is_from_outside() && was_out(device);
            if devices.iter().any(|device| self.occupied.contains(device) && !is_stuck(device)) {
                return Err(format!("{applied:?} with clients"));
            }
        }
        if remedies.len() > 2 || by_rack.values().any(|remedies| *remedies > 1) {
            return Err(format!("more than the budget: {remedies:?}"));
        }
        let is_storm = self.last.waits.values().any(|wait| *wait == Wait::Storm);
        let are_new = remedies.iter().any(|applied| !ran(applied));
        if is_storm && are_new { Err("a remedy began in a storm".into()) } else { Ok(()) }
    }
}

/// Devices that take no new pods.
pub(super) fn out_of_service(decisions: &Decisions) -> BTreeSet<DeviceId> {
    let is_out = |effect: Effect| effect >= Effect::NoSchedule;
    let fences = decisions.fences.iter().filter(|(_, fence)| is_out(fence.effect));
    fences.map(|(device, _)| *device).collect()
}
