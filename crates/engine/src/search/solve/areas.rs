//! Possible locations of a whole gang: tiers of levels, and the areas of each worth trying.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::gang::Gang;
use crate::node::NodeId;
use crate::solve::constraints::LimitUsage;
use crate::solve::problem::{Goal, Problem};
use crate::solve::residual::contains;
use crate::solve::{MAX_CANDIDATES, Request};
use crate::topology::{DomainId, LevelId, Topology};

/// A domain, or one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    /// The domain; of one node the tightest that has it.
    pub(crate) domain: DomainId,
    /// Position of the node.
    pub(crate) node: Option<u32>,
}

impl Area {
    pub(crate) fn domain(domain: DomainId) -> Self {
        Self { domain, node: None }
    }

    /// Positions of its nodes.
    pub(crate) fn positions(&self, topology: &Topology) -> Range<u32> {
        match self.node {
            Some(position) => position..position + 1,
            None => topology.domain(self.domain).nodes.clone(),
        }
    }
}

/// Levels at which the gang may be together, from the preferred to the required one.
pub(crate) fn tiers(gang: &Gang) -> Vec<LevelId> {
    let wish = gang.profile.topology;
    let loosest = wish.required.unwrap_or_default();
    let tightest = wish.preferred.unwrap_or(loosest);
    (loosest.0..=tightest.0).rev().map(LevelId).collect()
}

/// Domains of a level in which the gang may be: those that have all pinned members.
pub(crate) fn roots(topology: &Topology, request: &Request<'_>, level: LevelId) -> Vec<DomainId> {
    let has_pins = |domain: &DomainId| {
        let mut pins = request.pinned.iter();
        pins.all(|pin| contains(topology, *domain, pin.placement.node))
    };
    topology.at(level).map(|(id, _)| id).filter(has_pins).collect()
}

/// Domains of a level within roots. All roots are of one level: this one or a looser one.
fn domains_in<'a>(
    topology: &'a Topology,
    roots: &[DomainId],
    level: LevelId,
) -> impl Iterator<Item = Area> + use<'a> {
    let above = roots.first().map(|root| topology.domain(*root).level);
    let roots: BTreeSet<DomainId> = roots.iter().copied().collect();
    let is_inside = move |id: &DomainId| {
        let mut up = topology.ancestors(*id);
        let root = up.find(|up| Some(topology.domain(*up).level) == above);
        root.is_some_and(|root| roots.contains(&root))
    };
    topology.at(level).map(|(id, _)| id).filter(is_inside).map(Area::domain)
}

/// Nearness of an area to the pinned members: their number in the area, in its parent, and so on.
/// Greater is nearer.
pub(crate) type Nearness = SmallVec<[u32; 4]>;

/// Locations of the pinned members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pins {
    /// By domain; empty where no member is pinned.
    by_domain: Vec<u32>,
    /// Their nodes, sorted, each as often as members are there.
    nodes: Vec<NodeId>,
}

