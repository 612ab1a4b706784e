//! Ends of remedies and tests, each noted once for the metrics.
//!
//! The states before and after a decision show them. So an end by a time limit, or by a person, is one like any other. So is the end of
//! a remedy that an earlier process or boot began: the record has its begin.
//!
//! A GPU that a person orders to be forgotten during its remedy or test has no end here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_health::decide::Domain;
use octavo_health::reason::Reason;
use octavo_health::remedy::Remedy;
use octavo_health::signal::{Attempt, Outcome, Report, Signal};
use octavo_health::state::State;
use octavo_health::unit::{DeviceId, Unit};

use super::NodeHealth;
use super::verification::TestResult;

/// How a remedy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemedyOutcome {
    /// It was applied.
    Remedied,
    /// It was refused, or it failed.
    Refused,
    /// The time that a remedy may take was over.
    TimedOut,
    /// Its agent ended during it. The test after it shows whether it was applied.
    Interrupted,
}

/// How the test of a GPU ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestOutcome {
    /// It found nothing.
    Passed,
    /// It found a fault, the GPU had one during it, or it had no result within its time.
    Failed,
    /// It could not be tried, and comes again.
    NotPossible,
    /// Something else uses the GPU, or its network card is at fault. It comes again.
    PutOff,
    /// A fault of another part, or a person, ended it before it had a result.
    Stopped,
}

/// A remedy or test that ended, and how long it took, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A remedy, which may reach several GPUs.
    Remedy {
        /// Which.
        remedy: Remedy,
        /// How.
        outcome: RemedyOutcome,
        /// Time to its end: from the begin of its last try if this process timed it, otherwise from the decision for it.
        took: Option<Duration>,
    },
    /// The test of one GPU.
    Test {
        /// How.
        outcome: TestOutcome,
        /// Time from the begin of its last run to its end.
        took: Option<Duration>,
    },
}

/// Ends, and what is known of them before a decision.
#[derive(Debug, Default)]
pub(super) struct Ends {
    notes: Notes,
    /// Those that are not counted yet.
    ended: Vec<Ended>,
}

/// What the states do not show of the ends that the next decision takes.
#[derive(Debug, Default)]
struct Notes {
    /// Times of remedies that this process timed.
    took: BTreeMap<Attempt, Duration>,
    /// Remedies that an earlier process left.
    interrupted: BTreeSet<Attempt>,
    /// Results of tests.
    results: BTreeMap<(DeviceId, Attempt), TestOutcome>,
}

/// Remedies and tests that run, each with the time of its begin in seconds.
#[derive(Debug, Default)]
pub(super) struct Runs {
    remedies: BTreeMap<Attempt, (Remedy, u64)>,
    tests: BTreeMap<(DeviceId, Attempt), u64>,
}

impl RemedyOutcome {
    /// Each remedy that is applied, with each outcome that it may have. One from outside outlives the agent, and is never interrupted.
    pub(crate) fn possible() -> impl Iterator<Item = (Remedy, Self)> {
        let remedies = [
            Remedy::ResetFunction,
            Remedy::ResetBus,
            Remedy::ReloadDriver,
            Remedy::Reboot,
            Remedy::PowerCycle,
        ];
        let outcomes = [Self::Remedied, Self::Refused, Self::TimedOut, Self::Interrupted];
        let all =
            remedies.into_iter().flat_map(move |remedy| outcomes.map(|outcome| (remedy, outcome)));
        all.filter(|(remedy, outcome)| *outcome != Self::Interrupted || !remedy.is_from_outside())
    }

    /// Its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Remedied => "remedied",
            Self::Refused => "refused",
            Self::TimedOut => "timed-out",
            Self::Interrupted => "interrupted",
        }
    }
}

