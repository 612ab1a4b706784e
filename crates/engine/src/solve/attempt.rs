//! One attempt to place a gang in an area: group by group on a trial, with ways back.

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::cluster::Cluster;
use crate::cluster::trial::{Checkpoint, Trial};
use crate::decision::Placed;
use crate::node::NodeId;
use crate::placement::Placement;
use crate::solve::areas::Area;
use crate::solve::beside::{Beside, up_to};
use crate::solve::case::{Case, Goal};
use crate::solve::fill::{Amounts, Ground, Order};
use crate::solve::need::{Home, Need, is_within};
use crate::solve::picks;
use crate::solve::room::{Room, common};
use crate::solve::rules::Seated;
use crate::topology::LevelId;

/// How much may be tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) steps: u64,
    pub(crate) limit: u64,
}

impl Budget {
    /// Whether no alternative may be tried any more. The first way of all is gone to its end.
    pub(crate) fn is_spent(&self) -> bool {
        self.steps >= self.limit
    }
}

/// Places of a group so far.
#[derive(Clone, Debug, Default)]
struct Taken {
    /// By rank: members of runs.
    runs: Vec<(u32, Placement)>,
    /// By position.
    loose: Vec<(u32, Placement)>,
    /// The area in which the group is.
    area: Option<Area>,
}

struct Attempt<'a, 't> {
    case: &'a Case<'a>,
    goal: &'a Goal,
    area: &'a Area,
    order: Order,
    /// Areas of a group that are compared.
    most: usize,
    trial: Trial<'t>,
    rooms: Cow<'a, [Room]>,
    /// Whether rooms are looked at again after a member was placed.
    is_tracking: bool,
    /// Nodes that got members, the group, and how many.
    touched: Vec<(NodeId, usize, u32)>,
    /// Members placed so far, as far as limits count them.
    seated: Seated,
    taken: Vec<Taken>,
    budget: &'a mut Budget,
}

/// Tries to place a gang in an area. The cluster is as before afterwards.
pub(crate) fn attempt<'a>(
    case: &'a Case<'a>,
    cluster: &mut Cluster,
    area: &'a Area,
    goal: &'a Goal,
    order: Order,
    most: usize,
    budget: &'a mut Budget,
) -> Option<Vec<Placed>> {
    let has_runs = case.needs.iter().any(|need| !need.runs.is_empty());
    let mut attempt = Attempt {
        case,
        goal,
        area,
        order,
        most,
        trial: Trial::new(cluster),
        rooms: Cow::Borrowed(&case.rooms),
        is_tracking: case.needs.len() > 1 || has_runs || goal.is_elastic,
        touched: Vec::new(),
        seated: Seated::default(),
        taken: vec![Taken::default(); case.needs.len()],
        budget,
    };
    attempt.place_from(0).then(|| attempt.placed())
}

impl Attempt<'_, '_> {
    fn place_from(&mut self, next: usize) -> bool {
        let Some(group) = self.case.order.get(next).copied() else {
            self.place_more();
            return true;
        };
        let areas = self.areas_of(group);
        if areas.is_empty() && self.goal.is_free(group, &self.case.needs[group]) {
            return self.place_from(next + 1);
        }
        for (number, area) in areas.into_iter().enumerate() {
            if number > 0 && self.budget.is_spent() {
                return false;
            }
            let (point, touched) = (self.trial.checkpoint(), self.touched.len());
            if self.place_group(group, &area) && self.place_from(next + 1) {
                return true;
            }
            self.undo(group, point, touched);
        }
        false
    }

    /// Areas in which a group may be, by its own wish: the preferred level first, then looser ones;
    /// the nearest to pinned members and the fullest first.
    fn areas_of(&mut self, group: usize) -> Vec<Area> {
        let (need, topology) = (&self.case.needs[group], self.case.topology);
        let own = topology.domain(self.area.domain).level;
        let loosest = need.required.unwrap_or(own).max(own);
        let tightest = need.preferred.unwrap_or(loosest).max(loosest);
        if self.area.node.is_some() || tightest == own {
            return vec![self.area.clone()];
        }
        let goal = self.goal.loose[group];
        let able = self.rooms[group].able(topology, need);
        let beside = self.beside(group, loosest);
        let (area, case) = (self.area, self.case);
        let mut areas = Vec::new();
        for level in (loosest.0..=tightest.0).rev().map(LevelId) {
            let inside = topology.at(level).map(|(id, _)| id).filter(|id| {
                is_within(topology, *id, area.domain)
                    && match need.home {
                        Home::Anywhere => true,
                        Home::Within(home) => is_within(topology, *id, home),
                        Home::Nowhere => false,
                    }
            });
            let (room, has_runs) = (&self.rooms[group], self.goal.has_runs[group]);
            let mut fitting: Vec<Area> = inside
                .filter(|domain| beside.allows(topology, *domain))
                .map(Area::domain)
                .filter(|area| room.has(topology, need, &able, area, goal, has_runs))
                .collect();
            fitting.sort_by_key(|area| {
                let near = Reverse(case.pins.within(area.domain));
                let count = room.count(area);
                (near, Reverse(count.min(need.ranks.len() as u64)), count, area.domain)
            });
            // Where each has room by itself, all together may have none: those are the fullest.
            let has_choice = fitting.len() > self.most
                && matches!(&beside, Beside::Waiting { able, .. } if !able.is_empty());
            if has_choice {
                self.put_first_with_others(group, loosest, &mut fitting);
            }
            fitting.truncate(self.most);
            areas.extend(fitting);
        }
        areas
    }

