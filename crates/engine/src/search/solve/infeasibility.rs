//! Why a gang is infeasible: the failed bound, the scarce resource, and a remedy.

use std::cmp::Reverse;
use std::slice;
use std::sync::Arc;

use crate::bounds::Relaxation;
use crate::cluster::Cluster;
use crate::gang::{Gang, Group};
use crate::node::NodeId;
use crate::plan::{FailedBound, Remedy, Scarce};
use crate::solve::areas::Area;
use crate::solve::free_slots::{FreeSlots, intersection};
use crate::solve::problem::{Goal, Problem};
use crate::solve::residual::AllowedDomain;
use crate::topology::{DomainId, LevelId, Topology};

/// The bound that no area passes; none if some area passes all.
pub(crate) fn failed_bound(
    problem: &Problem<'_>,
    cluster: &Cluster,
    goal: &Goal,
) -> Option<FailedBound> {
    let (level, roots) = (problem.level(), problem.roots());
    let areas: Vec<Area> = roots.iter().copied().map(Area::domain).collect();
    if areas.iter().any(|area| problem.admits(area, goal)) {
        return None;
    }
    let everywhere = (0..problem.demands.len()).find(|group| {
        goal.members(&problem.demands).nth(*group) > Some(0)
            && !areas.iter().any(|area| problem.fits_alone(*group, area, goal))
    });
    let bound =
        |group: usize, roots: &[DomainId]| of_group(problem, cluster, goal, group, level, roots);
    if let Some(group) = everywhere {
        return Some(bound(group, &roots));
    }
    // Each group fits somewhere, but no area fits all: in each area some group fails, or all of
    // them together.
    let joint = areas.iter().filter(|area| problem.first_refused(area, goal).is_none());
    let joint =
        joint.max_by_key(|area| (problem.fit_together(area.domain, goal), Reverse(area.domain)));
    if let Some(area) = joint {
        return Some(of_all(problem, cluster, goal, level, area.domain));
    }
    let nearest = areas.iter().filter_map(|area| Some((area, problem.first_refused(area, goal)?)));
    let nearest = nearest.max_by_key(|(area, group)| {
        let possible = problem.fit_counts[*group][area.domain.0 as usize];
        let thousandths = possible * 1000 / u64::from(goal.unpinned[*group].max(1));
        (thousandths, Reverse(area.domain))
    });
    nearest.map(|(area, group)| bound(group, &[area.domain]))
}

