//! What is to be done about a share, decided from what was seen of it: samples in, actions out. Nothing here
//! looks at a clock, a file or a process; the time comes with the sample.
//!
//! ```text
//!          over in 2 looks                over by 10 % in 2 looks, or for a second
//!  open ------------------> held --------------------------------------------------> frozen, or processes killed
//!    ^                       |                                                          |
//!    +- not over in 2 looks -+---------------------- not over in 2 looks ----------------+
//!
//!  any ---- state damaged ----> fenced, until the share is given back
//! ```
//!
//! A share is *over* when the driver counts more for its processes than its limit and a tolerance, for the
//! driver's count and the guard's differ by what a context takes. What a context is known to take beyond what it
//! was counted for is nobody's fault and not held against the share, and of a new process what any context may
//! take is not, until it was fed back: see [`Sample::excused`]. Processes that are ending are not held
//! against it: their slots are free, and the driver gives their memory back a little later.
//!
//! Two looks need not follow one another at once, or who frees memory before every other look would never be
//! caught: a look over the limit weighs as much as two that are not.

use std::collections::BTreeSet;
use std::time::Duration;

use octavo_api::config::OverflowPolicy;
use octavo_guard_abi::limits::Gate;
use octavo_guard_abi::state::Damage;

use super::context_size;

/// The least excess that counts: what contexts of a few processes may be larger than was thought.
const MIN_TOLERANCE_BYTES: u64 = 64 << 20;
/// The excess that counts is this part of the limit, where that is more.
const TOLERANCE_DIVISOR: u64 = 50;
/// An excess of this part of the limit is not waited for.
const SEVERE_DIVISOR: u64 = 10;
/// What contexts took more than was thought is excused up to this part of the limit, or for one of them.
const EXCUSED_DIVISOR: u64 = 4;
/// How long a smaller excess may last. With a look every 200 ms the share is stopped within a second of the
/// first look that found it over.
const MAX_EXCESS_DURATION: Duration = Duration::from_millis(800);
/// How long processes that were killed may take to be gone before others are.
const KILL_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// What a look over the limit weighs, and what it takes to act; a look that is not over takes one away.
const SAMPLE_WEIGHT: u32 = 2;
const ACTION_WEIGHT: u32 = 2 * SAMPLE_WEIGHT;
/// Looks that are not over before a share may go on.
const BELOW_LOOKS: u32 = 2;

/// A process for as long as it lives: pids come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Process {
    /// Its pid on the host.
    pub(super) pid: u32,
    /// When it began, in clock ticks since boot.
    pub(super) start_time: u64,
}

/// What a process of a share has on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    /// The process.
    pub(super) process: Process,
    /// Bytes as the driver counts them; `None` where it does not tell.
    pub(super) driver_bytes: Option<u64>,
    /// Bytes as its slot says; `None` where it has none, or its slot could not be found.
    pub(super) slot_bytes: Option<u64>,
    /// Of what its slot says, bytes for contexts.
    pub(super) context_bytes: u64,
    /// Whether it came so lately that what its context takes was not fed back yet.
    pub(super) is_new: bool,
    /// Whether all its threads are ending.
    pub(super) is_ending: bool,
}

/// What is wrong with a share's state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateDamage {
    /// It is not what the agent made.
    Damaged(Damage),
    /// It is not there, or another file is.
    Gone,
    /// A guard says so; the number is the frame's.
    Reported(u64),
}

/// What was seen of a share at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// When, since some moment that stays the same.
    pub(super) at: Duration,
    /// What the share may have, in bytes.
    pub(super) limit_bytes: u64,
    /// Its processes on the GPU; `None` where the driver told nothing.
    pub(super) processes: Option<Vec<ProcessUsage>>,
    /// Bytes in all slots, or what is wrong with the file.
    pub(super) slots_bytes: Result<u64, StateDamage>,
    /// Bytes that a context is known to take on the GPU; `None` before one was seen.
    pub(super) context_bytes: Option<u64>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Set the gate.
    Gate(Gate),
    /// Freeze the containers of these processes.
    Freeze(Vec<Process>),
    /// Let what was frozen go on.
    Thaw,
    /// Kill these processes.
    Kill(Vec<Process>),
    /// Notify people.
    Notify(Notice),
}

