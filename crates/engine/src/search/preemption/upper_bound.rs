//! Upper bounds with all possible victims removed: refusals without a search.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::eviction_uses::LimitIndex;
use super::node_view;
use super::victims::VictimPool;
use crate::World;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::gpu::GpuFree;
use crate::node::NodeId;
use crate::plan::{FailedBound, Scarce};
use crate::solve::Request;
use crate::solve::constraints::LimitUsage;
use crate::solve::residual::{AllowedDomain, GroupDemand, is_within};
use crate::topology::{DomainId, LevelId, Topology};

use super::simulate::SearchContext;

/// By group and node: members that fit without all victims.
pub(super) fn max_fit(
    world: &World,
    pool: &VictimPool,
    request: &Request<'_>,
    demands: &[GroupDemand],
) -> Vec<Vec<u32>> {
    let mut max_fit = vec![vec![0; world.cluster.node_count()]; demands.len()];
    for node in world.cluster.nodes() {
        if !world.cluster.is_open(node) || request.forbidden.contains(&node) {
            continue;
        }
        let victims = pool.on(node);
        let without_victims = || {
            let mut state = node_view::of_node(&world.cluster, node)?;
            for member in victims.iter().filter_map(|pod| pool.member(world, *pod)) {
                node_view::take_off(&mut state, member);
            }
            Some(state)
        };
        let state = if victims.is_empty() { None } else { without_victims() };
        for (demand, max_fit) in demands.iter().zip(&mut max_fit) {
            let left = demand.constraints.remaining(node, &LimitUsage::default());
            let times = match &state {
                Some(state) => fit::times(&world.cluster, state, &demand.shape),
                None => fit::times_on(&world.cluster, node, &demand.shape),
            };
            max_fit[node.0 as usize] = times.min(left);
        }
    }
    max_fit
}

/// The same for an empty cluster, with or without the group's constraints.
fn max_fit_of_empty(
    world: &World,
    request: &Request<'_>,
    demand: &GroupDemand,
    has_rules: bool,
) -> Vec<u32> {
    let times = |node| {
        let state = world.cluster.states().state(world.cluster.state(node));
        let Some(state) = state.filter(|_| !request.forbidden.contains(&node)) else { return 0 };
        let class = world.cluster.class(node);
        let model = world.cluster.models().get(usize::from(class.model.0));
        let gpus = state.gpus.iter().map(|gpu| {
            let idle = model.map_or(*gpu, GpuFree::idle);
            GpuFree { is_closed: gpu.is_closed, ..idle }
        });
        let empty = NodeState { free: class.capacity, gpus: gpus.collect(), ..state.clone() };
        let left = if has_rules {
            demand.constraints.remaining(node, &LimitUsage::default())
        } else {
            u32::MAX
        };
        fit::times(&world.cluster, &empty, &demand.shape).min(left)
    };
    world.cluster.nodes().map(times).collect()
}

/// An upper bound on the members of a group in a domain, by every rule of the group except the
/// domains of its pinned segments.
pub(super) fn max_in(
    topology: &Topology,
    demand: &GroupDemand,
    max_fit: &[u32],
    domain: DomainId,
) -> u64 {
    let sum = |domain: DomainId| -> u64 {
        let count = |node: &NodeId| max_fit.get(node.0 as usize).copied().map_or(0, u64::from);
        topology.nodes(domain).iter().map(count).sum()
    };
    let level_of = |domain: DomainId| topology.domain(domain).level;
    let inside = |domain: DomainId, level: LevelId| {
        let all = topology.at(level).map(|(id, _)| id);
        all.filter(move |id| is_within(topology, *id, domain))
    };
    let in_area = |area: DomainId| match demand.segment {
        Some(segment) if demand.pinned_segments.is_empty() && segment.level > level_of(area) => {
            let whole = |part| sum(part) / u64::from(segment.size) * u64::from(segment.size);
            inside(area, segment.level).map(whole).sum()
        }
        _ => sum(area),
    };
    match (demand.allowed, demand.required) {
        (AllowedDomain::Nowhere, _) => 0,
        (AllowedDomain::Within(allowed), _) if is_within(topology, allowed, domain) => {
            in_area(allowed)
        }
        (AllowedDomain::Within(allowed), _) if !is_within(topology, domain, allowed) => 0,
        (AllowedDomain::Anywhere, Some(level)) if level > level_of(domain) => {
            inside(domain, level).map(in_area).max().unwrap_or(0)
        }
        _ => in_area(domain),
    }
}

