//! Free slots for one group: a column of the bounds without forbidden nodes, updated while several
//! groups are placed together.

use std::ops::Range;

use crate::bounds::column::{adjust_sums, segments, sums};
use crate::bounds::relaxation::RelaxedFit;
use crate::bounds::{Column, Relaxation};
use crate::cluster::Cluster;
use crate::fit;
use crate::node::NodeId;
use crate::solve::NodeSet;
use crate::solve::areas::Area;
use crate::solve::constraints::LimitUsage;
use crate::solve::residual::{AllowedDomain, GroupDemand, is_within};
use crate::topology::{DomainId, Topology};

/// Free slots for one group.
#[derive(Clone, Debug)]
pub(crate) struct FreeSlots {
    /// By position.
    pub(crate) counts: Vec<u32>,
    /// By domain.
    pub(crate) sums: Vec<u64>,
}

impl FreeSlots {
    /// Slots by position.
    pub(crate) fn new(topology: &Topology, counts: Vec<u32>) -> Self {
        Self { sums: sums(topology, &counts), counts }
    }

    /// The slots of a column, without forbidden nodes and within the group's constraints.
    pub(crate) fn of(
        topology: &Topology,
        column: &Column,
        forbidden: &NodeSet,
        demand: &GroupDemand,
    ) -> Self {
        let mut counts = column.counts().to_vec();
        let mut slots = if demand.constraints.limits().is_empty() {
            Self { counts, sums: column.sums().to_vec() }
        } else {
            for (count, node) in counts.iter_mut().zip(topology.order()) {
                *count = (*count).min(demand.constraints.remaining(*node, &LimitUsage::default()));
            }
            Self::new(topology, counts)
        };
        for node in forbidden.iter().chain(demand.constraints.forbidden()) {
            slots.set(topology, *node, 0);
        }
        slots
    }

    /// The current slots if the group had no constraints.
    pub(crate) fn without_constraints(
        cluster: &Cluster,
        topology: &Topology,
        demand: &GroupDemand,
        forbidden: &NodeSet,
    ) -> Self {
        let count = |node: &NodeId| {
            let is_forbidden = forbidden.contains(node);
            if is_forbidden { 0 } else { fit::times_on(cluster, *node, &demand.shape) }
        };
        Self::new(topology, topology.order().iter().map(count).collect())
    }

    /// Slots in these ranges of positions under a relaxation. Once `enough` fit a range, its
    /// remaining nodes are skipped.
    pub(crate) fn relaxed(
        cluster: &Cluster,
        topology: &Topology,
        demand: &GroupDemand,
        forbidden: &NodeSet,
        relaxation: Relaxation,
        ranges: impl IntoIterator<Item = Range<u32>>,
        enough: u64,
    ) -> Self {
        let mut relaxed_fit = RelaxedFit::new(cluster, &demand.shape, relaxation);
        let order = topology.order();
        let mut counts = vec![0; order.len()];
        for range in ranges {
            let range = range.start as usize..range.end as usize;
            let mut sum = 0;
            for (count, node) in counts[range.clone()].iter_mut().zip(&order[range]) {
                if sum >= enough {
                    break;
                }
                if !forbidden.contains(node) {
                    let left = demand.constraints.remaining(*node, &LimitUsage::default());
                    *count = if left == 0 { 0 } else { relaxed_fit.times(*node).min(left) };
                    sum += u64::from(*count);
                }
            }
        }
        Self::new(topology, counts)
    }

    fn set(&mut self, topology: &Topology, node: NodeId, now: u32) {
        if let Some(count) = self.counts.get_mut(topology.position(node) as usize) {
            let before = std::mem::replace(count, now);
            adjust_sums(topology, &mut self.sums, node, before, now);
        }
    }

    /// Looks at a node again, with these members of the gang placed.
    pub(crate) fn update(
        &mut self,
        cluster: &Cluster,
        topology: &Topology,
        demand: &GroupDemand,
        node: NodeId,
        usage: &LimitUsage,
    ) {
        let left = demand.constraints.remaining(node, usage);
        let times =
            if left == 0 { 0 } else { fit::times_on(cluster, node, &demand.shape).min(left) };
        self.set(topology, node, times);
    }