/// What people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The share has more than it may.
    Overflow {
        /// What the driver counts.
        driver_bytes: u64,
        /// What is done about it.
        response: Response,
        /// Whether that failed, for some process at least.
        has_failed: bool,
    },
    /// It is within its limit again.
    Within,
    /// Its state file is not what it should be; it is fenced.
    Tampered(StateDamage),
    /// An agent before this one fenced it.
    StillFenced,
}

/// What is done about an overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Response {
    /// Nothing but telling.
    Reported,
    /// The gate is held.
    Held,
    /// Containers are frozen.
    Frozen,
    /// Processes are killed.
    Killed,
}

/// A share's course: what is remembered from look to look.
#[derive(Clone, Debug)]
pub(super) struct OverflowState {
    policy: OverflowPolicy,
    gate: Gate,
    /// Weight of the looks that found it over, and of those that found it far over.
    over: u32,
    severe_weight: u32,
    /// Since when it is over.
    since: Option<Duration>,
    /// Looks in a row that did not find it over.
    below_looks: u32,
    frozen: BTreeSet<Process>,
    /// Whether anything may be frozen still, by this process or one before it.
    has_frozen: bool,
    killed: Option<(Duration, Vec<Process>)>,
    /// Those of whom it was told since it was last within its limit.
    reported_killed: BTreeSet<Process>,
    /// The strongest response that was told since it was last within its limit.
    reported: Option<Response>,
}

impl Sample {
    /// What the driver counts for the share's processes; `None` where it told nothing.
    pub(super) fn driver_bytes(&self) -> Option<u64> {
        let processes = self.processes.as_ref()?;
        Some(sum(processes.iter().filter_map(|used| used.driver_bytes)))
    }

    /// What the share has and no slot says. A process of which the driver tells nothing is taken to have what
    /// its slot says.
    pub(super) fn untracked_bytes(&self) -> Option<u64> {
        let processes = self.processes.as_ref()?;
        let reported =
            processes.iter().map(|used| used.driver_bytes.or(used.slot_bytes).unwrap_or(0));
        Some(sum(reported).saturating_sub(self.slots_bytes.unwrap_or(0)))
    }

    /// What contexts of processes take beyond what they were counted for before they were made, in bytes. No
    /// call could have been refused for it. `with_new` tells whether a new process's context may be as large
    /// as any is.
    fn excused(&self, living: &[&ProcessUsage], with_new: bool) -> u64 {
        let known = self.context_bytes.unwrap_or(0);
        let of = |used: &&ProcessUsage| {
            let size =
                if with_new && used.is_new { context_size::MAX_CONTEXT_BYTES } else { known };
            let is_counted = used.slot_bytes.is_some_and(|bytes| bytes > 0);
            let surplus = size.saturating_sub(used.context_bytes).min(used.unaccounted());
            if is_counted && used.context_bytes > 0 { surplus } else { 0 }
        };
        let largest = living.iter().map(of).max().unwrap_or(0);
        // Many contexts at once are many gigabytes of the neighbours': that goes too far.
        sum(living.iter().map(of)).min(largest.max(self.limit_bytes / EXCUSED_DIVISOR))
    }
}

impl ProcessUsage {
    /// What it has and its slot does not say.
    fn unaccounted(&self) -> u64 {
        self.driver_bytes.unwrap_or(0).saturating_sub(self.slot_bytes.unwrap_or(0))
    }
}

impl OverflowState {
    /// The course of a share whose gate stands like this, where `has_frozen` says whether something of it is
    /// frozen: what an agent before this one did goes on.
    pub(super) fn new(policy: OverflowPolicy, gate: Gate, has_frozen: bool) -> Self {
        let is_stopped = gate == Gate::Held || has_frozen;
        Self {
            policy,
            gate,
            over: if is_stopped { ACTION_WEIGHT } else { 0 },
            severe_weight: 0,
            since: None,
            below_looks: 0,
            frozen: BTreeSet::new(),
            has_frozen,
            killed: None,
            reported_killed: BTreeSet::new(),
            // It was told when it was done.
            reported: is_stopped.then_some(if has_frozen {
                Response::Frozen
            } else {
                Response::Held
            }),
        }
    }

