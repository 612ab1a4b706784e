//! Nodes for members that ask for the same, and the cheapest victims on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::offers::{Offers, View};
use super::price::Price;
use super::scene::Scene;
use super::who::{PodIndex, Unit};
use crate::fit;
use crate::node::NodeId;
use crate::shape::Shape;
use crate::solve::rules::{Rules, Seated};

/// Cells of the table of the exact choice; above it the choice is greedy.
const MOST_CELLS: usize = 1 << 20;

/// So many members are to be placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want<'a> {
    /// Index of their group.
    pub(super) group: u32,
    pub(super) shape: &'a Shape,
    pub(super) count: u32,
    pub(super) rules: &'a Rules,
    /// Members of the gang that have their places already.
    pub(super) seated: &'a Seated,
}

impl Want<'_> {
    /// So many of them may be on a node at most.
    fn most_on(&self, node: NodeId) -> u32 {
        self.count.min(self.rules.left(node, self.seated))
    }
}

/// Nodes, and who must go there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Members for each node.
    pub(super) seats: Vec<(NodeId, u32)>,
    pub(super) units: Vec<Unit>,
    pub(super) price: Price,
}

/// A node that may be chosen.
struct Stand {
    node: NodeId,
    signature: u32,
    /// Members that may be there at most.
    most: u32,
    offers: Arc<Offers>,
}

/// The cheapest choice among `nodes`; none: there is none, even if everybody goes.
///
/// Exact where each victim matters to one node only and the table is not too large: the least price
/// for each number of members, node by node, of which at most as many of one signature as members
/// are looked at. Else greedy by price for each member, whole gangs among the candidates, and who
/// turns out not to be needed stays. None, too, when no more nodes may be looked at.
///
/// What is compared after the highest priority is the least for each node, not for all together: a
/// maximum does not add up.
pub(super) fn choose(scene: &mut Scene<'_>, nodes: &[NodeId], want: Want<'_>) -> Option<Choice> {
    let mut stands = Vec::new();
    for node in nodes {
        if scene.is_spent() {
            return None;
        }
        let most = want.most_on(*node);
        if most == 0 {
            continue;
        }
        let found = scene.offers(*node, want.group, want.shape, most);
        let Some((signature, offers)) = found else { continue };
        if offers.free > 0 || !offers.more.is_empty() {
            stands.push(Stand { node: *node, signature, most, offers });
        }
    }
    let free: u64 = stands.iter().map(|stand| u64::from(stand.offers.free)).sum();
    let Some(missing) = u64::from(want.count).checked_sub(free).filter(|missing| *missing > 0)
    else {
        // Of nodes with as much room the fullest first: what they have left serves fewer others.
        let mut rooms: Vec<(NodeId, u32)> =
            stands.iter().map(|stand| (stand.node, stand.offers.free)).collect();
        rooms.sort_by_cached_key(|(node, _)| milli_left(scene, *node));
        return Some(Choice { seats: seats(rooms, want.count), ..Choice::default() });
    };
    let missing = u32::try_from(missing).unwrap_or(u32::MAX);
    let offered = offered(scene, &stands, missing);
    let is_coupled = offered
        .iter()
        .flat_map(|(_, offers)| offers)
        .any(|(_, _, units)| units.iter().any(|unit| scene.is_coupled(*unit)));
    let exact = exact(scene, &stands, &offered, want, missing);
    if !is_coupled && exact.is_some() {
        return exact;
    }
    let greedy = greedy(scene, nodes, &stands, want);
    [exact, greedy].into_iter().flatten().min_by_key(|choice| choice.price)
}

/// What is offered by a stand (by index): members beyond the free ones, the price, who goes.
type Offered = (usize, Vec<(u32, Price, Vec<Unit>)>);

/// Of each signature the cheapest stands, as many as could be needed.
fn offered(scene: &mut Scene<'_>, stands: &[Stand], missing: u32) -> Vec<Offered> {
    let mut alike: BTreeMap<(u32, u32), Vec<(Price, usize)>> = BTreeMap::new();
    let mut all: BTreeMap<usize, Vec<(u32, Price, Vec<Unit>)>> = BTreeMap::new();
    for (number, stand) in stands.iter().enumerate() {
        if stand.offers.more.is_empty() {
            continue;
        }
        let Some(view) = scene.ordered(stand.node) else { continue };
        let offers: Vec<_> = stand
            .offers
            .more
            .iter()
            .map(|offer| {
                let units = view.units(scene.crowd, &stand.offers, offer);
                (
                    offer.members - stand.offers.free,
                    scene.crowd.price_of(units.iter().copied()),
                    units,
                )
            })
            .collect();
        let first = offers.first().map_or(Price::ZERO, |offer| offer.1);
        alike.entry((stand.signature, stand.most)).or_default().push((first, number));
        all.insert(number, offers);
    }
    let mut kept = BTreeSet::new();
    for numbers in alike.values_mut() {
        numbers.sort_unstable();
        kept.extend(numbers.iter().take(missing as usize).map(|(_, number)| *number));
    }
    all.into_iter().filter(|(number, _)| kept.contains(number)).collect()
}