impl Pins {
    pub(crate) fn of(topology: &Topology, request: &Request<'_>) -> Self {
        let mut nodes: Vec<_> = request.pinned.iter().map(|pin| pin.placement.node).collect();
        nodes.sort_unstable();
        let mut by_domain = Vec::new();
        if !nodes.is_empty() {
            by_domain.resize(topology.domains().count(), 0);
            for node in &nodes {
                for domain in topology.ancestors(topology.leaf_domain(*node)) {
                    by_domain[domain.0 as usize] += 1;
                }
            }
        }
        Self { by_domain, nodes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Pinned members in a domain.
    pub(crate) fn within(&self, domain: DomainId) -> u32 {
        self.by_domain.get(domain.0 as usize).copied().unwrap_or_default()
    }

    /// Pinned members on a node.
    pub(crate) fn on(&self, node: NodeId) -> u32 {
        let before = self.nodes.partition_point(|pin| *pin < node);
        let after = self.nodes.partition_point(|pin| *pin <= node);
        u32::try_from(after - before).unwrap_or(u32::MAX)
    }

    fn nearness(&self, topology: &Topology, area: &Area) -> Nearness {
        if self.is_empty() {
            return Nearness::new();
        }
        let node =
            area.node.and_then(|at| topology.order().get(at as usize)).map(|id| self.on(*id));
        let above = topology.ancestors(area.domain).map(|domain| self.within(domain));
        node.into_iter().chain(above).collect()
    }
}

impl Problem<'_> {
    /// Areas within these roots that all bounds allow, up to [`MAX_CANDIDATES`] of the tightest type
    /// (single nodes, then domains from the tightest level). Those with the most pinned members around
    /// and then the fullest come first. Those around neighbours in rank follow. The root that fits the most members is last: it allows looser
    /// but shorter rings, and the most members of an elastic gang.
    pub(crate) fn areas(&self, roots: &[DomainId], goal: &Goal) -> Vec<Area> {
        let Some(first) = roots.first() else { return Vec::new() };
        let topology = self.topology;
        let loosest = topology.domain(*first).level;
        let mut found = self.best(self.nodes_in(roots), goal, MAX_CANDIDATES);
        let levels = u8::try_from(topology.levels().len()).unwrap_or(u8::MAX);
        for level in (loosest.0..levels).rev().map(LevelId) {
            if found.len() >= MAX_CANDIDATES {
                break;
            }
            let inside = domains_in(topology, roots, level);
            found.extend(self.best(inside, goal, MAX_CANDIDATES - found.len()));
        }
        for area in self.areas_near_neighbours(roots, goal) {
            if !found.contains(&area) {
                found.push(area);
            }
        }
        let most_free =
            roots.iter().copied().map(Area::domain).filter(|area| self.admits(area, goal));
        let most_free = most_free
            .max_by_key(|area| (self.members_in(area), self.slots_in(area), Reverse(area.domain)));
        if let Some(area) = most_free
            && !found.contains(&area)
        {
            found.push(area);
        }
        found
    }

    /// The tightest areas that all bounds allow around pinned members whose ranks are next to those of
    /// members to place. Other areas may have more pinned members, but make longer rings.
    fn areas_near_neighbours(&self, roots: &[DomainId], goal: &Goal) -> Vec<Area> {
        let topology = self.topology;
        let is_inside =
            |domain: DomainId| topology.ancestors(domain).any(|above| roots.contains(&above));
        let areas = self.neighbours().into_iter().filter_map(|node| {
            let mut around = topology.ancestors(topology.leaf_domain(node));
            let domain = around
                .find(|domain| is_inside(*domain) && self.admits(&Area::domain(*domain), goal))?;
            let node = self.best(self.nodes_in(&[domain]), goal, 1).pop();
            Some(node.unwrap_or(Area::domain(domain)))
        });
        areas.collect()
    }

    /// Nodes of the pinned members next to the first few members to place, in the ring of ranks.
    fn neighbours(&self) -> BTreeSet<NodeId> {
        let pins = self.request.pinned.iter().map(|pin| (pin.rank, pin.placement.node));
        let pins: BTreeMap<u32, NodeId> = pins.collect();
        let ranks = self.demands.iter().flat_map(|demand| &demand.ranks).take(MAX_CANDIDATES);
        ranks
            .flat_map(|rank| {
                let before = pins.range(..*rank).next_back().or(pins.last_key_value());
                let after = pins.range(*rank..).next().or(pins.first_key_value());
                [before, after]
            })
            .flatten()
            .map(|(_, node)| *node)
            .collect()
    }

    /// All areas within these roots that all bounds allow: nodes, one of each equivalent kind, then
    /// domains from the tightest level.
    pub(crate) fn all_areas(
        &self,
        cluster: &Cluster,
        roots: &[DomainId],
        goal: &Goal,
    ) -> Vec<Area> {
        let Some(first) = roots.first() else { return Vec::new() };
        let topology = self.topology;
        let loosest = topology.domain(*first).level;
        let mut seen = BTreeSet::new();
        let nodes = self.nodes_in(roots).filter(|area| self.admits(area, goal)).filter(|area| {
            let node = area.node.and_then(|at| topology.order().get(at as usize));
            node.is_some_and(|node| {
                let near = self.pins.on(*node);
                let left = self.remaining_by_constraint(*node, &LimitUsage::default());
                seen.insert((cluster.state(*node), area.domain, near, left))
            })
        });
        let mut found: Vec<Area> = nodes.collect();
        let levels = u8::try_from(topology.levels().len()).unwrap_or(u8::MAX);
        for level in (loosest.0..levels).rev().map(LevelId) {
            let inside = domains_in(topology, roots, level);
            found.extend(inside.filter(|area| self.admits(area, goal)));
        }
        found
    }

    fn nodes_in(&self, roots: &[DomainId]) -> impl Iterator<Item = Area> {
        let positions = roots.iter().flat_map(|root| self.topology.domain(*root).nodes.clone());
        // Few nodes of a large cluster hold a large gang, so the count is tested first.
        let main = self.order.first().copied().unwrap_or_default();
        positions.filter(move |at| self.free_slots[main].counts[*at as usize] > 0).map(|at| Area {
            domain: self.topology.leaf_domain(self.topology.order()[at as usize]),
            node: Some(at),
        })
    }

    fn best(&self, areas: impl Iterator<Item = Area>, goal: &Goal, most: usize) -> Vec<Area> {
        let main = self.order.first().copied().unwrap_or_default();
        let wanted = self.demands[main].ranks.len() as u64;
        // Only the best few are kept; others are dropped before the full check.
        let mut best = Vec::with_capacity(most + 1);
        for area in areas {
            let near = Reverse(self.pins.nearness(self.topology, &area));
            let slots = self.slots_in(&area);
            // Of equal nodes the one in the fuller domain: others stay whole.
            let around = self.free_slots[main].sums[area.domain.0 as usize];
            let key = (
                near,
                Reverse(self.members_in(&area).min(wanted)),
                slots,
                around,
                area.domain,
                area.node,
            );
            let at = best.partition_point(|(other, _)| *other < key);
            if at < most && self.admits(&area, goal) {
                best.insert(at, (key, area));
                best.truncate(most);
            }
        }
        best.into_iter().map(|(_, area)| area).collect()
    }

    /// Members of the group that is placed first, by every rule of the group. Slots outside whole
    /// segments are not counted.
    fn members_in(&self, area: &Area) -> u64 {
        self.order.first().map_or(0, |main| {
            let (demand, fit_counts) = (&self.demands[*main], &self.fit_counts[*main]);
            self.free_slots[*main].fit_count_in(self.topology, demand, fit_counts, area)
        })
    }

    /// Free slots of the group that is placed first.
    fn slots_in(&self, area: &Area) -> u64 {
        self.order.first().map_or(0, |main| self.free_slots[*main].count(area))
    }
}
