//! One attempt to place a gang in an area: group by group in a transaction, with backtracking.

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::cluster::Cluster;
use crate::node::NodeId;
use crate::placement::Placement;
use crate::plan::Placed;
use crate::solve::MAX_CANDIDATES;
use crate::solve::areas::Area;
use crate::solve::colocation::{Colocation, up_to};
use crate::solve::constraints::LimitUsage;
use crate::solve::free_slots::{FreeSlots, intersection};
use crate::solve::gpu_choices;
use crate::solve::problem::{Goal, Problem};
use crate::solve::residual::{AllowedDomain, GroupDemand, is_within};
use crate::solve::spread::{Amounts, FillContext, NodeOrder};
use crate::topology::LevelId;
use crate::transaction::{Checkpoint, Transaction};

/// How much may be tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) steps: u64,
    pub(crate) limit: u64,
}

impl Budget {
    /// Whether the step limit is reached. The first attempt still completes.
    pub(crate) fn is_spent(&self) -> bool {
        self.steps >= self.limit
    }
}

/// Places of a group so far.
#[derive(Clone, Debug, Default)]
struct Taken {
    /// By rank: members of runs.
    pinned_segments: Vec<(u32, Placement)>,
    /// By position.
    unpinned: Vec<(u32, Placement)>,
    /// The area in which the group is.
    area: Option<Area>,
}

struct Attempt<'a, 't> {
    problem: &'a Problem<'a>,
    goal: &'a Goal,
    area: &'a Area,
    order: NodeOrder,
    txn: Transaction<'t>,
    free_slots: Cow<'a, [FreeSlots]>,
    /// Whether rooms are looked at again after a member was placed.
    is_tracking: bool,
    /// Nodes that got members, the group, and how many.
    touched: Vec<(NodeId, usize, u32)>,
    /// Members placed so far, counted by limit.
    usage: LimitUsage,
    taken: Vec<Taken>,
    budget: &'a mut Budget,
}

/// Tries to place a gang in an area. The cluster is unchanged afterwards.
pub(crate) fn attempt<'a>(
    problem: &'a Problem<'a>,
    cluster: &mut Cluster,
    area: &'a Area,
    goal: &'a Goal,
    order: NodeOrder,
    budget: &'a mut Budget,
) -> Option<Vec<Placed>> {
    let needs_segments = problem.demands.iter().any(|demand| !demand.pinned_segments.is_empty());
    let mut attempt = Attempt {
        problem,
        goal,
        area,
        order,
        txn: Transaction::new(cluster),
        free_slots: Cow::Borrowed(&problem.free_slots),
        is_tracking: problem.demands.len() > 1 || needs_segments || goal.is_elastic,
        touched: Vec::new(),
        usage: LimitUsage::default(),
        taken: vec![Taken::default(); problem.demands.len()],
        budget,
    };
    attempt.place_from(0).then(|| attempt.placed())
}

impl Attempt<'_, '_> {
    fn place_from(&mut self, next: usize) -> bool {
        let Some(group) = self.problem.order.get(next).copied() else {
            self.place_extra();
            return true;
        };
        let areas = self.areas_of(group);
        if areas.is_empty() && self.goal.is_free(group, &self.problem.demands[group]) {
            return self.place_from(next + 1);
        }
        for (number, area) in areas.into_iter().enumerate() {
            if number > 0 && self.budget.is_spent() {
                return false;
            }
            let (point, touched) = (self.txn.checkpoint(), self.touched.len());
            if self.place_group(group, &area) && self.place_from(next + 1) {
                return true;
            }
            self.undo(group, point, touched);
        }
        false
    }

