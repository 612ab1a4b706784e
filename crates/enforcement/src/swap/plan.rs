//! Divides the memory of one GPU among its shares: how much each may have, and whose processes are moved to the host.
//!
//! A share has its request whenever it wants. Up to its limit it has what others leave: free memory of the GPU, and
//! requests that are not used. Such a share is *elastic*, and what it may have now is *granted*. The sum of all grants
//! never exceeds the GPU.
//!
//! ```text
//!   a share needs more than is granted
//!     free memory  ->  unused grants of elastic shares  ->  victims  ->  refused
//!
//!   resident --victim--> leaving --its memory is free--> out --wanted, and there is room--> returning --> resident
//! ```
//!
//! A *victim* is an elastic share with more than its request. Its processes are moved as a whole, or but for memory that
//! stays on the GPU. For a share within its
//! request any victim is taken. For one above it only victims that are idle, or, if that share is out itself, those that
//! have been resident for a turn. So a share within its request is never moved, and shares that do not fit together take
//! turns.
//!
//! This does no I/O and reads no clock: the same observations give the same moves. All sizes are in bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_api::config::ShareClass;

use account::{Account, Place};
pub(crate) use settings::PlanSettings;
use victims::Victims;
use wants::{Rank, Want};

mod account;
mod settings;
mod victims;
mod wants;

/// Observation of a share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct ShareMemory {
    /// Memory that it has whenever it wants.
    pub(crate) request: u64,
    /// Memory that it may have.
    pub(crate) limit: u64,
    /// Its class.
    pub(crate) class: ShareClass,
    /// Memory of its ledger, and what the driver counts beyond it.
    pub(crate) used: u64,
    /// What the driver counts for its processes; `None` if the driver did not answer.
    pub(crate) driver: Option<u64>,
    /// Its processes that are connected.
    pub(crate) processes: usize,
    /// What a process needs beyond the grant, if one waits for it.
    pub(crate) need: Option<u64>,
    /// Whether a thread waits for the share's memory to return.
    pub(crate) is_waiting: bool,
    /// Whether it may have worked since the last observation.
    pub(crate) is_active: bool,
    /// Whether its memory cannot be moved.
    pub(crate) is_unmovable: bool,
    /// How much of it leaves the GPU in a move; `None` if all of it does.
    pub(crate) movable: Option<u64>,
    /// Whether guards of its processes have yet to connect to a new agent: until then it is not known what of it can be moved.
    pub(crate) is_connecting: bool,
}

impl ShareMemory {
    fn is_elastic(&self) -> bool {
        self.limit > self.request
    }

    /// What it takes of the GPU now, at least.
    fn present(&self) -> u64 {
        self.used.max(self.driver.unwrap_or(0))
    }

    /// What leaves the GPU in a move.
    fn leaving(&self) -> u64 {
        self.movable.unwrap_or(u64::MAX).min(self.present())
    }

    /// What stays there.
    fn staying(&self) -> u64 {
        self.present() - self.leaving()
    }

    /// What will stay there for all that is known.
    fn least_staying(&self) -> u64 {
        if self.is_connecting { 0 } else { self.staying() }
    }

    /// Whether something leaves the GPU if its processes are moved.
    fn is_movable(&self) -> bool {
        !self.is_unmovable && self.processes > 0 && self.leaving() > 0
    }
}

/// Sets what shares may have.
pub(crate) trait Grants {
    /// Lets a share have so much. If it has more already, that stays. Returns what it may have now.
    fn grant(&mut self, share: &str, bytes: u64) -> u64;
    /// Lets the threads of a share that wait for memory try again.
    fn answer(&mut self, share: &str);
}

/// A move of a share's processes to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// To the host: so many bytes of the GPU.
    Out(String, u64),
    /// Back to the GPU.
    In(String),
}

/// The memory of one GPU.
#[derive(Debug)]
pub(crate) struct GpuMemory {
    settings: PlanSettings,
    accounts: BTreeMap<String, Account>,
    is_short: bool,
}

impl GpuMemory {
    pub(crate) fn new(settings: PlanSettings) -> Self {
        Self { settings, accounts: BTreeMap::new(), is_short: false }
    }