    /// Puts those areas first, as many as are compared, in which a group is placed with all that must be in
    /// one domain of a level with it.
    fn put_first_with_others(&mut self, group: usize, level: LevelId, areas: &mut [Area]) {
        let mut found = 0;
        for at in 0..areas.len() {
            if found >= self.most || self.budget.is_spent() {
                return;
            }
            if self.is_placed_with_others(group, level, &areas[at].clone()) {
                areas[found..=at].rotate_right(1);
                found += 1;
            }
        }
    }

    /// Whether a group can be placed in an area and those beside it in its domain of a level. Nothing is
    /// placed afterwards.
    fn is_placed_with_others(&mut self, group: usize, level: LevelId, area: &Area) -> bool {
        let (case, goal) = (self.case, self.goal);
        let Some(domain) = up_to(case.topology, area.domain, level) else { return false };
        let (point, touched) = (self.trial.checkpoint(), self.touched.len());
        let need = &case.needs[group];
        let others = case.order.iter().copied().filter(|other| {
            let other_need = &case.needs[*other];
            need.is_beside(other_need) && !goal.is_free(*other, other_need)
        });
        let others: Vec<usize> = others.collect();
        let is_placed = self.place_group(group, area)
            && others.iter().all(|other| self.place_group(*other, &Area::domain(domain)));
        for one in others {
            self.taken[one] = Taken::default();
        }
        self.undo(group, point, touched);
        is_placed
    }

    /// What groups that must be in one domain of a level with this one leave it.
    fn beside(&self, group: usize, level: LevelId) -> Beside {
        let (case, topology) = (self.case, self.case.topology);
        let need = &case.needs[group];
        let others = || (0..case.needs.len()).filter(|other| need.is_beside(&case.needs[*other]));
        let is_placed = |other: &usize| {
            let taken = &self.taken[*other];
            !(taken.loose.is_empty() && taken.runs.is_empty())
        };
        if let Some(other) = others().find(is_placed) {
            let area = self.taken[other].area.as_ref();
            let domain = area.and_then(|area| up_to(topology, area.domain, level));
            return domain.map_or(Beside::Nobody, Beside::Placed);
        }
        let mut able = Vec::new();
        for other in others().filter(|other| !self.goal.is_free(*other, &case.needs[*other])) {
            let (need, room) = (&case.needs[other], &self.rooms[other]);
            let (loose, has_runs) = (self.goal.loose[other], self.goal.has_runs[other]);
            let of_other = room.able(topology, need);
            let domains = topology.at(level).map(|(id, _)| id).filter(|id| {
                room.has(topology, need, &of_other, &Area::domain(*id), loose, has_runs)
            });
            able.push(domains.collect());
        }
        Beside::Waiting { level, able }
    }

    fn place_group(&mut self, group: usize, area: &Area) -> bool {
        let case = self.case;
        let need = &case.needs[group];
        self.taken[group].area = Some(area.clone());
        let mut in_runs = 0;
        for run in &need.runs {
            let count = u32::try_from(run.ranks.len()).unwrap_or(u32::MAX);
            let place = run.domain.and_then(|domain| common(case.topology, area, domain));
            let amounts = place.and_then(|place| self.fill(group, &place, count, true));
            match amounts.and_then(|amounts| self.place(group, &amounts)) {
                Some(places) => {
                    let places = places.into_iter().map(|(_, placement)| placement);
                    self.taken[group].runs.extend(run.ranks.iter().copied().zip(places));
                    in_runs += count;
                }
                None if self.goal.has_runs[group] => return false,
                None => {}
            }
        }
        let mut loose = self.goal.loose[group];
        if self.goal.is_elastic {
            loose = loose.max(need.loose_beside(in_runs));
            // Nobody else is to be served: take all that fits at once, which lies better than a
            // few first and others later.
            if case.needs.len() == 1 {
                loose = loose.max(self.most_loose(group, area));
            }
        }
        let amounts = self.fill(group, area, loose, false);
        let Some(places) = amounts.and_then(|amounts| self.place(group, &amounts)) else {
            return false;
        };
        self.taken[group].loose.extend(places);
        true
    }

