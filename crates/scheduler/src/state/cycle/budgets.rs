//! Disruption budgets as the engine's limits on evictions.
//!
//! Victims are evicted through the Eviction API, which rejects what a budget does not allow. A plan
//! that exceeds a budget would evict its first victims in vain. So each decision of the
//! engine has the number of pods of each budget that may leave, and makes no such plan.

use std::collections::{BTreeMap, BTreeSet};

use octavo_kube_io::objects::{ObjectName, PodUid};

use crate::state::Scheduler;
use crate::state::cache::budgets::is_leaving_by;
use crate::state::cache::pod::PodRecord;

impl Scheduler {
    /// Tells the engine how many evictions each budget allows now.
    pub(in crate::state) fn update_allowances(&mut self) {
        if self.cache.engine().has_limits() {
            let unseen = self.unseen_evictions();
            self.cache.set_allowances(&unseen);
        }
    }

    /// By budget: evictions that were requested and are not observed yet. They count as used.
    fn unseen_evictions(&self) -> BTreeMap<ObjectName, u32> {
        let victims: BTreeSet<&PodUid> = self.reservations.victims().collect();
        let mut unseen = BTreeMap::new();
        for record in victims.into_iter().filter_map(|uid| self.cache.pod(uid)) {
            let meta = &record.pod.meta;
            if let Some(name) = self.cache.budget_name_of(record)
                && !self.cache.budget(&name).is_some_and(|budget| is_leaving_by(budget, meta))
            {
                *unseen.entry(name).or_default() += 1;
            }
        }
        unseen
    }

    /// Budgets that are exceeded if these pods leave: the number of their evictions, and of those
    /// that the budget allows.
    pub(in crate::state) fn exceeded_budgets_for<'a>(
        &'a self,
        leaving: impl Iterator<Item = &'a PodRecord>,
    ) -> Vec<(ObjectName, u32, u32)> {
        let mut evictions: BTreeMap<ObjectName, u32> = BTreeMap::new();
        for budget_name in leaving.filter_map(|record| self.cache.budget_name_of(record)) {
            *evictions.entry(budget_name).or_default() += 1;
        }
        if evictions.is_empty() {
            return Vec::new();
        }
        let unseen = self.unseen_evictions();
        let counts = evictions.into_iter().map(|(name, count)| {
            let allowed = self.cache.allowance(&name, &unseen);
            (name, count, allowed)
        });
        counts.filter(|(_, count, allowed)| count > allowed).collect()
    }
}
