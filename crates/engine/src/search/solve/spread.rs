//! Distribution of the members of one group over an area.
//!
//! It works top-down. If one part holds all remaining members, the tightest such part with the
//! fewest slots is taken. Otherwise the part with the most slots is filled first, then the rest.
//! Few parts are therefore entered on each level, which minimises hops, and the last part entered
//! is the one that fits best.

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
    /// Nodes with the most slots in the fewest and tightest domains.
    Compact,
    /// As [`Self::Compact`], but within the tightest domains used nodes come first, so that unused
    /// nodes stay whole.
    UsedFirst,
    /// Nodes with the most slots, anywhere in the area.
    MostSlots,
    /// Those that make the shortest ring, if the members are few.
    ShortestRing,
}

/// Positions and how many members go there.
pub(crate) type Amounts = Vec<(u32, u32)>;

/// The inputs for distributing members of a group.
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

/// A part of a domain: a child, or a node in no child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Node(u32),
    Domain(DomainId),
}

impl FillContext<'_> {
    /// Distributes `count` members over an area with whole segments; none if they do not fit. A
    /// pinned segment (`is_pinned_segment`) is part of a segment and goes anywhere in its area.
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

    /// Whether segments can be ignored: the domain lies within one domain of their level.
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

    /// Places `count` members in a domain that fits them.
    fn take(&mut self, domain: DomainId, count: u64) {
        let topology = self.context.topology;
        if count == 0 {
            return;
        }
        if let Some(part) = self.tightest(domain, count) {
            return self.take_part(part, count);
        }
        // If segments can be ignored, nodes in no child are usable too.
        let is_open = self.is_segmented(domain);
        let mut parts: Vec<Part> = topology.children(domain).map(Part::Domain).collect();
        if is_open {
            let unpinned = topology.loose_nodes(domain);
            parts.extend(unpinned.iter().map(|node| Part::Node(topology.position(*node))));
        }
        self.take_parts(parts, count);
    }

    /// The tightest part below a domain that holds all members; of equals the one with the fewest
    /// slots.
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

    /// Takes parts with the most slots first, until one holds the remaining members. That last part
    /// is the one that fits best.
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
            // Following parts of the same class have no more slots than this one.
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
