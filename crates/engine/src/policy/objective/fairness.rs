//! Fair shares of tenants: who wants more than it has, and by how much it falls short of what it
//! deserves.
//!
//! All of the cluster's compute is shared out by weighted max-min: each tenant gets compute in
//! proportion to its weight, but never more than it wants, and what one does not want goes to the
//! others in the same way. What a tenant wants is what it has and what it waits for. Its deficit is
//! what it lacks to what it deserves; tenants that wait for nothing have none.
//!
//! Amounts are thousandths of GPUs.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::workload::Workloads;

/// What a tenant has, wants and weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its weight: one of weight 2 deserves twice what one of weight 1 does. One of weight 0
    /// deserves what nobody else wants.
    pub weight: u32,
    /// What it has.
    pub used: i64,
    /// What it waits for.
    pub waiting: i64,
}

/// Tenants and what they deserve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FairShares {
    tenants: BTreeMap<Arc<str>, (Tenant, i64)>,
}

impl Tenant {
    /// What it has and what it waits for.
    pub fn wanted(&self) -> i64 {
        self.used.max(0).saturating_add(self.waiting.max(0))
    }
}

impl FairShares {
    /// What tenants deserve of a capacity.
    pub fn new(capacity: i64, tenants: BTreeMap<Arc<str>, Tenant>) -> Self {
        let deserved = deserved(capacity, &tenants.values().copied().collect::<Vec<_>>());
        let with_deserved =
            tenants.into_iter().zip(deserved).map(|((name, tenant), own)| (name, (tenant, own)));
        Self { tenants: with_deserved.collect() }
    }

    /// As [`Self::new`], with what runs counted from `workloads`. `waiting` has what tenants wait
    /// for, the request that is decided on included. A tenant without a weight weighs 1.
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
        for (_, workload) in workloads.iter() {
            add(&workload.profile.tenant, workload.gpu_milli(), 0);
        }
        for (name, milli) in waiting {
            add(name, 0, *milli);
        }
        Self::new(capacity, tenants)
    }

    /// What a tenant deserves; 0 for one that is not known.
    pub fn deserved(&self, tenant: &str) -> i64 {
        self.tenants.get(tenant).map_or(0, |(_, deserved)| *deserved)
    }

    /// The sum of all deficits after each tenant in `changes` got so much more, or less. Who is
    /// given something waited for it, and who loses something waits for it from then on: wishes
    /// stay what they were, and with them what each deserves.
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

/// What each tenant deserves, in their order. Fractions of a thousandth that are left over go to
/// the first of those who still want something, one thousandth each.
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
    // Who wants the least for its weight is satisfied first; ties by the order of names.
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
    // Fewer thousandths are left than there are tenants, each of whom wants more than its part.
    for index in &short {
        if left > 0 {
            deserved[*index] += 1;
            left -= 1;
        }
    }
    capacity - i64::try_from(left).unwrap_or(0)
}
