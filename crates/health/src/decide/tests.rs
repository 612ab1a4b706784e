mod permits;
mod preventive_drain;
mod properties;
mod reboots;
mod refused;
mod untestable;
mod world;

use super::*;
use crate::policy::Mode;
use crate::reason::Reason;
use crate::remedy::Remedy;
use crate::signal::{
    Attempt, JobId, LinkSeverity, Observation, Outcome, RecoveryAction, Report, Word,
};
use crate::state::{Effect, State};
use crate::unit::{Place, Unit};
use crate::{DAY, HOUR};

/// Nodes with some GPUs each. Four nodes are a rack. GPUs of a node are an island, and `resets_alone` holds for all.
pub(super) fn topology(nodes: u32, gpus: u32, resets_alone: bool) -> Topology {
    let place = |device: u32| {
        let node = device / gpus;
        let nvlink_domain = Some(node / 4);
        let nics = vec![device];
        Place { island: node, nics, node, rack: node / 4, nvlink_domain, resets_alone }
    };
    let places = (0..nodes * gpus).map(|device| (DeviceId(device), place(device))).collect();
    Topology::new(places, (0..nodes * gpus).map(|device| (100 + device, DeviceId(device))))
}

/// A policy that acts.
pub(super) fn policy() -> Policy {
    Policy { mode: Mode::Act, evict: true, ..Policy::default() }
}

/// A domain that decides by a policy.
struct Bench {
    policy: Policy,
    topology: Topology,
    domain: Domain,
    occupied: BTreeSet<DeviceId>,
    permitted: Option<BTreeSet<DeviceId>>,
    untestable: Option<BTreeSet<DeviceId>>,
    saving: Option<BTreeSet<DeviceId>>,
    now: u64,
}

impl Bench {
    fn new(nodes: u32, gpus: u32, resets_alone: bool) -> Self {
        Self {
            policy: policy(),
            topology: topology(nodes, gpus, resets_alone),
            domain: Domain::default(),
            occupied: BTreeSet::new(),
            permitted: None,
            untestable: None,
            saving: None,
            now: 1_000,
        }
    }

    fn occupy(&mut self, devices: impl IntoIterator<Item = u32>) {
        self.occupied = devices.into_iter().map(DeviceId).collect();
    }

    fn report(&mut self, reports: impl IntoIterator<Item = (Unit, Report)>) -> Decisions {
        self.now += 1;
        let signal = |(unit, report)| Signal { at: self.now, unit, report };
        let signals: Vec<_> = reports.into_iter().map(signal).collect();
        let Self { policy, topology, occupied, permitted, untestable, saving, now, domain } = self;
        let (permitted, untestable) = (permitted.as_ref(), untestable.as_ref());
        let saving = saving.as_ref();
        let facts = Facts { now: *now, topology, occupied, permitted, untestable, saving };
        domain.decide(policy, facts, &signals)
    }

    fn xid(&mut self, device: u32, number: u32, job: u64) -> Decisions {
        self.report([(gpu(device), xid(number, job))])
    }

    fn states(&self) -> Vec<&'static str> {
        self.domain.devices.values().map(|device| device.track.state.name()).collect()
    }
}

fn gpu(device: u32) -> Unit {
    Unit::Device(DeviceId(device))
}

pub(super) fn xid(number: u32, job: u64) -> Report {
    let link = LinkSeverity::Fatal;
    Report::Observation(Observation::Xid { number, job: Some(JobId(job)), link })
}

fn ended(attempt: u64, outcome: Outcome) -> Report {
    Report::Outcome { attempt: Attempt(attempt), outcome }
}

#[test]
fn a_job_with_errors_on_several_devices_fences_none() {
    let mut bench = Bench::new(1, 4, true);
    for device in [0, 1, 0, 2, 3, 1] {
        assert_eq!(bench.xid(device, 31, 7), Decisions::default());
    }
    let suspects = (0..4).map(DeviceId).collect();
    let failed = Report::Observation(Observation::JobFailed { suspects });
    assert_eq!(bench.report([(Unit::Node(0), failed)]), Decisions::default());
    let base = bench.policy.watch.base;
    let score = bench.domain.devices[&DeviceId(0)].history.score(&bench.policy.risk, base, 0);
    assert!(score.rate > base, "a quarter of the failure");
}

