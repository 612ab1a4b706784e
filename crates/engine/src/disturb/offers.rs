//! What a node offers: for each number of members the cheapest pods to disturb there.

use smallvec::{SmallVec, smallvec};

use super::price::Price;
use super::view;
use super::who::{Crowd, PodIndex, Unit};
use crate::World;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::shape::Shape;
use crate::workload::Member;

/// Subsets of a node's pods that are all tried; with more of them the search is greedy.
const MOST_SUBSETS: usize = 1024;

/// Positions in the list of a node's pods.
pub(super) type Positions = SmallVec<[u16; 4]>;

/// What a node offers, in terms of positions in its list of pods: nodes of one signature offer the
/// same.
#[derive(Clone, Debug, Default)]
pub(super) struct Offers {
    /// Members for which there is room now.
    pub(super) free: u32,
    /// Units that may be disturbed, in groups of alike ones.
    pub(super) groups: Vec<Group>,
    /// More members for more victims: both ascend.
    pub(super) more: Vec<Offer>,
}

/// Units of a node that may stand for one another.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) way: Way,
    /// Pods of each unit on this node: one, but for a whole gang.
    pub(super) units: SmallVec<[Positions; 4]>,
}

/// How the pods of a group are disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Way {
    Move,
    Evict,
    EvictAll,
}

/// Room for so many members in all if so many units of each group go.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) members: u32,
    pub(super) counts: SmallVec<[u16; 8]>,
}

/// A node and those of its pods that may be disturbed.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) state: NodeState,
    pub(super) pods: SmallVec<[PodIndex; 8]>,
    pub(super) members: SmallVec<[&'a Member; 8]>,
    pub(super) ways: SmallVec<[Way; 8]>,
}

impl View<'_> {
    /// The units that an offer takes of this node: of alike ones the cheapest, which are the newest.
    pub(super) fn units(&self, crowd: &Crowd, offers: &Offers, offer: &Offer) -> Vec<Unit> {
        let mut units = Vec::new();
        for (group, count) in offers.groups.iter().zip(&offer.counts) {
            let mut alike: SmallVec<[Unit; 8]> =
                group.units.iter().filter_map(|pods| self.unit(crowd, group.way, pods)).collect();
            alike.sort_by_key(|unit| (crowd.price(*unit), std::cmp::Reverse(*unit)));
            units.extend(alike.into_iter().take(usize::from(*count)));
        }
        units
    }

    fn unit(&self, crowd: &Crowd, way: Way, pods: &Positions) -> Option<Unit> {
        let pod = *self.pods.get(usize::from(*pods.first()?))?;
        Some(match way {
            Way::Move => Unit::Move(pod),
            Way::Evict => Unit::Evict(pod),
            Way::EvictAll => Unit::EvictAll(crowd.pod(pod).crew),
        })
    }
}

/// Finds what a node offers, up to `most` members. `spent` is raised by the states that were looked
/// at. `slack` says how many pods of a crew may still be evicted alone.
pub(super) fn find(
    world: &World,
    crowd: &Crowd,
    view: &View<'_>,
    shape: &Shape,
    most: u32,
    slack: impl Fn(u32) -> u32,
    spent: &mut u64,
) -> Offers {
    let count = |state: &NodeState| fit::times(&world.cluster, state, shape).min(most);
    let free = count(&view.state);
    let mut empty = view.state.clone();
    for member in &view.members {
        view::take_off(&mut empty, member);
    }
    let reach = count(&empty);
    *spent += 2;
    if reach == free {
        return Offers { free, ..Offers::default() };
    }
    let groups = groups(world, crowd, view, &slack);
    let prices = groups.iter().map(|group| price(crowd, view, group)).collect();
    let limits = limits(crowd, view, &groups, &slack);
    let mut search = Search {
        view,
        groups: &groups,
        prices,
        limits,
        free,
        reach,
        best: vec![None; (reach - free) as usize],
        count: &count,
        spent: 0,
    };
    let subsets = groups.iter().map(|group| group.units.len() + 1);
    let subsets = subsets.fold(1_usize, usize::saturating_mul);
    if subsets <= MOST_SUBSETS {
        let mut state = view.state.clone();
        let mut gone = smallvec![0; view.pods.len()];
        search.all(0, &mut state, &mut gone, &mut SmallVec::new(), Price::ZERO);
    } else {
        search.greedy(&empty);
    }
    *spent += search.spent;
    let more = frontier(std::mem::take(&mut search.best), free);
    Offers { free, groups, more }
}

