//! The exhaustive search: member by member, node by node, GPU by GPU. Exponential, so it is limited
//! by the budget and used for problems that the attempts did not settle.

use std::cmp::Reverse;
use std::ops::Range;

use crate::cluster::Cluster;
use crate::cluster::states::StateId;
use crate::fit;
use crate::node::NodeId;
use crate::placement::Placement;
use crate::plan::Placed;
use crate::solve::areas::Area;
use crate::solve::attempt::Budget;
use crate::solve::constraints::LimitUsage;
use crate::solve::free_slots::intersection;
use crate::solve::gpu_choices;
use crate::solve::problem::{Goal, Problem, RemainingSlots};
use crate::solve::residual::{AllowedDomain, GroupDemand, is_within};
use crate::topology::DomainId;
use crate::transaction::Transaction;

/// The result of an exhaustive search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// These places.
    Found(Vec<Placed>),
    /// There are none.
    None,
    /// The budget was spent, or there is too much to look at.
    Unknown,
}

/// Interchangeable members of one group: their nodes ascend by position.
struct Series {
    group: usize,
    ranks: Vec<u32>,
    positions: Range<u32>,
    /// Whether they are whole segments that stay together.
    has_segments: bool,
}

/// Pinned segments up to which each subset is searched; beyond it, only all of them and none.
const MAX_CHOSEN_SEGMENTS: usize = 6;

/// The possible subsets of a group's pinned segments, as bits, each with the number of other
/// members.
fn choices(demand: &GroupDemand, needs_segments: bool, unpinned: u32) -> Vec<(u64, u32)> {
    let all = match demand.pinned_segments.len() {
        0 => return vec![(0, unpinned)],
        _ if needs_segments => return vec![(u64::MAX, unpinned)],
        pinned_segments if pinned_segments > MAX_CHOSEN_SEGMENTS => vec![u64::MAX, 0],
        pinned_segments => (0..1_u64 << pinned_segments).rev().collect(),
    };
    let colocation = |chosen: u64| {
        let pinned_segments = demand
            .pinned_segments
            .iter()
            .enumerate()
            .filter(|(pinned_segment, _)| is_chosen(chosen, *pinned_segment));
        let in_segments: usize =
            pinned_segments.map(|(_, pinned_segment)| pinned_segment.ranks.len()).sum();
        let in_segments = u32::try_from(in_segments).unwrap_or(u32::MAX);
        (chosen, demand.unpinned_beside(in_segments).max(unpinned))
    };
    // Too few members are left where too many runs are left out.
    let is_possible = |(_, unpinned): &(u64, u32)| *unpinned as usize <= demand.ranks.len();
    all.into_iter().map(colocation).filter(is_possible).collect()
}

fn is_chosen(chosen: u64, pinned_segment: usize) -> bool {
    chosen == u64::MAX || chosen >> pinned_segment & 1 == 1
}

struct Search<'a, 't> {
    problem: &'a Problem<'a>,
    txn: Transaction<'t>,
    /// Group, rank and placement of the members so far.
    placed: Vec<(u32, u32, Placement)>,
    budget: &'a mut Budget,
    /// The same, as far as limits count them.
    usage: LimitUsage,
    /// By group: positions that fit a member at the start of the search. Placements only reduce
    /// them.
    open: Vec<Vec<u32>>,
    is_truncated: bool,
}