#[test]
fn several_jobs_with_errors_on_one_device_make_it_suspect() {
    let mut bench = Bench::new(1, 2, true);
    bench.occupy([0]);
    assert_eq!(bench.xid(0, 31, 7), Decisions::default());
    let decisions = bench.xid(0, 13, 8);
    let fence = decisions.fences[&DeviceId(0)];
    assert_eq!(fence.effect, Effect::NoSchedule);
    assert_eq!(fence.reason, Some(Reason::RepeatedXid(13)));
    assert_eq!((decisions.drains, decisions.tests), (vec![DeviceId(0)], vec![]));
    bench.occupy([]);
    let decisions = bench.report([]);
    assert_eq!(
        decisions.tests,
        [Running { attempt: Attempt(1), device: DeviceId(0), seconds: 60 }]
    );
}

#[test]
fn a_fault_is_fenced_alone_reset_once_idle_and_returns_after_its_test() {
    let mut bench = Bench::new(1, 2, true);
    bench.occupy([0, 1]);
    let decisions = bench.xid(0, 48, 7);
    assert_eq!(decisions.fences.len(), 1);
    assert_eq!(decisions.fences[&DeviceId(0)].effect, Effect::NoExecute);
    assert_eq!(decisions.evictions, [DeviceId(0)]);
    assert_eq!(decisions.waits, BTreeMap::from([(DeviceId(0), Wait::Clients)]));
    bench.occupy([1]);
    let decisions = bench.report([]);
    let devices = vec![DeviceId(0)];
    let applied =
        Applied { attempt: Attempt(1), remedy: Remedy::ResetFunction, unit: gpu(0), devices };
    assert_eq!(decisions.remedies, std::slice::from_ref(&applied));
    assert_eq!(bench.report([]).remedies, [applied], "until its end");
    let decisions = bench.report([(gpu(0), ended(1, Outcome::Remedied))]);
    assert_eq!(
        decisions.tests,
        [Running { attempt: Attempt(1), device: DeviceId(0), seconds: 60 }]
    );
    let decisions = bench.report([(gpu(0), ended(1, Outcome::Passed))]);
    assert_eq!(decisions.fences[&DeviceId(0)].effect, Effect::None);
    bench.now += DAY;
    assert_eq!(bench.report([]), Decisions::default());
}

#[test]
fn a_remedy_refused_twice_climbs_one_step() {
    let mut bench = Bench::new(1, 1, true);
    bench.xid(0, 48, 7);
    let refused = || (gpu(0), ended(1, Outcome::Refused));
    assert_eq!(bench.report([refused()]).remedies[0].remedy, Remedy::ResetBus);
    assert_eq!(bench.report([refused()]).remedies[0].remedy, Remedy::ResetBus);
}

#[test]
fn an_old_gpu_is_reset_with_its_island() {
    let mut bench = Bench::new(1, 3, false);
    bench.occupy([1]);
    let decisions = bench.xid(0, 48, 7);
    let effects: Vec<_> = decisions.fences.values().map(|fence| fence.effect).collect();
    assert_eq!(effects, [Effect::NoSchedule; 3], "the others make room");
    assert_eq!((decisions.drains, decisions.remedies), (vec![DeviceId(1)], vec![]));
    bench.occupy([]);
    let decisions = bench.report([]);
    assert_eq!(decisions.remedies[0].unit, Unit::Island(0));
    assert_eq!(decisions.remedies[0].devices.len(), 3);
}

#[test]
fn a_pending_row_remap_is_reset_once_idle() {
    let mut bench = Bench::new(1, 2, true);
    bench.occupy([0]);
    let rows = Observation::RemappedRows { is_pending: true, has_failed: false };
    let decisions = bench.report([(gpu(0), Report::Observation(rows.clone()))]);
    assert_eq!(decisions.fences[&DeviceId(0)].effect, Effect::None);
    assert_eq!((decisions.drains, decisions.remedies), (vec![], vec![]), "work goes on");
    bench.occupy([]);
    let decisions = bench.report([]);
    assert_eq!(decisions.remedies[0].remedy, Remedy::ResetFunction);
    assert_eq!(decisions.fences[&DeviceId(0)].reason, Some(Reason::RemapPending));
    // An old GPU waits until its island is idle.
    let mut bench = Bench::new(1, 2, false);
    bench.occupy([1]);
    bench.report([(gpu(0), Report::Observation(rows))]);
    assert_eq!(bench.states(), ["Watch", "Healthy"]);
    bench.occupy([]);
    assert_eq!(bench.report([]).remedies[0].devices.len(), 2);
}

