//! One domain played through: victims go, members come, moved pods find a new place, and who was
//! not needed after all stays.

mod amends;
mod together;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::choose::{self, Choice, Want};
use super::homes;
use super::price::Price;
use super::rehearsal::Rehearsal;
use super::scene::{Known, Scene};
use super::who::{Crowd, Kind, PodIndex, Unit};
use crate::World;
use crate::cluster::trial::Trial;
use crate::decision::{Move, Placed};
use crate::node::NodeId;
use crate::placement::Placement;
use crate::solve::Request;
use crate::solve::attempt::place_on;
use crate::solve::need::{Home, Need, is_within};
use crate::solve::rules::Seated;
use crate::topology::{DomainId, LevelId, Topology};
use crate::workload::{Member, MemberId};

/// What came out.
#[derive(Clone, Debug, Default)]
pub(super) struct Staged {
    pub(super) units: BTreeSet<Unit>,
    pub(super) moves: Vec<Move>,
    pub(super) placements: Vec<Placed>,
    pub(super) price: Price,
}

/// Why a domain could not be played through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// Not even with everybody gone.
    NoRoom,
    /// Pods of this kind find no other place, and may not be evicted.
    Kind(u32),
    /// More moves than are allowed.
    TooManyMoves,
}

/// What stays the same for all domains.
#[derive(Clone, Copy)]
pub(super) struct Play<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) needs: &'a [Need],
    /// By group and node: members that fit if everybody goes.
    pub(super) reach: &'a [Vec<u32>],
    pub(super) crowd: &'a Crowd,
    pub(super) kinds: &'a [Kind],
    pub(super) most_moves: u32,
    /// States of nodes that may be looked at.
    pub(super) limit: u64,
}

/// A stage: the world while one domain is tried.
pub(super) struct Stage<'w, 'a> {
    play: &'a Play<'a>,
    known: &'a mut Known,
    spent: &'a mut u64,
    rehearsal: Rehearsal<'w>,
    gone: Vec<bool>,
    lost: Vec<u32>,
    units: BTreeSet<Unit>,
    placements: Vec<Placed>,
    /// The same, as far as limits count them.
    seated: Seated,
    /// Nodes that were changed, whose signatures must be forgotten.
    touched: BTreeSet<NodeId>,
    targets: BTreeMap<PodIndex, Placement>,
}

/// Members that must be chosen together, and the ranks that they get.
struct Parcel {
    ranks: Vec<u32>,
    domain: DomainId,
    /// They must be in one domain of this level.
    level: Option<LevelId>,
    is_loose: bool,
}

impl Play<'_> {
    fn nodes(&self, topology: &Topology, domain: DomainId, group: usize) -> Vec<NodeId> {
        let reach = &self.reach[group];
        let nodes = topology.nodes(domain).iter().copied();
        nodes.filter(|node| reach.get(node.0 as usize).is_some_and(|reach| *reach > 0)).collect()
    }

    /// Groups, the most demanding members first.
    pub(super) fn order(needs: &[Need]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..needs.len()).collect();
        order.sort_by_key(|group| {
            let shape = &needs[*group].shape;
            (Reverse((shape.gpus.total_milli(), shape.resources.cpu_milli)), *group)
        });
        order
    }

    /// Members that are to be placed of a group.
    pub(super) fn count(need: &Need) -> u32 {
        need.loose_min().saturating_add(need.run_count())
    }

    /// What a domain costs if each of some groups chooses for itself anywhere in it where it may be;
    /// none: no room, or nothing more may be looked at.
    pub(super) fn estimate(
        &self,
        world: &World,
        known: &mut Known,
        spent: &mut u64,
        domain: DomainId,
        is_meant: impl Fn(&Need) -> bool,
    ) -> Option<Price> {
        let (gone, lost) = (vec![false; self.crowd.pods.len()], vec![0; self.crowd.crews.len()]);
        let (crowd, limit) = (self.crowd, self.limit);
        let mut scene = Scene { world, crowd, known, gone, lost, spent, limit };
        let mut dearest = Price::ZERO;
        for (group, need) in self.needs.iter().enumerate().filter(|(_, need)| is_meant(need)) {
            let count = Self::count(need);
            if count > 0 {
                let area = match need.home {
                    Home::Nowhere => return None,
                    Home::Within(home) => narrower(&world.topology, domain, home)?,
                    Home::Anywhere => domain,
                };
                let nodes = self.nodes(&world.topology, area, group);
                let (rules, seated) = (&need.rules, &Seated::default());
                let want = Want { group: need.group, shape: &need.shape, count, rules, seated };
                dearest = dearest.max(choose::choose(&mut scene, &nodes, want)?.price);
            }
        }
        Some(dearest)
    }
}