    /// The number of members that fit an area, anywhere in it.
    pub(crate) fn count(&self, area: &Area) -> u64 {
        match area.node {
            Some(position) => self.counts.get(position as usize).copied().map_or(0, u64::from),
            None => self.sums.get(area.domain.0 as usize).copied().unwrap_or_default(),
        }
    }

    /// By domain: how many members fit in whole segments.
    pub(crate) fn members(&self, topology: &Topology, demand: &GroupDemand) -> Vec<u64> {
        match demand.segment {
            None => self.sums.clone(),
            Some(segment) => {
                let mut whole = segments(topology, &self.sums, segment);
                for members in &mut whole {
                    *members *= u64::from(segment.size);
                }
                whole
            }
        }
    }

    /// By domain: how many members fit, by every rule of the group.
    pub(crate) fn fit_counts(&self, topology: &Topology, demand: &GroupDemand) -> Vec<u64> {
        let mut fit_counts = self.members(topology, demand);
        if let Some(required) = demand.required {
            let mut domains: Vec<_> = topology.domains().collect();
            domains.reverse();
            for (id, domain) in domains {
                if domain.level < required {
                    let children = topology.children(id);
                    let best = children.map(|child| fit_counts[child.0 as usize]).max();
                    fit_counts[id.0 as usize] = best.unwrap_or_default();
                } else if let AllowedDomain::Within(allowed) = demand.allowed
                    && !is_within(topology, id, allowed)
                {
                    fit_counts[id.0 as usize] = 0;
                }
            }
        }
        if demand.allowed == AllowedDomain::Nowhere {
            fit_counts.fill(0);
        }
        fit_counts
    }

    /// The number of members that fit an area by every rule of the group, given
    /// [`Self::fit_counts`].
    pub(crate) fn fit_count_in(
        &self,
        topology: &Topology,
        demand: &GroupDemand,
        fit_counts: &[u64],
        area: &Area,
    ) -> u64 {
        let Some(position) = area.node else { return fit_counts[area.domain.0 as usize] };
        // One node satisfies any rule that its domain satisfies.
        let level = topology.domain(area.domain).level;
        let is_outside = demand.required.is_some_and(|required| level < required)
            || demand.segment.is_some_and(|segment| level < segment.level)
            || match demand.allowed {
                AllowedDomain::Anywhere => false,
                AllowedDomain::Within(allowed) => !is_within(topology, area.domain, allowed),
                AllowedDomain::Nowhere => true,
            };
        let count = self.counts.get(position as usize).copied().unwrap_or_default();
        if is_outside { 0 } else { demand.whole(u64::from(count)).into() }
    }

    /// Whether the group alone fits an area: `unpinned` members and, if needed, all pinned
    /// segments.
    pub(crate) fn has(
        &self,
        topology: &Topology,
        demand: &GroupDemand,
        fit_counts: &[u64],
        area: &Area,
        unpinned: u32,
        needs_segments: bool,
    ) -> bool {
        let needs_segments = !needs_segments
            || demand.pinned_segments.iter().all(|pinned_segment| {
                let domain =
                    pinned_segment.domain.and_then(|domain| intersection(topology, area, domain));
                let wanted = pinned_segment.ranks.len() as u64;
                domain.is_some_and(|area| self.count(&area) >= wanted)
            });
        needs_segments
            && (unpinned == 0
                || self.fit_count_in(topology, demand, fit_counts, area) >= u64::from(unpinned))
    }
}

/// The intersection of an area and a domain.
pub(crate) fn intersection(topology: &Topology, area: &Area, domain: DomainId) -> Option<Area> {
    if is_within(topology, area.domain, domain) {
        Some(area.clone())
    } else if area.node.is_none() && is_within(topology, domain, area.domain) {
        Some(Area::domain(domain))
    } else {
        None
    }
}
