//! The search that misses nothing: member by member, node by node, GPU by GPU. Exponential, and so
//! for cases that the attempts did not settle, until the budget is spent.

use std::cmp::Reverse;
use std::ops::Range;

use crate::cluster::Cluster;
use crate::cluster::states::StateId;
use crate::cluster::trial::Trial;
use crate::decision::Placed;
use crate::fit;
use crate::node::NodeId;
use crate::placement::Placement;
use crate::solve::areas::Area;
use crate::solve::attempt::Budget;
use crate::solve::case::{Case, Goal};
use crate::solve::need::{Home, is_within};
use crate::solve::picks;
use crate::solve::room::common;
use crate::topology::DomainId;

/// What a complete search says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// These places.
    Found(Vec<Placed>),
    /// There are none.
    None,
    /// The budget was spent, or there is too much to look at.
    Unknown,
}

/// A series of members of one group that are alike: their nodes ascend by position.
struct Series {
    group: usize,
    ranks: Vec<u32>,
    positions: Range<u32>,
    /// Whether they are whole segments, to be kept together.
    has_segments: bool,
}

struct Search<'a, 't> {
    case: &'a Case<'a>,
    trial: Trial<'t>,
    /// Group, rank and place of the members so far.
    placed: Vec<(u32, u32, Placement)>,
    budget: &'a mut Budget,
    is_cut: bool,
}

/// Searches an area. The cluster is as before afterwards.
pub(crate) fn search(
    case: &Case<'_>,
    cluster: &mut Cluster,
    area: &Area,
    goal: &Goal,
    budget: &mut Budget,
) -> Outcome {
    /// Most members for which it is worth to begin, and deep recursion can be borne.
    const MOST: u32 = 256;
    if goal.members(&case.needs).sum::<u32>() > MOST {
        return Outcome::Unknown;
    }
    let mut search =
        Search { case, trial: Trial::new(cluster), placed: Vec::new(), budget, is_cut: false };
    // Which of the runs should be left out is not searched.
    let has_choice =
        case.needs.iter().zip(&goal.has_runs).any(|(need, has)| !need.runs.is_empty() && !has);
    let is_found = search.groups(0, area, goal);
    if is_found {
        let mut placed: Vec<Placed> = search
            .placed
            .drain(..)
            .map(|(group, rank, placement)| Placed { group, rank, placement })
            .collect();
        placed.sort_by_key(|one| one.rank);
        Outcome::Found(placed)
    } else if search.is_cut || has_choice {
        Outcome::Unknown
    } else {
        Outcome::None
    }
}

impl Search<'_, '_> {
    fn groups(&mut self, next: usize, area: &Area, goal: &Goal) -> bool {
        let case = self.case;
        let Some(group) = case.order.get(next).copied() else { return true };
        let need = &case.needs[group];
        if goal.is_free(group, need) {
            return self.groups(next + 1, area, goal);
        }
        for domain in self.domains_of(group, area) {
            let own = Area::domain(domain);
            let mut series = Vec::new();
            let mut is_possible = true;
            for run in need.runs.iter().filter(|_| goal.has_runs[group]) {
                let place = run.domain.and_then(|domain| common(case.topology, &own, domain));
                match place {
                    Some(place) => series.push(Series {
                        group,
                        ranks: run.ranks.clone(),
                        positions: place.positions(case.topology),
                        has_segments: false,
                    }),
                    None => is_possible = false,
                }
            }
            series.push(Series {
                group,
                ranks: need.ranks.iter().copied().take(goal.loose[group] as usize).collect(),
                positions: own.positions(case.topology),
                has_segments: need.segment.is_some(),
            });
            if is_possible
                && self.series(&series, 0, &mut |search: &mut Self| {
                    search.has_room(next + 1, area, goal) && search.groups(next + 1, area, goal)
                })
            {
                return true;
            }
            if self.is_cut {
                return false;
            }
        }
        false
    }

