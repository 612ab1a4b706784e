//! Who wants memory, and in which order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use octavo_api::config::ShareClass;

use super::{Account, GpuMemory, Grants, Place, ShareMemory, protection};

/// Who wants memory.
pub(super) struct Want {
    /// Name of the share.
    pub(super) share: String,
    /// Bytes beyond what it holds.
    pub(super) missing: u64,
    /// Whether it is out, and wants to return.
    pub(super) is_out: bool,
    /// Its order.
    pub(super) rank: Rank,
    /// Its class.
    pub(super) class: ShareClass,
    /// Since when it wants it.
    pub(super) since: Duration,
}

/// Who gets memory first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A share that is within its request with what it wants.
    Within,
    /// One that is above it.
    Above,
    /// One that is out, and for which nothing waits.
    Unasked,
}

impl Want {
    /// That of a GPU whose shares have more than it has.
    pub(super) fn of_all(missing: u64, now: Duration) -> Self {
        let (share, class) = (String::new(), ShareClass::LatencyCritical);
        Self { share, missing, is_out: false, rank: Rank::Within, class, since: now }
    }
}

impl GpuMemory {
    /// Who wants memory, in the order in which they get it. Requests that need nothing, or can never be met, are answered.
    pub(super) fn wants(
        &self,
        now: Duration,
        shares: &BTreeMap<String, ShareMemory>,
        grants: &mut impl Grants,
    ) -> Vec<Want> {
        let mut wants = Vec::new();
        for (name, account) in &self.accounts {
            let Some(share) = shares.get(name) else { continue };
            let (missing, size, since) = match (account.place, account.wants_since, share.need) {
                (Place::Resident(_), Some(since), Some(need)) => {
                    let target = share.used.saturating_add(need);
                    // What is beyond its request must be movable.
                    let stays = share.is_unmovable || share.staying() > share.request;
                    let is_vain = target > share.limit || stays && target > share.request;
                    let is_certain = !share.is_connecting || target > share.limit;
                    if target <= account.granted || is_vain && is_certain {
                        grants.answer(name);
                        continue;
                    }
                    if is_vain {
                        continue;
                    }
                    (target - self.held(name, share).min(target), target, Some(since))
                }
                (Place::Out { bytes, staying, .. }, since, _) if now >= self.due_back(account) => {
                    // A move that was broken off may have left some of it on the GPU.
                    let size = bytes.saturating_add(staying);
                    (size.saturating_sub(self.held(name, share)), size, since)
                }
                _ => continue,
            };
            let rank = match since {
                Some(_) if size <= share.request => Rank::Within,
                Some(_) => Rank::Above,
                None => Rank::Unasked,
            };
            let (share, class) = (name.clone(), share.class);
            let is_out = matches!(account.place, Place::Out { .. });
            wants.push(Want { share, missing, is_out, rank, class, since: since.unwrap_or(now) });
        }
        wants.sort_by_key(|want| (want.rank, Reverse(protection(want.class)), want.since));
        wants
    }

    /// From when on a share that is out may return.
    fn due_back(&self, account: &Account) -> Duration {
        match (account.place, account.wants_since) {
            (Place::Out { since, .. }, None) => {
                account.retry_at.max(since + self.settings.return_after)
            }
            _ => account.retry_at,
        }
    }

    /// Refuses a request above the share's own that has waited for long enough.
    pub(super) fn refuse_late(&self, now: Duration, want: &Want, grants: &mut impl Grants) {
        let waited = now.saturating_sub(want.since);
        if !want.is_out && want.rank == Rank::Above && waited >= self.settings.refuse_after {
            grants.answer(&want.share);
        }
    }
}
