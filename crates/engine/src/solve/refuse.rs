//! Why a gang cannot be placed: the bound that fails, what is scarce, and what would help.

use std::cmp::Reverse;
use std::slice;
use std::sync::Arc;

use crate::bounds::Yardstick;
use crate::cluster::Cluster;
use crate::decision::{FailedBound, Remedy, Scarce};
use crate::gang::{Gang, Group};
use crate::node::NodeId;
use crate::solve::Request;
use crate::solve::areas::{self, Area};
use crate::solve::case::{Case, Goal, Scarcity};
use crate::solve::need::Home;
use crate::solve::room::{Room, common};
use crate::topology::{DomainId, LevelId, Topology};

/// The bound that no area passes; none if some area passes all.
pub(crate) fn failed_bound(
    case: &Case<'_>,
    cluster: &Cluster,
    request: &Request<'_>,
    goal: &Goal,
) -> Option<FailedBound> {
    let level = request.gang.profile.topology.required.unwrap_or_default();
    let roots = areas::roots(case.topology, request, level);
    let areas: Vec<Area> = roots.iter().copied().map(Area::domain).collect();
    if areas.iter().any(|area| case.admits(area, goal)) {
        return None;
    }
    let refused = |area: &Area, group: usize| {
        let (need, room) = (&case.needs[group], &case.rooms[group]);
        let (loose, has_runs) = (goal.loose[group], goal.has_runs[group]);
        !room.has(case.topology, need, &case.able[group], area, loose, has_runs)
    };
    let everywhere = (0..case.needs.len()).find(|group| {
        goal.members(&case.needs).nth(*group) > Some(0)
            && areas.iter().all(|area| refused(area, *group))
    });
    let bound =
        |group: usize, roots: &[DomainId]| of_group(case, cluster, goal, group, level, roots);
    if let Some(group) = everywhere {
        return Some(bound(group, &roots));
    }
    // Each group fits somewhere, and nowhere all: in each area another one fails, or all together.
    let together = areas.iter().filter(|area| case.first_refused(area, goal).is_none());
    let together =
        together.max_by_key(|area| (case.together(area.domain, goal), Reverse(area.domain)));
    if let Some(area) = together {
        return Some(of_all(case, cluster, goal, level, area.domain));
    }
    let nearest = areas.iter().filter_map(|area| Some((area, case.first_refused(area, goal)?)));
    let nearest = nearest.max_by_key(|(area, group)| {
        let possible = case.able[*group][area.domain.0 as usize];
        let thousandths = possible * 1000 / u64::from(goal.loose[*group].max(1));
        (thousandths, Reverse(area.domain))
    });
    nearest.map(|(area, group)| bound(group, &[area.domain]))
}