/// The bound of one group, in the best of some domains.
fn of_group(
    problem: &Problem<'_>,
    cluster: &Cluster,
    goal: &Goal,
    group: usize,
    level: LevelId,
    roots: &[DomainId],
) -> FailedBound {
    let (demand, topology) = (&problem.demands[group], problem.topology);
    let name = Arc::clone(&problem.request.gang.groups[group].name);
    let fit_counts = &problem.fit_counts[group];
    let unpinned = u64::from(goal.unpinned[group]);
    // A pinned segment without free slots fails alone, in its own domain.
    let root = roots.first().copied().unwrap_or(Topology::ROOT);
    let pinned_segment = demand
        .pinned_segments
        .iter()
        .filter(|_| goal.needs_segments[group])
        .find_map(|pinned_segment| {
            let wanted = pinned_segment.ranks.len() as u64;
            let place = pinned_segment
                .domain
                .and_then(|domain| intersection(topology, &Area::domain(root), domain));
            let possible = place.as_ref().map_or(0, |place| problem.free_slots[group].count(place));
            (possible < wanted).then_some((place, wanted, possible))
        });
    let relaxed = |relaxation, areas: &[Area], enough| {
        let ranges = areas.iter().map(|area| area.positions(topology));
        FreeSlots::relaxed(
            cluster,
            topology,
            demand,
            problem.request.forbidden,
            relaxation,
            ranges,
            enough,
        )
    };
    // The current slots without the group's constraints; few groups have any.
    let unconstrained = (!demand.constraints.is_none()).then(|| {
        FreeSlots::without_constraints(cluster, topology, demand, problem.request.forbidden)
    });
    if let Some((place, wanted, possible)) = pinned_segment
        && roots.iter().all(|root| fit_counts[root.0 as usize] >= unpinned)
    {
        let level = demand.segment.map_or(level, |segment| segment.level);
        let has = |relaxation| {
            let slots = |at| relaxed(relaxation, slice::from_ref(at), wanted);
            place.iter().any(|at| slots(at).count(at) >= wanted)
        };
        let is_rule =
            unconstrained.is_some_and(|slots| place.iter().any(|at| slots.count(at) >= wanted));
        let scarce =
            if is_rule { Scarce::Constraints } else { scarce(has(Relaxation::Empty), has) };
        let within = place.as_ref().map(|place| topology.path(place.domain));
        return FailedBound { group: name, wanted, possible, level, within, scarce };
    }
    let best = best_of(roots.iter().copied(), fit_counts);
    // If the group's own level is tighter: the best domain of that level.
    let group_level = demand
        .required
        .filter(|group_level| *group_level > level && demand.allowed != AllowedDomain::Nowhere);
    let (level, best) = match (group_level, best) {
        (Some(group_level), Some(root)) => {
            let nodes = &topology.domain(root).nodes;
            let inside = topology.at(group_level).filter(|(_, domain)| {
                nodes.start <= domain.nodes.start && domain.nodes.end <= nodes.end
            });
            (group_level, best_of(inside.map(|(id, _)| id), fit_counts))
        }
        _ => (level, best),
    };
    let possible = best.map_or(0, |best| fit_counts[best.0 as usize]);
    // Capacity outside the areas in question is ignored.
    let would_hold = |relaxation, domains: &[DomainId]| {
        let areas: Vec<Area> = domains.iter().copied().map(Area::domain).collect();
        // If members need not be together within a domain, the sum is sufficient.
        let is_tight = |domain| {
            demand.required.is_none_or(|group_level| group_level <= topology.domain(domain).level)
        };
        let is_sum = demand.segment.is_none() && domains.iter().all(|domain| is_tight(*domain));
        let enough = if is_sum { unpinned } else { u64::MAX };
        let fit_counts = relaxed(relaxation, &areas, enough).fit_counts(topology, demand);
        domains.iter().any(|domain| fit_counts[domain.0 as usize] >= unpinned)
    };
    let is_rule = unconstrained.is_some_and(|slots| {
        let fit_counts = slots.fit_counts(topology, demand);
        roots.iter().any(|root| fit_counts[root.0 as usize] >= unpinned)
    });
    let scarce = if is_rule {
        Scarce::Constraints
    } else {
        scarce(would_hold(Relaxation::Empty, roots), |relaxation| {
            would_hold(relaxation, best.as_slice())
        })
    };
    let within = best.filter(|best| *best != Topology::ROOT).map(|best| topology.path(best));
    FailedBound { group: name, wanted: unpinned, possible, level, within, scarce }
}

/// The scarce resource, given whether the group fits under a relaxation.
fn scarce(is_enough_if_empty: bool, has: impl Fn(Relaxation) -> bool) -> Scarce {
    if !is_enough_if_empty {
        Scarce::Capacity
    } else if has(Relaxation::GpusOnly) {
        Scarce::PlainResources
    } else if has(Relaxation::PlainResourcesOnly) {
        Scarce::Gpus
    } else {
        Scarce::Free
    }
}

/// The bound of all groups together in a domain.
fn of_all(
    problem: &Problem<'_>,
    cluster: &Cluster,
    goal: &Goal,
    level: LevelId,
    domain: DomainId,
) -> FailedBound {
    let names: Vec<&str> = problem.request.gang.groups.iter().map(|group| &*group.name).collect();
    let scarce = problem.scarcity(cluster, domain, goal);
    FailedBound {
        group: names.join(" and ").into(),
        wanted: goal.members(&problem.demands).map(u64::from).sum(),
        possible: problem.fit_together(domain, goal),
        level,
        within: (domain != Topology::ROOT).then(|| problem.topology.path(domain)),
        scarce,
    }
}

fn best_of(domains: impl Iterator<Item = DomainId>, fit_counts: &[u64]) -> Option<DomainId> {
    domains.max_by_key(|id| (fit_counts[id.0 as usize], Reverse(*id)))
}