    /// Notes that a share's memory is on the host, as an earlier agent left it: so many bytes, and those that stay on the GPU.
    pub(crate) fn adopt_out(&mut self, share: &str, (bytes, staying): (u64, u64), now: Duration) {
        let place = Place::Out { bytes, staying, since: now };
        let account =
            Account { wants_since: Some(now), was_left_out: true, ..Account::new(place, now) };
        self.accounts.insert(share.to_owned(), account);
    }

    /// Notes that processes show memory on the host although the plan has it on the GPU, as in [`Self::adopt_out`]. They may show
    /// anything: the share keeps what was granted but for so much, and is not brought back at once.
    pub(crate) fn adopt_shown(
        &mut self,
        share: &str,
        (bytes, staying): (u64, u64),
        now: Duration,
        grants: &mut impl Grants,
    ) {
        let granted = self.accounts.get(share).map_or(0, |account| account.granted);
        let granted = granted.saturating_sub(bytes);
        // What the ledger holds stays granted there. What is not used is taken back.
        grants.grant(share, granted);
        self.adopt_out(share, (bytes, staying), now);
        if let Some(account) = self.accounts.get_mut(share) {
            account.granted = granted;
            account.retry_at = now + self.settings.retry_after;
        }
    }

    /// Whether a share wants memory that others have. Then it matters which of them are idle.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Bytes of a share that are on the host, or on their way.
    pub(crate) fn swapped(&self, share: &str) -> u64 {
        self.parts(share).map_or(0, |(bytes, _)| bytes)
    }

    /// Bytes of a share on the host, or on their way, and those that stay on the GPU meanwhile. `None` if it is resident.
    pub(crate) fn parts(&self, share: &str) -> Option<(u64, u64)> {
        self.accounts.get(share)?.place.parts()
    }

    /// Whether a share's processes must not use the GPU.
    pub(crate) fn is_suspended(&self, share: &str) -> bool {
        let account = self.accounts.get(share);
        account.is_some_and(|account| !matches!(account.place, Place::Resident(_)))
    }

