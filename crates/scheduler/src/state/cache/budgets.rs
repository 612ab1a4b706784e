//! Disruption budgets, and the pods that they protect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::workload::{Profile, WorkloadId};
use octavo_kube_io::objects::{Budget, Delta, Meta, ObjectName};

use super::Cache;
use super::pod::PodRecord;
use crate::predicates::selects;

/// Workloads that are marked as protected, with their original profiles.
pub(in crate::state) type Spared = BTreeMap<WorkloadId, Profile>;

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
        // Budgets that now protect other pods, in their old and new versions.
        let mut retargeted: BTreeMap<Arc<str>, Vec<Arc<Budget>>> = BTreeMap::new();
        let mut may_unblock = false;
        for (name, old) in before {
            let new = self.budgets.get(&name);
            may_unblock |= old.as_ref().is_some_and(|old| allows_more(old, new.map(Arc::as_ref)));
            if old.as_deref().map(protection) != new.map(|new| protection(new)) {
                let both_versions = old.into_iter().chain(new.cloned());
                retargeted.entry(name.namespace).or_default().extend(both_versions);
            }
        }
        let concerned = self.pods.values().filter(|record| {
            let meta = &record.pod.meta;
            let of_namespace = retargeted.get(&meta.name.namespace).into_iter().flatten();
            record.occupies() && of_namespace.into_iter().any(|budget| is_for(budget, meta))
        });
        let uids: Vec<_> = concerned.map(|record| record.pod.uid()).collect();
        for uid in uids {
            self.forget_profile(&uid);
            self.refresh_pod(&uid);
        }
        if may_unblock {
            self.victims_changed();
        }
    }

    /// Whether disruption budgets allow no eviction of the pod now.
    pub(in crate::state) fn is_protected(&self, record: &PodRecord) -> bool {
        self.closed_budget(record).is_some()
    }

    /// The disruption budget that allows no eviction of the pod now.
    pub(in crate::state) fn closed_budget(&self, record: &PodRecord) -> Option<&ObjectName> {
        let meta = &record.pod.meta;
        let mut budgets = self.budgets_of(meta);
        let first = budgets.next()?;
        // The Eviction API rejects pods with several budgets.
        let is_closed =
            budgets.next().is_some() || (first.allowed <= 0 && !is_leaving_by(first, meta));
        is_closed.then_some(&first.meta.name)
    }

    /// Marks workloads as protected.
    pub(in crate::state) fn spare(&mut self, spare: BTreeSet<WorkloadId>, spared: &mut Spared) {
        for id in spare {
            if let Some(original) = self.engine.spare(id) {
                spared.entry(id).or_insert(original);
            }
        }
    }

    /// Restores the original profiles.
    pub(in crate::state) fn restore_spared(&mut self, spared: &mut Spared) {
        for (id, original) in std::mem::take(spared) {
            self.engine.restore_spared(id, original);
        }
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

    /// The budget of a pod; an empty name if several select it.
    pub(in crate::state) fn budget_name_of(&self, meta: &Meta) -> Option<ObjectName> {
        let mut budgets = self.budgets_of(meta);
        let first = budgets.next()?;
        let is_only = budgets.next().is_none();
        Some(if is_only { first.meta.name.clone() } else { ObjectName::default() })
    }
}

/// Whether a change of a budget may allow a plan that it did not allow before. A budget that closes
/// helps no preemptor; each eviction closes budgets.
fn allows_more(old: &Budget, new: Option<&Budget>) -> bool {
    new.is_none_or(|new| new.allowed > old.allowed || new.selector != old.selector)
}

/// The parts of a budget that decide which pods cannot be victims at all.
fn protection(budget: &Budget) -> impl PartialEq + use<'_> {
    let is_closed = budget.allowed <= 0;
    (&budget.selector, is_closed, is_closed.then_some(&budget.disrupted))
}

/// Whether a budget selects a pod.
pub(in crate::state) fn is_for(budget: &Budget, meta: &Meta) -> bool {
    budget.selector.as_ref().is_some_and(|selector| selects(selector, &meta.labels))
}

/// Whether a budget's status counts the pod's eviction already.
pub(in crate::state) fn is_leaving_by(budget: &Budget, meta: &Meta) -> bool {
    budget.disrupted.iter().any(|name| **name == *meta.name.name)
}
