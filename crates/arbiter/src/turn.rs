//! Turns: which share has the next one, and when a turn ends.

use std::cmp::Ordering;

use octavo_api::config::ShareClass;
use octavo_guard_abi::lease_page::Lease;

use crate::Arbiter;
use crate::account::{Account, Phase};

/// Which shares go first, whatever the balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Only uses time that others leave.
    BestEffort,
    /// By balance.
    Normal,
    /// Latency-critical, and within what is due to it.
    Urgent,
}

fn rank(account: &Account) -> Rank {
    match account.terms.class {
        ShareClass::BestEffort => Rank::BestEffort,
        ShareClass::LatencyCritical if account.is_urgent => Rank::Urgent,
        ShareClass::LatencyCritical | ShareClass::Normal => Rank::Normal,
    }
}

fn waits(account: &Account) -> bool {
    account.activity.is_waiting && account.activity.processes > 0
}

/// Compares by balance, measured by weight: `Greater` goes first.
fn by_balance(one: &Account, other: &Account) -> Ordering {
    let measure = |account: &Account, by: &Account| {
        i128::from(account.balance) * i128::from(by.terms.weight())
    };
    measure(one, other).cmp(&measure(other, one))
}

fn order(one: &Account, other: &Account) -> Ordering {
    rank(one)
        .cmp(&rank(other))
        .then_with(|| by_balance(one, other))
        .then_with(|| other.waits_since.cmp(&one.waits_since))
}

impl<K: Ord + Clone> Arbiter<K> {
    /// Ends drains that are over, and turns that others may follow.
    pub(crate) fn end_turns(&mut self) {
        let now = self.now;
        for account in self.shares.values_mut() {
            let is_dead = account.activity.processes == 0;
            let is_drained = account.activity.is_drained && account.activity.running == 0;
            // With a limit its use must be seen, so it does not hold a lease that it does not use.
            let is_unused = account.terms.limit.is_some()
                && account.quiet(now) >= self.settings.best_effort_after;
            match account.phase {
                Phase::Draining { .. } if is_dead || is_drained => account.phase = Phase::Stopped,
                Phase::Holding { .. } if is_dead => account.phase = Phase::Stopped,
                Phase::Holding { .. } if account.is_throttled || is_unused => {
                    account.phase = Phase::Draining { since: now };
                }
                _ => {}
            }
        }
        let next = self.best().cloned();
        let Some(next) = next.and_then(|key| self.shares.get(&key)).cloned() else { return };
        let settings = self.settings;
        for account in self.shares.values_mut() {
            let Phase::Holding { since } = account.phase else { continue };
            let quiet = account.quiet(now);
            let stalled = account.stalled(now);
            if stalled >= settings.quantum(&account.terms) {
                // It pays for the time in which it kept others waiting, or it would be the next again.
                account.charge(stalled);
                account.phase = Phase::Draining { since: now };
                continue;
            }
            let has_had_turn = now.saturating_sub(since) >= settings.quantum(&account.terms);
            let ends = match rank(&next).cmp(&rank(account)) {
                Ordering::Greater => true,
                Ordering::Equal => {
                    account.is_free
                        || quiet >= settings.idle_after
                        || (has_had_turn && by_balance(&next, account) == Ordering::Greater)
                }
                Ordering::Less if next.terms.class == ShareClass::BestEffort => {
                    quiet >= settings.best_effort_after
                }
                Ordering::Less => quiet >= settings.idle_after,
            };
            if ends {
                account.phase = Phase::Draining { since: now };
                account.is_free = false;
            }
        }
    }

    /// Begins the next turn if no share has one. A share that drains for longer than two quanta of the next one no longer
    /// stands in its way: both run, and the late one pays.
    pub(crate) fn begin_turn(&mut self) {
        let Some(next) = self.best().cloned() else { return };
        let Some(terms) = self.shares.get(&next).map(|account| account.terms) else { return };
        let (class, grace) = (terms.class, 2 * self.settings.quantum(&terms));
        let is_in_the_way = |account: &Account| match account.phase {
            Phase::Stopped => false,
            Phase::Holding { .. } => true,
            Phase::Draining { .. } => {
                account.activity.running > 0 && !account.is_late(self.now, grace)
            }
        };
        if self.shares.values().any(is_in_the_way) {
            return;
        }
        let is_best_effort = class == ShareClass::BestEffort;
        if is_best_effort && self.now - self.others_rest_since() < self.settings.best_effort_after {
            return;
        }
        if let Some(account) = self.shares.get_mut(&next) {
            account.begin_turn(self.now);
        }
    }