    /// Divides `usable` bytes. `shares` are all shares of the GPU by name. Returns the moves to begin.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        usable: u64,
        shares: &BTreeMap<String, ShareMemory>,
        grants: &mut impl Grants,
    ) -> Vec<Move> {
        self.observe(now, shares, grants);
        let held = shares.iter().map(|(name, share)| self.held(name, share));
        let held = held.fold(0, u64::saturating_add);
        let mut free = usable.saturating_sub(held);
        let mut moves = Vec::new();
        let is_lent = self.has_borrowers(shares);
        let leaving = |account: &Account| matches!(account.place, Place::Leaving { .. });
        let is_leaving = self.accounts.values().any(leaving);
        let wants = self.wants(now, shares, grants);
        let mut has_pending =
            self.cover(now, held.saturating_sub(usable), shares, grants, &mut moves);
        self.is_short = has_pending;
        for want in &wants {
            if has_pending {
                // What becomes free is for those before it.
                self.is_short = true;
                self.refuse_late(now, want, grants);
                continue;
            }
            // Where no borrower can be moved, a share within its request has all that is free.
            let lends = want.rank != Rank::Within
                || is_leaving
                || is_lent && !self.candidates(now, want, shares).is_empty();
            let reserve = if lends { self.settings.reserve } else { 0 };
            let needed = want.missing.saturating_add(reserve);
            if needed > free {
                free += self.take_unused(now, want, needed - free, shares, grants);
            }
            if needed <= free {
                free -= self.give(now, want, free - reserve, shares, grants, &mut moves);
                continue;
            }
            if want.rank == Rank::Unasked {
                continue;
            }
            let victims =
                self.take_from_victims(now, want, free.saturating_sub(reserve), shares, &mut moves);
            match victims {
                Victims::Move => has_pending = true,
                Victims::Later => self.refuse_late(now, want, grants),
                Victims::None if want.rank == Rank::Within && want.missing <= free => {
                    free -= self.give(now, want, free, shares, grants, &mut moves);
                    continue;
                }
                // It may be that others of them are left alone for now, or are on their way back.
                Victims::None
                    if want.rank == Rank::Within && self.has_hope(now, usable, want, shares) => {}
                Victims::None if shares.values().any(|share| share.is_connecting) => {
                    self.refuse_late(now, want, grants);
                }
                Victims::None if want.is_out => {}
                Victims::None => grants.answer(&want.share),
            }
            self.is_short = true;
        }
        if !self.is_short {
            let reserve = if is_lent || is_leaving { self.settings.reserve } else { 0 };
            self.fill_requests(now, free.saturating_sub(reserve), shares, grants);
        }
        moves
    }

    /// Takes back what shares have beyond the GPU: a share with a request of its own has come while it was lent. Returns whether memory
    /// is on its way.
    fn cover(
        &mut self,
        now: Duration,
        missing: u64,
        shares: &BTreeMap<String, ShareMemory>,
        grants: &mut impl Grants,
        moves: &mut Vec<Move>,
    ) -> bool {
        if missing == 0 {
            return false;
        }
        let mut want = Want::of_all(missing, now);
        want.missing -= self.take_unused(now, &want, missing, shares, grants);
        want.missing > 0 && self.take_from_victims(now, &want, 0, shares, moves) == Victims::Move
    }

    /// Notes the end of a move to the host.
    pub(crate) fn left(&mut self, share: &str, now: Duration, is_moved: bool) {
        let retry_at = now + self.settings.retry_after;
        let Some(account) = self.accounts.get_mut(share) else { return };
        if let Place::Leaving { bytes, staying } = account.place {
            if is_moved {
                account.place = Place::Out { bytes, staying, since: now };
                account.granted = 0;
                account.failed_moves = 0;
            } else {
                account.place = Place::Resident(now);
                account.retry_at = retry_at;
                account.failed_moves += 1;
            }
        }
    }

    /// Notes the end of a move back.
    pub(crate) fn returned(&mut self, share: &str, now: Duration, is_back: bool) {
        let retry_at = now + self.settings.retry_after;
        let Some(account) = self.accounts.get_mut(share) else { return };
        if let Place::Returning { bytes, staying } = account.place {
            account.active_at = now;
            if is_back {
                account.place = Place::Resident(now);
            } else {
                account.place = Place::Out { bytes, staying, since: now };
                account.granted = 0;
                account.retry_at = retry_at;
            }
        }
    }

    /// Takes what is seen of the shares.
    fn observe(
        &mut self,
        now: Duration,
        shares: &BTreeMap<String, ShareMemory>,
        grants: &mut impl Grants,
    ) {
        self.accounts.retain(|name, _| shares.contains_key(name));
        for (name, share) in shares {
            // One that cannot be observed for a moment keeps its account.
            if !share.is_elastic() && !self.accounts.contains_key(name) {
                continue;
            }
            let account = self.accounts.entry(name.clone()).or_insert_with(|| Account {
                granted: grants.grant(name, share.used),
                ..Account::new(Place::Resident(now), now)
            });
            if share.processes == 0 {
                // Others may come that can be moved.
                account.failed_moves = 0;
            }
            if share.is_active {
                account.active_at = now;
            }
            if matches!(account.place, Place::Out { .. }) && share.processes == 0 {
                // Its processes have ended.
                account.place = Place::Resident(now);
                account.granted = grants.grant(name, share.used);
            }
            account.was_left_out &= !matches!(account.place, Place::Resident(_));
            let wants = match account.place {
                Place::Out { since, .. } => {
                    share.is_waiting
                        || account.was_left_out
                        || now.saturating_sub(since) >= self.settings.longest_out
                }
                _ => share.need.is_some(),
            };
            account.wants_since = wants.then(|| account.wants_since.unwrap_or(now));
        }
    }

    /// Whether a share on the GPU has more than its request.
    fn has_borrowers(&self, shares: &BTreeMap<String, ShareMemory>) -> bool {
        self.accounts.iter().any(|(name, account)| {
            let share = shares.get(name);
            matches!(account.place, Place::Resident(_))
                && share.is_some_and(|share| share.present() > share.request)
        })
    }

    /// Bytes of the GPU that are a share's.
    fn held(&self, name: &str, share: &ShareMemory) -> u64 {
        // Containers write the ledger. Beyond what a share may have, only the driver's count is believed.
        let on_gpu = share.driver.unwrap_or(0);
        let Some(account) = self.accounts.get(name) else { return share.request.max(on_gpu) };
        match account.place {
            Place::Resident(_) | Place::Leaving { .. } => account.granted.max(on_gpu),
            // What the driver still counts is not free, and what it does not tell is not either.
            Place::Out { bytes, staying, .. } => {
                share.driver.unwrap_or(bytes.saturating_add(staying)).max(account.granted)
            }
            Place::Returning { bytes, staying } => {
                bytes.saturating_add(staying).max(account.granted).max(on_gpu)
            }
        }
    }

    /// Takes grants back that are not used, up to `bytes`. Returns how much.
    fn take_unused(
        &mut self,
        now: Duration,
        want: &Want,
        bytes: u64,
        shares: &BTreeMap<String, ShareMemory>,
        grants: &mut impl Grants,
    ) -> u64 {
        let mut lenders: Vec<_> = self
            .accounts
            .iter_mut()
            .filter(|(name, account)| {
                let is_kept = now.saturating_sub(account.given_at) < self.settings.keep_grant;
                **name != want.share && !is_kept && matches!(account.place, Place::Resident(_))
            })
            .filter_map(|(name, account)| Some((name, account, shares.get(name)?)))
            .collect();
        // First what is granted beyond requests.
        lenders.sort_by_key(|(_, account, share)| account.granted <= share.request);
        let mut taken = 0;
        for (name, account, share) in lenders {
            let missing = bytes - taken;
            // A share that wants memory itself is about to use what it has. It keeps its request.
            let kept = match share.need {
                // For a share that nothing waits for, no request is lent.
                None if want.rank == Rank::Unasked => share.present().max(share.request),
                None => share.present(),
                Some(_) if want.rank == Rank::Within => share.present().max(share.request),
                Some(_) => continue,
            };
            let less = account.granted.saturating_sub(kept).min(missing);
            if less == 0 {
                continue;
            }
            let before = account.granted;
            account.granted = grants.grant(name, before - less);
            taken += before.saturating_sub(account.granted).min(missing);
            if taken == bytes {
                break;
            }
        }
        taken
    }

    /// Gives a share what it wants. Returns how much of `free` that takes.
    fn give(
        &mut self,
        now: Duration,
        want: &Want,
        free: u64,
        shares: &BTreeMap<String, ShareMemory>,
        grants: &mut impl Grants,
        moves: &mut Vec<Move>,
    ) -> u64 {
        let chunk = self.settings.chunk;
        let (Some(account), Some(share)) =
            (self.accounts.get_mut(&want.share), shares.get(&want.share))
        else {
            return 0;
        };
        account.given_at = now;
        if let Place::Out { bytes, staying, .. } = account.place {
            account.place = Place::Returning { bytes, staying };
            account.granted = grants.grant(&want.share, bytes.saturating_add(staying));
            moves.push(Move::In(want.share.clone()));
            return want.missing.min(free);
        }
        let before = account.granted.max(share.present());
        let target = before.saturating_add(want.missing);
        let extra = chunk.min(free - want.missing).min(share.limit.saturating_sub(target));
        account.granted = grants.grant(&want.share, target + extra);
        account.wants_since = None;
        grants.answer(&want.share);
        account.granted.saturating_sub(before).min(free)
    }

    /// Grants shares their requests again, as far as memory is free.
    fn fill_requests(
        &mut self,
        now: Duration,
        mut free: u64,
        shares: &BTreeMap<String, ShareMemory>,
        grants: &mut impl Grants,
    ) {
        for (name, account) in &mut self.accounts {
            let Some(share) = shares.get(name) else { continue };
            let has = account.granted.max(share.present());
            if matches!(account.place, Place::Resident(_)) && has < share.request {
                let more = free.min(share.request - has);
                if more > 0 {
                    account.granted = grants.grant(name, has + more);
                    account.given_at = now;
                    free -= more;
                }
            }
        }
    }
}

/// How much a class is protected from others that want its memory.
fn protection(class: ShareClass) -> u8 {
    match class {
        ShareClass::BestEffort => 0,
        ShareClass::Normal => 1,
        ShareClass::LatencyCritical => 2,
    }
}

#[cfg(test)]
mod tests;
