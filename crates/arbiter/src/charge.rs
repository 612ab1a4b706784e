//! Charges: who pays for a time that has passed, and what became due in it.

use octavo_api::config::{ComputePart, ShareClass};

use crate::account::{Account, Phase};
use crate::terms::scale;
use crate::{Arbiter, MILLISECOND};

/// Two slices of the driver's own: time in which a share gets on that runs beside another.
const TWO_SLICES: u64 = 5 * MILLISECOND;

impl<K: Ord + Clone> Arbiter<K> {
    /// Charges a time to the shares that ran in it, and credits all shares with what was due to them.
    pub(crate) fn charge(&mut self, passed: u64) {
        let is_used = self.charge_users(passed);
        let dues = self.dues(if is_used { passed } else { 0 }, passed);
        for (account, due) in self.shares.values_mut().zip(dues) {
            account.credit(due, passed, &self.settings);
        }
    }

    /// Charges a time to the shares that ran in it. Returns whether there were any.
    fn charge_users(&mut self, passed: u64) -> bool {
        let contexts = |account: &Account| u64::from(account.since.ran);
        let ran = |account: &&mut Account| account.since.ran > 0;
        // A share beyond its turn pays for all the time in which no other got on.
        let is_draining = |account: &Account| matches!(account.phase, Phase::Draining { .. });
        let since = self.now.saturating_sub(TWO_SLICES);
        let others_progress = self.shares.values().any(|account| {
            let gets_on = account.last_progress.is_some_and(|last| last >= since);
            !is_draining(account) && account.since.ran > 0 && gets_on
        });
        let has_late =
            self.shares.values().any(|account| is_draining(account) && account.since.ran > 0);
        let pays = |account: &&mut Account| !has_late || others_progress || is_draining(account);
        let total: u64 = self
            .shares
            .values_mut()
            .filter(ran)
            .filter(pays)
            .map(|account| contexts(account))
            .sum();
        for account in self.shares.values_mut().filter(ran).filter(pays) {
            let used = scale(passed, contexts(account), total);
            account.charge(used.unsigned_abs());
        }
        total > 0
    }

    /// What became due to each share. Of the time that was `used`, each active share is due its request, and what is
    /// left goes to those that want more. An idle share is due its request of the time that `passed`.
    fn dues(&self, used: u64, passed: u64) -> Vec<i64> {
        let is_best_effort = |account: &Account| account.terms.class == ShareClass::BestEffort;
        let active = || self.shares.values().filter(|account| account.since.was_active);
        let has_others = active().any(|account| !is_best_effort(account));
        let takes_more = |account: &Account| {
            account.since.was_active
                && !account.is_throttled
                && !(has_others && is_best_effort(account))
        };
        let guaranteed: u64 = active().map(|account| u64::from(account.terms.guaranteed().0)).sum();
        let whole = u64::from(ComputePart::WHOLE.0);
        let left = scale(used, whole.saturating_sub(guaranteed), whole).unsigned_abs();
        let weights: u64 = self
            .shares
            .values()
            .filter(|account| takes_more(account))
            .map(|a| a.terms.weight())
            .sum();
        let due = |account: &Account| {
            if !account.since.was_active {
                return scale(passed, account.terms.weight(), whole);
            }
            let request = u64::from(account.terms.guaranteed().0);
            let more =
                if takes_more(account) { scale(left, account.terms.weight(), weights) } else { 0 };
            scale(used, request, guaranteed.max(whole)).saturating_add(more)
        };
        self.shares.values().map(due).collect()
    }
}
