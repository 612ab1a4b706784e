//! Amounts of resources as kube-scheduler counts them.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_dra::{Quantity, is_extended_resource};
use smallvec::SmallVec;

/// Amounts of resources: CPU in thousandths, all others in whole units, fractions rounded up.
///
/// Wide enough that sums never overflow. Resources that kube-scheduler ignores, such as a name
/// without a domain, are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    /// `cpu`, thousandths of a core.
    pub cpu: i128,
    /// `memory`, bytes.
    pub memory: i128,
    /// `ephemeral-storage`, bytes.
    pub storage: i128,
    /// Others by name, ordered by name and never zero: huge pages, extended resources.
    pub others: SmallVec<[(Arc<str>, i128); 2]>,
}

impl Amounts {
    /// The amounts of a resource list, without `pods`.
    pub fn of(list: &BTreeMap<String, Quantity>) -> Self {
        let mut amounts = Self::default();
        for (name, amount) in list {
            amounts.set(name, *amount);
        }
        amounts
    }

    /// Sets one resource. Names must come in order.
    pub(super) fn set(&mut self, name: &str, amount: Quantity) {
        match name {
            "cpu" => self.cpu = amount.milli_value(),
            "memory" => self.memory = amount.value(),
            "ephemeral-storage" => self.storage = amount.value(),
            _ if amount != Quantity::ZERO && is_scalar(name) => {
                self.others.push((Arc::from(name), amount.value()));
            }
            _ => {}
        }
    }

    /// The amount of a resource that is neither CPU, memory nor storage.
    pub fn other(&self, name: &str) -> i128 {
        self.others.iter().find(|(known, _)| **known == *name).map_or(0, |(_, amount)| *amount)
    }

    /// Adds `times` the other amounts.
    pub(super) fn add(&mut self, more: &Self, times: i128) {
        self.cpu += times * more.cpu;
        self.memory += times * more.memory;
        self.storage += times * more.storage;
        for (name, amount) in &more.others {
            match self.others.binary_search_by(|(known, _)| known.cmp(name)) {
                Ok(at) => {
                    self.others[at].1 += times * amount;
                    if self.others[at].1 == 0 {
                        self.others.remove(at);
                    }
                }
                Err(at) => self.others.insert(at, (Arc::clone(name), times * amount)),
            }
        }
    }
}

/// Whether kube-scheduler counts a resource beyond the basic ones.
fn is_scalar(name: &str) -> bool {
    name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
        || is_extended_resource(name)
}
