//! Disruption budgets, and the pods that they protect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{Budget, Delta, Meta, ObjectName};

use super::Cache;
use super::pod::PodRecord;
use crate::predicates::selects;

impl Cache {
    /// A disruption budget.
    pub(in crate::state) fn budget(&self, name: &ObjectName) -> Option<&Budget> {
        self.budgets.get(name).map(Arc::as_ref)
    }

    /// Applies a change of budgets.
    pub(in crate::state) fn apply_budgets(&mut self, delta: &Delta<Budget>) {
        let name = |budget: &Budget| budget.meta.name.clone();
        let before: BTreeMap<ObjectName, Option<Arc<Budget>>> = match delta {
            Delta::Upsert(budget) => {
                [(name(budget), self.budgets.insert(name(budget), Arc::clone(budget)))].into()
            }
            Delta::Delete(budget) => [(name(budget), self.budgets.remove(&name(budget)))].into(),
            Delta::Replace(_, budgets) => {
                let new = budgets.iter().map(|budget| (name(budget), Arc::clone(budget))).collect();
                let mut old = std::mem::replace(&mut self.budgets, new);
                let names: BTreeSet<_> = old.keys().chain(self.budgets.keys()).cloned().collect();
                let changed_budgets =
                    names.into_iter().map(|name| (name.clone(), old.remove(&name)));
                changed_budgets.collect()
            }
        };
        // Budgets that now select other pods, in their old and new versions.
        let mut retargeted: BTreeMap<Arc<str>, Vec<Arc<Budget>>> = BTreeMap::new();
        let mut may_unblock = false;
        for (name, old) in before {
            let new = self.budgets.get(&name);
            may_unblock |= old.as_ref().is_some_and(|old| allows_more(old, new.map(Arc::as_ref)));
            if old.as_ref().map(|old| &old.selector) != new.map(|new| &new.selector) {
                let both_versions = old.into_iter().chain(new.cloned());
                retargeted.entry(name.namespace).or_default().extend(both_versions);
            }
        }
        let concerned = self.pods.values().filter(|record| {
            let meta = &record.pod.meta;
            let of_namespace = retargeted.get(&meta.name.namespace).into_iter().flatten();
            record.occupies() && of_namespace.into_iter().any(|budget| is_for(budget, meta))
        });
        let uids: Vec<_> = if retargeted.is_empty() {
            Vec::new()
        } else {
            concerned.map(|record| record.pod.uid()).collect()
        };
        for uid in uids {
            self.refresh_pod(&uid);
        }
        if may_unblock {
            self.victims_changed();
        }
    }

    /// The disruption budget that allows no eviction of the pod now.
    pub(in crate::state) fn closed_budget(&self, record: &PodRecord) -> Option<&ObjectName> {
        let mut budgets = self.budgets_of(&record.pod.meta);
        let first = budgets.next()?;
        // The Eviction API rejects pods with several budgets.
        let is_closed = budgets.next().is_some() || first.allowed <= 0;
        is_closed.then_some(&first.meta.name)
    }

    /// The budget that counts an eviction of a pod; an empty name if several select it, which
    /// allows none. Pods that terminate count against no budget, nor do nominated ones: these run
    /// nowhere.
    pub(in crate::state) fn budget_name_of(&self, record: &PodRecord) -> Option<ObjectName> {
        if record.pod.meta.deleted.is_some() || record.is_nominated() {
            return None;
        }
        let mut budgets = self.budgets_of(&record.pod.meta);
        let first = budgets.next()?;
        let is_only = budgets.next().is_none();
        Some(if is_only { first.meta.name.clone() } else { ObjectName::default() })
    }

    /// Whether the budgets of a pod allow no eviction, as the engine was told last.
    pub(in crate::state) fn is_protected(&self, record: &PodRecord) -> bool {
        let world = &self.engine.world;
        let member = self.engine.member(&record.pod.meta.uid);
        let limit = member.and_then(|id| world.workloads.member(id)?.limit);
        limit.is_some_and(|limit| world.workloads.eviction_limits.allowance(limit) == 0)
    }

    /// The evictions that a budget allows beside `unseen` ones; none of a budget that is gone.
    pub(in crate::state) fn allowance(
        &self,
        name: &ObjectName,
        unseen: &BTreeMap<ObjectName, u32>,
    ) -> u32 {
        allowance(&self.budgets, name, unseen).unwrap_or(0)
    }

    /// Tells the engine how many evictions each budget allows beside `unseen` ones.
    pub(in crate::state) fn set_allowances(&mut self, unseen: &BTreeMap<ObjectName, u32>) {
        let Self { budgets, engine, .. } = self;
        engine.set_allowances(|name| allowance(budgets, name, unseen));
    }

    /// The budgets that select a pod.
    fn budgets_of<'a>(&'a self, meta: &Meta) -> impl Iterator<Item = &'a Arc<Budget>> {
        let namespace = &meta.name.namespace;
        let first = ObjectName::new(Arc::clone(namespace), "");
        let of_namespace = self.budgets.range(first..);
        of_namespace
            .take_while(move |(name, _)| name.namespace == *namespace)
            .map(|(_, budget)| budget)
            .filter(|budget| is_for(budget, meta))
    }
}

/// The evictions that a budget allows beside `unseen` ones. `None`: there is no such budget.
fn allowance(
    budgets: &BTreeMap<ObjectName, Arc<Budget>>,
    name: &ObjectName,
    unseen: &BTreeMap<ObjectName, u32>,
) -> Option<u32> {
    if name.name.is_empty() {
        // It stands for several budgets.
        return Some(0);
    }
    let allowed = u32::try_from(budgets.get(name)?.allowed).unwrap_or(0);
    Some(allowed.saturating_sub(unseen.get(name).copied().unwrap_or(0)))
}

/// Whether a change of a budget may allow a plan that it did not allow before. A budget that closes
/// helps no preemptor; each eviction closes budgets.
fn allows_more(old: &Budget, new: Option<&Budget>) -> bool {
    new.is_none_or(|new| new.allowed > old.allowed || new.selector != old.selector)
}

/// Whether a budget selects a pod.
fn is_for(budget: &Budget, meta: &Meta) -> bool {
    budget.selector.as_ref().is_some_and(|selector| selects(selector, &meta.labels))
}

/// Whether a budget's status counts the pod's eviction already.
pub(in crate::state) fn is_leaving_by(budget: &Budget, meta: &Meta) -> bool {
    budget.disrupted.iter().any(|name| **name == *meta.name.name)
}
