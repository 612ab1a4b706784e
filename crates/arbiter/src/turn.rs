//! Turns: which share has the next one, and when a turn ends.

use std::cmp::Ordering;

use octavo_api::config::ShareClass;
use octavo_guard_abi::lease_page::Lease;

use crate::Arbiter;
use crate::account::{Account, Phase};
use crate::gangs::Seat;

/// Which shares go first, whatever the balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A member of a gang that waits for its other GPUs.
    Filler,
    /// Only uses time that others leave.
    BestEffort,
    /// By balance.
    Normal,
    /// Latency-critical, and within what is due to it.
    Urgent,
    /// A member of a gang that has its turn.
    Gang,
}

fn rank(account: &Account) -> Rank {
    match account.seat {
        None => own_rank(account),
        Some(Seat::Waits | Seat::Awaited | Seat::Called) => Rank::Filler,
        Some(Seat::Has) => Rank::Gang,
    }
}

/// The rank without regard to a gang.
pub(crate) fn own_rank(account: &Account) -> Rank {
    match account.terms.class {
        ShareClass::BestEffort => Rank::BestEffort,
        ShareClass::LatencyCritical if account.is_urgent => Rank::Urgent,
        ShareClass::LatencyCritical | ShareClass::Normal => Rank::Normal,
    }
}

pub(crate) fn waits(account: &Account) -> bool {
    account.activity.is_waiting && account.activity.processes > 0
}