    /// Domains in which a group may be, the one with the most room first.
    fn domains_of(&self, group: usize, area: &Area) -> Vec<DomainId> {
        let (need, topology) = (&self.case.needs[group], self.case.topology);
        let own = topology.domain(area.domain).level;
        let Some(level) = need.required.filter(|level| *level > own) else {
            return if need.home == Home::Nowhere { Vec::new() } else { vec![area.domain] };
        };
        let is_possible = |id: &DomainId| {
            is_within(topology, *id, area.domain)
                && match need.home {
                    Home::Anywhere => true,
                    Home::Within(home) => is_within(topology, *id, home),
                    Home::Nowhere => false,
                }
        };
        let mut domains: Vec<_> =
            topology.at(level).map(|(id, _)| id).filter(is_possible).collect();
        let room = &self.case.rooms[group];
        domains.sort_by_key(|id| (Reverse(room.sums[id.0 as usize]), *id));
        domains
    }

    /// Whether the groups that are still to come have room, each by itself.
    fn has_room(&mut self, next: usize, area: &Area, goal: &Goal) -> bool {
        let case = self.case;
        let positions = area.positions(case.topology);
        for group in case.order.iter().skip(next) {
            let wanted = u64::from(goal.loose[*group]);
            let mut room = 0;
            for position in positions.clone() {
                if room >= wanted {
                    break;
                }
                let node = case.topology.order()[position as usize];
                if !case.forbidden.contains(&node) {
                    let cluster = self.trial.cluster();
                    let state = cluster.states().state(cluster.state(node));
                    let shape = &case.needs[*group].shape;
                    room += state.map_or(0, |state| u64::from(fit::times(cluster, state, shape)));
                }
            }
            if room < wanted {
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

    /// Places the members of a series from the `at`th on, on nodes from `from` on; `within` is where
    /// the segment that is being placed must be.
    fn members(
        &mut self,
        all: &[Series],
        next: usize,
        at: usize,
        from: u32,
        within: Range<u32>,
        then: &mut dyn FnMut(&mut Self) -> bool,
    ) -> bool {
        let (case, series) = (self.case, &all[next]);
        let Some(rank) = series.ranks.get(at) else { return self.series(all, next + 1, then) };
        let need = &case.needs[series.group];
        let segment = need.segment.filter(|_| series.has_segments);
        let is_first = segment.is_some_and(|segment| at.is_multiple_of(segment.size as usize));
        let within = if is_first { series.positions.clone() } else { within };
        // Nodes in one state and one domain are alike as long as no rule names them.
        let mut seen: Vec<(StateId, DomainId)> = Vec::new();
        for position in from.max(within.start)..within.end {
            let node: NodeId = case.topology.order()[position as usize];
            if case.forbidden.contains(&node) {
                continue;
            }
            let kind = (self.trial.cluster().state(node), case.topology.home(node));
            if seen.contains(&kind) {
                continue;
            }
            let inner = match segment.filter(|_| is_first) {
                Some(segment) => match case.topology.domain_of(node, segment.level) {
                    Some(domain) => {
                        let inner = &case.topology.domain(domain).nodes;
                        inner.start.max(within.start)..inner.end.min(within.end)
                    }
                    None => continue,
                },
                None => within.clone(),
            };
            self.budget.steps += 1;
            let Some(places) = picks::all(self.trial.cluster(), node, &need.shape) else {
                self.is_cut = true;
                return false;
            };
            if !places.is_empty() {
                seen.push(kind);
            }
            for placement in places {
                if self.budget.is_spent() {
                    self.is_cut = true;
                    return false;
                }
                self.budget.steps += 1;
                let point = self.trial.checkpoint();
                if self.trial.place(&need.shape.resources, &placement).is_err() {
                    continue;
                }
                self.placed.push((need.group, *rank, placement));
                if self.members(all, next, at + 1, position, inner.clone(), then) {
                    return true;
                }
                self.placed.pop();
                self.trial.roll_back(point);
                if self.is_cut {
                    return false;
                }
            }
        }
        false
    }
}
