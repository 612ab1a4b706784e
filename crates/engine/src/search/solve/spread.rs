//! How members of one group are spread over an area.
//!
//! From the top down: if one part holds all that is left, the tightest such part that has the least
//! room; else the part with the most room first, then the rest. So few parts are entered on each
//! level, which is what hops count, and the parts that are entered last are those that fit best.

mod shortest_ring;

use std::cmp::Reverse;

use crate::cluster::Cluster;
use crate::solve::areas::{Area, Pins};
use crate::solve::free_slots::FreeSlots;
use crate::solve::residual::GroupDemand;
use crate::topology::{DomainId, Topology};

/// In what order nodes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeOrder {
    /// Those with the most room of the fewest and tightest domains.
    MinHops,
    /// As [`Self::MinHops`], but within the tightest domains nodes that are in use already come first:
    /// free nodes stay whole.
    UsedFirst,
    /// Those with the most room, wherever in the area they are.
    MostSlots,
    /// Those that make the shortest ring, if the members are few.
    ShortestRing,
}

/// Positions and how many members go there.
pub(crate) type Amounts = Vec<(u32, u32)>;

/// What members of a group are spread over.
#[derive(Debug)]
pub(crate) struct FillContext<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) topology: &'a Topology,
    pub(crate) pins: &'a Pins,
    pub(crate) slots: &'a FreeSlots,
    pub(crate) demand: &'a GroupDemand,
}

struct Spread<'a> {
    context: &'a FillContext<'a>,
    order: NodeOrder,
    /// By domain: how many members fit in whole segments.
    members: Vec<u64>,
    amounts: Amounts,
}

/// A part of a domain: a child, or a node that is in no child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Node(u32),
    Domain(DomainId),
}

impl FillContext<'_> {
    /// Spreads `count` members over an area, segments kept together; none if they do not fit. A run
    /// (`is_pinned_segment`) is part of a segment, and goes anywhere in its area.
    pub(crate) fn fill(
        &self,
        area: &Area,
        count: u32,
        order: NodeOrder,
        is_pinned_segment: bool,
    ) -> Option<Amounts> {
        if count == 0 {
            return Some(Vec::new());
        }
        let slots = self.slots;
        if let Some(position) = area.node {
            let fits = slots.count(area) >= u64::from(count);
            return fits.then(|| vec![(position, count)]);
        }
        let has_segments = !is_pinned_segment && self.demand.segment.is_some();
        let members = if has_segments {
            slots.members(self.topology, self.demand)
        } else {
            slots.sums.clone()
        };
        if members[area.domain.0 as usize] < u64::from(count) {
            return None;
        }
        let mut spread = Spread { context: self, order, members, amounts: Vec::new() };
        let is_open = !has_segments || spread.is_segmented(area.domain);
        if order == NodeOrder::MostSlots && is_open {
            let positions = area.positions(self.topology);
            spread.take_parts(positions.map(Part::Node).collect(), count.into());
        } else if order == NodeOrder::ShortestRing {
            if !is_open || !spread.take_shortest(area.domain, count.into()) {
                return None;
            }
        } else {
            spread.take(area.domain, count.into());
        }
        Some(spread.amounts)
    }
}