/// Whether a domain could hold every group by itself.
pub(super) fn admits(
    topology: &Topology,
    demands: &[GroupDemand],
    max_fit: &[Vec<u32>],
    domain: DomainId,
) -> bool {
    demands.iter().zip(max_fit).all(|(demand, max_fit)| {
        let count = u64::from(SearchContext::count(demand));
        count == 0 || max_in(topology, demand, max_fit, domain) >= count
    })
}

/// The bound that fails where no domain of `roots` admits the gang.
pub(super) fn failed_bound(
    world: &World,
    request: &Request<'_>,
    demands: &[GroupDemand],
    max_fit: &[Vec<u32>],
    roots: &[DomainId],
    level: LevelId,
) -> Option<FailedBound> {
    let topology = &world.topology;
    let max_members =
        |group: usize, domain: DomainId| max_in(topology, &demands[group], &max_fit[group], domain);
    let wanted = |group: usize| u64::from(SearchContext::count(&demands[group]));
    // The group that fits worst, in its best domain.
    let best = |group: usize| {
        let all = roots.iter().map(|domain| (max_members(group, *domain), *domain));
        all.max_by_key(|(max_members, domain)| (*max_members, Reverse(*domain)))
    };
    let groups = || (0..demands.len()).filter(|group| wanted(*group) > 0);
    let alone = groups().find_map(|group| {
        let found =
            best(group).map_or((0, None), |(max_members, domain)| (max_members, Some(domain)));
        (found.0 < wanted(group)).then_some((group, found.0, found.1))
    });
    let joint = || {
        let domain = *roots.iter().max_by_key(|domain| {
            let sum =
                groups().map(|group| max_members(group, **domain).min(wanted(group))).sum::<u64>();
            (sum, Reverse(**domain))
        })?;
        let group = groups().find(|group| max_members(*group, domain) < wanted(*group))?;
        Some((group, max_members(group, domain), Some(domain)))
    };
    let (group, possible, domain) = alone.or_else(joint)?;
    let demand = &demands[group];
    let is_enough = |has_rules| {
        let empty = max_fit_of_empty(world, request, demand, has_rules);
        roots.iter().any(|root| max_in(topology, demand, &empty, *root) >= wanted(group))
    };
    let scarce = if is_enough(true) {
        Scarce::Free
    } else if !demand.constraints.is_none() && is_enough(false) {
        Scarce::Constraints
    } else {
        Scarce::Capacity
    };
    let within = domain.filter(|domain| *domain != Topology::ROOT).map(|id| topology.path(id));
    Some(FailedBound {
        group: std::sync::Arc::clone(&request.gang.groups[demand.group as usize].name),
        wanted: wanted(group) + u64::from(demand.pinned),
        possible: possible + u64::from(demand.pinned),
        level,
        within,
        scarce,
    })
}

/// With moves alone, the total free GPU capacity must be enough, since moves free none.
pub(super) fn failed_by_moves(
    world: &World,
    request: &Request<'_>,
    demands: &[GroupDemand],
) -> Option<FailedBound> {
    let nodes = world.cluster.nodes();
    let gpus = nodes.flat_map(|node| world.cluster.gpus(node)).filter(|gpu| !gpu.is_closed);
    let free: i64 = gpus.map(|gpu| i64::from(gpu.milli)).sum();
    failed_by_gpus(request, demands, free)
}

