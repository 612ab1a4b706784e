//! Which shares are moved to the host so that another one fits.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::wants::{Rank, Want};
use super::{GpuMemory, Move, Place, ShareMemory, protection};

/// A share that may be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its name.
    pub(super) share: String,
    /// Bytes that become free.
    pub(super) bytes: u64,
    /// Whether it may be moved now.
    pub(super) is_due: bool,
    /// Its order: protection of its class, whether it works, how long it has been idle, since when it is resident. Lower goes first.
    pub(super) rank: (u8, bool, Reverse<Duration>, Duration),
}

/// The first candidates that free so many bytes, without any that are not needed for it. `None` if those that are due do not suffice.
fn choose(mut candidates: Vec<Candidate>, missing: u64) -> Option<Vec<Candidate>> {
    candidates.retain(|candidate| candidate.is_due);
    candidates.sort_by(|one, other| (one.rank, &one.share).cmp(&(other.rank, &other.share)));
    let mut chosen = Vec::new();
    let mut freed = 0_u64;
    for candidate in candidates {
        if freed >= missing {
            break;
        }
        freed = freed.saturating_add(candidate.bytes);
        chosen.push(candidate);
    }
    if freed < missing {
        return None;
    }
    // The best protected ones are spared first.
    for index in (0..chosen.len()).rev() {
        let Some(bytes) = chosen.get(index).map(|it| it.bytes) else { continue };
        if freed - bytes >= missing {
            freed -= bytes;
            chosen.remove(index);
        }
    }
    Some(chosen)
}

/// What becomes of a want by moving others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victims {
    /// Memory is on its way.
    Move,
    /// Those that would suffice may not be moved yet.
    Later,
    /// They do not suffice.
    None,
}

/// Moves of a share that fail in succession before no other one waits for it.
const MAX_FAILED_MOVES: u32 = 3;

/// How long the driver may count memory that was moved.
const SETTLE_TIME: Duration = Duration::from_secs(5);

impl GpuMemory {
    /// Chooses victims for a share.
    pub(super) fn take_from_victims(
        &mut self,
        now: Duration,
        want: &Want,
        free: u64,
        shares: &BTreeMap<String, ShareMemory>,
        moves: &mut Vec<Move>,
    ) -> Victims {
        let coming = self.accounts.iter().filter_map(|(name, account)| match account.place {
            Place::Leaving { bytes, .. } => Some(bytes),
            // The driver may take a moment to count it no more.
            Place::Out { bytes, staying, since } if now.saturating_sub(since) < SETTLE_TIME => {
                let counted =
                    |share: &ShareMemory| share.driver.map(|all| all.saturating_sub(staying));
                shares.get(name).map(|share| counted(share).unwrap_or(bytes))
            }
            _ => None,
        });
        let coming = coming.fold(free, u64::saturating_add);
        if want.missing <= coming {
            return Victims::Move;
        }
        let candidates = self.candidates(now, want, shares);
        let all = candidates.iter().map(|it| it.bytes).fold(coming, u64::saturating_add);
        if all < want.missing {
            return Victims::None;
        }
        let Some(victims) = choose(candidates, want.missing - coming) else {
            return Victims::Later;
        };
        for Candidate { share, bytes, .. } in victims {
            if let Some(account) = self.accounts.get_mut(&share) {
                let staying = shares.get(&share).map_or(0, ShareMemory::staying);
                account.place = Place::Leaving { bytes, staying };
            }
            moves.push(Move::Out(share, bytes));
        }
        Victims::Move
    }

    /// Whether a share within its request can have what it wants once others are moved that are left alone for now, or have yet to
    /// connect. One whose moves have failed several times is not counted on.
    pub(super) fn has_hope(
        &self,
        now: Duration,
        usable: u64,
        want: &Want,
        shares: &BTreeMap<String, ShareMemory>,
    ) -> bool {
        let fixed = shares.iter().map(|(name, share)| match self.accounts.get(name) {
            _ if *name == want.share => self.held(name, share),
            Some(account) if matches!(account.place, Place::Resident(_)) => {
                let can_go = (share.is_movable() || share.is_connecting)
                    && share.present() > share.request
                    && account.failed_moves < MAX_FAILED_MOVES;
                if can_go { share.least_staying() } else { share.present().max(share.request) }
            }
            Some(account) => match account.place {
                // More than it said may have stayed.
                Place::Out { staying, since, .. } if now.saturating_sub(since) >= SETTLE_TIME => {
                    share.driver.unwrap_or(staying)
                }
                place => place.parts().map_or(0, |(_, staying)| staying),
            },
            None => self.held(name, share),
        });
        fixed.fold(want.missing, u64::saturating_add) <= usable
    }

    /// Shares that may be moved for another one.
    pub(super) fn candidates(
        &self,
        now: Duration,
        want: &Want,
        shares: &BTreeMap<String, ShareMemory>,
    ) -> Vec<Candidate> {
        let settings = &self.settings;
        let found = self.accounts.iter().filter_map(|(name, account)| {
            let share = shares.get(name)?;
            let Place::Resident(since) = account.place else { return None };
            let is_above = share.present() > share.request;
            let is_open =
                want.rank == Rank::Within || protection(share.class) <= protection(want.class);
            if *name == want.share
                || !share.is_movable()
                || !is_above
                || !is_open
                || account.retry_at > now
            {
                return None;
            }
            let idle = now.saturating_sub(account.active_at);
            let is_idle = idle >= settings.idle_after;
            let has_had_turn = want.is_out && now.saturating_sub(since) >= settings.turn;
            Some(Candidate {
                share: name.clone(),
                bytes: share.leaving(),
                is_due: want.rank == Rank::Within || is_idle || has_had_turn,
                rank: (protection(share.class), !is_idle, Reverse(idle), since),
            })
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(share: &str, bytes: u64, protection: u8) -> Candidate {
        let rank = (protection, false, Reverse(Duration::from_secs(5)), Duration::ZERO);
        Candidate { share: share.to_owned(), bytes, is_due: true, rank }
    }

    fn names(chosen: Option<Vec<Candidate>>) -> Vec<String> {
        chosen.expect("enough").into_iter().map(|it| it.share).collect()
    }

    #[test]
    fn the_least_protected_go_first() {
        let all = vec![candidate("a", 10, 1), candidate("b", 10, 0), candidate("c", 10, 2)];
        assert_eq!(names(choose(all.clone(), 5)), ["b"]);
        assert_eq!(names(choose(all.clone(), 15)), ["b", "a"]);
        assert_eq!(choose(all, 31), None);
    }

    #[test]
    fn nothing_is_moved_that_is_not_needed() {
        let all = vec![candidate("small", 5, 0), candidate("large", 50, 1)];
        assert_eq!(names(choose(all.clone(), 40)), ["large"]);
        assert_eq!(names(choose(all, 52)), ["small", "large"]);
    }

    #[test]
    fn the_longest_idle_goes_before_one_that_works() {
        let mut working = candidate("a", 10, 1);
        working.rank.1 = true;
        let mut idle = candidate("b", 10, 1);
        idle.rank.2 = Reverse(Duration::from_secs(9));
        let all = vec![working, candidate("c", 10, 1), idle];
        assert_eq!(names(choose(all, 20)), ["b", "c"]);
    }

    #[test]
    fn only_those_that_are_due_count() {
        let waits = Candidate { is_due: false, ..candidate("a", 10, 0) };
        assert_eq!(choose(vec![waits], 1), None);
    }
}