    /// How many loose members of a group could be placed now in an area, of those that are left.
    fn most_loose(&self, group: usize, area: &Area) -> u32 {
        let need = &self.case.needs[group];
        let left = need.ranks.len() - self.taken[group].loose.len();
        let (room, topology) = (&self.rooms[group], self.case.topology);
        let able = room.able(topology, need);
        let room = room.able_in(topology, need, &able, area);
        need.whole(room.min(left as u64))
    }

    /// Members above the goal, as far as they fit.
    fn place_more(&mut self) {
        if !self.goal.is_elastic {
            return;
        }
        let case = self.case;
        for group in case.order.iter().copied() {
            let need = &case.needs[group];
            if need.ranks.len() == self.taken[group].loose.len() {
                continue;
            }
            // A group without a member yet may still choose where to be.
            let is_bound =
                !self.taken[group].loose.is_empty() || !self.taken[group].runs.is_empty();
            let areas = if is_bound {
                self.taken[group].area.clone().into_iter().collect()
            } else {
                self.areas_of(group)
            };
            let roomiest = areas.into_iter().map(|area| (self.most_loose(group, &area), area));
            let roomiest = roomiest.max_by_key(|(most, area)| (*most, Reverse(area.domain)));
            let Some((most, area)) = roomiest else { continue };
            let amounts = self.fill(group, &area, most, false);
            let point = (self.trial.checkpoint(), self.touched.len());
            match amounts.and_then(|amounts| self.place(group, &amounts)) {
                Some(places) => self.taken[group].loose.extend(places),
                None => self.roll_back(point.0, point.1),
            }
        }
    }

    fn fill(&self, group: usize, area: &Area, count: u32, is_run: bool) -> Option<Amounts> {
        let ground = Ground {
            cluster: self.trial.cluster(),
            topology: self.case.topology,
            pins: &self.case.pins,
            room: &self.rooms[group],
            need: &self.case.needs[group],
        };
        ground.fill(area, count, self.order, is_run)
    }

    /// Places members of a group; none if picks fall short of what was counted.
    fn place(&mut self, group: usize, amounts: &Amounts) -> Option<Vec<(u32, Placement)>> {
        let need = &self.case.needs[group];
        let mut places = Vec::new();
        for (position, count) in amounts {
            let node = self.case.topology.order()[*position as usize];
            self.touched.push((node, group, *count));
            self.seated.add(need.rules.limits(), node, *count);
            self.budget.steps += u64::from(*count);
            let placed = place_on(&mut self.trial, node, need, *count);
            if self.is_tracking {
                self.look_again(node);
            }
            places.extend(placed?.into_iter().map(|placement| (*position, placement)));
        }
        // In the order of the topology: ranks that follow one another are near.
        places.sort_by_key(|(position, _)| *position);
        Some(places)
    }

    fn look_again(&mut self, node: NodeId) {
        for (room, need) in self.rooms.to_mut().iter_mut().zip(&self.case.needs) {
            room.update(self.trial.cluster(), self.case.topology, need, node, &self.seated);
        }
    }

    fn undo(&mut self, group: usize, point: Checkpoint, touched: usize) {
        self.taken[group] = Taken::default();
        self.roll_back(point, touched);
    }

    fn roll_back(&mut self, point: Checkpoint, touched: usize) {
        self.trial.roll_back(point);
        for (node, group, count) in self.touched.split_off(touched) {
            self.seated.remove(self.case.needs[group].rules.limits(), node, count);
            if self.is_tracking {
                self.look_again(node);
            }
        }
    }

    fn placed(&mut self) -> Vec<Placed> {
        let mut placed = Vec::new();
        for (taken, need) in self.taken.iter_mut().zip(&self.case.needs) {
            taken.loose.sort_by_key(|(position, _)| *position);
            let loose =
                need.ranks.iter().copied().zip(taken.loose.drain(..).map(|(_, place)| place));
            let group = need.group;
            let all = taken.runs.drain(..).chain(loose);
            placed.extend(all.map(|(rank, placement)| Placed { group, rank, placement }));
        }
        placed.sort_by_key(|one| one.rank);
        placed
    }
}

/// Places so many members on a node; none, with nothing placed, if they do not fit.
pub(crate) fn place_on(
    trial: &mut Trial<'_>,
    node: NodeId,
    need: &Need,
    count: u32,
) -> Option<Vec<Placement>> {
    let point = trial.checkpoint();
    for pick in [crate::pick::any, picks::widest] {
        let mut places = Vec::new();
        while places.len() < count as usize {
            let Some(place) = pick(trial.cluster(), node, &need.shape) else { break };
            if trial.place(&need.shape.resources, &place).is_err() {
                break;
            }
            places.push(place);
        }
        if places.len() == count as usize {
            return Some(places);
        }
        trial.roll_back(point);
    }
    None
}