#[test]
fn a_fatal_link_error_fences_the_island() {
    let mut bench = Bench::new(2, 2, true);
    bench.occupy([0, 1, 2]);
    let decisions = bench.xid(1, 74, 7);
    assert_eq!(bench.states(), ["Fenced", "Fenced", "Healthy", "Healthy"]);
    assert_eq!(decisions.evictions, [DeviceId(0), DeviceId(1)]);
    // Two resets in an island wait for each other.
    bench.occupy([]);
    let decisions = bench.report([]);
    assert_eq!(decisions.remedies.len(), 1);
    assert_eq!(decisions.waits.values().collect::<Vec<_>>(), [&Wait::Island]);
}

#[test]
fn a_harsher_remedy_in_the_same_place_goes_first() {
    let mut bench = Bench::new(1, 2, false);
    bench.occupy([0, 1]);
    bench.xid(0, 48, 7);
    bench.xid(1, 79, 7);
    bench.occupy([]);
    assert_eq!(bench.report([]).remedies[0].remedy, Remedy::Reboot);
}

#[test]
fn a_device_that_fails_for_good_keeps_its_island_until_its_remedy_ends() {
    let mut bench = Bench::new(1, 2, true);
    bench.report([(gpu(0), xid(48, 7)), (gpu(1), xid(48, 8))]);
    let decisions = bench.xid(0, 64, 7);
    let units: Vec<_> = decisions.remedies.iter().map(|applied| applied.unit).collect();
    assert_eq!(units, [gpu(0)]);
    let decisions = bench.report([(gpu(0), ended(1, Outcome::Remedied))]);
    assert_eq!((bench.states()[0], decisions.remedies[0].unit), ("Retired", gpu(1)));
}

#[test]
fn a_burn_in_waits_as_other_tests_do() {
    let mut bench = Bench::new(1, 1, true);
    bench.occupy([0]);
    bench.report([(gpu(0), Report::Word(Word::Retire))]);
    let decisions = bench.report([(gpu(0), Report::Word(Word::Release))]);
    assert_eq!(decisions.waits[&DeviceId(0)], Wait::Clients);
    bench.occupy([]);
    assert_eq!(bench.report([]).tests[0].seconds, 2 * HOUR);
    bench.policy.mode = Mode::Observe;
    bench.report([(gpu(0), Report::Word(Word::Retire))]);
    bench.report([(gpu(0), Report::Word(Word::Release))]);
    bench.now += DAY;
    bench.report([]);
    assert_eq!(bench.states(), ["Fenced"]);
}

#[test]
fn remedies_keep_to_the_budget() {
    let mut bench = Bench::new(40, 1, true);
    let faults = [0, 1, 4, 8].map(|device| (gpu(device), xid(48, 7)));
    let decisions = bench.report(faults);
    let units: Vec<_> = decisions.remedies.iter().map(|applied| applied.unit).collect();
    assert_eq!(units, [gpu(0), gpu(4)], "5% of 40 nodes, and one of a rack");
    assert_eq!(decisions.waits.values().collect::<Vec<_>>(), [&Wait::Budget; 2]);
    let decisions = bench.report([(gpu(0), ended(1, Outcome::Remedied))]);
    let units: Vec<_> = decisions.remedies.iter().map(|applied| applied.unit).collect();
    assert_eq!(units, [gpu(1), gpu(4)]);
}

#[test]
fn evictions_keep_to_the_budget() {
    let mut bench = Bench::new(40, 2, true);
    bench.occupy(0..80);
    let decisions = bench.report([0, 1, 2, 10].map(|device| (gpu(device), xid(48, 7))));
    assert_eq!(decisions.evictions, [0, 1, 2].map(DeviceId), "of two nodes at once");
    assert_eq!(decisions.fences[&DeviceId(10)].effect, Effect::NoSchedule);
    bench.occupy(2..80);
    assert_eq!(bench.report([]).evictions, [2, 10].map(DeviceId));
}

#[test]
fn clients_that_do_not_leave_hold_up_no_other_eviction() {
    let mut bench = Bench::new(20, 1, true);
    bench.occupy(0..20);
    let faults = [0, 5].map(|device| (gpu(device), xid(48, 7)));
    assert_eq!(bench.report(faults).evictions, [DeviceId(0)], "one node of twenty");
    bench.now += 598;
    assert_eq!(bench.report([]).evictions, [DeviceId(0)]);
    assert_eq!(bench.report([]).evictions, [0, 5].map(DeviceId));
}