/// Drops the domains in which the GPUs that evictions within limits can free are too few. The bound
/// that fails in the best of them, if none is left.
pub(super) fn retain_within_limits(
    world: &World,
    pool: &VictimPool,
    request: &Request<'_>,
    demands: &[GroupDemand],
    max_fit: &[Vec<u32>],
    domains: &mut Vec<(DomainId, LevelId)>,
) -> Option<FailedBound> {
    if pool.limits.is_empty() {
        return None;
    }
    let mut best: Option<(i64, FailedBound)> = None;
    domains.retain(|(domain, level)| {
        let milli = milli_within_limits(world, pool, max_fit, *domain);
        let Some(failed) = failed_by_gpus(request, demands, milli) else { return true };
        if best.as_ref().is_none_or(|(most, _)| milli > *most) {
            let within = (*domain != Topology::ROOT).then(|| world.topology.path(*domain));
            let failed = FailedBound { level: *level, within, scarce: Scarce::Evictions, ..failed };
            best = Some((milli, failed));
        }
        false
    });
    best.filter(|_| domains.is_empty()).map(|(_, failed)| failed)
}

/// Thousandths of GPUs on the nodes of a domain that fit members: what is free without the victims
/// that no limit counts, and for each limit the largest victims that it allows.
fn milli_within_limits(
    world: &World,
    pool: &VictimPool,
    max_fit: &[Vec<u32>],
    domain: DomainId,
) -> i64 {
    let mut sum = 0;
    let mut limited: BTreeMap<LimitIndex, Vec<i64>> = BTreeMap::new();
    for node in world.topology.nodes(domain) {
        let is_of_use = max_fit.iter().any(|of_group| of_group[node.0 as usize] > 0);
        let state = node_view::of_node(&world.cluster, *node).filter(|_| is_of_use);
        let Some(mut state) = state else { continue };
        for pod in pool.on(*node) {
            let Some(member) = pool.member(world, *pod) else { continue };
            match pool.pod(*pod).limit {
                Some(limit) => limited.entry(limit).or_default().push(member.gpu_milli()),
                None => node_view::take_off(&mut state, member),
            }
        }
        let gpus = state.gpus.iter().filter(|gpu| !gpu.is_closed);
        sum += gpus.map(|gpu| i64::from(gpu.milli)).sum::<i64>();
    }
    for (limit, mut victims) in limited {
        victims.sort_unstable_by_key(|milli| Reverse(*milli));
        sum += victims.iter().take(pool.limits[limit as usize] as usize).sum::<i64>();
    }
    sum
}

/// The bound that fails if these free thousandths of GPUs in the cluster are too few for all
/// members.
fn failed_by_gpus(
    request: &Request<'_>,
    demands: &[GroupDemand],
    milli: i64,
) -> Option<FailedBound> {
    let each = |demand: &GroupDemand| demand.shape.gpus.total_milli();
    let all =
        |demand: &GroupDemand| each(demand).saturating_mul(SearchContext::count(demand).into());
    let wanted: i64 = demands.iter().map(all).fold(0, i64::saturating_add);
    if wanted <= milli {
        return None;
    }
    let demand = demands
        .iter()
        .filter(|demand| SearchContext::count(demand) > 0)
        .max_by_key(|demand| each(demand))?;
    let rest = (milli - (wanted - all(demand))).max(0);
    let possible = u64::try_from(rest / each(demand).max(1)).unwrap_or(0);
    Some(FailedBound {
        group: std::sync::Arc::clone(&request.gang.groups[demand.group as usize].name),
        wanted: u64::from(SearchContext::count(demand)) + u64::from(demand.pinned),
        possible: possible + u64::from(demand.pinned),
        level: LevelId(0),
        within: None,
        scarce: Scarce::Free,
    })
}