/// The bound of one group, in the best of some domains.
fn of_group(
    case: &Case<'_>,
    cluster: &Cluster,
    goal: &Goal,
    group: usize,
    level: LevelId,
    roots: &[DomainId],
) -> FailedBound {
    let (need, topology) = (&case.needs[group], case.topology);
    let name = Arc::clone(&case.gang.groups[group].name);
    let able = &case.able[group];
    let loose = u64::from(goal.loose[group]);
    // A run that has no room fails by itself, where its segment is.
    let root = roots.first().copied().unwrap_or(Topology::ROOT);
    let run = need.runs.iter().filter(|_| goal.has_runs[group]).find_map(|run| {
        let wanted = run.ranks.len() as u64;
        let place = run.domain.and_then(|domain| common(topology, &Area::domain(root), domain));
        let possible = place.as_ref().map_or(0, |place| case.rooms[group].count(place));
        (possible < wanted).then_some((place, wanted, possible))
    });
    let measured = |yardstick, areas: &[Area], enough| {
        let ranges = areas.iter().map(|area| area.positions(topology));
        Room::measured(cluster, topology, need, case.forbidden, yardstick, ranges, enough)
    };
    // What there would be room for now without the group's rules; few groups have any.
    let lawless = (!need.rules.is_none())
        .then(|| Room::without_rules(cluster, topology, need, case.forbidden));
    if let Some((place, wanted, possible)) = run
        && roots.iter().all(|root| able[root.0 as usize] >= loose)
    {
        let level = need.segment.map_or(level, |segment| segment.level);
        let has = |yardstick| {
            let room = |at| measured(yardstick, slice::from_ref(at), wanted);
            place.iter().any(|at| room(at).count(at) >= wanted)
        };
        let is_rule = lawless.is_some_and(|room| place.iter().any(|at| room.count(at) >= wanted));
        let scarce = if is_rule { Scarce::Rules } else { scarce(has(Yardstick::Empty), has) };
        let within = place.as_ref().map(|place| topology.path(place.domain));
        return FailedBound { group: name, wanted, possible, level, within, scarce };
    }
    let best = best_of(roots.iter().copied(), able);
    // Where the group's own level is tighter, the best domain of that level.
    let own = need.required.filter(|own| *own > level && need.home != Home::Nowhere);
    let (level, best) = match (own, best) {
        (Some(own), Some(root)) => {
            let nodes = &topology.domain(root).nodes;
            let inside = topology.at(own).filter(|(_, domain)| {
                nodes.start <= domain.nodes.start && domain.nodes.end <= nodes.end
            });
            (own, best_of(inside.map(|(id, _)| id), able))
        }
        _ => (level, best),
    };
    let possible = best.map_or(0, |best| able[best.0 as usize]);
    // What is outside of the areas in question is not looked at.
    let would_hold = |yardstick, domains: &[DomainId]| {
        let areas: Vec<Area> = domains.iter().copied().map(Area::domain).collect();
        // Where members need not be together within a domain, their sum says all.
        let is_tight =
            |domain| need.required.is_none_or(|own| own <= topology.domain(domain).level);
        let is_sum = need.segment.is_none() && domains.iter().all(|domain| is_tight(*domain));
        let enough = if is_sum { loose } else { u64::MAX };
        let able = measured(yardstick, &areas, enough).able(topology, need);
        domains.iter().any(|domain| able[domain.0 as usize] >= loose)
    };
    let is_rule = lawless.is_some_and(|room| {
        let able = room.able(topology, need);
        roots.iter().any(|root| able[root.0 as usize] >= loose)
    });
    let scarce = if is_rule {
        Scarce::Rules
    } else {
        scarce(would_hold(Yardstick::Empty, roots), |yardstick| {
            would_hold(yardstick, best.as_slice())
        })
    };
    let within = best.filter(|best| *best != Topology::ROOT).map(|best| topology.path(best));
    FailedBound { group: name, wanted: loose, possible, level, within, scarce }
}

/// What is scarce, given whether there is room by a yardstick.
fn scarce(is_enough_if_empty: bool, has: impl Fn(Yardstick) -> bool) -> Scarce {
    if !is_enough_if_empty {
        Scarce::Capacity
    } else if has(Yardstick::GpusAlone) {
        Scarce::PlainResources
    } else if has(Yardstick::PlainAlone) {
        Scarce::Gpus
    } else {
        Scarce::Free
    }
}

/// The bound of all groups together in a domain.
fn of_all(
    case: &Case<'_>,
    cluster: &Cluster,
    goal: &Goal,
    level: LevelId,
    domain: DomainId,
) -> FailedBound {
    let names: Vec<&str> = case.gang.groups.iter().map(|group| &*group.name).collect();
    let scarce = match case.scarcity(cluster, domain, goal) {
        Scarcity::Capacity => Scarce::Capacity,
        Scarcity::Gpus => Scarce::Gpus,
        Scarcity::PlainResources => Scarce::PlainResources,
        Scarcity::Rules => Scarce::Rules,
    };
    FailedBound {
        group: names.join(" and ").into(),
        wanted: goal.members(&case.needs).map(u64::from).sum(),
        possible: case.together(domain, goal),
        level,
        within: (domain != Topology::ROOT).then(|| case.topology.path(domain)),
        scarce,
    }
}