#[test]
fn a_reboot_waits_for_clients_that_work_and_not_for_those_that_hang() {
    let mut bench = Bench::new(1, 2, true);
    bench.policy.evict = false;
    bench.occupy([0, 1]);
    bench.xid(0, 79, 7);
    bench.now += 2 * HOUR;
    assert_eq!(bench.report([]).remedies, [], "a pod runs on the other GPU");
    bench.occupy([0]);
    assert_eq!(bench.report([]).remedies[0].remedy, Remedy::Reboot);
    let mut bench = Bench::new(1, 1, true);
    bench.occupy([0]);
    bench.xid(0, 48, 7);
    bench.now += DAY;
    assert_eq!(bench.report([]).remedies, [], "no reset with clients");
}

#[test]
fn signs_of_many_nodes_are_a_storm_and_words_are_none() {
    let mut bench = Bench::new(20, 1, true);
    bench.report([0, 5, 10].map(|node| (Unit::Node(node), Report::Word(Word::Fence))));
    assert!(!bench.domain.is_storm(bench.now));
    let down = || Report::Observation(Observation::Nvlink { inactive: 1, recoveries: 0 });
    bench.report([1, 6, 11].map(|device| (gpu(device), down())));
    assert!(bench.domain.is_storm(bench.now));
}

#[test]
fn faults_of_many_nodes_stop_remedies_and_keep_fences() {
    let mut bench = Bench::new(20, 1, true);
    let decisions = bench.report([0, 5, 10].map(|device| (gpu(device), xid(48, 7))));
    assert!(bench.domain.is_storm(bench.now));
    assert_eq!((decisions.fences.len(), decisions.remedies.len()), (3, 0));
    assert_eq!(decisions.waits.values().collect::<Vec<_>>(), [&Wait::Storm; 3]);
    bench.now += HOUR;
    assert_eq!(bench.report([]).remedies.len(), 1);
}

#[test]
fn an_observing_policy_shows_and_does_nothing() {
    let mut bench = Bench::new(1, 2, true);
    bench.policy.mode = Mode::Observe;
    bench.occupy([0]);
    let decisions = bench.xid(0, 48, 7);
    let fence = decisions.fences[&DeviceId(0)];
    assert_eq!((fence.state.name(), fence.effect), ("Fenced", Effect::None));
    let shown = Decisions {
        fences: decisions.fences.clone(),
        waits: BTreeMap::from([(DeviceId(0), Wait::Observe)]),
        ..Decisions::default()
    };
    assert_eq!(decisions, shown);
    bench.occupy([]);
    assert_eq!(bench.report([]), shown);
}

#[test]
fn without_remedies_a_device_returns_after_one_by_others_and_its_test() {
    let mut bench = Bench::new(1, 2, true);
    bench.policy.mode = Mode::Fence;
    bench.occupy([0, 1]);
    let decisions = bench.xid(0, 79, 7);
    assert_eq!(bench.states(), ["Fenced", "Healthy"], "there is nothing to make room for");
    assert_eq!(decisions.fences[&DeviceId(0)].effect, Effect::NoSchedule);
    assert_eq!((decisions.drains, decisions.evictions), (vec![DeviceId(0)], vec![]));
    bench.occupy([]);
    let decisions = bench.report([]);
    assert_eq!((decisions.remedies, decisions.tests), (vec![], vec![]));
    assert_eq!(decisions.waits, BTreeMap::from([(DeviceId(0), Wait::Person)]));
    let decisions = bench.report([(gpu(0), Report::RemediedByOthers)]);
    assert_eq!(decisions.tests.len(), 1);
    bench.report([(gpu(0), ended(1, Outcome::Passed))]);
    assert_eq!(bench.states(), ["Probation", "Healthy"]);
    bench.report([(gpu(0), Report::RemediedByOthers), (gpu(1), Report::RemediedByOthers)]);
    assert_eq!(bench.states(), ["Probation", "Healthy"]);
}

#[test]
fn a_remedy_that_waits_for_a_person_holds_up_no_other_gpu_of_the_node_in_the_mode_fence() {
    let mut bench = Bench::new(1, 3, true);
    bench.policy.mode = Mode::Fence;
    bench.policy.by_person = [Remedy::Reboot].into();
    let down = Observation::Nvlink { inactive: 1, recoveries: 0 };
    let decisions = bench.report([(gpu(0), xid(79, 7)), (gpu(1), Report::Observation(down))]);
    assert_eq!(decisions.waits[&DeviceId(0)], Wait::Person);
    assert_eq!(bench.states()[2], "Healthy");
    let decisions = bench.report([(gpu(1), Report::RemediedByOthers)]);
    assert_eq!(decisions.tests.len() + decisions.remedies.len(), 1);
}