    /// How the gate stands.
    pub(super) fn gate(&self) -> Gate {
        self.gate
    }

    /// What an agent before this one did about the share and is not over: conditions do not outlast an agent.
    pub(super) fn inherited(&self, driver_bytes: u64) -> Option<Notice> {
        match (self.gate, self.reported) {
            (Gate::Fenced, _) => Some(Notice::StillFenced),
            (_, Some(response)) => {
                Some(Notice::Overflow { driver_bytes, response, has_failed: false })
            }
            (_, None) => None,
        }
    }

    /// Decides what is to be done now.
    pub(super) fn step(&mut self, sample: &Sample) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Err(damage) = sample.slots_bytes
            && self.gate != Gate::Fenced
        {
            self.gate = Gate::Fenced;
            actions.push(Action::Gate(Gate::Fenced));
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
        // Whoever starts a process after the other to be excused anew is not.
        let is_patient =
            self.since.is_none_or(|since| sample.at.saturating_sub(since) < MAX_EXCESS_DURATION);
        let excused = sample.excused(&living, is_patient);
        if is_over(excused) {
            let bytes = bytes - excused;
            let severe_weight = bytes > limit.saturating_add(tolerance.max(limit / SEVERE_DIVISOR));
            self.over(sample, &living, bytes, severe_weight, &mut actions);
        } else {
            // Also what is within the tolerance: a context that is larger than was thought never gets smaller.
            // Time runs on while it is waited for what is fed back of new processes.
            let is_waited_for = is_over(sample.excused(&living, false));
            if is_waited_for {
                self.since.get_or_insert(sample.at);
            }
            self.not_over(is_complete, is_waited_for, &mut actions);
        }
        actions
    }

    /// Notes that processes could not be frozen: it is tried again.
    pub(super) fn record_freeze_failure(&mut self, processes: &[Process]) {
        for process in processes {
            self.frozen.remove(process);
        }
    }

    /// Notes that not everything that was frozen could be let go on: it is tried again.
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
        self.below_looks = 0;
        self.over = weigh(self.over, true);
        self.severe_weight = weigh(self.severe_weight, is_severe);
        let since = *self.since.get_or_insert(sample.at);
        if self.over < ACTION_WEIGHT {
            return;
        }
        if self.policy != OverflowPolicy::Report && self.gate == Gate::Open {
            self.gate = Gate::Held;
            actions.push(Action::Gate(Gate::Held));
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
                        // Whom nobody was told of is news; who does not go is not.
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

    fn freeze(&mut self, living: &[&ProcessUsage], actions: &mut Vec<Action>) {
        let new = living.iter().map(|used| used.process);
        let new: Vec<_> = new.filter(|process| !self.frozen.contains(process)).collect();
        if !new.is_empty() {
            self.has_frozen = true;
            self.frozen.extend(&new);
            actions.push(Action::Freeze(new));
        }
    }

    /// Whom to kill so that the rest is within the limit: those without a slot first, then by what no slot
    /// says, then the largest. Nobody while those who were killed before are still on their way.
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
        if self.over == 0 && !is_waited_for {
            self.since = None;
        }
        self.below_looks = if is_known { self.below_looks.saturating_add(1) } else { 0 };
        if self.below_looks < BELOW_LOOKS {
            return;
        }
        self.killed = None;
        self.reported_killed.clear();
        if self.has_frozen {
            self.has_frozen = false;
            self.frozen.clear();
            actions.push(Action::Thaw);
        }
        if self.gate == Gate::Held {
            self.gate = Gate::Open;
            actions.push(Action::Gate(Gate::Open));
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
            Self::Held => "hold",
            Self::Frozen => "freeze",
            Self::Killed => "kill",
        }
    }
}

/// The weight of looks after one more.
fn weigh(weight: u32, is_over: bool) -> u32 {
    if is_over { ACTION_WEIGHT.min(weight + SAMPLE_WEIGHT) } else { weight.saturating_sub(1) }
}

/// A sum that stays at the end of the numbers.
fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