/// The least sum of prices for `missing` members; none: impossible, or the table is too large.
fn exact(
    scene: &mut Scene<'_>,
    stands: &[Stand],
    offered: &[Offered],
    want: Want<'_>,
    missing: u32,
) -> Option<Choice> {
    let missing = missing as usize;
    let most = offered.iter().map(|(_, offers)| offers.len()).max().unwrap_or(0);
    if offered.len().saturating_mul(missing + 1).saturating_mul(most) > MOST_CELLS {
        return None;
    }
    let mut least: Vec<Option<Price>> = vec![None; missing + 1];
    least[0] = Some(Price::ZERO);
    let mut taken: Vec<Vec<u16>> = Vec::with_capacity(offered.len());
    for (_, offers) in offered {
        *scene.spent += (missing * offers.len()) as u64 / 16;
        if scene.is_spent() {
            return None;
        }
        let mut row = vec![0; missing + 1];
        for members in (1..=missing).rev() {
            for (number, (gain, price, _)) in (1..).zip(offers) {
                let rest = members.saturating_sub(*gain as usize);
                let Some(sum) = least[rest].map(|rest| rest.plus(*price)) else { continue };
                if least[members].is_none_or(|least| sum < least) {
                    least[members] = Some(sum);
                    row[members] = number;
                }
            }
        }
        taken.push(row);
    }
    least[missing]?;
    let mut rooms: BTreeMap<NodeId, u32> = BTreeMap::new();
    for stand in stands {
        rooms.insert(stand.node, stand.offers.free);
    }
    let (mut units, mut rest) = (BTreeSet::new(), missing);
    for ((stand, offers), row) in offered.iter().zip(&taken).rev() {
        let Some(number) = row[rest].checked_sub(1) else { continue };
        let (gain, _, victims) = &offers[usize::from(number)];
        units.extend(victims.iter().copied());
        *rooms.entry(stands[*stand].node).or_default() += gain;
        rest = rest.saturating_sub(*gain as usize);
    }
    let units: Vec<Unit> = units.into_iter().collect();
    if !is_within_slack(scene, &units) {
        return None;
    }
    let used = used_nodes(scene, &units);
    let price = scene.crowd.price_of(units.iter().copied());
    Some(Choice { seats: seats_on(rooms, &used, want.count), units, price })
}

/// Whether no workload loses more pods one by one, over all nodes, than it has above its minimum.
fn is_within_slack(scene: &Scene<'_>, units: &[Unit]) -> bool {
    let mut alone: BTreeMap<u32, u32> = BTreeMap::new();
    for unit in units {
        if let Unit::Evict(pod) = unit {
            *alone.entry(scene.crowd.pod(*pod).crew).or_default() += 1;
        }
    }
    alone.iter().all(|(crew, count)| *count <= scene.slack(*crew))
}

/// Takes the best action again and again, then gives back who is not needed.
fn greedy(
    scene: &mut Scene<'_>,
    nodes: &[NodeId],
    stands: &[Stand],
    want: Want<'_>,
) -> Option<Choice> {
    let mut draft = Draft {
        want,
        rooms: stands.iter().map(|stand| (stand.node, stand.offers.free)).collect(),
        offers: BTreeMap::new(),
        less: BTreeSet::new(),
        units: BTreeSet::new(),
        gangs: gangs(scene, nodes),
    };
    for stand in stands {
        let Some(view) = scene.ordered(stand.node) else { continue };
        draft.set_offers(scene, &view, stand.node, &stand.offers);
    }
    let mut is_found = true;
    while is_found && draft.missing() > 0 {
        match draft.best(scene) {
            Some(units) => draft.take(scene, units),
            None => is_found = false,
        }
        is_found &= !scene.is_spent();
    }
    if is_found {
        draft.give_back(scene);
    }
    for pod in std::mem::take(&mut draft.less) {
        scene.lost[scene.crowd.pod(pod).crew as usize] -= 1;
    }
    if !is_found {
        return None;
    }
    let units: Vec<Unit> = draft.units.into_iter().collect();
    let used = used_nodes(scene, &units);
    let price = scene.crowd.price_of(units.iter().copied());
    Some(Choice { seats: seats_on(draft.rooms, &used, want.count), units, price })
}

