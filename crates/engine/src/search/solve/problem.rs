//! A request with its bounds: the demand and free slots of each group, and the order of placement.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::bounds::Bounds;
use crate::cluster::Cluster;
use crate::gang::Gang;
use crate::node::NodeId;
use crate::plan::Scarce;
use crate::resources::Resources;
use crate::solve::Request;
use crate::solve::areas::{self, Area, Pins};
use crate::solve::constraints::LimitUsage;
use crate::solve::free_slots::FreeSlots;
use crate::solve::residual::{self, GroupDemand};
use crate::solve::shared_limits::{SharedLimit, shared_limits};
use crate::topology::{DomainId, LevelId, Topology};

/// A request with what is known before any search.
#[derive(Clone, Debug)]
pub(crate) struct Problem<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) topology: &'a Topology,
    /// By group.
    pub(crate) demands: Vec<GroupDemand>,
    /// By group.
    pub(crate) free_slots: Vec<FreeSlots>,
    /// By group and domain: members that fit by every rule of the group.
    pub(crate) fit_counts: Vec<Vec<u64>>,
    /// Groups in placement order: the most demanding members first, because small members fit more
    /// easily into the remaining capacity.
    pub(crate) order: Vec<usize>,
    pub(crate) pins: Pins,
    supply: Vec<Supply>,
    shared_limits: Vec<SharedLimit>,
}

/// Remaining members of a node by constraint, for the groups with constraints; empty without
/// constraints.
pub(crate) type RemainingSlots = SmallVec<[u32; 4]>;

/// How many members are to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Goal {
    /// By group: members outside pinned segments.
    pub(crate) unpinned: Vec<u32>,
    /// By group: whether all runs must be placed.
    pub(crate) needs_segments: Vec<bool>,
    /// Whether members above the goal are placed as far as they fit.
    pub(crate) is_elastic: bool,
}

impl Goal {
    /// All members.
    pub(crate) fn full(demands: &[GroupDemand]) -> Self {
        let unpinned =
            demands.iter().map(|demand| u32::try_from(demand.ranks.len()).unwrap_or(u32::MAX));
        Self {
            unpinned: unpinned.collect(),
            needs_segments: vec![true; demands.len()],
            is_elastic: false,
        }
    }

    /// As many as must be.
    pub(crate) fn min(demands: &[GroupDemand]) -> Self {
        let needs_runs = |demand: &GroupDemand| {
            let smallest = demand
                .pinned_segments
                .iter()
                .map(|pinned_segment| pinned_segment.ranks.len())
                .min()
                .unwrap_or_default();
            let smallest = u32::try_from(smallest).unwrap_or(u32::MAX);
            demand.min.saturating_add(smallest) > demand.count()
        };
        Self {
            unpinned: demands.iter().map(GroupDemand::min_unpinned).collect(),
            needs_segments: demands.iter().map(needs_runs).collect(),
            is_elastic: true,
        }
    }

    /// Whether no member of a group has to be placed.
    pub(crate) fn is_free(&self, group: usize, demand: &GroupDemand) -> bool {
        // Optional pinned segments are counted in `unpinned` as if placed, so at least one member
        // is still required.
        demand.min == 0
            && self.unpinned[group] == 0
            && (demand.pinned_segments.is_empty() || !self.needs_segments[group])
    }

    /// Members of each group, runs included.
    pub(crate) fn members(&self, demands: &[GroupDemand]) -> impl Iterator<Item = u32> {
        let with_runs = demands.iter().zip(&self.needs_segments);
        self.unpinned.iter().zip(with_runs).map(|(unpinned, (demand, needs_segments))| {
            if *needs_segments { unpinned + demand.segment_members() } else { *unpinned }
        })
    }
}

/// Amounts that all groups consume together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Supply([i64; 5]);

impl Supply {
    fn demand(demand: &GroupDemand, times: u32) -> Self {
        let Resources { cpu_milli, memory_mib, pods } = demand.shape.resources;
        let gpus = &demand.shape.gpus;
        let whole = if gpus.milli() >= crate::gpu::WHOLE { i64::from(gpus.count()) } else { 0 };
        let per_member = [cpu_milli, memory_mib, pods, whole, gpus.total_milli()];
        Self(per_member.map(|amount| amount.max(0).saturating_mul(times.into())))
    }

