//! Tests of a node's GPUs: the driver's word, and what `octavo probe verify` finds on the idle GPU. No test is run here.

use std::collections::{BTreeMap, BTreeSet};

use octavo_health::decide::{Running, Wait};
use octavo_health::policy::{Mode, Test};
use octavo_health::reason::Reason;
use octavo_health::signal::{Attempt, Outcome, Report, Signal};
use octavo_health::state::State;
use octavo_health::unit::{DeviceId, Unit};

use super::{LINK_TRAINING, NodeHealth};
use crate::health::record::{Known, Try};

/// Time after which a test that could not be tried is tried again, in seconds. It doubles each time.
const RETRY: u64 = 30;
/// Longest such time, in seconds.
const LONGEST_RETRY: u64 = 600;

/// What became of a test on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TestResult {
    /// It found nothing.
    Passed,
    /// It found this fault.
    Failed(String),
    /// It could not be tried, for this reason.
    NotTried(String),
    /// Something else uses the GPU, no test reaches all of it, or its network card is at fault. It waits as before the test.
    PutOff,
}

/// GPUs that are tested together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestRun {
    /// The number of each test, and the UUID of its GPU.
    pub(crate) tests: Vec<(Attempt, String)>,
    /// Length, in seconds.
    pub(crate) seconds: u64,
}

/// Tests on GPUs, as far as this process knows them.
#[derive(Debug, Default)]
pub(super) struct DeviceTests {
    /// Those that run, and those whose result is not judged yet.
    current: BTreeMap<DeviceId, (Attempt, Option<TestResult>)>,
    /// Devices whose test with others could not be tried: each is tested by itself until its result is known.
    alone: BTreeSet<DeviceId>,
}

impl NodeHealth {
    /// Whether tests use the GPU. Where a policy observes, and in an agent that does not have the node, the driver's word is the test.
    pub(super) fn tests_on_gpus(&self) -> bool {
        let policy = &self.orders.policy;
        self.is_active() && policy.mode != Mode::Observe && policy.test == Test::Probe
    }

    /// GPUs whose test cannot be tried now.
    pub(super) fn untestable(&self, now: u64) -> BTreeSet<DeviceId> {
        let is_untestable = |(uuid, known): &(&String, &Known)| {
            let waits = known.tried.as_ref().is_some_and(|tried| tried.waits(now));
            let is_mig = self.in_mig_mode.contains(*uuid) && !self.is_out_for_others(known.id);
            let is_unusable = self.tests_on_gpus() && (waits || !self.has_orders || is_mig);
            is_unusable || self.driver.is_some() || self.nic_faults.contains_key(*uuid)
        };
        self.record.gpus.iter().filter(is_untestable).map(|(_, known)| known.id).collect()
    }

    /// Lets tests begin again that an earlier process has left, with their time before them. Until orders are known none begins.
    pub(super) fn resume_tests(&mut self, now: u64) {
        if self.has_resumed {
            return;
        }
        self.has_resumed = self.has_orders;
        // What was seen since this process began is no fault from before the test.
        let first = self.signals.iter().map(|signal| signal.at).fold(now, u64::min);
        for device in self.record.domain.devices.values_mut() {
            if let State::Verifying { .. } = device.track.state {
                device.track.since = first;
            }
        }
    }

    /// Ends the tests whose result is known.
    pub(super) fn end_tests(&mut self, now: u64) {
        let tests = std::mem::take(&mut self.decisions.tests);
        self.tests.current.retain(|device, (attempt, _)| {
            tests.iter().any(|test| (test.device, test.attempt) == (*device, *attempt))
        });
        for test in &tests {
            let Some(result) = self.result(*test, now) else { continue };
            self.tests.current.remove(&test.device);
            self.ends.tested(test.device, test.attempt, &result);
            let outcome = self.judge(test.device, result, now);
            let report = Report::Outcome { attempt: test.attempt, outcome };
            self.signals.push(Signal { at: now, unit: Unit::Device(test.device), report });
        }
        self.decisions.tests = tests;
    }

