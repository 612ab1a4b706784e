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
use crate::solve::case::{Case, Goal, Left};
use crate::solve::need::{Home, Need, is_within};
use crate::solve::picks;
use crate::solve::room::common;
use crate::solve::rules::Seated;
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

/// Runs of which each choice is searched; of more, all of them and none.
const MOST_CHOSEN: usize = 6;

/// Which runs of a group are placed, as bits, and how many loose members beside them.
fn choices(need: &Need, has_runs: bool, loose: u32) -> Vec<(u64, u32)> {
    let all = match need.runs.len() {
        0 => return vec![(0, loose)],
        _ if has_runs => return vec![(u64::MAX, loose)],
        runs if runs > MOST_CHOSEN => vec![u64::MAX, 0],
        runs => (0..1_u64 << runs).rev().collect(),
    };
    let beside = |chosen: u64| {
        let runs = need.runs.iter().enumerate().filter(|(run, _)| is_chosen(chosen, *run));
        let in_runs: usize = runs.map(|(_, run)| run.ranks.len()).sum();
        let in_runs = u32::try_from(in_runs).unwrap_or(u32::MAX);
        (chosen, need.loose_beside(in_runs).max(loose))
    };
    // Too few members are left where too many runs are left out.
    let is_possible = |(_, loose): &(u64, u32)| *loose as usize <= need.ranks.len();
    all.into_iter().map(beside).filter(is_possible).collect()
}

fn is_chosen(chosen: u64, run: usize) -> bool {
    chosen == u64::MAX || chosen >> run & 1 == 1
}

struct Search<'a, 't> {
    case: &'a Case<'a>,
    trial: Trial<'t>,
    /// Group, rank and place of the members so far.
    placed: Vec<(u32, u32, Placement)>,
    budget: &'a mut Budget,
    /// The same, as far as limits count them.
    seated: Seated,
    /// By group: positions that had room for a member when the search began; trials only take.
    open: Vec<Vec<u32>>,
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
    let members = goal.members(&case.needs).zip(&case.needs);
    let most = members.map(|(count, need)| count.max(need.run_count()).max(need.loose_beside(0)));
    if most.fold(0, u32::saturating_add) > MOST {
        return Outcome::Unknown;
    }
    let positions = area.positions(case.topology);
    let open = case.rooms.iter().map(|room| {
        let has_room = |at: &u32| room.counts.get(*at as usize).is_some_and(|count| *count > 0);
        positions.clone().filter(has_room).collect()
    });
    let open = open.collect();
    let (trial, placed, seated) = (Trial::new(cluster), Vec::new(), Seated::default());
    let mut search = Search { case, trial, placed, seated, budget, open, is_cut: false };
    // Of many runs not every choice is searched.
    let is_partial = case
        .needs
        .iter()
        .zip(&goal.has_runs)
        .any(|(need, has_runs)| !has_runs && need.runs.len() > MOST_CHOSEN);
    let is_found = search.groups(0, area, goal);
    if is_found {
        let mut placed: Vec<Placed> = search
            .placed
            .drain(..)
            .map(|(group, rank, placement)| Placed { group, rank, placement })
            .collect();
        placed.sort_by_key(|one| one.rank);
        Outcome::Found(placed)
    } else if search.is_cut || is_partial {
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
        let choices = choices(need, goal.has_runs[group], goal.loose[group]);
        let domains = self.domains_of(group, area);
        let ways = domains.iter().flat_map(|domain| choices.iter().map(move |one| (domain, one)));
        for (domain, (chosen, loose)) in ways {
            let own = Area::domain(*domain);
            let mut series = Vec::new();
            let mut is_possible = true;
            let runs = need.runs.iter().enumerate();
            for (_, run) in runs.filter(|(run, _)| is_chosen(*chosen, *run)) {
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
                ranks: need.ranks.iter().copied().take(*loose as usize).collect(),
                positions: own.positions(case.topology),
                has_segments: need.segment.is_some(),
            });
            if is_possible
                && self.series(&series, 0, &mut |search: &mut Self| {
                    search.has_room(next + 1, goal) && search.groups(next + 1, area, goal)
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
        // Who must be in one domain with it may be placed already.
        let beside = self.placed.iter().find(|(other, ..)| {
            let others = self.case.needs.iter();
            others.into_iter().any(|one| one.group == *other && need.is_beside(one))
        });
        let beside = beside.map(|(.., placement)| topology.domain_of(placement.node, level));
        let is_possible = |id: &DomainId| {
            is_within(topology, *id, area.domain)
                && beside.is_none_or(|domain| domain == Some(*id))
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
    fn has_room(&mut self, next: usize, goal: &Goal) -> bool {
        let case = self.case;
        for group in case.order.iter().skip(next) {
            let wanted = u64::from(goal.loose[*group]);
            let mut room = 0;
            for position in &self.open[*group] {
                if room >= wanted {
                    break;
                }
                self.budget.steps += 1;
                let node = case.topology.order()[*position as usize];
                let cluster = self.trial.cluster();
                let state = cluster.states().state(cluster.state(node));
                let need = &case.needs[*group];
                let left = need.rules.left(node, &self.seated);
                let times = state.map_or(0, |state| fit::times(cluster, state, &need.shape));
                room += u64::from(times.min(left));
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
        // Nodes in one state and one domain are alike if every rule leaves as much of them.
        let mut seen: Vec<(StateId, DomainId, Left)> = Vec::new();
        for position in from.max(within.start)..within.end {
            // Forbidden nodes have none either.
            if case.rooms[series.group].counts.get(position as usize).is_none_or(|room| *room == 0)
            {
                continue;
            }
            let node: NodeId = case.topology.order()[position as usize];
            if need.rules.left(node, &self.seated) == 0 {
                continue;
            }
            let left = case.left(node, &self.seated);
            let kind = (self.trial.cluster().state(node), case.topology.home(node), left);
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
            seen.push(kind);
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
                self.seated.add(need.rules.limits(), node, 1);
                if self.members(all, next, at + 1, position, inner.clone(), then) {
                    return true;
                }
                self.placed.pop();
                self.seated.remove(need.rules.limits(), node, 1);
                self.trial.roll_back(point);
                if self.is_cut {
                    return false;
                }
            }
        }
        false
    }
}