/// Offers that are cheaper than all that give more.
fn frontier(best: Vec<Option<(Price, SmallVec<[u16; 8]>)>>, free: u32) -> Vec<Offer> {
    let mut more = Vec::new();
    let mut cheapest: Option<Price> = None;
    for (above, found) in (1..).zip(best).collect::<Vec<_>>().into_iter().rev() {
        let Some((price, counts)) = found else { continue };
        if cheapest.is_none_or(|cheapest| price < cheapest) {
            cheapest = Some(price);
            more.push(Offer { members: free + above, counts });
        }
    }
    more.reverse();
    more
}

struct Search<'a, 'm, C> {
    view: &'a View<'m>,
    groups: &'a [Group],
    prices: Vec<Price>,
    /// For crews of which only some pods may be evicted alone: groups, and how many.
    limits: Vec<(SmallVec<[usize; 4]>, u16)>,
    free: u32,
    reach: u32,
    /// By members above `free`, less one.
    best: Vec<Option<(Price, SmallVec<[u16; 8]>)>>,
    count: &'a C,
    spent: u64,
}

impl<C: Fn(&NodeState) -> u32> Search<'_, '_, C> {
    /// Tries all numbers of units of all groups from `depth` on.
    fn all(
        &mut self,
        depth: usize,
        state: &mut NodeState,
        gone: &mut SmallVec<[u16; 8]>,
        counts: &mut SmallVec<[u16; 8]>,
        price: Price,
    ) {
        if self.best.last().is_some_and(|best| best.as_ref().is_some_and(|best| best.0 <= price)) {
            return;
        }
        if depth == self.groups.len() {
            self.note(state, counts, price);
            return;
        }
        let (groups, each) = (self.groups, self.prices[depth]);
        let group = &groups[depth];
        let before = state.clone();
        let mut sum = price;
        counts.push(0);
        self.all(depth + 1, state, gone, counts, sum);
        for (number, unit) in (1..).zip(&group.units) {
            self.take(state, gone, unit);
            counts[depth] = number;
            sum = sum.plus(each);
            self.all(depth + 1, state, gone, counts, sum);
        }
        counts.pop();
        for unit in &group.units {
            for position in unit {
                gone[usize::from(*position)] -= 1;
            }
        }
        *state = before;
    }

    fn note(&mut self, state: &NodeState, counts: &SmallVec<[u16; 8]>, price: Price) {
        if !self.is_within_limits(counts) {
            return;
        }
        self.spent += 1;
        let members = (self.count)(state).min(self.reach);
        let Some(above) = members.checked_sub(self.free + 1) else { return };
        let best = &mut self.best[above as usize];
        if best.as_ref().is_none_or(|best| price < best.0) {
            *best = Some((price, counts.clone()));
        }
    }

    fn is_within_limits(&self, counts: &[u16]) -> bool {
        self.limits
            .iter()
            .all(|(groups, most)| groups.iter().map(|group| counts[*group]).sum::<u16>() <= *most)
    }

    fn take(&self, state: &mut NodeState, gone: &mut SmallVec<[u16; 8]>, unit: &Positions) {
        for position in unit {
            let position = usize::from(*position);
            gone[position] += 1;
            if gone[position] == 1 {
                view::take_off(state, self.view.members[position]);
            }
        }
    }