    fn of_node(cluster: &Cluster, node: NodeId) -> Self {
        let Resources { cpu_milli, memory_mib, pods } = cluster.free(node);
        let gpus = cluster.gpus(node);
        let milli = gpus.iter().map(|gpu| i64::from(gpu.open_milli())).sum();
        let idle = cluster.idle_gpus(node).into();
        Self([cpu_milli.max(0), memory_mib.max(0), pods.max(0), idle, milli])
    }

    fn of_empty(cluster: &Cluster, node: NodeId) -> Self {
        if !cluster.is_open(node) {
            return Self::default();
        }
        let Resources { cpu_milli, memory_mib, pods } = cluster.class(node).capacity;
        let closed = i64::from(cluster.closed_gpus(node).count_ones());
        let open = i64::from(cluster.class(node).gpus) - closed;
        let milli = open.saturating_mul(crate::gpu::WHOLE.into());
        Self([cpu_milli.max(0), memory_mib.max(0), pods.max(0), open, milli])
    }

    fn plus(mut self, other: &Self) -> Self {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
        self
    }

    fn covers(&self, demand: &Self) -> bool {
        self.0.iter().zip(demand.0).all(|(have, wanted)| wanted == 0 || *have >= wanted)
    }
}

impl<'a> Problem<'a> {
    pub(crate) fn new(
        bounds: &mut Bounds,
        cluster: &Cluster,
        topology: &'a Topology,
        request: &Request<'a>,
    ) -> Self {
        let demands = residual::demands(topology, request);
        let free_slots: Vec<FreeSlots> = demands
            .iter()
            .map(|demand| {
                let column = bounds.column(cluster, topology, &demand.shape);
                FreeSlots::of(topology, column, request.forbidden, demand)
            })
            .collect();
        let supply =
            if demands.len() > 1 { supply(cluster, topology, &free_slots) } else { Vec::new() };
        let mut order: Vec<usize> = (0..demands.len()).collect();
        order.sort_by_key(|group| {
            let shape = &demands[*group].shape;
            let Resources { cpu_milli, memory_mib, .. } = shape.resources;
            let milli = shape.gpus.total_milli();
            (Reverse((milli, shape.gpus.count(), cpu_milli, memory_mib)), *group)
        });
        Self {
            request: *request,
            topology,
            fit_counts: fit_counts(topology, &demands, &free_slots),
            order,
            pins: Pins::of(topology, request),
            supply,
            shared_limits: shared_limits(topology, &demands, &free_slots),
            demands,
            free_slots,
        }
    }

    /// The problem of a gang with the same groups and other constraints.
    pub(crate) fn with<'b>(&'b self, gang: &'b Gang) -> Problem<'b> {
        let request = Request { gang, ..self.request };
        let demands = residual::demands(self.topology, &request);
        let fit_counts = fit_counts(self.topology, &demands, &self.free_slots);
        Problem { request, demands, fit_counts, ..self.clone() }
    }

    /// Domains of the gang's required level in which it may be.
    pub(crate) fn roots(&self) -> Vec<DomainId> {
        areas::roots(self.topology, &self.request, self.level())
    }

    /// The level at which all members must be together; 0 is the whole cluster.
    pub(crate) fn level(&self) -> LevelId {
        self.request.gang.profile.topology.required.unwrap_or_default()
    }

    /// Whether every bound allows the gang in an area: each group alone, and all together.
    pub(crate) fn admits(&self, area: &Area, goal: &Goal) -> bool {
        self.first_refused(area, goal).is_none()
            && self.has_supply(area, goal)
            && self.shared_limits.iter().all(|limit| limit.has(&self.demands, area, goal))
    }

    /// The first group that does not fit an area by itself.
    pub(crate) fn first_refused(&self, area: &Area, goal: &Goal) -> Option<usize> {
        self.order.iter().copied().find(|group| !self.fits_alone(*group, area, goal))
    }

    /// Whether a group by itself fits an area.
    pub(crate) fn fits_alone(&self, group: usize, area: &Area, goal: &Goal) -> bool {
        self.free_slots[group].has(
            self.topology,
            &self.demands[group],
            &self.fit_counts[group],
            area,
            goal.unpinned[group],
            goal.needs_segments[group],
        )
    }

    /// Whether the plain resources and GPUs of an area are enough for all groups together.
    pub(crate) fn has_supply(&self, area: &Area, goal: &Goal) -> bool {
        let Some(supply) = self.supply.get(area.domain.0 as usize) else { return true };
        supply.covers(&self.demand(goal))
    }