/// Searches an area. The cluster is as before afterwards.
pub(crate) fn search(
    problem: &Problem<'_>,
    cluster: &mut Cluster,
    area: &Area,
    goal: &Goal,
    budget: &mut Budget,
) -> Outcome {
    /// The maximum number of members for which the search is feasible and its recursion depth
    /// bearable.
    const MAX_SEARCHED_MEMBERS: u32 = 256;
    let members = goal.members(&problem.demands).zip(&problem.demands);
    let most = members
        .map(|(count, demand)| count.max(demand.segment_members()).max(demand.unpinned_beside(0)));
    if most.fold(0, u32::saturating_add) > MAX_SEARCHED_MEMBERS {
        return Outcome::Unknown;
    }
    let positions = area.positions(problem.topology);
    let open = problem.free_slots.iter().map(|slots| {
        let check_remaining_groups =
            |at: &u32| slots.counts.get(*at as usize).is_some_and(|count| *count > 0);
        positions.clone().filter(check_remaining_groups).collect()
    });
    let open = open.collect();
    let (txn, placed, usage) = (Transaction::new(cluster), Vec::new(), LimitUsage::default());
    let mut search = Search { problem, txn, placed, usage, budget, open, is_truncated: false };
    // Of many runs not every choice is searched.
    let is_partial =
        problem.demands.iter().zip(&goal.needs_segments).any(|(demand, needs_segments)| {
            !needs_segments && demand.pinned_segments.len() > MAX_CHOSEN_SEGMENTS
        });
    let is_found = search.groups(0, area, goal);
    if is_found {
        let mut placed: Vec<Placed> = search
            .placed
            .drain(..)
            .map(|(group, rank, placement)| Placed { group, rank, placement })
            .collect();
        placed.sort_by_key(|placed| placed.rank);
        Outcome::Found(placed)
    } else if search.is_truncated || is_partial {
        Outcome::Unknown
    } else {
        Outcome::None
    }
}

impl Search<'_, '_> {
    fn groups(&mut self, next: usize, area: &Area, goal: &Goal) -> bool {
        let problem = self.problem;
        let Some(group) = problem.order.get(next).copied() else { return true };
        let demand = &problem.demands[group];
        if goal.is_free(group, demand) {
            return self.groups(next + 1, area, goal);
        }
        let choices = choices(demand, goal.needs_segments[group], goal.unpinned[group]);
        let domains = self.domains_of(group, area);
        let alternatives =
            domains.iter().flat_map(|domain| choices.iter().map(move |choice| (domain, choice)));
        for (domain, (chosen, unpinned)) in alternatives {
            let group_area = Area::domain(*domain);
            let mut series = Vec::new();
            let mut is_possible = true;
            let pinned_segments = demand.pinned_segments.iter().enumerate();
            for (_, pinned_segment) in
                pinned_segments.filter(|(pinned_segment, _)| is_chosen(*chosen, *pinned_segment))
            {
                let place = pinned_segment
                    .domain
                    .and_then(|domain| intersection(problem.topology, &group_area, domain));
                match place {
                    Some(place) => series.push(Series {
                        group,
                        ranks: pinned_segment.ranks.clone(),
                        positions: place.positions(problem.topology),
                        has_segments: false,
                    }),
                    None => is_possible = false,
                }
            }
            series.push(Series {
                group,
                ranks: demand.ranks.iter().copied().take(*unpinned as usize).collect(),
                positions: group_area.positions(problem.topology),
                has_segments: demand.segment.is_some(),
            });
            if is_possible
                && self.series(&series, 0, &mut |search: &mut Self| {
                    search.check_remaining_groups(next + 1, goal)
                        && search.groups(next + 1, area, goal)
                })
            {
                return true;
            }
            if self.is_truncated {
                return false;
            }
        }
        false
    }

    /// Possible domains of a group, the one with the most free slots first.
    fn domains_of(&self, group: usize, area: &Area) -> Vec<DomainId> {
        let (demand, topology) = (&self.problem.demands[group], self.problem.topology);
        let area_level = topology.domain(area.domain).level;
        let Some(level) = demand.required.filter(|level| *level > area_level) else {
            return if demand.allowed == AllowedDomain::Nowhere {
                Vec::new()
            } else {
                vec![area.domain]
            };
        };
        // A colocated group may be placed already.
        let colocation = self.placed.iter().find(|(other, ..)| {
            let others = self.problem.demands.iter();
            others.into_iter().any(|known| known.group == *other && demand.is_colocated_with(known))
        });
        let colocation =
            colocation.map(|(.., placement)| topology.domain_of(placement.node, level));
        let is_possible = |id: &DomainId| {
            is_within(topology, *id, area.domain)
                && colocation.is_none_or(|domain| domain == Some(*id))
                && match demand.allowed {
                    AllowedDomain::Anywhere => true,
                    AllowedDomain::Within(allowed) => is_within(topology, *id, allowed),
                    AllowedDomain::Nowhere => false,
                }
        };
        let mut domains: Vec<_> =
            topology.at(level).map(|(id, _)| id).filter(is_possible).collect();
        let slots = &self.problem.free_slots[group];
        domains.sort_by_key(|id| (Reverse(slots.sums[id.0 as usize]), *id));
        domains
    }