    /// Takes all away and puts back what is not needed, dearest first, in several orders.
    fn greedy(&mut self, empty: &NodeState) {
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            order.extend((0..group.units.len()).map(|unit| (number, unit)));
        }
        let dear = |(group, _): &(usize, usize)| std::cmp::Reverse(self.prices[*group]);
        let mut by_price = order.clone();
        by_price.sort_by_key(dear);
        let mut by_size = order.clone();
        by_size.sort_by_key(|&(group, unit)| (self.size(group, unit), dear(&(group, unit))));
        // A GPU is whole again only when its last pod has gone: keep the dearest GPUs together.
        let mut by_gpu = order;
        by_gpu.sort_by_key(|&(group, unit)| std::cmp::Reverse(self.price_of_gpus(group, unit)));
        for order in [by_price, by_size, by_gpu] {
            for above in 1..=self.reach - self.free {
                self.greedy_for(self.free + above, empty, &order);
            }
        }
    }

    fn greedy_for(&mut self, members: u32, empty: &NodeState, order: &[(usize, usize)]) {
        let mut state = empty.clone();
        let mut gone: SmallVec<[u16; 8]> = smallvec![0; self.view.pods.len()];
        let mut counts: SmallVec<[u16; 8]> = smallvec![0; self.groups.len()];
        for (number, group) in self.groups.iter().enumerate() {
            counts[number] = u16::try_from(group.units.len()).unwrap_or(u16::MAX);
            for position in group.units.iter().flatten() {
                gone[usize::from(*position)] += 1;
            }
        }
        for &(group, unit) in order {
            let before = state.clone();
            let unit = &self.groups[group].units[unit];
            for position in unit {
                let position = usize::from(*position);
                gone[position] -= 1;
                if gone[position] == 0 {
                    view::put_back(&mut state, self.view.members[position]);
                }
            }
            self.spent += 1;
            if (self.count)(&state) >= members {
                counts[group] -= 1;
            } else {
                state = before;
                for position in unit {
                    gone[usize::from(*position)] += 1;
                }
            }
        }
        let mut price = Price::ZERO;
        for (count, each) in counts.iter().zip(&self.prices) {
            for _ in 0..*count {
                price = price.plus(*each);
            }
        }
        self.note(&state, &counts, price);
    }

    fn size(&self, group: usize, unit: usize) -> i64 {
        let members = self.groups[group].units[unit].iter();
        -members.map(|position| self.view.members[usize::from(*position)].gpu_milli()).sum::<i64>()
    }

    /// What all pods cost that are on the GPUs of a unit.
    fn price_of_gpus(&self, group: usize, unit: usize) -> Price {
        let has = |position: &u16, gpu: u16| {
            let member = self.view.members[usize::from(*position)];
            member.placement.gpus.iter().any(|part| part.gpu == gpu)
        };
        let mine = &self.groups[group].units[unit];
        let mut sum = Price::ZERO;
        for gpu in (0..).take(self.view.state.gpus.len()) {
            if !mine.iter().any(|position| has(position, gpu)) {
                continue;
            }
            for (group, each) in self.groups.iter().zip(&self.prices) {
                let on = group.units.iter().filter(|unit| unit.iter().any(|pod| has(pod, gpu)));
                for _ in on {
                    sum = sum.plus(*each);
                }
            }
        }
        sum
    }
}