    /// The remaining members of a node by each constraint, beside the placed ones.
    pub(crate) fn remaining_by_constraint(
        &self,
        node: NodeId,
        usage: &LimitUsage,
    ) -> RemainingSlots {
        let with_rules = self.demands.iter().filter(|demand| !demand.constraints.is_none());
        with_rules.flat_map(|demand| demand.constraints.remaining_each(node, usage)).collect()
    }

    /// The scarce resource of a domain for all groups together.
    pub(crate) fn scarcity(&self, cluster: &Cluster, domain: DomainId, goal: &Goal) -> Scarce {
        let demand = self.demand(goal);
        let forbidden = self.request.forbidden;
        let nodes = self.topology.nodes(domain).iter().filter(|node| !forbidden.contains(node));
        let empty =
            nodes.fold(Supply::default(), |sum, node| sum.plus(&Supply::of_empty(cluster, *node)));
        let free = self.supply.get(domain.0 as usize).copied().unwrap_or_default();
        let has_gpus = free.0[3..].iter().zip(&demand.0[3..]).all(|(have, wanted)| have >= wanted);
        let area = Area::domain(domain);
        let has_shared_slots =
            self.shared_limits.iter().all(|limit| limit.has(&self.demands, &area, goal));
        match (empty.covers(&demand), has_gpus) {
            (true, true) if !has_shared_slots && free.covers(&demand) => Scarce::Constraints,
            (false, _) => Scarce::Capacity,
            (true, false) => Scarce::Gpus,
            (true, true) => Scarce::PlainResources,
        }
    }

    fn demand(&self, goal: &Goal) -> Supply {
        let members = goal.members(&self.demands);
        let demands =
            members.zip(&self.demands).map(|(count, demand)| Supply::demand(demand, count));
        demands.fold(Supply::default(), |sum, demand| sum.plus(&demand))
    }

    /// An upper bound on the members of all groups that fit a domain together. For each resource,
    /// the members with the least demand are counted first.
    pub(crate) fn fit_together(&self, domain: DomainId, goal: &Goal) -> u64 {
        let members: Vec<u32> = goal.members(&self.demands).collect();
        let all: u64 = members.iter().map(|count| u64::from(*count)).sum();
        let area = Area::domain(domain);
        let by_limit = self
            .shared_limits
            .iter()
            .map(|shared_limits| all - shared_limits.missing(&members, &area));
        let all = by_limit.min().unwrap_or(all);
        let Some(supply) = self.supply.get(domain.0 as usize) else { return all };
        let by_unit = supply.0.iter().enumerate().map(|(unit, have)| {
            let demand = |group: usize| Supply::demand(&self.demands[group], 1).0[unit];
            let mut groups: Vec<usize> = (0..members.len()).collect();
            groups.sort_by_key(|group| demand(*group));
            let (mut left, mut fit) = (*have, 0);
            for group in groups {
                let (each, wanted) = (demand(group), i64::from(members[group]));
                let times = left.checked_div(each).unwrap_or(wanted).min(wanted);
                left -= times * each;
                fit += u64::try_from(times).unwrap_or_default();
            }
            fit
        });
        by_unit.min().unwrap_or(all).min(all)
    }
}

/// By group and domain: members that fit by every rule of the group.
fn fit_counts(
    topology: &Topology,
    demands: &[GroupDemand],
    free_slots: &[FreeSlots],
) -> Vec<Vec<u64>> {
    let groups = demands.iter().zip(free_slots);
    groups.map(|(demand, slots)| slots.fit_counts(topology, demand)).collect()
}

/// By domain: the free amounts of nodes that fit a member of some group.
fn supply(cluster: &Cluster, topology: &Topology, free_slots: &[FreeSlots]) -> Vec<Supply> {
    let mut before = vec![Supply::default()];
    let mut sum = Supply::default();
    for (at, node) in topology.order().iter().enumerate() {
        if free_slots.iter().any(|slots| slots.counts[at] > 0) {
            sum = sum.plus(&Supply::of_node(cluster, *node));
        }
        before.push(sum);
    }
    let of = |position: u32| before.get(position as usize).copied().unwrap_or(sum);
    let difference = |end: Supply, start: Supply| {
        let mut left = end.0;
        left.iter_mut().zip(start.0).for_each(|(left, start)| *left -= start);
        Supply(left)
    };
    let domains = topology.domains().map(|(_, domain)| &domain.nodes);
    domains.map(|nodes| difference(of(nodes.end), of(nodes.start))).collect()
}