    /// The result of a test; `None` as long as it runs, or is about to begin. Without a driver nothing is known.
    fn result(&self, test: Running, now: u64) -> Option<TestResult> {
        let (uuid, known) = self.known(test.device).filter(|_| self.driver.is_none())?;
        let is_good = known.seen.is_good() && !self.untrained.contains(uuid);
        let began = self.record.domain.devices.get(&test.device)?.track.since;
        let passed = now.saturating_sub(began);
        let word = |limit: u64| {
            let found =
                "the driver advises something, or rows, links or its answer are not in order";
            (passed >= limit).then(|| TestResult::Failed(found.to_owned()))
        };
        let on_gpu = self.tests.current.get(&test.device).map(|(_, result)| result);
        match on_gpu {
            // No test mends a network card. One that runs goes on: the card may be well by its end.
            Some(Some(TestResult::Passed)) | None if self.nic_faults.contains_key(uuid) => {
                Some(TestResult::PutOff)
            }
            // A pod that tolerates the taint goes first.
            Some(None) if self.orders.held.contains(uuid) => Some(TestResult::PutOff),
            Some(Some(TestResult::Passed)) if !is_good => word(test.seconds + 2 * LINK_TRAINING),
            Some(Some(result)) => Some(result.clone()),
            // Links may still be trained.
            None if !is_good => word(test.seconds.max(LINK_TRAINING)),
            None if !self.tests_on_gpus() => Some(TestResult::Passed),
            // Nothing was against it, and no person should have to release it.
            None if self.in_mig_mode.contains(uuid) && self.is_out_for_others(test.device) => {
                Some(TestResult::Passed)
            }
            // An earlier process of the agent ended during the test.
            None if known
                .tried
                .as_ref()
                .is_some_and(|tried| tried.why.is_none() && tried.waits(now)) =>
            {
                let why = "the agent ended during the test, as for lack of memory";
                Some(TestResult::NotTried(why.to_owned()))
            }
            None if self.in_mig_mode.contains(uuid) || self.occupied.contains(&test.device) => {
                Some(TestResult::PutOff)
            }
            // It runs, or begins after this decision.
            Some(None) | None => None,
        }
    }

    /// Notes a result.
    fn judge(&mut self, device: DeviceId, result: TestResult, now: u64) -> Outcome {
        let known = self.record.gpus.values_mut().find(|known| known.id == device);
        let Some(known) = known else { return Outcome::NotTried };
        let found = match result {
            TestResult::PutOff => {
                known.tried.take_if(|tried| tried.why.is_none());
                return Outcome::NotTried;
            }
            TestResult::NotTried(why) => {
                let delay = known.tried.as_ref().map_or(RETRY, |tried| tried.delay);
                known.tried = Some(Try { why: Some(why), next: now + delay, delay, seconds: 0 });
                return Outcome::NotTried;
            }
            TestResult::Passed => None,
            TestResult::Failed(found) => Some(found),
        };
        self.tests.alone.remove(&device);
        let outcome = if found.is_none() { Outcome::Passed } else { Outcome::Failed };
        (known.found, known.tried) = (found, None);
        outcome
    }

    /// The tests of one length that are to begin on their GPUs, as one run; `None` if there are none. They count as begun, and their time
    /// runs from now.
    pub(crate) fn next_tests(&mut self, now: u64) -> Option<TestRun> {
        if !self.tests_on_gpus() || !self.has_orders {
            return None;
        }
        let mut run = TestRun { tests: Vec::new(), seconds: 0 };
        let mut is_alone_busy = self.tests.alone.iter().any(|device| self.is_under_test(*device));
        let mut is_full = false;
        for test in self.decisions.tests.clone() {
            let Some((uuid, known)) = self.known(test.device) else { continue };
            let is_due = known.seen.is_good()
                && !self.in_mig_mode.contains(uuid)
                && !self.occupied.contains(&test.device)
                && !self.tests.current.contains_key(&test.device);
            if !is_due {
                continue;
            }
            let is_alone = self.tests.alone.contains(&test.device);
            // Those that are tested by themselves follow one another, as one process has memory for all of a run.
            let waits = is_alone && is_alone_busy;
            let fits =
                run.tests.is_empty() || (run.seconds == test.seconds && !is_alone && !is_full);
            let is_begun = !waits && fits;
            if is_begun {
                run.tests.push((test.attempt, uuid.clone()));
                run.seconds = test.seconds;
                is_full = is_alone;
                is_alone_busy |= is_alone;
                self.tests.current.insert(test.device, (test.attempt, None));
                self.note_try(test, now);
            }
            if is_begun || waits {
                self.restart_time(test.device, now);
            }
        }
        self.store();
        (!run.tests.is_empty()).then_some(run)
    }