impl<'w, 'a> Stage<'w, 'a> {
    pub(super) fn new(
        world: &'w mut World,
        play: &'a Play<'a>,
        known: &'a mut Known,
        spent: &'a mut u64,
    ) -> Self {
        let (gone, lost) = (vec![false; play.crowd.pods.len()], vec![0; play.crowd.crews.len()]);
        Self {
            play,
            known,
            spent,
            rehearsal: Rehearsal::new(world),
            gone,
            lost,
            units: BTreeSet::new(),
            placements: Vec::new(),
            seated: Seated::default(),
            touched: BTreeSet::new(),
            targets: BTreeMap::new(),
        }
    }

    /// Plays a domain through. `cost` is called with the world without those who go, with moved
    /// pods in their new places, and with the members' places.
    pub(super) fn run<T>(
        mut self,
        domain: DomainId,
        cost: impl FnOnce(&World, &[Placed]) -> T,
    ) -> Result<(Staged, T), Stuck> {
        let outcome = self.play_through(domain).map(|()| {
            self.reprieve();
            let staged = self.staged();
            for placed in &staged.placements {
                let shape = self.shape_of(placed);
                let outcome = self.rehearsal.release(&shape.resources, &placed.placement);
                debug_assert!(outcome.is_ok(), "{outcome:?}");
            }
            let cost = cost(self.rehearsal.world(), &staged.placements);
            (staged, cost)
        });
        for node in std::mem::take(&mut self.touched) {
            self.known.forget(node);
        }
        outcome
    }

    fn play_through(&mut self, domain: DomainId) -> Result<(), Stuck> {
        let free = homes::numbers(&self.rehearsal.world().topology, self.play.needs, domain);
        let order = Play::order(self.play.needs);
        let mut ways_back = together::MOST_WAYS_BACK;
        self.place_all(&order, &free, domain, &mut ways_back)?;
        self.placements.sort_by_key(|placed| placed.rank);
        self.place_moved()
    }

    fn place_group(&mut self, group: usize, domain: DomainId, home: Home) -> Result<(), Stuck> {
        let play = self.play;
        let need = &play.needs[group];
        if Play::count(need) == 0 {
            return Ok(());
        }
        let topology = &self.rehearsal.world().topology;
        let area = match home {
            Home::Nowhere => return Err(Stuck::NoRoom),
            Home::Within(home) => narrower(topology, domain, home).ok_or(Stuck::NoRoom)?,
            Home::Anywhere => {
                let level = need.required.filter(|level| *level > topology.domain(domain).level);
                match level {
                    Some(level) => {
                        let count = Play::count(need);
                        self.best_domain(group, domain, level, count).ok_or(Stuck::NoRoom)?.0
                    }
                    None => domain,
                }
            }
        };
        let mut loose = Vec::new();
        for parcel in self.parcels(need, area)? {
            let count = u32::try_from(parcel.ranks.len()).unwrap_or(u32::MAX);
            let inner = parcel.level.filter(|level| {
                *level > self.rehearsal.world().topology.domain(parcel.domain).level
            });
            let choice = match inner {
                Some(level) => {
                    let best = self.best_domain(group, parcel.domain, level, count);
                    best.ok_or(Stuck::NoRoom)?.1
                }
                None => self.choose(group, parcel.domain, count).ok_or(Stuck::NoRoom)?,
            };
            let places = self.apply(group, choice)?;
            if parcel.is_loose {
                loose.push((parcel.ranks, places));
            } else {
                self.rank(group, &parcel.ranks, places);
            }
        }
        // Segments follow one another as their domains do.
        let mut ranks: Vec<Vec<u32>> = loose.iter().map(|(ranks, _)| ranks.clone()).collect();
        ranks.sort();
        let mut places: Vec<Vec<Placement>> = loose.into_iter().map(|(_, places)| places).collect();
        let topology = &self.rehearsal.world().topology;
        places.sort_by_key(|places| places.iter().map(|place| topology.position(place.node)).min());
        for (ranks, places) in ranks.into_iter().zip(places) {
            self.rank(group, &ranks, places);
        }
        Ok(())
    }