    /// Areas for a group by its own constraint: the preferred level first, then looser ones. Within
    /// a level, the nearest to pinned members and the fullest come first.
    fn areas_of(&mut self, group: usize) -> Vec<Area> {
        let (demand, topology) = (&self.problem.demands[group], self.problem.topology);
        let area_level = topology.domain(self.area.domain).level;
        let loosest = demand.required.unwrap_or(area_level).max(area_level);
        let tightest = demand.preferred.unwrap_or(loosest).max(loosest);
        if self.area.node.is_some() || tightest == area_level {
            return vec![self.area.clone()];
        }
        let goal = self.goal.unpinned[group];
        let fit_counts = self.free_slots[group].fit_counts(topology, demand);
        let colocation = self.colocation(group, loosest);
        let (area, problem) = (self.area, self.problem);
        let mut areas = Vec::new();
        for level in (loosest.0..=tightest.0).rev().map(LevelId) {
            let inside = topology.at(level).map(|(id, _)| id).filter(|id| {
                is_within(topology, *id, area.domain)
                    && match demand.allowed {
                        AllowedDomain::Anywhere => true,
                        AllowedDomain::Within(allowed) => is_within(topology, *id, allowed),
                        AllowedDomain::Nowhere => false,
                    }
            });
            let (slots, needs_segments) =
                (&self.free_slots[group], self.goal.needs_segments[group]);
            let mut fitting: Vec<Area> = inside
                .filter(|domain| colocation.allows(topology, *domain))
                .map(Area::domain)
                .filter(|area| slots.has(topology, demand, &fit_counts, area, goal, needs_segments))
                .collect();
            fitting.sort_by_key(|area| {
                let near = Reverse(problem.pins.within(area.domain));
                let count = slots.count(area);
                (near, Reverse(count.min(demand.ranks.len() as u64)), count, area.domain)
            });
            // Areas may fit each colocated group alone but not all of them; the fullest are the
            // most likely of these.
            let has_choice = fitting.len() > MAX_CANDIDATES
                && matches!(&colocation, Colocation::Waiting { fit_counts, .. } if !fit_counts.is_empty());
            if has_choice {
                self.move_colocatable_first(group, loosest, &mut fitting);
            }
            fitting.truncate(MAX_CANDIDATES);
            areas.extend(fitting);
        }
        areas
    }

    /// Moves areas to the front in which a group and its colocated groups fit together, up to the
    /// number that is compared.
    fn move_colocatable_first(&mut self, group: usize, level: LevelId, areas: &mut [Area]) {
        let mut found = 0;
        for at in 0..areas.len() {
            if found >= MAX_CANDIDATES || self.budget.is_spent() {
                return;
            }
            if self.try_with_colocated(group, level, &areas[at].clone()) {
                areas[found..=at].rotate_right(1);
                found += 1;
            }
        }
    }

    /// Tries to place a group in an area, and its colocated groups in the area's domain of a level.
    /// All changes are rolled back.
    fn try_with_colocated(&mut self, group: usize, level: LevelId, area: &Area) -> bool {
        let (problem, goal) = (self.problem, self.goal);
        let Some(domain) = up_to(problem.topology, area.domain, level) else { return false };
        let (point, touched) = (self.txn.checkpoint(), self.touched.len());
        let demand = &problem.demands[group];
        let others = problem.order.iter().copied().filter(|other| {
            let other_need = &problem.demands[*other];
            demand.is_colocated_with(other_need) && !goal.is_free(*other, other_need)
        });
        let others: Vec<usize> = others.collect();
        let is_placed = self.place_group(group, area)
            && others.iter().all(|other| self.place_group(*other, &Area::domain(domain)));
        for other in others {
            self.taken[other] = Taken::default();
        }
        self.undo(group, point, touched);
        is_placed
    }

