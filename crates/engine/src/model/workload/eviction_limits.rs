//! Limits on how many members a decision may evict or move, such as disruption budgets.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Index of a limit; not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(pub u32);

/// Limits by id. Each allows a number of evictions and moves of the members that name it.
#[derive(Clone, Debug, Default)]
pub struct EvictionLimits {
    list: BTreeMap<LimitId, EvictionLimit>,
    next: u32,
}

#[derive(Clone, Debug)]
struct EvictionLimit {
    name: Arc<str>,
    allowance: u32,
}

impl EvictionLimits {
    /// Adds a limit. Its name is for snapshots and must be unique.
    pub fn add(&mut self, name: impl Into<Arc<str>>, allowance: u32) -> LimitId {
        let id = LimitId(self.next);
        self.next = self.next.saturating_add(1);
        self.list.insert(id, EvictionLimit { name: name.into(), allowance });
        id
    }

    /// Removes a limit. Members that still name it cannot be evicted.
    pub fn remove(&mut self, id: LimitId) {
        self.list.remove(&id);
    }

    /// How many members may be evicted or moved; none of an unknown limit.
    pub fn allowance(&self, id: LimitId) -> u32 {
        self.list.get(&id).map_or(0, |limit| limit.allowance)
    }

    /// Changes how many members may be evicted or moved.
    pub fn set_allowance(&mut self, id: LimitId, allowance: u32) {
        if let Some(limit) = self.list.get_mut(&id) {
            limit.allowance = allowance;
        }
    }

    /// The name of a limit.
    pub fn name(&self, id: LimitId) -> Option<&Arc<str>> {
        self.list.get(&id).map(|limit| &limit.name)
    }

    /// Ids, names and allowances.
    pub fn iter(&self) -> impl Iterator<Item = (LimitId, &Arc<str>, u32)> {
        self.list.iter().map(|(id, limit)| (*id, &limit.name, limit.allowance))
    }

    /// Allows everything, for a search that only asks what would help.
    pub fn lift(&mut self) {
        for limit in self.list.values_mut() {
            limit.allowance = u32::MAX;
        }
    }
}