    /// Notes that a test begins, and when it would be tried again: a try that ends the agent may do so at the end of the test.
    fn note_try(&mut self, test: Running, now: u64) {
        let Running { device, seconds, .. } = test;
        if let Some(known) = self.record.gpus.values_mut().find(|known| known.id == device) {
            let last = known.tried.as_ref();
            let delay = last.map_or(RETRY, |last| (last.delay * 2).min(LONGEST_RETRY));
            let next = now.saturating_add(seconds).saturating_add(delay);
            known.tried = Some(Try { why: None, next, delay, seconds });
        }
    }

    /// Has the time of a test run from now.
    fn restart_time(&mut self, device: DeviceId, now: u64) {
        if let Some(device) = self.record.domain.devices.get_mut(&device) {
            device.track.since = device.track.since.max(now);
        }
    }

    /// Whether a run is not wanted any more, as after a fault of one of its GPUs, or the word of a person.
    pub(crate) fn is_void(&self, run: &TestRun) -> bool {
        !run.tests.iter().all(|(attempt, uuid)| self.runs(*attempt, uuid))
    }

    /// A run was ended early. Those of its tests that are wanted begin again.
    pub(crate) fn ended_early(&mut self, run: &TestRun) {
        for (attempt, uuid) in &run.tests {
            if self.runs(*attempt, uuid)
                && let Some(known) = self.record.gpus.get(uuid)
            {
                self.tests.current.remove(&known.id);
            }
            if let Some(known) = self.record.gpus.get_mut(uuid) {
                known.tried.take_if(|tried| tried.why.is_none());
            }
        }
        self.store();
    }

    /// Takes what became of the tests of a run. One process tested its GPUs. If it could not try one of several, the cause may be
    /// another one: then each is tested by itself.
    pub(crate) fn tested(&mut self, results: Vec<(Attempt, String, TestResult)>) {
        let is_group = results.len() > 1;
        for (attempt, uuid, result) in results {
            if !self.runs(attempt, &uuid) {
                continue;
            }
            let Some(known) = self.record.gpus.get_mut(&uuid) else { continue };
            let device = known.id;
            if is_group && matches!(result, TestResult::NotTried(_)) {
                known.tried = None;
                self.tests.alone.insert(device);
                self.tests.current.remove(&device);
            } else {
                self.tests.current.insert(device, (attempt, Some(result)));
            }
        }
    }

    /// Whether a device is out of service for the remedy of another one, or for its network card, alone.
    fn is_out_for_others(&self, device: DeviceId) -> bool {
        let known = self.record.domain.devices.get(&device);
        known.and_then(|known| known.track.state.reason()).is_some_and(Reason::is_of_others)
    }

    /// Whether a process of this agent uses a GPU for its test.
    pub(super) fn is_under_test(&self, device: DeviceId) -> bool {
        matches!(self.tests.current.get(&device), Some((_, None)))
    }

    /// What a device's last test found, or why it cannot be tested, if that is why it is out of service.
    pub(super) fn test_detail(&self, uuid: &str, known: &Known) -> Option<String> {
        let fence = self.decisions.fences.get(&known.id)?;
        let is_not_possible = self.decisions.waits.get(&known.id) == Some(&Wait::TestNotPossible);
        if let Some(fault) = self.nic_faults.get(uuid)
            && (is_not_possible || fence.reason == Some(Reason::Nic))
        {
            let what = if is_not_possible { "the test waits: " } else { "" };
            return Some(format!("{what}{fault}"));
        }
        if is_not_possible {
            let why = if self.in_mig_mode.contains(uuid) {
                "it is in MIG mode, in which no test reaches all of it: a person releases it, or the policy's test is Driver"
            } else if !self.has_orders {
                "the policy of the node is not known yet"
            } else if self.driver.is_some() {
                "the driver does not answer, or is released"
            } else {
                known.tried.as_ref()?.why.as_ref()?
            };
            return Some(format!("the test could not be tried: {why}"));
        }
        let found = known.found.as_ref().filter(|_| fence.reason == Some(Reason::TestFailed))?;
        Some(found.clone())
    }

    fn runs(&self, attempt: Attempt, uuid: &str) -> bool {
        let known = self.record.gpus.get(uuid);
        known.is_some_and(|known| {
            self.tests.current.get(&known.id).is_some_and(|test| *test == (attempt, None))
        })
    }

    fn known(&self, device: DeviceId) -> Option<(&String, &Known)> {
        self.record.gpus.iter().find(|(_, known)| known.id == device)
    }
}
