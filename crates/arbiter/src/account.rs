//! The account of one share: what is due to it, what it used, and what it does now.

use octavo_api::config::ComputePart;

use crate::MILLISECOND;
use crate::beside::Beside;
use crate::gangs::Seat;
use crate::settings::Settings;
use crate::terms::{Terms, part_of, scale};

/// What the processes of a share do, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Processes that can launch.
    pub processes: u32,
    /// Processes with work in flight. A process that has not drained since its lease ended is one of them, even if its
    /// launches were not counted.
    pub running: u32,
    /// Whether a thread waits to launch, for a lease or for room under the cap.
    pub is_waiting: bool,
    /// Launches that have ended so far. The number decreases when a process ends.
    pub completed: u64,
}

/// What a share had of the GPU's time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareTime {
    /// Time in which it ran.
    pub used: u64,
    /// Time in which it waited for others.
    pub waited: u64,
    /// Time in which it waited because of its limit.
    pub throttled: u64,
    /// How long it has been waiting now, for others or because of its limit.
    pub waiting: u64,
    /// Turns that it had.
    pub turns: u64,
    /// The time that it used beyond what was due to it.
    pub debt: u64,
}

/// Where a share is between two turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has no lease and runs nothing.
    Stopped,
    /// It has the lease since then. If the turn began while a gang waits for the GPU, it may end before its quantum is over.
    Holding { since: u64, is_filler: bool },
    /// Its lease ended then, and it may still run.
    Draining { since: u64 },
}

/// What a share did since the last step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Since {
    /// Processes that ran.
    pub(crate) ran: u32,
    /// Whether it ran or waited.
    pub(crate) was_active: bool,
    /// Whether it waited for a lease.
    waited: bool,
}

/// The account of one share.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) terms: Terms,
    pub(crate) phase: Phase,
    pub(crate) activity: Activity,
    /// Time that is due to it; negative if it used more.
    pub(crate) balance: i64,
    /// Time left under its limit.
    allowance: i64,
    /// Whether the allowance ran out and has not been refilled.
    pub(crate) is_throttled: bool,
    /// Whether a latency-critical share goes before others: it has not used up what was due to it.
    pub(crate) is_urgent: bool,
    /// When it last ran or waited.
    pub(crate) last_active: Option<u64>,
    /// When it last ran.
    last_ran: Option<u64>,
    /// When it began to wait without a break.
    pub(crate) waits_since: Option<u64>,
    /// When a launch of it last ended, and how many since the last step.
    pub(crate) last_progress: Option<u64>,
    progress: u64,
    pub(crate) since: Since,
    /// Mean time of a launch, from the time it ran; 0 until one has ended.
    mean_launch: u64,
    /// Time used, and launches that ended, since `mean_launch` was last updated.
    unmeasured: (u64, u64),
    /// Whether it may launch without a cap.
    pub(crate) is_free: bool,
    /// Its place in a gang, if it is in one that is at work.
    pub(crate) seat: Option<Seat>,
    /// What may be in flight beside it, if it is latency-critical.
    pub(crate) beside: Beside,
    time: ShareTime,
}

