//! Decides the actions for a share: samples in, actions out. No clock, file or process access; the sample contains the
//! time.
//!
//! ```text
//!          over in 2 polls                over by 10 % in 2 polls, or for a second
//!  open ------------------> held --------------------------------------------------> frozen, or processes killed
//!    ^                       |                                                          |
//!    +- below in 2 polls ----+---------------------- below in 2 polls ------------------+
//!
//!  any ---- state damaged ----> fenced, until the share is released
//! ```
//!
//! A share is *over* if the driver counts more for its processes than the limit plus a tolerance. The driver and the
//! guard count contexts differently. The known surplus of a context beyond its charge is therefore excused. A new
//! process is excused for the largest possible context until its size is fed back; see [`Sample::excused`]. Processes
//! that are ending do not count: their slots are free, and the driver frees their memory a little later.
//!
//! The driver also takes memory that no call asks for: code of modules when a kernel is launched first, stacks, channels. So a share
//! whose processes all have intact slots may be over by some of it ([`Sample::tolerated`]). Its allocations are refused then, whatever
//! its policy, since what no slot contains counts against the limit. It is neither held nor stopped: its memory would never shrink.
//!
//! The two polls need not be consecutive. Otherwise a process could free its memory before every second poll and never
//! be caught. A poll over the limit weighs as much as two polls below it.

use std::collections::BTreeSet;
use std::time::Duration;

use octavo_api::config::OverflowPolicy;
use octavo_guard_abi::limits::ShareGate;

use crate::process::Process;

mod sample;

use sample::sum;
pub(super) use sample::{ProcessUsage, Sample, StateDamage};

/// Minimum tolerance in bytes: the expected surplus of a few contexts.
const MIN_TOLERANCE_BYTES: u64 = 64 << 20;
/// The tolerance is this fraction of the limit, if that is more.
const TOLERANCE_DIVISOR: u64 = 50;
/// An excess of this fraction of the limit is handled without waiting.
const SEVERE_DIVISOR: u64 = 10;
/// Maximum duration of a smaller excess. With a poll every 200 ms the share is stopped within a second of the first
/// poll over the limit.
const MAX_EXCESS_DURATION: Duration = Duration::from_millis(800);
/// Time for killed processes to exit before others are killed.
const KILL_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Weight of a poll over the limit, and the weight that triggers an action. A poll below the limit subtracts one.
const SAMPLE_WEIGHT: u32 = 2;
const ACTION_WEIGHT: u32 = 2 * SAMPLE_WEIGHT;
/// Consecutive polls below the limit before a share continues.
const BELOW_LOOKS: u32 = 2;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Set the gate.
    Gate(ShareGate),
    /// Freeze the containers of these processes.
    Freeze(Vec<Process>),
    /// Thaw the containers.
    Thaw,
    /// Kill these processes.
    Kill(Vec<Process>),
    /// Notify people.
    Notify(Notice),
}

/// A notice to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The share has more than it may.
    Overflow {
        /// Bytes counted by the driver.
        driver_bytes: u64,
        /// The response.
        response: Response,
        /// Whether that failed, for some process at least.
        has_failed: bool,
    },
    /// It is within its limit again.
    Within,
    /// Its state file is damaged, and the share is fenced.
    Tampered(StateDamage),
    /// An earlier agent fenced it.
    StillFenced,
}

/// Response to an overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Response {
    /// Nothing but telling.
    Reported,
    /// Allocations are refused.
    Refused,
    /// The gate is held.
    Held,
    /// Containers are frozen.
    Frozen,
    /// Processes are killed.
    Killed,
}

/// Overflow state of a share between polls, with hysteresis.
#[derive(Clone, Debug)]
pub(super) struct OverflowState {
    policy: OverflowPolicy,
    gate: ShareGate,
    /// Weights of the polls over the limit, of those far over it, and of those over it by growth alone.
    over: u32,
    severe_weight: u32,
    grown: u32,
    /// Since when it is over by growth alone.
    grown_since: Option<Duration>,
    /// Since when it is over.
    since: Option<Duration>,
    /// Consecutive polls below the limit, and without anything but growth beyond it.
    below_looks: u32,
    calm_looks: u32,
    frozen: BTreeSet<Process>,
    /// Whether any container may still be frozen, by this process or an earlier one.
    has_frozen: bool,
    killed: Option<(Duration, Vec<Process>)>,
    /// Killed processes reported since the share was last below its limit.
    reported_killed: BTreeSet<Process>,
    /// The strongest response reported since the share was last below its limit.
    reported: Option<Response>,
}

impl OverflowState {
    /// State of a share with this gate. `has_frozen` tells whether any of its containers is frozen. Responses of an
    /// earlier agent continue.
    pub(super) fn new(policy: OverflowPolicy, gate: ShareGate, has_frozen: bool) -> Self {
        let is_stopped = gate == ShareGate::Paused || has_frozen;
        Self {
            policy,
            gate,
            over: if is_stopped { ACTION_WEIGHT } else { 0 },
            severe_weight: 0,
            grown: 0,
            grown_since: None,
            since: None,
            below_looks: 0,
            calm_looks: 0,
            frozen: BTreeSet::new(),
            has_frozen,
            killed: None,
            reported_killed: BTreeSet::new(),
            // The response was reported when it happened.
            reported: is_stopped.then_some(if has_frozen {
                Response::Frozen
            } else {
                Response::Held
            }),
        }
    }