/// Compares by balance, measured by weight: `Greater` goes first.
pub(crate) fn by_balance(one: &Account, other: &Account) -> Ordering {
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
        let has_room_for_filler = self.has_room_for_filler();
        for account in self.shares.values_mut() {
            let is_dead = account.activity.processes == 0;
            let is_drained = account.activity.running == 0;
            // With a limit its use must be seen, so it does not hold a lease that it does not use.
            let is_unused = account.terms.limit.is_some()
                && account.quiet(now) >= self.settings.best_effort_after;
            match account.phase {
                Phase::Draining { .. } if is_dead || is_drained => account.phase = Phase::Stopped,
                Phase::Holding { .. } if is_dead => account.phase = Phase::Stopped,
                Phase::Holding { .. } if account.is_throttled || is_unused => {
                    account.phase = Phase::Draining { since: now };
                }
                Phase::Holding { .. }
                    if matches!(account.seat, Some(Seat::Waits | Seat::Awaited))
                        && !has_room_for_filler =>
                {
                    account.end_turn(now);
                }
                _ => {}
            }
        }
        if self.is_called() {
            let others =
                self.shares.values_mut().filter(|account| account.seat != Some(Seat::Called));
            for account in others.filter(|account| account.is_holding()) {
                account.end_turn(now);
            }
            return;
        }
        let next = self.best().cloned();
        let Some(next) = next.and_then(|key| self.shares.get(&key)).cloned() else { return };
        let settings = self.settings;
        let rests: Vec<u64> = self.shares.values().map(|account| self.rest_of(account)).collect();
        for (account, rest) in self.shares.values_mut().zip(rests) {
            let Phase::Holding { since, .. } = account.phase else { continue };
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
                // A gang has its turn on all its GPUs, or on none. Only what it does not use is given away.
                _ if account.seat == Some(Seat::Has) => quiet >= settings.best_effort_after,
                Ordering::Equal => {
                    account.is_free
                        || quiet >= settings.idle_after
                        || (has_had_turn && by_balance(&next, account) == Ordering::Greater)
                }
                Ordering::Less if next.terms.class == ShareClass::BestEffort => quiet >= rest,
                Ordering::Less => quiet >= settings.idle_after,
            };
            if ends {
                account.end_turn(now);
            }
        }
    }

    /// Begins the next turn if no share has one. A share that drains for longer than two quanta of the next one no longer
    /// stands in its way: both run, and the late one pays.
    pub(crate) fn begin_turn(&mut self) {
        if self.is_called() {
            return;
        }
        let Some(next) = self.best().cloned() else { return };
        let Some(terms) = self.shares.get(&next).map(|account| account.terms) else { return };
        let (class, grace) = (terms.class, 2 * self.settings.quantum(&terms));
        let is_holding = self.shares.values().any(Account::is_holding);
        if is_holding || !self.is_clear_for(&next, grace) || !self.leaves_time_for(class) {
            return;
        }
        let is_filler = self.is_wanted;
        if let Some(account) = self.shares.get_mut(&next) {
            account.begin_turn(self.now, is_filler);
        }
    }

    /// Whether the GPU is cleared for a gang that will have its turn.
    fn is_called(&self) -> bool {
        self.shares.values().any(|account| account.seat == Some(Seat::Called))
    }

    /// Whether no other share stands in the way of a turn. One that drains does so for a time.
    pub(crate) fn is_clear_for(&self, key: &K, grace: u64) -> bool {
        let Some(next) = self.shares.get(key) else { return true };
        let is_in_the_way = |account: &Account| match account.phase {
            Phase::Stopped => false,
            Phase::Holding { .. } => true,
            Phase::Draining { .. } => {
                account.activity.running > 0
                    && !account.is_late(self.now, grace)
                    && self.keeps_waiting(account, next)
            }
        };
        !self.shares.iter().any(|(other, account)| other != key && is_in_the_way(account))
    }

    /// Whether others have had nothing to do for long enough, if the class is best-effort. What a gang cannot use now is
    /// time that it leaves.
    pub(crate) fn leaves_time_for(&self, class: ShareClass) -> bool {
        if class != ShareClass::BestEffort {
            return true;
        }
        let others = self.shares.values().filter(|account| {
            let waits = matches!(account.seat, Some(Seat::Waits | Seat::Awaited));
            account.terms.class != ShareClass::BestEffort && !waits
        });
        let mut lasts = others.filter_map(|it| Some((it.last_active?, self.rest_of(it))));
        lasts.all(|(last, rest)| self.now - last >= rest)
    }

    /// Whether a share would begin a turn if it could. A late one may have the next turn, too: it has paid, and what keeps
    /// it may be only one of its processes. It may not while a gang waits for it to drain.
    pub(crate) fn is_candidate(&self, account: &Account) -> bool {
        let grace = 2 * self.settings.quantum(&account.terms);
        let is_late = account.is_late(self.now, grace) && !self.is_wanted;
        let is_ready = account.phase == Phase::Stopped || is_late;
        let may_begin = rank(account) != Rank::Filler || self.has_room_for_filler();
        is_ready && may_begin && waits(account) && !account.is_throttled
    }

    /// Whether no share but members of gangs that wait, and one such member at most, has wanted the GPU for a while. Then the member
    /// may go on without its gang. Its kernels may spin until the gang's turn, so none may stand in another share's way.
    fn has_room_for_filler(&self) -> bool {
        let is_recent = |account: &&Account| {
            account.quiet(self.now) < self.settings.alone_after || account.activity.running > 0
        };
        self.shares.values().filter(is_recent).count() <= 1
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
        /// One runs and one follows.
        const LEAST: u64 = 2;
        if !account.is_holding() {
            let is_awaited = account.seat == Some(Seat::Awaited);
            return if is_awaited { Lease::Capped(1) } else { Lease::None };
        }
        if account.is_free {
            return Lease::Free;
        }
        let is_best_effort = account.terms.class == ShareClass::BestEffort;
        let is_critical = |other: &Account| {
            other.terms.class == ShareClass::LatencyCritical && other.activity.processes > 0
        };
        let cap = match self.beside() {
            Some(budget) if is_best_effort => account.cap(budget, 1),
            _ if self.shares.values().any(is_critical) => {
                account.cap(self.settings.latency_critical_queue, LEAST)
            }
            _ => account.cap(self.settings.queue, LEAST),
        };
        Lease::Capped(cap)
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