impl TestOutcome {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::Passed, Self::Failed, Self::NotPossible, Self::PutOff, Self::Stopped];

    /// Its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotPossible => "not-possible",
            Self::PutOff => "put-off",
            Self::Stopped => "stopped",
        }
    }

    fn of(result: &TestResult) -> Self {
        match result {
            TestResult::Passed => Self::Passed,
            TestResult::Failed(_) => Self::Failed,
            TestResult::NotTried(_) => Self::NotPossible,
            TestResult::PutOff => Self::PutOff,
        }
    }

    /// How a test without a result ended, by the state after it. A fault of the device itself fails its test.
    fn without_result(device: DeviceId, after: State, signals: &[Signal]) -> Self {
        let is_own = |signal: &Signal| {
            signal.unit == Unit::Device(device) && matches!(signal.report, Report::Observation(_))
        };
        let reason = after.reason().filter(|it| !after.may_run() && !it.is_of_others());
        let has_failed = match reason {
            // Its time was over.
            Some(Reason::TestFailed) => true,
            Some(Reason::Operator) | None => false,
            // The reason may be that of a peer or an NVSwitch, which fences the island.
            Some(_) => signals.iter().any(is_own),
        };
        if has_failed { Self::Failed } else { Self::Stopped }
    }
}

impl Ends {
    /// Notes how long a remedy took.
    pub(super) fn timed(&mut self, attempt: Attempt, took: Duration) {
        self.notes.took.insert(attempt, took);
    }

    /// Notes that an earlier process left a remedy.
    pub(super) fn interrupted(&mut self, attempt: Attempt) {
        self.notes.interrupted.insert(attempt);
    }

    /// Notes the result of a test.
    pub(super) fn tested(&mut self, device: DeviceId, attempt: Attempt, result: &TestResult) {
        self.notes.results.insert((device, attempt), TestOutcome::of(result));
    }
}

impl Notes {
    /// How a remedy ended whose devices are not in it any more. Without a report of its end, that was its time limit.
    fn outcome(&self, of: Attempt, signals: &[Signal]) -> RemedyOutcome {
        let reported = signals.iter().find_map(|signal| match &signal.report {
            Report::Outcome { attempt, outcome: Outcome::Remedied } if *attempt == of => {
                Some(RemedyOutcome::Remedied)
            }
            Report::Outcome { attempt, outcome: Outcome::Refused } if *attempt == of => {
                Some(RemedyOutcome::Refused)
            }
            _ => None,
        });
        let is_interrupted = self.interrupted.contains(&of);
        let reported =
            reported.map(|it| if is_interrupted { RemedyOutcome::Interrupted } else { it });
        reported.unwrap_or(RemedyOutcome::TimedOut)
    }
}

impl Runs {
    /// Those of a domain. A remedy runs as long as one of its devices is in it.
    pub(super) fn of(domain: &Domain) -> Self {
        let mut runs = Self::default();
        for (id, device) in &domain.devices {
            let track = &device.track;
            match track.state {
                State::Resetting { remedy, .. } => {
                    runs.remedies.insert(track.attempt, (remedy, track.since));
                }
                State::Verifying { .. } => {
                    runs.tests.insert((*id, track.attempt), track.since);
                }
                _ => {}
            }
        }
        runs
    }
}

impl NodeHealth {
    /// Remedies and tests that ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ends.ended)
    }

    /// Notes what ended with a decision upon some signals. An agent that does not have the node leaves that to the agent that has it.
    pub(super) fn note_ends(&mut self, before: &Runs, signals: &[Signal], now: u64) {
        let notes = std::mem::take(&mut self.ends.notes);
        if !self.is_active() {
            return;
        }
        let after = Runs::of(&self.record.domain);
        for (attempt, (remedy, since)) in &before.remedies {
            if after.remedies.contains_key(attempt) {
                continue;
            }
            let outcome = notes.outcome(*attempt, signals);
            let timed = notes.took.get(attempt).copied();
            // The end of an interrupted one was some time before this.
            let is_known = outcome != RemedyOutcome::Interrupted;
            let took = timed.or_else(|| passed(*since, now).filter(|_| is_known));
            self.ends.ended.push(Ended::Remedy { remedy: *remedy, outcome, took });
        }
        for (test, since) in &before.tests {
            if after.tests.contains_key(test) {
                continue;
            }
            let state = self.record.domain.devices.get(&test.0).map(|device| device.track.state);
            let unknown = state.map_or(TestOutcome::Stopped, |state| {
                TestOutcome::without_result(test.0, state, signals)
            });
            let outcome = notes.results.get(test).copied().unwrap_or(unknown);
            self.ends.ended.push(Ended::Test { outcome, took: passed(*since, now) });
        }
    }
}

/// Time from a begin; `None` if the clock was set back since, as it may be after a boot.
fn passed(since: u64, now: u64) -> Option<Duration> {
    now.checked_sub(since).map(Duration::from_secs)
}