    /// Whether each of the remaining groups still fits alone.
    fn check_remaining_groups(&mut self, next: usize, goal: &Goal) -> bool {
        let problem = self.problem;
        for group in problem.order.iter().skip(next) {
            let wanted = u64::from(goal.unpinned[*group]);
            let mut slots = 0;
            for position in &self.open[*group] {
                if slots >= wanted {
                    break;
                }
                self.budget.steps += 1;
                let node = problem.topology.order()[*position as usize];
                let cluster = self.txn.target();
                let state = cluster.states().state(cluster.state(node));
                let demand = &problem.demands[*group];
                let left = demand.constraints.remaining(node, &self.usage);
                let times = state.map_or(0, |state| fit::times(cluster, state, &demand.shape));
                slots += u64::from(times.min(left));
            }
            if slots < wanted {
                return false;
            }
        }
        true
    }

    fn series(
        &mut self,
        all: &[Series],
        next: usize,
        then: &mut dyn FnMut(&mut Self) -> bool,
    ) -> bool {
        match all.get(next) {
            None => then(self),
            Some(series) => {
                let start = series.positions.start;
                self.members(all, next, 0, start, series.positions.clone(), then)
            }
        }
    }

    /// Places the members of a series from index `at`, on nodes from position `from`. `within`
    /// limits the current segment.
    fn members(
        &mut self,
        all: &[Series],
        next: usize,
        at: usize,
        from: u32,
        within: Range<u32>,
        then: &mut dyn FnMut(&mut Self) -> bool,
    ) -> bool {
        let (problem, series) = (self.problem, &all[next]);
        let Some(rank) = series.ranks.get(at) else { return self.series(all, next + 1, then) };
        let demand = &problem.demands[series.group];
        let segment = demand.segment.filter(|_| series.has_segments);
        let is_first = segment.is_some_and(|segment| at.is_multiple_of(segment.size as usize));
        let within = if is_first { series.positions.clone() } else { within };
        // Nodes of one state and one domain are equivalent if every constraint leaves the same
        // number.
        let mut seen: Vec<(StateId, DomainId, RemainingSlots)> = Vec::new();
        for position in from.max(within.start)..within.end {
            // Forbidden nodes have none either.
            if problem.free_slots[series.group]
                .counts
                .get(position as usize)
                .is_none_or(|slots| *slots == 0)
            {
                continue;
            }
            let node: NodeId = problem.topology.order()[position as usize];
            if demand.constraints.remaining(node, &self.usage) == 0 {
                continue;
            }
            let left = problem.remaining_by_constraint(node, &self.usage);
            let kind = (self.txn.target().state(node), problem.topology.leaf_domain(node), left);
            if seen.contains(&kind) {
                continue;
            }
            let inner = match segment.filter(|_| is_first) {
                Some(segment) => match problem.topology.domain_of(node, segment.level) {
                    Some(domain) => {
                        let inner = &problem.topology.domain(domain).nodes;
                        inner.start.max(within.start)..inner.end.min(within.end)
                    }
                    None => continue,
                },
                None => within.clone(),
            };
            self.budget.steps += 1;
            let Some(places) = gpu_choices::all_placements(self.txn.target(), node, &demand.shape)
            else {
                self.is_truncated = true;
                return false;
            };
            seen.push(kind);
            for placement in places {
                if self.budget.is_spent() {
                    self.is_truncated = true;
                    return false;
                }
                self.budget.steps += 1;
                let point = self.txn.checkpoint();
                if self.txn.place(&demand.shape.resources, &placement).is_err() {
                    continue;
                }
                self.placed.push((demand.group, *rank, placement));
                self.usage.add(demand.constraints.limits(), node, 1);
                if self.members(all, next, at + 1, position, inner.clone(), then) {
                    return true;
                }
                self.placed.pop();
                self.usage.remove(demand.constraints.limits(), node, 1);
                self.txn.roll_back(point);
                if self.is_truncated {
                    return false;
                }
            }
        }
        false
    }
}