    /// When a share that is not best-effort was last active; 0 if never.
    fn others_rest_since(&self) -> u64 {
        let others = self.shares.values().filter(|a| a.terms.class != ShareClass::BestEffort);
        others.filter_map(|account| account.last_active).max().unwrap_or(0)
    }

    /// Whether a share would begin a turn if it could. A late one may have the next turn, too: it has paid, and what keeps
    /// it may be only one of its processes.
    fn is_candidate(&self, account: &Account) -> bool {
        let grace = 2 * self.settings.quantum(&account.terms);
        let is_ready = account.phase == Phase::Stopped || account.is_late(self.now, grace);
        is_ready && waits(account) && !account.is_throttled
    }

    /// The share that would have the next turn. Of equal ones the first by name.
    fn best(&self) -> Option<&K> {
        let candidates = self.shares.iter().filter(|(_, account)| self.is_candidate(account));
        let best = candidates.reduce(|best, next| match order(next.1, best.1) {
            Ordering::Greater => next,
            Ordering::Less | Ordering::Equal => best,
        });
        best.map(|(key, _)| key)
    }

    /// Lets the holder launch without a cap while no other share wants the GPU.
    pub(crate) fn set_freedom(&mut self) {
        let holder = self.shares.iter().find(|(_, account)| account.is_holding());
        let Some(holder) = holder.map(|(key, _)| key.clone()) else { return };
        let is_free = self.quiet_at(&holder).is_some_and(|at| at <= self.now);
        for (key, account) in &mut self.shares {
            account.is_free = is_free && *key == holder;
        }
    }

    /// When a holder may launch without a cap; `None` if never as things are.
    fn quiet_at(&self, holder: &K) -> Option<u64> {
        let terms = self.shares.get(holder)?.terms;
        let mut others = self
            .shares
            .iter()
            .filter(|(key, account)| *key != holder && account.activity.processes > 0)
            .map(|(_, account)| account);
        let must_yield = |other: &Account| {
            other.terms.class == ShareClass::LatencyCritical
                || terms.class == ShareClass::BestEffort
                || other.is_active()
        };
        if terms.limit.is_some() || others.clone().any(must_yield) {
            return None;
        }
        let quiet = |other: &Account| match other.last_active {
            Some(active) => active.saturating_add(self.settings.alone_after),
            None => 0,
        };
        Some(others.by_ref().map(quiet).max().unwrap_or(0))
    }

    pub(crate) fn lease_of(&self, account: &Account) -> Lease {
        if !account.is_holding() {
            return Lease::None;
        }
        if account.is_free {
            return Lease::Free;
        }
        let is_critical = |other: &Account| {
            other.terms.class == ShareClass::LatencyCritical && other.activity.processes > 0
        };
        let queue = if self.shares.values().any(is_critical) {
            self.settings.latency_critical_queue
        } else {
            self.settings.queue
        };
        Lease::Capped(account.cap(queue))
    }

    /// When the next step is due.
    pub(crate) fn next_step(&self) -> Option<u64> {
        let needs_look = |account: &Account| {
            matches!(account.phase, Phase::Draining { .. })
                || (waits(account) && !account.is_holding())
                || (account.is_holding() && account.terms.limit.is_some())
        };
        if self.shares.values().any(needs_look) {
            let holder = self.shares.values().find(|account| account.is_holding());
            let idle = holder.and_then(|holder| holder.last_active);
            let idle = idle.map(|active| active.saturating_add(self.settings.idle_after));
            let next = self.now.saturating_add(self.settings.interval);
            return Some(idle.filter(|idle| *idle > self.now).map_or(next, |idle| idle.min(next)));
        }
        let (holder, account) = self.shares.iter().find(|(_, account)| account.is_holding())?;
        let at = self.quiet_at(holder)?;
        (!account.is_free).then(|| at.max(self.now.saturating_add(self.settings.interval)))
    }
}