struct Draft<'a> {
    want: Want<'a>,
    /// Members for which each node has room now.
    rooms: BTreeMap<NodeId, u32>,
    /// What each node offers beyond.
    offers: BTreeMap<NodeId, Vec<(u32, Price, Vec<Unit>)>>,
    /// Pods that are gone in this draft.
    less: BTreeSet<PodIndex>,
    units: BTreeSet<Unit>,
    /// Gangs that may be evicted and are on several of the nodes, and these.
    gangs: BTreeMap<u32, BTreeSet<NodeId>>,
}

impl Draft<'_> {
    fn missing(&self) -> u32 {
        let room = self.rooms.values().fold(0_u32, |sum, room| sum.saturating_add(*room));
        self.want.count.saturating_sub(room)
    }

    fn set_offers(&mut self, scene: &Scene<'_>, view: &View<'_>, node: NodeId, offers: &Offers) {
        let list = offers.more.iter().map(|offer| {
            let units = view.units(scene.crowd, offers, offer);
            (offer.members - offers.free, scene.crowd.price_of(units.iter().copied()), units)
        });
        let list: Vec<_> = list.collect();
        self.rooms.insert(node, offers.free);
        self.offers.insert(node, list);
    }

    /// The units with the least price for each member that they make room for.
    fn best(&self, scene: &mut Scene<'_>) -> Option<Vec<Unit>> {
        let missing = self.missing();
        let mut best: Option<(Price, u32, Vec<Unit>)> = None;
        let mut consider = |price: Price, gain: u32, units: &[Unit]| {
            let gain = gain.min(missing);
            let is_better = |(least, most, _): &(Price, u32, Vec<Unit>)| {
                price.cmp_each(gain, *least, *most).is_lt()
            };
            if gain > 0 && best.as_ref().is_none_or(is_better) {
                best = Some((price, gain, units.to_vec()));
            }
        };
        for offers in self.offers.values() {
            *scene.spent += 1;
            for (gain, price, units) in offers {
                consider(*price, *gain, units);
            }
        }
        for (gang, nodes) in &self.gangs {
            let unit = Unit::EvictAll(*gang);
            if self.units.contains(&unit) {
                continue;
            }
            if scene.is_spent() {
                return None;
            }
            let pods = scene.crowd.pods_of(unit);
            let gain = nodes.iter().map(|node| {
                *scene.spent += 1;
                let is_less = |pod| self.less.contains(&pod) || pods.contains(&pod);
                let view = scene.view(*node, is_less);
                let now = self.rooms.get(node).copied().unwrap_or(0);
                let cluster = &scene.world.cluster;
                let times = |view: View<'_>| fit::times(cluster, &view.state, self.want.shape);
                view.map_or(0, times).min(self.want.most_on(*node)).saturating_sub(now)
            });
            let gain = gain.fold(0_u32, u32::saturating_add);
            consider(scene.crowd.price(unit), gain, &[unit]);
        }
        best.map(|(_, _, units)| units)
    }

    fn take(&mut self, scene: &mut Scene<'_>, units: Vec<Unit>) {
        for unit in units {
            for pod in scene.crowd.pods_of(unit) {
                if !scene.gone[pod as usize] && self.less.insert(pod) {
                    let crew = scene.crowd.pod(pod).crew;
                    scene.lost[crew as usize] += 1;
                }
            }
            self.units.insert(unit);
            self.look_again(scene, unit);
        }
    }

    /// Looks again at all nodes on which a unit, or its crew where that matters, has pods.
    fn look_again(&mut self, scene: &mut Scene<'_>, unit: Unit) {
        let pods = match unit {
            Unit::Move(_) => scene.crowd.pods_of(unit),
            Unit::Evict(pod) if !scene.crowd.crew(pod).is_coupled => scene.crowd.pods_of(unit),
            Unit::Evict(pod) => scene.crowd.crew(pod).pods.clone(),
            Unit::EvictAll(crew) => scene.crowd.crews[crew as usize].pods.clone(),
        };
        let nodes: BTreeSet<NodeId> = pods.filter_map(|pod| node_of(scene, pod)).collect();
        for node in nodes {
            if scene.is_spent() {
                return;
            }
            if !self.rooms.contains_key(&node) && !self.offers.contains_key(&node) {
                continue;
            }
            let Some(view) = scene.view(node, |pod| self.less.contains(&pod)) else { continue };
            let offers = scene.find(&view, self.want.shape, self.want.most_on(node));
            self.set_offers(scene, &view, node, &offers);
        }
    }

    /// Gives back, dearest first, who is not needed.
    fn give_back(&mut self, scene: &mut Scene<'_>) {
        let mut units: Vec<Unit> = self.units.iter().copied().collect();
        units.sort_by_key(|unit| std::cmp::Reverse((scene.crowd.price(*unit), *unit)));
        for unit in units {
            if scene.is_spent() {
                return;
            }
            let others: BTreeSet<PodIndex> = self
                .units
                .iter()
                .filter(|other| **other != unit)
                .flat_map(|other| scene.crowd.pods_of(*other))
                .collect();
            let pods = scene.crowd.pods_of(unit).filter(|pod| !others.contains(pod));
            let nodes: BTreeSet<NodeId> = pods.filter_map(|pod| node_of(scene, pod)).collect();
            let mut rooms = self.rooms.clone();
            for node in nodes.iter().filter(|node| self.rooms.contains_key(node)) {
                *scene.spent += 1;
                let view = scene.view(*node, |pod| others.contains(&pod));
                let cluster = &scene.world.cluster;
                let times = |view: View<'_>| fit::times(cluster, &view.state, self.want.shape);
                rooms.insert(*node, view.map_or(0, times).min(self.want.most_on(*node)));
            }
            let room = rooms.values().fold(0_u32, |sum, room| sum.saturating_add(*room));
            if room >= self.want.count {
                self.units.remove(&unit);
                self.rooms = rooms;
            }
        }
    }
}

