//! What could fit at all if everybody went who may be disturbed: a "no" without a search.

use super::view;
use super::who::Crowd;
use crate::World;
use crate::cluster::states::NodeState;
use crate::decision::{FailedBound, Scarce};
use crate::fit;
use crate::gpu::GpuFree;
use crate::node::NodeId;
use crate::solve::Request;
use crate::solve::need::{Home, Need, is_within};
use crate::solve::rules::Seated;
use crate::topology::{DomainId, LevelId, Topology};

use super::stage::Play;

/// By group and node: members that fit if everybody goes.
pub(super) fn reach(
    world: &World,
    crowd: &Crowd,
    request: &Request<'_>,
    needs: &[Need],
) -> Vec<Vec<u32>> {
    let mut reach = vec![vec![0; world.cluster.node_count()]; needs.len()];
    for node in world.cluster.nodes() {
        if !world.cluster.is_open(node) || request.forbidden.contains(&node) {
            continue;
        }
        let Some(mut state) = view::of_node(&world.cluster, node) else { continue };
        for pod in crowd.on(node) {
            if let Some(member) = crowd.member(world, *pod) {
                view::take_off(&mut state, member);
            }
        }
        for (need, reach) in needs.iter().zip(&mut reach) {
            let left = need.rules.left(node, &Seated::default());
            reach[node.0 as usize] = fit::times(&world.cluster, &state, &need.shape).min(left);
        }
    }
    reach
}

/// The same if nothing ran at all, by the rules of the group or without them.
fn reach_of_empty(world: &World, request: &Request<'_>, need: &Need, has_rules: bool) -> Vec<u32> {
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
        let left = if has_rules { need.rules.left(node, &Seated::default()) } else { u32::MAX };
        fit::times(&world.cluster, &empty, &need.shape).min(left)
    };
    world.cluster.nodes().map(times).collect()
}

/// At most so many members of a group fit a domain, by every rule of the group but the places of
/// its pinned segments.
pub(super) fn most_in(topology: &Topology, need: &Need, reach: &[u32], domain: DomainId) -> u64 {
    let sum = |domain: DomainId| -> u64 {
        let count = |node: &NodeId| reach.get(node.0 as usize).copied().map_or(0, u64::from);
        topology.nodes(domain).iter().map(count).sum()
    };
    let level_of = |domain: DomainId| topology.domain(domain).level;
    let inside = |domain: DomainId, level: LevelId| {
        let all = topology.at(level).map(|(id, _)| id);
        all.filter(move |id| is_within(topology, *id, domain))
    };
    let in_area = |area: DomainId| match need.segment {
        Some(segment) if need.runs.is_empty() && segment.level > level_of(area) => {
            let whole = |part| sum(part) / u64::from(segment.size) * u64::from(segment.size);
            inside(area, segment.level).map(whole).sum()
        }
        _ => sum(area),
    };
    match (need.home, need.required) {
        (Home::Nowhere, _) => 0,
        (Home::Within(home), _) if is_within(topology, home, domain) => in_area(home),
        (Home::Within(home), _) if !is_within(topology, domain, home) => 0,
        (Home::Anywhere, Some(level)) if level > level_of(domain) => {
            inside(domain, level).map(in_area).max().unwrap_or(0)
        }
        _ => in_area(domain),
    }
}

/// Whether a domain could hold every group by itself.
pub(super) fn admits(
    topology: &Topology,
    needs: &[Need],
    reach: &[Vec<u32>],
    domain: DomainId,
) -> bool {
    needs.iter().zip(reach).all(|(need, reach)| {
        let count = u64::from(Play::count(need));
        count == 0 || most_in(topology, need, reach, domain) >= count
    })
}

/// The bound that fails where no domain of `roots` admits the gang.
pub(super) fn failed(
    world: &World,
    request: &Request<'_>,
    needs: &[Need],
    reach: &[Vec<u32>],
    roots: &[DomainId],
    level: LevelId,
) -> Option<FailedBound> {
    let topology = &world.topology;
    let most =
        |group: usize, domain: DomainId| most_in(topology, &needs[group], &reach[group], domain);
    let wanted = |group: usize| u64::from(Play::count(&needs[group]));
    // The group that is hardest to place, where it fits best.
    let best = |group: usize| {
        let all = roots.iter().map(|domain| (most(group, *domain), *domain));
        all.max_by_key(|(most, domain)| (*most, std::cmp::Reverse(*domain)))
    };
    let groups = || (0..needs.len()).filter(|group| wanted(*group) > 0);
    let alone = groups().find_map(|group| {
        let found = best(group).map_or((0, None), |(most, domain)| (most, Some(domain)));
        (found.0 < wanted(group)).then_some((group, found.0, found.1))
    });
    let together = || {
        let domain = *roots.iter().max_by_key(|domain| {
            let sum = groups().map(|group| most(group, **domain).min(wanted(group))).sum::<u64>();
            (sum, std::cmp::Reverse(**domain))
        })?;
        let group = groups().find(|group| most(*group, domain) < wanted(*group))?;
        Some((group, most(group, domain), Some(domain)))
    };
    let (group, possible, domain) = alone.or_else(together)?;
    let need = &needs[group];
    let is_enough = |has_rules| {
        let empty = reach_of_empty(world, request, need, has_rules);
        roots.iter().any(|root| most_in(topology, need, &empty, *root) >= wanted(group))
    };
    let scarce = if is_enough(true) {
        Scarce::Free
    } else if !need.rules.is_none() && is_enough(false) {
        Scarce::Rules
    } else {
        Scarce::Capacity
    };
    let within = domain.filter(|domain| *domain != Topology::ROOT).map(|id| topology.path(id));
    Some(FailedBound {
        group: std::sync::Arc::clone(&request.gang.groups[need.group as usize].name),
        wanted: wanted(group) + u64::from(need.pinned),
        possible: possible + u64::from(need.pinned),
        level,
        within,
        scarce,
    })
}

/// Where pods may only be moved, what all GPUs together have free must be enough: moves free none.
pub(super) fn failed_by_moves(
    world: &World,
    request: &Request<'_>,
    needs: &[Need],
) -> Option<FailedBound> {
    let each = |need: &Need| need.shape.gpus.total_milli();
    let all = |need: &Need| each(need).saturating_mul(Play::count(need).into());
    let wanted: i64 = needs.iter().map(all).fold(0, i64::saturating_add);
    let nodes = world.cluster.nodes();
    let gpus = nodes.flat_map(|node| world.cluster.gpus(node)).filter(|gpu| !gpu.is_closed);
    let free: i64 = gpus.map(|gpu| i64::from(gpu.milli)).sum();
    if wanted <= free {
        return None;
    }
    let need = needs.iter().filter(|need| Play::count(need) > 0).max_by_key(|need| each(need))?;
    let rest = (free - (wanted - all(need))).max(0);
    let possible = u64::try_from(rest / each(need).max(1)).unwrap_or(0);
    Some(FailedBound {
        group: std::sync::Arc::clone(&request.gang.groups[need.group as usize].name),
        wanted: u64::from(Play::count(need)) + u64::from(need.pinned),
        possible: possible + u64::from(need.pinned),
        level: LevelId(0),
        within: None,
        scarce: Scarce::Free,
    })
}