/// Changes of the request that pass the bounds, the cheapest first: a looser level costs hops,
/// fewer members cost members.
pub(crate) fn changes(problem: &Problem<'_>, bound: Option<&FailedBound>) -> Vec<(Remedy, Gang)> {
    let gang = problem.request.gang;
    let levels = problem.topology.levels();
    let mut changes = Vec::new();
    let mut offer = |remedy: Remedy, gang: Gang| {
        if gang.check(levels.len()).is_err() {
            return false;
        }
        let other = problem.with(&gang);
        let goal = Goal::min(&other.demands);
        let mut roots = other.roots().into_iter().map(Area::domain);
        let is_possible = roots.any(|area| other.admits(&area, &goal));
        if is_possible {
            changes.push((remedy, gang));
        }
        is_possible
    };
    let failing = bound.and_then(|bound| {
        gang.groups.iter().position(|group| group.name == bound.group).map(|at| (at, bound))
    });
    let of_gang = gang.profile.topology.required;
    let of_group = failing.and_then(|(at, _)| gang.groups[at].topology.required);
    for (level, is_group) in [(of_gang, false), (of_group, true)] {
        for looser in (0..level.map_or(0, |level| level.0)).rev() {
            let mut gang = gang.clone();
            let required = (looser > 0).then_some(LevelId(looser));
            match failing {
                Some((at, _)) if is_group => set_required_level(&mut gang, at, required),
                _ => gang.profile.topology.required = required,
            }
            let level = levels[usize::from(looser)].to_string();
            if offer(Remedy::LooserLevel { level }, gang) {
                break;
            }
        }
    }
    if let Some((at, bound)) = failing
        && bound.possible > 0
        && problem.demands[at].pinned_segments.is_empty()
    {
        let group = &gang.groups[at];
        let possible = u32::try_from(bound.possible).unwrap_or(u32::MAX);
        let fit = possible.saturating_add(problem.demands[at].pinned).min(group.min);
        let mut gang = gang.clone();
        gang.groups[at] = Group { min: fit, ..group.clone() };
        offer(Remedy::FewerMembers { group: group.name.to_string(), fit }, gang);
    }
    changes
}

/// Changes the required level of a group and of the groups colocated with it.
fn set_required_level(gang: &mut Gang, at: usize, required: Option<LevelId>) {
    let number = gang.groups[at].colocation_id;
    for (other, group) in gang.groups.iter_mut().enumerate() {
        if other == at || (number.is_some() && group.colocation_id == number) {
            group.topology.required = required;
            // Without a level they may be anywhere.
            group.colocation_id = group.colocation_id.filter(|_| required.is_some());
        }
    }
}

/// The number of nodes to add, like the one that would hold the most members when empty; the first
/// of equals.
///
/// None if pinned members block the gang (no domain has them all, or they violate the group's
/// constraint), or if no node fits. None for several groups, whose total demand is unknown without
/// a search.
pub(crate) fn more_nodes(
    problem: &Problem<'_>,
    cluster: &Cluster,
    bound: &FailedBound,
) -> Option<Remedy> {
    if problem.roots().is_empty() {
        return None;
    }
    let at = problem.request.gang.groups.iter().position(|group| group.name == bound.group)?;
    let (demand, topology) = (&problem.demands[at], problem.topology);
    if problem.demands.len() > 1
        || demand.allowed == AllowedDomain::Nowhere
        || !demand.pinned_segments.is_empty()
    {
        return None;
    }
    let everywhere = [topology.domain(Topology::ROOT).nodes.clone()];
    let (forbidden, empty) = (problem.request.forbidden, Relaxation::Empty);
    let slots =
        FreeSlots::relaxed(cluster, topology, demand, forbidden, empty, everywhere, u64::MAX);
    let best: Option<(u32, NodeId)> =
        topology.order().iter().enumerate().fold(None, |best, (at, node)| match best {
            Some((most, first)) if (most, Reverse(first)) >= (slots.counts[at], Reverse(*node)) => {
                best
            }
            _ => Some((slots.counts[at], *node)),
        });
    let (most, node) = best.filter(|(most, _)| *most > 0)?;
    let lacking = bound.wanted.saturating_sub(bound.possible).div_ceil(u64::from(most));
    let nodes = u32::try_from(lacking).ok()?;
    Some(Remedy::MoreNodes { nodes, like: cluster.name(node).into() })
}
