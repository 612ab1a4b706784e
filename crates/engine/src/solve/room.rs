//! Room for one group: a column of the bounds without forbidden nodes, kept while members of
//! several groups are tried together.

use std::ops::Range;

use crate::bounds::capacity::Measure;
use crate::bounds::column::{segments, shift, sums};
use crate::bounds::{Column, Yardstick};
use crate::cluster::Cluster;
use crate::fit;
use crate::node::NodeId;
use crate::solve::NodeSet;
use crate::solve::areas::Area;
use crate::solve::need::{Home, Need, is_within};
use crate::solve::rules::Seated;
use crate::topology::{DomainId, Topology};

/// Room for one group.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// By position.
    pub(crate) counts: Vec<u32>,
    /// By domain.
    pub(crate) sums: Vec<u64>,
}

impl Room {
    /// What a column says, without forbidden nodes and as far as the group's rules allow.
    pub(crate) fn of(
        topology: &Topology,
        column: &Column,
        forbidden: &NodeSet,
        need: &Need,
    ) -> Self {
        let mut counts = column.counts().to_vec();
        let mut room = if need.rules.limits().is_empty() {
            Self { counts, sums: column.sums().to_vec() }
        } else {
            for (count, node) in counts.iter_mut().zip(topology.order()) {
                *count = (*count).min(need.rules.left(*node, &Seated::default()));
            }
            let sums = sums(topology, &counts);
            Self { counts, sums }
        };
        for node in forbidden.iter().chain(need.rules.forbidden()) {
            room.set(topology, *node, 0);
        }
        room
    }

    /// What there is room for now if the group had no rules.
    pub(crate) fn without_rules(
        cluster: &Cluster,
        topology: &Topology,
        need: &Need,
        forbidden: &NodeSet,
    ) -> Self {
        let count = |node: &NodeId| {
            let is_forbidden = forbidden.contains(node);
            if is_forbidden { 0 } else { fit::times_on(cluster, *node, &need.shape) }
        };
        let counts: Vec<u32> = topology.order().iter().map(count).collect();
        let sums = sums(topology, &counts);
        Self { counts, sums }
    }

    /// Room in these ranges of positions, if something were otherwise. Where as many fit a range as
    /// are `enough`, the rest of it is not looked at.
    pub(crate) fn measured(
        cluster: &Cluster,
        topology: &Topology,
        need: &Need,
        forbidden: &NodeSet,
        yardstick: Yardstick,
        ranges: impl IntoIterator<Item = Range<u32>>,
        enough: u64,
    ) -> Self {
        let mut measure = Measure::new(cluster, &need.shape, yardstick);
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
                    let left = need.rules.left(*node, &Seated::default());
                    *count = if left == 0 { 0 } else { measure.times(*node).min(left) };
                    sum += u64::from(*count);
                }
            }
        }
        let sums = sums(topology, &counts);
        Self { counts, sums }
    }

    fn set(&mut self, topology: &Topology, node: NodeId, now: u32) {
        if let Some(count) = self.counts.get_mut(topology.position(node) as usize) {
            let before = std::mem::replace(count, now);
            shift(topology, &mut self.sums, node, before, now);
        }
    }

    /// Looks at a node again, with these members of the gang placed.
    pub(crate) fn update(
        &mut self,
        cluster: &Cluster,
        topology: &Topology,
        need: &Need,
        node: NodeId,
        seated: &Seated,
    ) {
        let left = need.rules.left(node, seated);
        let times = if left == 0 { 0 } else { fit::times_on(cluster, node, &need.shape).min(left) };
        self.set(topology, node, times);
    }

    /// How many members fit an area, if any may be anywhere in it.
    pub(crate) fn count(&self, area: &Area) -> u64 {
        match area.node {
            Some(position) => self.counts.get(position as usize).copied().map_or(0, u64::from),
            None => self.sums.get(area.domain.0 as usize).copied().unwrap_or_default(),
        }
    }

    /// By domain: how many members fit in whole segments.
    pub(crate) fn members(&self, topology: &Topology, need: &Need) -> Vec<u64> {
        match need.segment {
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
    pub(crate) fn able(&self, topology: &Topology, need: &Need) -> Vec<u64> {
        let mut able = self.members(topology, need);
        if let Some(required) = need.required {
            let mut domains: Vec<_> = topology.domains().collect();
            domains.reverse();
            for (id, domain) in domains {
                if domain.level < required {
                    let children = topology.children(id);
                    let best = children.map(|child| able[child.0 as usize]).max();
                    able[id.0 as usize] = best.unwrap_or_default();
                } else if let Home::Within(home) = need.home
                    && !is_within(topology, id, home)
                {
                    able[id.0 as usize] = 0;
                }
            }
        }
        if need.home == Home::Nowhere {
            able.fill(0);
        }
        able
    }

    /// How many members fit an area by every rule of the group, given [`Self::able`].
    pub(crate) fn able_in(
        &self,
        topology: &Topology,
        need: &Need,
        able: &[u64],
        area: &Area,
    ) -> u64 {
        let Some(position) = area.node else { return able[area.domain.0 as usize] };
        // One node keeps any rule that its home keeps.
        let level = topology.domain(area.domain).level;
        let is_outside = need.required.is_some_and(|required| level < required)
            || need.segment.is_some_and(|segment| level < segment.level)
            || match need.home {
                Home::Anywhere => false,
                Home::Within(home) => !is_within(topology, area.domain, home),
                Home::Nowhere => true,
            };
        let count = self.counts.get(position as usize).copied().unwrap_or_default();
        if is_outside { 0 } else { need.whole(u64::from(count)).into() }
    }

    /// Whether the group fits an area by itself: so many loose members and all runs, or as many of
    /// them as must be placed.
    pub(crate) fn has(
        &self,
        topology: &Topology,
        need: &Need,
        able: &[u64],
        area: &Area,
        loose: u32,
        has_runs: bool,
    ) -> bool {
        let has_runs = !has_runs
            || need.runs.iter().all(|run| {
                let domain = run.domain.and_then(|domain| common(topology, area, domain));
                let wanted = run.ranks.len() as u64;
                domain.is_some_and(|area| self.count(&area) >= wanted)
            });
        has_runs && (loose == 0 || self.able_in(topology, need, able, area) >= u64::from(loose))
    }
}

/// What an area and a domain have in common.
pub(crate) fn common(topology: &Topology, area: &Area, domain: DomainId) -> Option<Area> {
    if is_within(topology, area.domain, domain) {
        Some(area.clone())
    } else if area.node.is_none() && is_within(topology, domain, area.domain) {
        Some(Area::domain(domain))
    } else {
        None
    }
}