fn best_of(domains: impl Iterator<Item = DomainId>, able: &[u64]) -> Option<DomainId> {
    domains.max_by_key(|id| (able[id.0 as usize], Reverse(*id)))
}

/// Changes of the request that pass the bounds, the cheapest first: a looser level costs hops,
/// fewer members cost members.
pub(crate) fn changes(
    case: &Case<'_>,
    request: &Request<'_>,
    bound: Option<&FailedBound>,
) -> Vec<(Remedy, Gang)> {
    let gang = request.gang;
    let levels = case.topology.levels();
    let mut changes = Vec::new();
    let mut offer = |remedy: Remedy, gang: Gang| {
        if gang.check(levels.len()).is_err() {
            return false;
        }
        let request = Request { gang: &gang, ..*request };
        let other = case.with(&request);
        let goal = Goal::min(&other.needs);
        let level = gang.profile.topology.required.unwrap_or_default();
        let mut roots = areas::roots(case.topology, &request, level).into_iter().map(Area::domain);
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
                Some((at, _)) if is_group => loosen(&mut gang, at, required),
                _ => gang.profile.topology.required = required,
            }
            let level = Arc::clone(&levels[usize::from(looser)]);
            if offer(Remedy::LooserLevel { level }, gang) {
                break;
            }
        }
    }
    if let Some((at, bound)) = failing
        && bound.possible > 0
        && case.needs[at].runs.is_empty()
    {
        let group = &gang.groups[at];
        let possible = u32::try_from(bound.possible).unwrap_or(u32::MAX);
        let fit = possible.saturating_add(case.needs[at].pinned).min(group.min);
        let mut gang = gang.clone();
        gang.groups[at] = Group { min: fit, ..group.clone() };
        offer(Remedy::FewerMembers { group: Arc::clone(&group.name), fit }, gang);
    }
    changes
}

/// Gives a group another required level, and those that must lie together with it.
fn loosen(gang: &mut Gang, at: usize, required: Option<LevelId>) {
    let number = gang.groups[at].together;
    for (other, group) in gang.groups.iter_mut().enumerate() {
        if other == at || (number.is_some() && group.together == number) {
            group.topology.required = required;
            // Without a level they may be anywhere.
            group.together = group.together.filter(|_| required.is_some());
        }
    }
}

/// How many nodes would have to be added, like the one that would hold the most members if it were
/// empty; the first of equals. None where the pinned members are in the way (no domain has them
/// all, or the group's wish does not), no node will do, or there are several groups, whose needs together are not known without a search.
pub(crate) fn more_nodes(
    case: &Case<'_>,
    cluster: &Cluster,
    request: &Request<'_>,
    bound: &FailedBound,
) -> Option<Remedy> {
    let level = request.gang.profile.topology.required.unwrap_or_default();
    if areas::roots(case.topology, request, level).is_empty() {
        return None;
    }
    let at = case.gang.groups.iter().position(|group| group.name == bound.group)?;
    let (need, topology) = (&case.needs[at], case.topology);
    if case.needs.len() > 1 || need.home == Home::Nowhere || !need.runs.is_empty() {
        return None;
    }
    let everywhere = [topology.domain(Topology::ROOT).nodes.clone()];
    let (forbidden, empty) = (case.forbidden, Yardstick::Empty);
    let room = Room::measured(cluster, topology, need, forbidden, empty, everywhere, u64::MAX);
    let best: Option<(u32, NodeId)> =
        topology.order().iter().enumerate().fold(None, |best, (at, node)| match best {
            Some((most, first)) if (most, Reverse(first)) >= (room.counts[at], Reverse(*node)) => {
                best
            }
            _ => Some((room.counts[at], *node)),
        });
    let (most, node) = best.filter(|(most, _)| *most > 0)?;
    let lacking = bound.wanted.saturating_sub(bound.possible).div_ceil(u64::from(most));
    let nodes = u32::try_from(lacking).ok()?;
    Some(Remedy::MoreNodes { nodes, like: cluster.name(node).into() })
}
