//! Fair shares of tenants, and by how much each tenant falls short of its share.
//!
//! The cluster's compute is divided by weighted max-min fairness. Each tenant gets compute in
//! proportion to its weight, but never more than it wants. The rest is divided among the others in
//! the same way. A tenant wants its used plus its waiting compute. Its deficit is its deserved
//! minus its used compute. Tenants without waiting demand have no deficit.
//!
//! Amounts are thousandths of GPUs.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::workload::Workloads;

/// Used and waiting compute of a tenant, and its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Weight: a tenant of weight 2 deserves twice as much as one of weight 1. A tenant of weight 0
    /// deserves only what no other tenant wants.
    pub weight: u32,
    /// Used compute.
    pub used: i64,
    /// Waiting compute.
    pub waiting: i64,
}

/// Tenants and what they deserve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FairShares {
    tenants: BTreeMap<Arc<str>, (Tenant, i64)>,
}

impl Tenant {
    /// Used plus waiting compute.
    pub fn wanted(&self) -> i64 {
        self.used.max(0).saturating_add(self.waiting.max(0))
    }
}

impl FairShares {
    /// Fair shares of a capacity.
    pub fn new(capacity: i64, tenants: BTreeMap<Arc<str>, Tenant>) -> Self {
        let deserved = deserved(capacity, &tenants.values().copied().collect::<Vec<_>>());
        let with_deserved =
            tenants.into_iter().zip(deserved).map(|((name, tenant), own)| (name, (tenant, own)));
        Self { tenants: with_deserved.collect() }
    }

    /// As [`Self::new`], with the used compute taken from `workloads`. `waiting` is the waiting
    /// demand, including the current request. A tenant without a weight has weight 1.
    pub fn of(
        capacity: i64,
        workloads: &Workloads,
        weights: &BTreeMap<Arc<str>, u32>,
        waiting: &BTreeMap<Arc<str>, i64>,
    ) -> Self {
        let mut tenants: BTreeMap<Arc<str>, Tenant> = BTreeMap::new();
        let mut add = |name: &Arc<str>, used: i64, waiting: i64| {
            let weight = weights.get(name).copied().unwrap_or(1);
            let tenant = tenants.entry(Arc::clone(name));
            let tenant = tenant.or_insert(Tenant { weight, used: 0, waiting: 0 });
            tenant.used = tenant.used.saturating_add(used);
            tenant.waiting = tenant.waiting.saturating_add(waiting);
        };
        for (name, used) in workloads.used_by_tenant() {
            add(name, used, 0);
        }
        for (name, milli) in waiting {
            add(name, 0, *milli);
        }
        Self::new(capacity, tenants)
    }

    /// The sum of all deficits after these changes of used compute. Gains reduce the waiting demand
    /// and losses add to it. Wanted and deserved amounts therefore stay the same.
    pub fn deficit_after<'a>(&self, changes: impl IntoIterator<Item = (&'a str, i64)>) -> i64 {
        let mut by_tenant: BTreeMap<&str, i64> = BTreeMap::new();
        for (tenant, milli) in changes {
            let sum = by_tenant.entry(tenant).or_default();
            *sum = sum.saturating_add(milli);
        }
        let deficit = |(name, (tenant, deserved)): (&Arc<str>, &(Tenant, i64))| {
            let change = by_tenant.get(&**name).copied().unwrap_or(0);
            deserved.saturating_sub(tenant.used.saturating_add(change)).max(0)
        };
        self.tenants.iter().map(deficit).fold(0, i64::saturating_add)
    }
}

/// The deserved amount of each tenant, in their order. Leftover thousandths go to the first tenants
/// with unmet demand, one each.
fn deserved(capacity: i64, tenants: &[Tenant]) -> Vec<i64> {
    let mut deserved = vec![0; tenants.len()];
    let mut left = capacity.max(0);
    let weighty = |index: &usize| tenants[*index].weight > 0;
    let (weighted, rest): (Vec<_>, Vec<_>) = (0..tenants.len()).partition(weighty);
    left -= fill(left, tenants, &weighted, |tenant| tenant.weight, &mut deserved);
    fill(left, tenants, &rest, |_| 1, &mut deserved);
    deserved
}

/// Shares out among some tenants; returns how much was given.
fn fill(
    capacity: i64,
    tenants: &[Tenant],
    among: &[usize],
    weight: impl Fn(&Tenant) -> u32,
    deserved: &mut [i64],
) -> i64 {
    let weight = |index: usize| i128::from(weight(&tenants[index]));
    let wanted = |index: usize| i128::from(tenants[index].wanted());
    let mut order = among.to_vec();
    // The lowest demand per weight is satisfied first; ties by name.
    order.sort_by(|a, b| {
        let (left, right) = (wanted(*a) * weight(*b), wanted(*b) * weight(*a));
        left.cmp(&right).then(a.cmp(b))
    });
    let mut left = i128::from(capacity);
    let mut weights: i128 = order.iter().map(|index| weight(*index)).sum();
    let mut satisfied = 0;
    for index in &order {
        if wanted(*index) * weights > left * weight(*index) {
            break;
        }
        deserved[*index] = tenants[*index].wanted();
        left -= wanted(*index);
        weights -= weight(*index);
        satisfied += 1;
    }
    let mut short = order.split_off(satisfied);
    short.sort_unstable();
    let pool = left;
    for index in &short {
        let part = pool * weight(*index) / weights;
        deserved[*index] = i64::try_from(part).unwrap_or(i64::MAX);
        left -= part;
    }
    // Fewer thousandths are left than tenants, and each of these wants more than its part.
    for index in &short {
        if left > 0 {
            deserved[*index] += 1;
            left -= 1;
        }
    }
    capacity - i64::try_from(left).unwrap_or(0)
}