/// Units of a node in groups of alike ones.
fn groups(
    world: &World,
    crowd: &Crowd,
    view: &View<'_>,
    slack: &impl Fn(u32) -> u32,
) -> Vec<Group> {
    type Form = (Way, u32, Price, u32, SmallVec<[u64; 4]>);
    let class = &world.cluster.classes()[view.state.class.0 as usize];
    let is_flat = class.links.is_flat();
    let mut found: Vec<(Form, Group)> = Vec::new();
    for (position, pod) in (0..).zip(&view.pods) {
        let (way, number) = (view.ways[usize::from(position)], crowd.pod(*pod).crew);
        if way == Way::EvictAll {
            let form = (way, 0, Price::ZERO, number, SmallVec::new());
            if let Some((_, group)) = found.iter_mut().find(|(other, _)| *other == form) {
                group.units[0].push(position);
            } else {
                let units = smallvec![smallvec![position]];
                found.push((form, Group { way, units }));
            }
            continue;
        }
        let unit = if way == Way::Move { Unit::Move(*pod) } else { Unit::Evict(*pod) };
        let price = crowd.price(unit).without_age();
        let member = view.members[usize::from(position)];
        // Pods that have their GPUs alone are alike wherever these are.
        let parts = member.placement.gpus.iter().map(|part| {
            let gpu = view.state.gpus.get(usize::from(part.gpu));
            let without = gpu.and_then(|gpu| gpu.with(part, u32::MAX));
            let is_alone = without.is_some_and(|gpu| gpu.is_idle());
            let place = if is_alone && is_flat { u64::MAX >> 32 } else { part.gpu.into() };
            place << 32 | u64::from(part.milli) << 16 | u64::from(part.slices.0)
        });
        let limited = if way == Way::Evict && slack(number) < crowd.crews[number as usize].members {
            number
        } else {
            u32::MAX
        };
        let form = (way, crowd.pod(*pod).kind, price, limited, parts.collect());
        if let Some((_, group)) = found.iter_mut().find(|(other, _)| *other == form) {
            group.units.push(smallvec![position]);
        } else {
            let units = smallvec![smallvec![position]];
            found.push((form, Group { way, units }));
        }
    }
    // A crew of which not all pods here may go alone may also go as a whole.
    let mut whole: Vec<(u32, Positions)> = Vec::new();
    for (position, pod) in (0..).zip(&view.pods) {
        let number = crowd.pod(*pod).crew;
        if view.ways[usize::from(position)] != Way::Evict {
            continue;
        }
        match whole.iter_mut().find(|(crew, _)| *crew == number) {
            Some((_, positions)) => positions.push(position),
            None => whole.push((number, smallvec![position])),
        }
    }
    whole.retain(|(crew, positions)| positions.len() > slack(*crew) as usize);
    let mut groups: Vec<Group> = found.into_iter().map(|(_, group)| group).collect();
    groups.extend(
        whole
            .into_iter()
            .map(|(_, positions)| Group { way: Way::EvictAll, units: smallvec![positions] }),
    );
    groups
}

/// Groups whose pods are of one crew that may lose only some of them alone.
fn limits(
    crowd: &Crowd,
    view: &View<'_>,
    groups: &[Group],
    slack: &impl Fn(u32) -> u32,
) -> Vec<(SmallVec<[usize; 4]>, u16)> {
    let mut limits: Vec<(u32, SmallVec<[usize; 4]>, u16)> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let first = group.units.first().and_then(|unit| unit.first());
        let (Way::Evict, Some(first)) = (group.way, first) else { continue };
        let crew = crowd.pod(view.pods[usize::from(*first)]).crew;
        let most = slack(crew);
        if most >= crowd.crews[crew as usize].members {
            continue;
        }
        if let Some((_, groups, _)) = limits.iter_mut().find(|(other, ..)| *other == crew) {
            groups.push(number);
        } else {
            let most = u16::try_from(most).unwrap_or(u16::MAX);
            limits.push((crew, smallvec![number], most));
        }
    }
    limits.into_iter().map(|(_, groups, most)| (groups, most)).collect()
}

/// What one unit of a group costs, but for age: alike ones differ in it alone.
fn price(crowd: &Crowd, view: &View<'_>, group: &Group) -> Price {
    let unit = group.units.first().and_then(|pods| view.unit(crowd, group.way, pods));
    unit.map_or(Price::ZERO, |unit| crowd.price(unit)).without_age()
}