/// Gangs that may be evicted as a whole and are on several of these nodes.
fn gangs(scene: &Scene<'_>, nodes: &[NodeId]) -> BTreeMap<u32, BTreeSet<NodeId>> {
    let mut gangs: BTreeMap<u32, BTreeSet<NodeId>> = BTreeMap::new();
    for node in nodes {
        for pod in scene.crowd.on(*node) {
            let crew = scene.crowd.pod(*pod).crew;
            let can_go = scene.crowd.crews[crew as usize].is_coupled && !scene.gone[*pod as usize];
            if can_go && scene.way(*pod).is_some_and(|way| way != super::offers::Way::Move) {
                gangs.entry(crew).or_default().insert(*node);
            }
        }
    }
    gangs.retain(|_, nodes| nodes.len() > 1);
    gangs
}

fn node_of(scene: &Scene<'_>, pod: PodIndex) -> Option<NodeId> {
    scene.crowd.member(scene.world, pod).map(|member| member.placement.node)
}

fn used_nodes(scene: &Scene<'_>, units: &[Unit]) -> BTreeSet<NodeId> {
    let pods = units.iter().flat_map(|unit| scene.crowd.pods_of(*unit));
    pods.filter_map(|pod| node_of(scene, pod)).collect()
}

fn milli_left(scene: &Scene<'_>, node: NodeId) -> i64 {
    scene.world.cluster.gpus(node).iter().map(|gpu| i64::from(gpu.open_milli())).sum()
}

/// `count` members on nodes with room, on few nodes.
fn seats(mut rooms: Vec<(NodeId, u32)>, count: u32) -> Vec<(NodeId, u32)> {
    rooms.sort_by_key(|(_, room)| std::cmp::Reverse(*room));
    let mut rest = count;
    let mut seats = Vec::new();
    for (node, room) in rooms {
        let taken = room.min(rest);
        if taken > 0 {
            seats.push((node, taken));
            rest -= taken;
        }
    }
    seats
}

/// The same, those nodes first from which somebody goes.
fn seats_on(
    rooms: BTreeMap<NodeId, u32>,
    first: &BTreeSet<NodeId>,
    count: u32,
) -> Vec<(NodeId, u32)> {
    let (on, off): (Vec<_>, Vec<_>) = rooms.into_iter().partition(|(node, _)| first.contains(node));
    let mut chosen = seats(on, count);
    let rest = count - chosen.iter().map(|(_, seats)| seats).sum::<u32>();
    chosen.extend(seats(off, rest));
    chosen
}