#[test]
fn a_node_that_is_not_ready_is_tested_once_it_is() {
    let mut bench = Bench::new(2, 1, true);
    let ready = |ready| [(Unit::Node(0), Report::Observation(Observation::NodeReady(ready)))];
    let decisions = bench.report(ready(false));
    assert_eq!(decisions.fences[&DeviceId(0)].reason, Some(Reason::NodeNotReady));
    assert_eq!(decisions.waits, BTreeMap::from([(DeviceId(0), Wait::NodeNotReady)]));
    assert_eq!(bench.report(ready(true)).tests.len(), 1);
}

#[test]
fn what_an_operator_fenced_is_left_alone() {
    let mut bench = Bench::new(1, 2, true);
    bench.report([(gpu(0), Report::Word(Word::Fence)), (gpu(1), xid(79, 7))]);
    let decisions = bench.report([]);
    assert_eq!(decisions.remedies, []);
    assert_eq!(decisions.waits.values().collect::<Vec<_>>(), [&Wait::Operator; 2]);
    let decisions = bench.report([(gpu(0), Report::Word(Word::Release))]);
    assert_eq!(decisions.remedies[0].unit, Unit::Node(0));
}

#[test]
fn parts_stand_for_their_devices() {
    let mut bench = Bench::new(2, 2, true);
    bench.report([(Unit::Instance(101), xid(48, 7))]);
    assert_eq!(bench.states(), ["Healthy", "Resetting", "Healthy", "Healthy"]);
    bench.report([(Unit::Rack(0), Report::Word(Word::Retire))]);
    assert_eq!(bench.states(), ["Retired", "Resetting", "Retired", "Retired"]);
    bench.report([(gpu(1), ended(1, Outcome::Remedied))]);
    assert_eq!(bench.states(), ["Retired"; 4]);
    assert_eq!(bench.report([(Unit::Nic(99), xid(48, 7))]).remedies, []);
}

#[test]
fn many_failures_make_a_device_watched() {
    let mut bench = Bench::new(8, 1, true);
    for job in 0..6 {
        let failed = Observation::JobFailed { suspects: vec![DeviceId(3)] };
        bench.report([(Unit::Node(0), Report::Observation(failed))]);
        bench.xid(3, 31, job % 2);
    }
    let mut states = vec!["Healthy"; 8];
    states[3] = "Verifying";
    assert_eq!(bench.states(), states, "two jobs had errors on it alone");
    let mut bench = Bench::new(8, 1, true);
    for _ in 0..6 {
        let failed = Observation::JobFailed { suspects: vec![DeviceId(3)] };
        bench.report([(Unit::Node(0), Report::Observation(failed))]);
    }
    let fence = bench.report([]).fences[&DeviceId(3)];
    assert_eq!((fence.effect, fence.reason), (Effect::None, Some(Reason::HighRisk)));
}

#[test]
fn a_device_with_a_bad_history_is_watched_after_its_return() {
    let mut bench = Bench::new(8, 1, true);
    bench.occupy([3]);
    bench.xid(3, 48, 7);
    let failed = Report::Observation(Observation::JobFailed { suspects: vec![DeviceId(3)] });
    bench.report(vec![(Unit::Node(0), failed); 9]);
    bench.report([(gpu(3), Report::Word(Word::Release))]);
    assert_eq!(bench.states()[3], "Probation");
    bench.now += DAY;
    assert_eq!(bench.report([]).fences[&DeviceId(3)].reason, Some(Reason::HighRisk));
}

#[test]
fn a_device_that_left_the_inventory_stays_fenced() {
    let mut bench = Bench::new(1, 2, true);
    bench.occupy([0]);
    bench.xid(0, 48, 7);
    bench.topology = Topology::new(
        bench.topology.places().skip(1).map(|(device, place)| (device, place.clone())).collect(),
        [],
    );
    assert!(bench.report([]).fences.contains_key(&DeviceId(0)));
    bench.domain.forget(DeviceId(0));
    assert!(bench.report([]).fences.is_empty());
}

#[test]
fn advice_of_the_driver_that_ends_does_not_end_the_fence() {
    let mut bench = Bench::new(1, 1, true);
    bench.occupy([0]);
    let advice = |action| [(gpu(0), Report::Observation(Observation::RecoveryAction(action)))];
    bench.report(advice(RecoveryAction::GpuReset));
    bench.report(advice(RecoveryAction::None));
    let state = bench.domain.devices[&DeviceId(0)].track.state;
    let reason = Reason::RecoveryAction(RecoveryAction::GpuReset);
    assert_eq!(state, State::Fenced { reason, needs: Remedy::ResetFunction });
}