    fn parcels(&self, need: &Need, area: DomainId) -> Result<Vec<Parcel>, Stuck> {
        let topology = &self.rehearsal.world().topology;
        let mut parcels = Vec::new();
        for run in &need.runs {
            let domain = run.domain.and_then(|domain| narrower(topology, area, domain));
            let domain = domain.ok_or(Stuck::NoRoom)?;
            parcels.push(Parcel { ranks: run.ranks.clone(), domain, level: None, is_loose: false });
        }
        let loose = &need.ranks[..need.loose_min() as usize];
        let (size, level) = match need.segment {
            Some(segment) => (segment.size as usize, Some(segment.level)),
            None => (loose.len().max(1), None),
        };
        for ranks in loose.chunks(size) {
            parcels.push(Parcel { ranks: ranks.to_vec(), domain: area, level, is_loose: true });
        }
        Ok(parcels)
    }

    /// The domain of a level within another in which the members are cheapest.
    fn best_domain(
        &mut self,
        group: usize,
        within: DomainId,
        level: LevelId,
        count: u32,
    ) -> Option<(DomainId, Choice)> {
        let topology = &self.rehearsal.world().topology;
        let reach = &self.play.reach[group];
        let inside = topology.at(level).map(|(id, _)| id).filter(|id| {
            let nodes = topology.nodes(*id).iter();
            let most = nodes
                .filter_map(|node| reach.get(node.0 as usize))
                .map(|count| u64::from(*count))
                .sum::<u64>();
            most >= u64::from(count) && is_within(topology, *id, within)
        });
        let inside: Vec<DomainId> = inside.collect();
        let mut best: Option<(DomainId, Choice)> = None;
        for domain in inside {
            let Some(choice) = self.choose(group, domain, count) else { continue };
            if best.as_ref().is_none_or(|(_, best)| choice.price < best.price) {
                best = Some((domain, choice));
            }
        }
        best
    }

    fn choose(&mut self, group: usize, domain: DomainId, count: u32) -> Option<Choice> {
        let need = &self.play.needs[group];
        let world = self.rehearsal.world();
        let nodes = self.play.nodes(&world.topology, domain, group);
        let (gone, lost) = (std::mem::take(&mut self.gone), std::mem::take(&mut self.lost));
        let (crowd, limit) = (self.play.crowd, self.play.limit);
        let (known, spent) = (&mut *self.known, &mut *self.spent);
        let mut scene = Scene { world, crowd, known, gone, lost, spent, limit };
        let (rules, seated) = (&need.rules, &self.seated);
        let want = Want { group: need.group, shape: &need.shape, count, rules, seated };
        let choice = choose::choose(&mut scene, &nodes, want);
        (self.gone, self.lost) = (scene.gone, scene.lost);
        choice
    }

    /// Victims go, members come.
    fn apply(&mut self, group: usize, choice: Choice) -> Result<Vec<Placement>, Stuck> {
        for unit in choice.units {
            self.take_off(unit)?;
        }
        let need = &self.play.needs[group];
        let shape = &need.shape;
        let mut seats = choice.seats;
        let topology = &self.rehearsal.world().topology;
        seats.sort_by_key(|(node, _)| topology.position(*node));
        let mut places = Vec::new();
        for (node, count) in seats {
            // As the search without victims does: by the rule, else so that the most fit.
            let mut trial = Trial::new(&mut self.rehearsal.world_mut().cluster);
            let found = place_on(&mut trial, node, need, count);
            drop(trial);
            for place in found.ok_or(Stuck::NoRoom)? {
                let placed = self.rehearsal.place(&shape.resources, &place);
                placed.map_err(|_| Stuck::NoRoom)?;
                places.push(place);
            }
            self.seated.add(need.rules.limits(), node, count);
            self.touch(node);
        }
        Ok(places)
    }

