//! The joint capacity of groups with a common limit. A node counts once for all of them, whereas
//! each group's free slots count it for that group alone.

use std::collections::BTreeMap;

use crate::solve::areas::Area;
use crate::solve::free_slots::FreeSlots;
use crate::solve::problem::Goal;
use crate::solve::residual::GroupDemand;
use crate::topology::Topology;

/// An upper bound on the members of all groups with a common limit.
#[derive(Clone, Debug)]
pub(crate) struct SharedLimit {
    groups: Vec<usize>,
    slots: FreeSlots,
}

/// Bounds of the limits that several groups share.
pub(crate) fn shared_limits(
    topology: &Topology,
    demands: &[GroupDemand],
    free_slots: &[FreeSlots],
) -> Vec<SharedLimit> {
    let mut groups: BTreeMap<u32, (u32, Vec<usize>)> = BTreeMap::new();
    for (number, demand) in demands.iter().enumerate() {
        for limit in demand.constraints.limits() {
            let (_, groups) = groups.entry(limit.over).or_insert((limit.most, Vec::new()));
            if groups.last() != Some(&number) {
                groups.push(number);
            }
        }
    }
    let of_several = groups.into_values().filter(|(_, groups)| groups.len() > 1);
    let bound = |(most, groups): (u32, Vec<usize>)| {
        let of_node = |at: usize| {
            let each = groups.iter().map(|group| free_slots[*group].counts[at]);
            each.fold(0, u32::saturating_add).min(most)
        };
        let counts = (0..topology.order().len()).map(of_node).collect();
        SharedLimit { slots: FreeSlots::new(topology, counts), groups }
    };
    of_several.map(bound).collect()
}

impl SharedLimit {
    /// Whether an area fits the members of these groups that a goal needs.
    pub(crate) fn has(&self, demands: &[GroupDemand], area: &Area, goal: &Goal) -> bool {
        let members: Vec<u32> = goal.members(demands).collect();
        self.missing(&members, area) == 0
    }

    /// A lower bound on the members, given by group, that do not fit an area.
    pub(crate) fn missing(&self, members: &[u32], area: &Area) -> u64 {
        let wanted = self.groups.iter().filter_map(|group| members.get(*group));
        let wanted: u64 = wanted.map(|count| u64::from(*count)).sum();
        wanted.saturating_sub(self.slots.count(area))
    }
}
