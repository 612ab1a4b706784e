//! Best-effort work beside a latency-critical share, paced by the latency of that share.
//!
//! A *period* of a latency-critical share lasts from its first launch, or from when it waits, until it has nothing in flight. The
//! time of a period by launches, alone on the GPU, is known from periods without best-effort work. While periods beside such work
//! are not much longer, best-effort shares may have more in flight; otherwise half as much (additive increase, multiplicative
//! decrease). What they have in flight stays on the GPU when the latency-critical share begins, and that share waits for none of it.
//!
//! With nothing in flight allowed, best-effort shares begin later, have one launch in flight, and are waited for until they have
//! drained.

use octavo_api::config::ShareClass;

use crate::Arbiter;
use crate::account::{Account, Phase};
use crate::settings::Settings;

/// Periods after which what may be in flight changes.
const PERIODS: u32 = 8;

/// Periods alone before it is tried again after it did not go well.
const REST: u32 = 64;

/// What best-effort shares may have in flight beside one latency-critical share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// Work in flight as time, in nanoseconds; 0 is none.
    budget: u64,
    /// Mean time of a launch in periods alone, in nanoseconds; 0 until one has ended.
    alone: u64,
    /// Periods alone to go before best-effort work may be beside.
    rest: Option<u32>,
    period: Option<Period>,
    /// When the last one ended.
    ended: u64,
    /// Periods beside best-effort work since the budget last changed: how long they took, and would have taken alone.
    took: u64,
    expected: u64,
    periods: u32,
}

/// A period that has begun.
#[derive(Clone, Copy, Debug)]
struct Period {
    since: u64,
    /// Launches that had ended before.
    completed: u64,
    /// Whether best-effort work ran beside it.
    had_others: bool,
}

impl Beside {
    /// Follows the share. `completed` are the launches that have ended before this step, and now.
    fn observe(
        &mut self,
        now: u64,
        account: &Observed,
        others_run: bool,
        (launch, settings): (u64, &Settings),
    ) {
        // A kernel that has begun runs to its end.
        let is_short = launch <= settings.latency_critical_queue / 4;
        if !is_short && self.budget > 0 {
            (self.budget, self.rest) = (0, Some(REST));
        }
        let Some(mut period) = self.period else {
            // Without a budget its wait for others to drain says nothing about work beside it.
            let turn = account.turn_since.filter(|since| *since > self.ended);
            if account.is_active && (account.turn_since.is_some() || self.budget > 0) {
                // If it waited for its turn, its first launch was seen late.
                let since = if self.budget > 0 { now } else { turn.unwrap_or(now) };
                let completed = account.completed.0;
                self.period = Some(Period { since, completed, had_others: others_run });
            }
            return;
        };
        period.had_others |= others_run;
        self.period = Some(period).filter(|_| account.is_active);
        self.ended = now;
        let launches = account.completed.1.saturating_sub(period.completed);
        if account.is_active || launches == 0 {
            return;
        }
        let took = now.saturating_sub(period.since);
        if !period.had_others {
            let mean = (took / launches).max(1);
            self.alone = if self.alone == 0 {
                mean
            } else {
                self.alone.saturating_mul(7).saturating_add(mean) / 8
            };
            let rest = self.rest.unwrap_or(PERIODS).saturating_sub(1);
            self.rest = Some(rest);
            if rest == 0 && is_short && self.budget == 0 {
                self.budget = settings.beside_step.max(launch);
            }
            return;
        }
        if self.budget == 0 || self.alone == 0 {
            return;
        }
        self.took = self.took.saturating_add(took);
        self.expected = self.expected.saturating_add(self.alone.saturating_mul(launches));
        self.periods += 1;
        if self.periods == PERIODS {
            self.adapt(launch, settings);
        }
    }

    fn adapt(&mut self, launch: u64, settings: &Settings) {
        let most = self.expected.saturating_mul(100 + settings.critical_slowdown_percent) / 100;
        if self.took <= most {
            let more = self.budget.saturating_add(settings.beside_step);
            self.budget = more.min(settings.latency_critical_queue);
        } else if self.budget > launch {
            self.budget = (self.budget / 2).max(launch);
        } else {
            // Not even one launch is short enough.
            (self.budget, self.rest) = (0, Some(REST));
        }
        (self.took, self.expected, self.periods) = (0, 0, 0);
    }
}

/// What a latency-critical share does.
struct Observed {
    is_active: bool,
    turn_since: Option<u64>,
    completed: (u64, u64),
}

fn is_best_effort(account: &Account) -> bool {
    account.terms.class == ShareClass::BestEffort
}

impl<K: Ord + Clone> Arbiter<K> {
    /// Follows the latency-critical shares. They have been observed at `now`, and `completed` is what each had done before.
    pub(crate) fn pace(&mut self, now: u64, completed: &[u64]) {
        let others = || self.shares.values().filter(|account| is_best_effort(account));
        let others_run = others().any(|account| account.since.ran > 0);
        let launch = others().map(Account::mean_launch).max().unwrap_or(0);
        let settings = self.settings;
        for (account, before) in self.shares.values_mut().zip(completed) {
            if account.terms.class != ShareClass::LatencyCritical {
                continue;
            }
            let observed = Observed {
                is_active: account.is_active(),
                turn_since: match account.phase {
                    Phase::Holding { since, .. } => Some(since),
                    Phase::Stopped | Phase::Draining { .. } => None,
                },
                completed: (*before, account.activity.completed),
            };
            account.beside.observe(now, &observed, others_run, (launch, &settings));
        }
    }

    /// Work that best-effort shares may have in flight beside latency-critical ones, as time; 0 if none, `None` if no
    /// latency-critical share wanted the GPU for a while.
    pub(crate) fn beside(&self) -> Option<u64> {
        let critical = self.shares.values().filter(|account| {
            account.terms.class == ShareClass::LatencyCritical
                && account.quiet(self.now) < self.settings.alone_after
        });
        critical.map(|account| account.beside.budget).min()
    }

    /// How long a share rests before a best-effort one begins.
    pub(crate) fn rest_of(&self, account: &Account) -> u64 {
        let is_critical = account.terms.class == ShareClass::LatencyCritical;
        if is_critical && self.beside().is_some_and(|budget| budget > 0) {
            self.settings.idle_after
        } else {
            self.settings.best_effort_after
        }
    }

    /// Whether what a share has in flight keeps another one from its turn. It does not if it was given out to be beside it.
    pub(crate) fn keeps_waiting(&self, draining: &Account, next: &Account) -> bool {
        let is_beside = is_best_effort(draining)
            && next.terms.class == ShareClass::LatencyCritical
            && self.beside().is_some_and(|budget| budget > 0);
        !is_beside
    }
}