    /// The domains that colocated groups leave to a group.
    fn colocation(&self, group: usize, level: LevelId) -> Colocation {
        let (problem, topology) = (self.problem, self.problem.topology);
        let demand = &problem.demands[group];
        let others = || {
            (0..problem.demands.len())
                .filter(|other| demand.is_colocated_with(&problem.demands[*other]))
        };
        let is_placed = |other: &usize| {
            let taken = &self.taken[*other];
            !(taken.unpinned.is_empty() && taken.pinned_segments.is_empty())
        };
        if let Some(other) = others().find(is_placed) {
            let area = self.taken[other].area.as_ref();
            let domain = area.and_then(|area| up_to(topology, area.domain, level));
            return domain.map_or(Colocation::Impossible, Colocation::Placed);
        }
        let mut fit_counts = Vec::new();
        for other in others().filter(|other| !self.goal.is_free(*other, &problem.demands[*other])) {
            let (demand, slots) = (&problem.demands[other], &self.free_slots[other]);
            let (unpinned, needs_segments) =
                (self.goal.unpinned[other], self.goal.needs_segments[other]);
            let of_other = slots.fit_counts(topology, demand);
            let domains = topology.at(level).map(|(id, _)| id).filter(|id| {
                slots.has(topology, demand, &of_other, &Area::domain(*id), unpinned, needs_segments)
            });
            fit_counts.push(domains.collect());
        }
        Colocation::Waiting { level, fit_counts }
    }

    fn place_group(&mut self, group: usize, area: &Area) -> bool {
        let problem = self.problem;
        let demand = &problem.demands[group];
        self.taken[group].area = Some(area.clone());
        let mut in_segments = 0;
        for pinned_segment in &demand.pinned_segments {
            let count = u32::try_from(pinned_segment.ranks.len()).unwrap_or(u32::MAX);
            let place = pinned_segment
                .domain
                .and_then(|domain| intersection(problem.topology, area, domain));
            let amounts = place.and_then(|place| self.fill(group, &place, count, true));
            match amounts.and_then(|amounts| self.place(group, &amounts)) {
                Some(places) => {
                    let places = places.into_iter().map(|(_, placement)| placement);
                    self.taken[group]
                        .pinned_segments
                        .extend(pinned_segment.ranks.iter().copied().zip(places));
                    in_segments += count;
                }
                None if self.goal.needs_segments[group] => return false,
                None => {}
            }
        }
        let mut unpinned = self.goal.unpinned[group];
        if self.goal.is_elastic {
            unpinned = unpinned.max(demand.unpinned_beside(in_segments));
            // No other group follows: place all that fits at once, which is denser than a few first
            // and the others later.
            if problem.demands.len() == 1 {
                unpinned = unpinned.max(self.max_unpinned(group, area));
            }
        }
        let amounts = self.fill(group, area, unpinned, false);
        let Some(places) = amounts.and_then(|amounts| self.place(group, &amounts)) else {
            return false;
        };
        self.taken[group].unpinned.extend(places);
        true
    }

    /// The number of remaining members outside pinned segments that fit an area now.
    fn max_unpinned(&self, group: usize, area: &Area) -> u32 {
        let demand = &self.problem.demands[group];
        let left = demand.ranks.len() - self.taken[group].unpinned.len();
        let (slots, topology) = (&self.free_slots[group], self.problem.topology);
        let fit_counts = slots.fit_counts(topology, demand);
        let slots = slots.fit_count_in(topology, demand, &fit_counts, area);
        demand.whole(slots.min(left as u64))
    }

    /// Members above the goal, as far as they fit.
    fn place_extra(&mut self) {
        if !self.goal.is_elastic {
            return;
        }
        let problem = self.problem;
        for group in problem.order.iter().copied() {
            let demand = &problem.demands[group];
            if demand.ranks.len() == self.taken[group].unpinned.len() {
                continue;
            }
            // A group without a member yet may still choose where to be.
            let is_bound = !self.taken[group].unpinned.is_empty()
                || !self.taken[group].pinned_segments.is_empty();
            let areas = if is_bound {
                self.taken[group].area.clone().into_iter().collect()
            } else {
                self.areas_of(group)
            };
            let most_free = areas.into_iter().map(|area| (self.max_unpinned(group, &area), area));
            let most_free = most_free.max_by_key(|(most, area)| (*most, Reverse(area.domain)));
            let Some((most, area)) = most_free else { continue };
            let amounts = self.fill(group, &area, most, false);
            let point = (self.txn.checkpoint(), self.touched.len());
            match amounts.and_then(|amounts| self.place(group, &amounts)) {
                Some(places) => self.taken[group].unpinned.extend(places),
                None => self.roll_back(point.0, point.1),
            }
        }
    }