impl Account {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            phase: Phase::Stopped,
            activity: Activity::default(),
            balance: 0,
            allowance: 0,
            is_throttled: terms.limit.is_some(),
            is_urgent: true,
            last_active: None,
            last_ran: None,
            waits_since: None,
            last_progress: None,
            progress: 0,
            since: Since::default(),
            mean_launch: 0,
            unmeasured: (0, 0),
            is_free: false,
            seat: None,
            beside: Beside::default(),
            time: ShareTime::default(),
        }
    }

    pub(crate) fn set_terms(&mut self, terms: Terms) {
        self.is_throttled &= terms.limit.is_some();
        self.terms = terms;
    }

    /// Takes what the share does now.
    pub(crate) fn observe(&mut self, now: u64, activity: Activity) {
        self.progress = activity.completed.saturating_sub(self.activity.completed);
        self.unmeasured.1 = self.unmeasured.1.saturating_add(self.progress);
        if self.progress > 0 {
            self.last_progress = Some(now);
        }
        self.measure();
        let ran = if self.is_free && self.is_holding() {
            // Its launches are not counted.
            1
        } else {
            self.activity.running.max(activity.running).max(u32::from(self.progress > 0))
        };
        self.since = Since {
            ran,
            was_active: ran > 0 || self.activity.is_waiting,
            waited: self.activity.is_waiting && !self.is_holding(),
        };
        self.activity = activity;
        if ran > 0 {
            self.last_ran = Some(now);
        }
        if self.since.was_active || self.is_active() {
            self.last_active = Some(now);
        }
        let waits = activity.is_waiting && !self.is_holding();
        self.waits_since = waits.then(|| self.waits_since.unwrap_or(now));
    }

    /// Follows the mean time of a launch. Short samples say little: the end of a launch is seen late.
    fn measure(&mut self) {
        const SAMPLE: u64 = 2 * MILLISECOND;
        let (time, launches) = self.unmeasured;
        if time < SAMPLE || launches == 0 {
            return;
        }
        let mean = (time / launches).clamp(1, u64::MAX / 4);
        self.mean_launch = match self.mean_launch {
            0 => mean,
            before => (3 * before + mean) / 4,
        };
        self.unmeasured = (0, 0);
    }

    /// Whether it runs or wants to. Without a cap its launches are not counted, so it is taken to run.
    pub(crate) fn is_active(&self) -> bool {
        self.activity.is_waiting || self.activity.running > 0 || (self.is_free && self.is_holding())
    }

    /// How long it has neither run nor waited.
    pub(crate) fn quiet(&self, now: u64) -> u64 {
        self.last_active.map_or(u64::MAX, |active| now.saturating_sub(active))
    }

    /// How long it has held its turn, waited, and run nothing, as a process does that is stopped while it waits.
    pub(crate) fn stalled(&self, now: u64) -> u64 {
        let Phase::Holding { since, .. } = self.phase else { return 0 };
        if self.is_free || self.activity.running > 0 || !self.activity.is_waiting {
            return 0;
        }
        now.saturating_sub(self.last_ran.map_or(since, |ran| ran.max(since)))
    }

    /// Whether it has not drained for a time since its turn ended.
    pub(crate) fn is_late(&self, now: u64, time: u64) -> bool {
        matches!(self.phase, Phase::Draining { since } if now.saturating_sub(since) >= time)
    }

    pub(crate) fn is_holding(&self) -> bool {
        matches!(self.phase, Phase::Holding { .. })
    }

    /// Launches that may be in flight in each of its processes, at least `least`.
    pub(crate) fn cap(&self, queue: u64, least: u64) -> u32 {
        const MAX: u64 = 1_024;
        // While their duration is not known there are twice the least.
        let launches = queue.checked_div(self.mean_launch).unwrap_or(2 * least);
        let each = launches / u64::from(self.activity.processes.max(1));
        u32::try_from(each.clamp(least, MAX)).unwrap_or(u32::MAX)
    }

    /// Mean time of a launch, in nanoseconds; 0 until one has ended.
    pub(crate) fn mean_launch(&self) -> u64 {
        self.mean_launch
    }

    pub(crate) fn time(&self, now: u64) -> ShareTime {
        let waiting = self.waits_since.map_or(0, |since| now.saturating_sub(since));
        ShareTime { debt: self.balance.min(0).unsigned_abs(), waiting, ..self.time }
    }

    pub(crate) fn end_turn(&mut self, now: u64) {
        self.phase = Phase::Draining { since: now };
        self.is_free = false;
    }

    pub(crate) fn begin_turn(&mut self, now: u64, is_filler: bool) {
        self.phase = Phase::Holding { since: now, is_filler };
        self.waits_since = None;
        self.time.turns += 1;
    }

    pub(crate) fn charge(&mut self, used: u64) {
        let used_signed = i64::try_from(used).unwrap_or(i64::MAX);
        self.balance = self.balance.saturating_sub(used_signed);
        self.allowance = self.allowance.saturating_sub(used_signed);
        self.unmeasured.0 = self.unmeasured.0.saturating_add(used);
        self.time.used = self.time.used.saturating_add(used);
    }

    /// Adds what became due, and what its limit lets it use, in a time that has passed.
    pub(crate) fn credit(&mut self, due: i64, passed: u64, settings: &Settings) {
        let weight = self.terms.weight();
        let credit_of = |time| scale(time, weight, u64::from(ComputePart::WHOLE.0));
        let window = i64::try_from(settings.window).unwrap_or(i64::MAX);
        // An idle share gathers less, so that it does not keep others waiting when it returns.
        let most =
            credit_of(if self.since.was_active { settings.window } else { settings.window / 10 });
        let balance = self.balance.saturating_add(due);
        self.balance = balance.min(most.max(self.balance)).max(window.saturating_mul(-10));
        if let Some(limit) = self.terms.limit {
            /// A turn after the limit begins with this much wall time's allowance.
            const REFILL: u64 = 50 * MILLISECOND;
            let most = part_of(limit, settings.window / 10);
            let least = most.saturating_mul(-10);
            self.allowance =
                self.allowance.saturating_add(part_of(limit, passed)).clamp(least, most);
            if self.allowance <= 0 {
                self.is_throttled = true;
            } else if self.allowance >= part_of(limit, REFILL).min(most) {
                self.is_throttled = false;
            }
        }
        let quantum = i64::try_from(settings.quantum(&self.terms)).unwrap_or(i64::MAX);
        if self.balance >= 0 {
            self.is_urgent = true;
        } else if self.balance < -quantum {
            self.is_urgent = false;
        }
        if self.since.waited {
            let waited =
                if self.is_throttled { &mut self.time.throttled } else { &mut self.time.waited };
            *waited = waited.saturating_add(passed);
        }
    }
}