    fn rank(&mut self, group: usize, ranks: &[u32], places: Vec<Placement>) {
        let group = self.play.needs[group].group;
        let placed = ranks.iter().zip(places);
        let placed = placed.map(|(rank, placement)| Placed { group, rank: *rank, placement });
        self.placements.extend(placed);
    }

    fn take_off(&mut self, unit: Unit) -> Result<(), Stuck> {
        if !self.units.insert(unit) {
            return Ok(());
        }
        let crowd = self.play.crowd;
        for pod in crowd.pods_of(unit) {
            if std::mem::replace(&mut self.gone[pod as usize], true) {
                continue;
            }
            self.lost[crowd.pod(pod).crew as usize] += u32::from(!matches!(unit, Unit::Move(_)));
            let member = crowd.member(self.rehearsal.world(), pod).cloned();
            let member = member.ok_or(Stuck::NoRoom)?;
            self.rehearsal.take_off(&member).map_err(|_| Stuck::NoRoom)?;
            self.touch(member.placement.node);
        }
        // Who goes as a whole does not go, or move, one by one beside that.
        if let Unit::EvictAll(crew) = unit {
            self.units.retain(|other| match other {
                Unit::Move(pod) | Unit::Evict(pod) => crowd.pod(*pod).crew != crew,
                Unit::EvictAll(_) => true,
            });
            self.targets.retain(|pod, _| crowd.pod(*pod).crew != crew);
        }
        self.touch_crew(unit);
        Ok(())
    }

    /// What is left of a crew may now be worth another price, wherever it is.
    fn touch_crew(&mut self, unit: Unit) {
        let Unit::Evict(pod) = unit else { return };
        let crowd = self.play.crowd;
        for pod in crowd.crew(pod).pods.clone() {
            let member = crowd.member(self.rehearsal.world(), pod);
            if let Some(node) = member.map(|member| member.placement.node) {
                self.touch(node);
            }
        }
    }

    fn touch(&mut self, node: NodeId) {
        self.touched.insert(node);
        self.known.forget(node);
    }

    fn staged(&self) -> Staged {
        let crowd = self.play.crowd;
        let mut moved: Vec<_> = self.targets.iter().collect();
        moved.sort_by_key(|(pod, place)| {
            let milli = crowd.member(self.rehearsal.world(), **pod).map(Member::gpu_milli);
            (Reverse(milli), place.node, **pod)
        });
        let moves = moved.into_iter();
        let moves = moves.map(|(pod, to)| Move { member: crowd.pod(*pod).id, to: to.clone() });
        Staged {
            units: self.units.clone(),
            moves: moves.collect(),
            placements: self.placements.clone(),
            price: crowd.price_of(self.units.iter().copied()),
        }
    }

    fn shape_of(&self, placed: &Placed) -> std::sync::Arc<crate::shape::Shape> {
        let group = &self.play.request.gang.groups[placed.group as usize];
        std::sync::Arc::clone(&group.shape)
    }
}

impl Staged {
    /// Who is evicted: the cheapest first, whole gangs one after another.
    pub(super) fn evictions(&self, crowd: &Crowd) -> Vec<MemberId> {
        let mut units: Vec<Unit> = self.units.iter().copied().collect();
        units.retain(|unit| !matches!(unit, Unit::Move(_)));
        units.sort_by_key(|unit| (crowd.price(*unit), *unit));
        units
            .into_iter()
            .flat_map(|unit| crowd.pods_of(unit))
            .map(|pod| crowd.pod(pod).id)
            .collect()
    }
}

/// The inner one of two domains of which one is in the other.
fn narrower(topology: &Topology, one: DomainId, other: DomainId) -> Option<DomainId> {
    if is_within(topology, one, other) {
        Some(one)
    } else if is_within(topology, other, one) {
        Some(other)
    } else {
        None
    }
}