    fn fill(
        &self,
        group: usize,
        area: &Area,
        count: u32,
        is_pinned_segment: bool,
    ) -> Option<Amounts> {
        let context = FillContext {
            cluster: self.txn.target(),
            topology: self.problem.topology,
            pins: &self.problem.pins,
            slots: &self.free_slots[group],
            demand: &self.problem.demands[group],
        };
        context.fill(area, count, self.order, is_pinned_segment)
    }

    /// Places members of a group; none if the chosen GPUs hold fewer than counted.
    fn place(&mut self, group: usize, amounts: &Amounts) -> Option<Vec<(u32, Placement)>> {
        let demand = &self.problem.demands[group];
        let mut places = Vec::new();
        for (position, count) in amounts {
            let node = self.problem.topology.order()[*position as usize];
            self.touched.push((node, group, *count));
            self.usage.add(demand.constraints.limits(), node, *count);
            self.budget.steps += u64::from(*count);
            let placed = place_on(&mut self.txn, node, demand, *count);
            if self.is_tracking {
                self.recount(node);
            }
            places.extend(placed?.into_iter().map(|placement| (*position, placement)));
        }
        // In topology order, so that consecutive ranks are near.
        places.sort_by_key(|(position, _)| *position);
        Some(places)
    }

    fn recount(&mut self, node: NodeId) {
        for (slots, demand) in self.free_slots.to_mut().iter_mut().zip(&self.problem.demands) {
            slots.update(self.txn.target(), self.problem.topology, demand, node, &self.usage);
        }
    }

    fn undo(&mut self, group: usize, point: Checkpoint, touched: usize) {
        self.taken[group] = Taken::default();
        self.roll_back(point, touched);
    }

    fn roll_back(&mut self, point: Checkpoint, touched: usize) {
        self.txn.roll_back(point);
        for (node, group, count) in self.touched.split_off(touched) {
            self.usage.remove(self.problem.demands[group].constraints.limits(), node, count);
            if self.is_tracking {
                self.recount(node);
            }
        }
    }

    fn placed(&mut self) -> Vec<Placed> {
        let mut placed = Vec::new();
        for (taken, demand) in self.taken.iter_mut().zip(&self.problem.demands) {
            taken.unpinned.sort_by_key(|(position, _)| *position);
            let unpinned =
                demand.ranks.iter().copied().zip(taken.unpinned.drain(..).map(|(_, place)| place));
            let group = demand.group;
            let all = taken.pinned_segments.drain(..).chain(unpinned);
            placed.extend(all.map(|(rank, placement)| Placed { group, rank, placement }));
        }
        placed.sort_by_key(|placed| placed.rank);
        placed
    }
}

/// Places `count` members on a node; none, with nothing placed, if they do not fit.
pub(crate) fn place_on(
    txn: &mut Transaction<'_>,
    node: NodeId,
    demand: &GroupDemand,
    count: u32,
) -> Option<Vec<Placement>> {
    let point = txn.checkpoint();
    for pick in [crate::pick::default_placement, gpu_choices::densest] {
        let mut places = Vec::new();
        while places.len() < count as usize {
            let Some(place) = pick(txn.target(), node, &demand.shape) else { break };
            if txn.place(&demand.shape.resources, &place).is_err() {
                break;
            }
            places.push(place);
        }
        if places.len() == count as usize {
            return Some(places);
        }
        txn.roll_back(point);
    }
    None
}