    /// How the gate stands.
    pub(super) fn gate(&self) -> ShareGate {
        self.gate
    }

    /// The continuing response of an earlier agent. Conditions do not survive an agent, so it must be reported again.
    pub(super) fn inherited(&self, driver_bytes: u64) -> Option<Notice> {
        match (self.gate, self.reported) {
            (ShareGate::Fenced, _) => Some(Notice::StillFenced),
            (_, Some(response)) => {
                Some(Notice::Overflow { driver_bytes, response, has_failed: false })
            }
            (_, None) => None,
        }
    }

    /// Decides the actions for a sample.
    pub(super) fn step(&mut self, sample: &Sample) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Err(damage) = sample.slots_bytes
            && self.gate != ShareGate::Fenced
        {
            self.gate = ShareGate::Fenced;
            actions.push(Action::Gate(ShareGate::Fenced));
            actions.push(Action::Notify(Notice::Tampered(damage)));
        }
        let Some(processes) = &sample.processes else { return actions };
        let living: Vec<_> = processes.iter().filter(|used| !used.is_ending).collect();
        let bytes = sum(living.iter().filter_map(|used| used.driver_bytes));
        let is_complete = living.iter().all(|used| used.driver_bytes.is_some());
        let limit = sample.limit_bytes;
        let tolerance = MIN_TOLERANCE_BYTES.max(limit / TOLERANCE_DIVISOR);
        let is_over =
            |excused: u64| bytes.saturating_sub(excused) > limit.saturating_add(tolerance);
        // New processes one after another do not extend the excuse.
        let is_recent = |since: &Duration| sample.at.saturating_sub(*since) < MAX_EXCESS_DURATION;
        let is_patient = [self.since, self.grown_since].iter().flatten().all(is_recent);
        let excused = sample.excused(&living, is_patient);
        if is_over(excused) {
            let tolerated = sample.tolerated(&living, is_patient).max(excused);
            if is_over(tolerated) {
                // Of what is tolerated no process is a victim.
                let bytes = bytes - tolerated;
                let is_severe = bytes > limit.saturating_add(tolerance.max(limit / SEVERE_DIVISOR));
                self.over(sample, &living, bytes, is_severe, &mut actions);
            } else {
                self.grown(sample, &living, is_complete, &mut actions);
            }
        } else {
            // This includes excess within the tolerance: a context never shrinks. The time continues while the sizes of
            // new processes are being fed back.
            let is_waited_for = is_over(sample.excused(&living, false));
            if is_waited_for {
                self.since.get_or_insert(sample.at);
            }
            self.not_over(is_complete, is_waited_for, &mut actions);
        }
        actions
    }

    /// Records processes that could not be frozen, for a retry.
    pub(super) fn record_freeze_failure(&mut self, processes: &[Process]) {
        for process in processes {
            self.frozen.remove(process);
        }
    }

    /// Records that some containers could not be thawed, for a retry.
    pub(super) fn record_thaw_failure(&mut self) {
        self.has_frozen = true;
    }

    fn over(
        &mut self,
        sample: &Sample,
        living: &[&ProcessUsage],
        bytes: u64,
        is_severe: bool,
        actions: &mut Vec<Action>,
    ) {
        (self.below_looks, self.calm_looks) = (0, 0);
        self.over = weigh(self.over, true);
        self.severe_weight = weigh(self.severe_weight, is_severe);
        let since = *self.since.get_or_insert(sample.at);
        if self.over < ACTION_WEIGHT {
            return;
        }
        if self.policy != OverflowPolicy::Report && self.gate == ShareGate::Open {
            self.gate = ShareGate::Paused;
            actions.push(Action::Gate(ShareGate::Paused));
        }
        let is_sustained = sample.at.saturating_sub(since) >= MAX_EXCESS_DURATION;
        let mut response = match self.policy {
            OverflowPolicy::Report => Response::Reported,
            _ => Response::Held,
        };
        if self.severe_weight >= ACTION_WEIGHT || is_sustained {
            match self.policy {
                OverflowPolicy::Report | OverflowPolicy::Hold => {}
                OverflowPolicy::Freeze => {
                    response = Response::Frozen;
                    self.freeze(living, actions);
                }
                OverflowPolicy::Kill => {
                    let victims = self.victims(sample, living, bytes);
                    if !victims.is_empty() {
                        response = Response::Killed;
                        // Report newly killed processes, but not again those that do not exit.
                        let known = self.reported_killed.len();
                        self.reported_killed.extend(&victims);
                        if self.reported_killed.len() > known {
                            self.reported = None;
                        }
                        self.killed = Some((sample.at, victims.clone()));
                        actions.push(Action::Kill(victims));
                    }
                }
            }
        }
        if self.reported < Some(response) {
            self.reported = Some(response);
            let has_failed = false;
            actions.push(Action::Notify(Notice::Overflow {
                driver_bytes: sum(living.iter().filter_map(|used| used.driver_bytes)),
                response,
                has_failed,
            }));
        }
    }

    /// A share that is over by what no call asked for. What was done about more than that is undone.
    fn grown(
        &mut self,
        sample: &Sample,
        living: &[&ProcessUsage],
        is_known: bool,
        actions: &mut Vec<Action>,
    ) {
        self.over = weigh(self.over, false);
        self.severe_weight = weigh(self.severe_weight, false);
        self.grown = weigh(self.grown, true);
        self.grown_since.get_or_insert(sample.at);
        if self.over == 0 {
            self.since = None;
        }
        self.below_looks = 0;
        if self.is_calm(is_known) {
            let has_stopped = self.undo(actions);
            if has_stopped || self.reported > Some(Response::Refused) {
                self.reported = None;
            }
        }
        let response = match self.policy {
            OverflowPolicy::Report => Response::Reported,
            _ => Response::Refused,
        };
        if self.grown == ACTION_WEIGHT && self.reported < Some(response) {
            self.reported = Some(response);
            actions.push(Action::Notify(Notice::Overflow {
                driver_bytes: sum(living.iter().filter_map(|used| used.driver_bytes)),
                response,
                has_failed: false,
            }));
        }
    }

    /// Whether nothing went round the guard for some polls.
    fn is_calm(&mut self, is_known: bool) -> bool {
        self.calm_looks = if is_known { self.calm_looks.saturating_add(1) } else { 0 };
        self.calm_looks >= BELOW_LOOKS
    }

    /// Lets the share go on. Returns whether anything had stopped it.
    fn undo(&mut self, actions: &mut Vec<Action>) -> bool {
        self.killed = None;
        self.reported_killed.clear();
        let has_frozen = std::mem::take(&mut self.has_frozen);
        if has_frozen {
            self.frozen.clear();
            actions.push(Action::Thaw);
        }
        let is_paused = self.gate == ShareGate::Paused;
        if is_paused {
            self.gate = ShareGate::Open;
            actions.push(Action::Gate(ShareGate::Open));
        }
        has_frozen || is_paused
    }

    fn freeze(&mut self, living: &[&ProcessUsage], actions: &mut Vec<Action>) {
        let new = living.iter().map(|used| used.process);
        let new: Vec<_> = new.filter(|process| !self.frozen.contains(process)).collect();
        if !new.is_empty() {
            self.has_frozen = true;
            self.frozen.extend(&new);
            actions.push(Action::Freeze(new));
        }
    }

    /// Processes to kill so that the others are within the limit: first those without a slot, then by bytes missing in
    /// the slot, then by size. Empty while earlier victims are still exiting.
    fn victims(&self, sample: &Sample, living: &[&ProcessUsage], bytes: u64) -> Vec<Process> {
        if let Some((at, killed)) = &self.killed {
            let is_there = living.iter().any(|used| killed.contains(&used.process));
            if is_there && sample.at.saturating_sub(*at) < KILL_GRACE_PERIOD {
                return Vec::new();
            }
        }
        let mut candidates: Vec<_> = living.to_vec();
        candidates.sort_by_key(|used| {
            let by_bytes =
                (std::cmp::Reverse(used.unaccounted()), std::cmp::Reverse(used.driver_bytes));
            (used.slot_bytes.is_some(), by_bytes, used.process)
        });
        let mut left = bytes;
        let mut victims = Vec::new();
        for used in candidates {
            let Some(has) = used.driver_bytes.filter(|bytes| *bytes > 0) else { continue };
            if left <= sample.limit_bytes {
                break;
            }
            left = left.saturating_sub(has);
            victims.push(used.process);
        }
        victims
    }

    fn not_over(&mut self, is_known: bool, is_waited_for: bool, actions: &mut Vec<Action>) {
        self.over = weigh(self.over, false);
        self.severe_weight = weigh(self.severe_weight, false);
        self.grown = weigh(self.grown, false);
        if self.over == 0 && !is_waited_for {
            self.since = None;
        }
        if self.grown == 0 {
            self.grown_since = None;
        }
        self.below_looks = if is_known { self.below_looks.saturating_add(1) } else { 0 };
        if self.is_calm(is_known) {
            self.undo(actions);
        }
        if self.below_looks < BELOW_LOOKS {
            return;
        }
        if self.reported.take().is_some() {
            actions.push(Action::Notify(Notice::Within));
        }
    }
}

impl Response {
    /// The word for a metric's label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "report",
            Self::Refused => "refuse",
            Self::Held => "hold",
            Self::Frozen => "freeze",
            Self::Killed => "kill",
        }
    }
}

/// The weight after one more poll.
fn weigh(weight: u32, is_over: bool) -> u32 {
    if is_over { ACTION_WEIGHT.min(weight + SAMPLE_WEIGHT) } else { weight.saturating_sub(1) }
}

#[cfg(test)]
mod tests;