impl Spread<'_> {
    fn slots(&self, part: Part) -> u64 {
        match part {
            Part::Node(position) => self.context.slots.counts[position as usize].into(),
            // Within a domain of the segments' level members may be anywhere.
            Part::Domain(domain) if self.is_inside(domain) => {
                self.context.slots.sums[domain.0 as usize]
            }
            Part::Domain(domain) => self.members[domain.0 as usize],
        }
    }

    fn is_inside(&self, domain: DomainId) -> bool {
        let level = self.context.topology.domain(domain).level;
        self.context.demand.segment.is_some_and(|segment| level > segment.level)
    }

    /// Whether segments need not be looked at any more: the domain lies within one of their level.
    fn is_segmented(&self, domain: DomainId) -> bool {
        let level = self.context.topology.domain(domain).level;
        self.context.demand.segment.is_none_or(|segment| level >= segment.level)
    }

    fn pins(&self, part: Part) -> u32 {
        let pins = self.context.pins;
        match part {
            _ if pins.is_empty() => 0,
            Part::Node(position) => pins.on(self.context.topology.order()[position as usize]),
            Part::Domain(domain) => pins.within(domain),
        }
    }

    /// Places `count` members in a domain that has room for them.
    fn take(&mut self, domain: DomainId, count: u64) {
        let topology = self.context.topology;
        if count == 0 {
            return;
        }
        if let Some(part) = self.tightest(domain, count) {
            return self.take_part(part, count);
        }
        // Where segments need not be looked at, nodes that are in no child serve too.
        let is_open = self.is_segmented(domain);
        let mut parts: Vec<Part> = topology.children(domain).map(Part::Domain).collect();
        if is_open {
            let unpinned = topology.loose_nodes(domain);
            parts.extend(unpinned.iter().map(|node| Part::Node(topology.position(*node))));
        }
        self.take_parts(parts, count);
    }

    /// The tightest part below a domain that holds all, the one with the least room of equals.
    fn tightest(&self, domain: DomainId, count: u64) -> Option<Part> {
        let topology = self.context.topology;
        let inside = topology.domain(domain);
        // Of equal nodes the one in the fuller domain: others stay whole.
        let around = |part: &Part| match part {
            Part::Node(at) => {
                let allowed = topology.leaf_domain(topology.order()[*at as usize]);
                self.context.slots.sums[allowed.0 as usize]
            }
            Part::Domain(_) => 0,
        };
        let key = |part: &Part| (Reverse(self.pins(*part)), self.slots(*part), around(part), *part);
        let nodes = inside.nodes.clone().map(Part::Node).filter(|part| self.slots(*part) >= count);
        let is_tight = |part: &Part| match part {
            Part::Node(at) => {
                self.is_segmented(topology.leaf_domain(topology.order()[*at as usize]))
            }
            Part::Domain(_) => true,
        };
        if self.order != NodeOrder::UsedFirst
            && let Some(node) = nodes.filter(is_tight).min_by_key(key)
        {
            return Some(node);
        }
        let levels = shortest_ring::inside(topology, domain).into_iter().skip(1);
        levels.rev().find_map(|ids| {
            let parts = ids.map(|id| Part::Domain(DomainId(id)));
            parts.filter(|part| self.slots(*part) >= count).min_by_key(key)
        })
    }

    fn take_part(&mut self, part: Part, count: u64) {
        match part {
            Part::Node(position) => {
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                self.amounts.push((position, count));
            }
            Part::Domain(domain) => self.take(domain, count),
        }
    }

    /// Those with the most room first, until one holds the rest; of those the one that fits best.
    fn take_parts(&mut self, mut parts: Vec<Part>, count: u64) {
        parts.retain(|part| self.slots(*part) > 0);
        parts.sort_by_cached_key(|part| {
            let is_unused = self.order == NodeOrder::UsedFirst && self.is_unused(*part);
            (Reverse(self.pins(*part)), is_unused, Reverse(self.slots(*part)), *part)
        });
        let mut left = count;
        let mut parts = parts.into_iter();
        while left > 0 {
            let Some(part) = parts.next() else { return };
            if self.slots(part) < left {
                let slots = self.slots(part);
                self.take_part(part, slots);
                left -= slots;
                continue;
            }
            // All of the same kind that follow have no more room than this one.
            let kind = |part: Part| {
                (self.pins(part), self.order == NodeOrder::UsedFirst && self.is_unused(part))
            };
            let own = kind(part);
            let alike = parts.take_while(|other| kind(*other) == own);
            let fitting = alike.take_while(|other| self.slots(*other) >= left);
            let best = fitting.chain([part]).min_by_key(|part| (self.slots(*part), *part));
            return self.take_part(best.unwrap_or(part), left);
        }
    }

    fn is_unused(&self, part: Part) -> bool {
        let Part::Node(position) = part else { return false };
        let node = self.context.topology.order()[position as usize];
        let gpus = self.context.cluster.gpus(node);
        if gpus.is_empty() {
            self.context.cluster.free(node) == self.context.cluster.class(node).capacity
        } else {
            gpus.iter().all(crate::gpu::GpuFree::is_unused)
        }
    }
}
