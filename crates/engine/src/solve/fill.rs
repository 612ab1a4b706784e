//! How members of one group are spread over an area.
//!
//! From the top down: if one part holds all that is left, the tightest such part that has the least
//! room; else the part with the most room first, then the rest. So few parts are entered on each
//! level, which is what hops count, and the parts that are entered last are those that fit best.

mod short;

use std::cmp::Reverse;

use crate::cluster::Cluster;
use crate::solve::areas::{Area, Pins};
use crate::solve::need::Need;
use crate::solve::room::Room;
use crate::topology::{DomainId, Topology};

/// In what order nodes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Those with the most room of the fewest and tightest domains.
    Near,
    /// As [`Self::Near`], but within the tightest domains nodes that are in use already come first:
    /// free nodes stay whole.
    Used,
    /// Those with the most room, wherever in the area they are.
    Wide,
    /// Those that make the shortest ring, if the members are few.
    Short,
}

/// Positions and how many members go there.
pub(crate) type Amounts = Vec<(u32, u32)>;

/// What members of a group are spread over.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) topology: &'a Topology,
    pub(crate) pins: &'a Pins,
    pub(crate) room: &'a Room,
    pub(crate) need: &'a Need,
}

struct Spread<'a> {
    ground: &'a Ground<'a>,
    order: Order,
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

impl Ground<'_> {
    /// Spreads `count` members over an area, segments kept together; none if they do not fit. A run
    /// (`is_run`) is part of a segment, and goes anywhere in its area.
    pub(crate) fn fill(
        &self,
        area: &Area,
        count: u32,
        order: Order,
        is_run: bool,
    ) -> Option<Amounts> {
        if count == 0 {
            return Some(Vec::new());
        }
        let room = self.room;
        if let Some(position) = area.node {
            let fits = room.count(area) >= u64::from(count);
            return fits.then(|| vec![(position, count)]);
        }
        let has_segments = !is_run && self.need.segment.is_some();
        let members =
            if has_segments { room.members(self.topology, self.need) } else { room.sums.clone() };
        if members[area.domain.0 as usize] < u64::from(count) {
            return None;
        }
        let mut spread = Spread { ground: self, order, members, amounts: Vec::new() };
        let is_open = !has_segments || spread.is_segmented(area.domain);
        if order == Order::Wide && is_open {
            let positions = area.positions(self.topology);
            spread.take_parts(positions.map(Part::Node).collect(), count.into());
        } else if order == Order::Short {
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
    fn room(&self, part: Part) -> u64 {
        match part {
            Part::Node(position) => self.ground.room.counts[position as usize].into(),
            // Within a domain of the segments' level members may be anywhere.
            Part::Domain(domain) if self.is_inside(domain) => {
                self.ground.room.sums[domain.0 as usize]
            }
            Part::Domain(domain) => self.members[domain.0 as usize],
        }
    }

    fn is_inside(&self, domain: DomainId) -> bool {
        let level = self.ground.topology.domain(domain).level;
        self.ground.need.segment.is_some_and(|segment| level > segment.level)
    }

    /// Whether segments need not be looked at any more: the domain lies within one of their level.
    fn is_segmented(&self, domain: DomainId) -> bool {
        let level = self.ground.topology.domain(domain).level;
        self.ground.need.segment.is_none_or(|segment| level >= segment.level)
    }

    fn pins(&self, part: Part) -> u32 {
        let pins = self.ground.pins;
        match part {
            _ if pins.is_empty() => 0,
            Part::Node(position) => pins.on(self.ground.topology.order()[position as usize]),
            Part::Domain(domain) => pins.within(domain),
        }
    }

    /// Places `count` members in a domain that has room for them.
    fn take(&mut self, domain: DomainId, count: u64) {
        let topology = self.ground.topology;
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
            let loose = topology.loose_nodes(domain);
            parts.extend(loose.iter().map(|node| Part::Node(topology.position(*node))));
        }
        self.take_parts(parts, count);
    }

    /// The tightest part below a domain that holds all, the one with the least room of equals.
    fn tightest(&self, domain: DomainId, count: u64) -> Option<Part> {
        let topology = self.ground.topology;
        let inside = topology.domain(domain);
        // Of equal nodes the one in the fuller domain: others stay whole.
        let around = |part: &Part| match part {
            Part::Node(at) => {
                let home = topology.home(topology.order()[*at as usize]);
                self.ground.room.sums[home.0 as usize]
            }
            Part::Domain(_) => 0,
        };
        let key = |part: &Part| (Reverse(self.pins(*part)), self.room(*part), around(part), *part);
        let nodes = inside.nodes.clone().map(Part::Node).filter(|part| self.room(*part) >= count);
        let is_tight = |part: &Part| match part {
            Part::Node(at) => self.is_segmented(topology.home(topology.order()[*at as usize])),
            Part::Domain(_) => true,
        };
        if self.order != Order::Used
            && let Some(node) = nodes.filter(is_tight).min_by_key(key)
        {
            return Some(node);
        }
        let levels = short::inside(topology, domain).into_iter().skip(1);
        levels.rev().find_map(|ids| {
            let parts = ids.map(|id| Part::Domain(DomainId(id)));
            parts.filter(|part| self.room(*part) >= count).min_by_key(key)
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
        parts.retain(|part| self.room(*part) > 0);
        parts.sort_by_cached_key(|part| {
            let is_fresh = self.order == Order::Used && self.is_fresh(*part);
            (Reverse(self.pins(*part)), is_fresh, Reverse(self.room(*part)), *part)
        });
        let mut left = count;
        let mut parts = parts.into_iter();
        while left > 0 {
            let Some(part) = parts.next() else { return };
            if self.room(part) < left {
                let room = self.room(part);
                self.take_part(part, room);
                left -= room;
                continue;
            }
            // All of the same kind that follow have no more room than this one.
            let kind =
                |part: Part| (self.pins(part), self.order == Order::Used && self.is_fresh(part));
            let own = kind(part);
            let alike = parts.take_while(|other| kind(*other) == own);
            let fitting = alike.take_while(|other| self.room(*other) >= left);
            let best = fitting.chain([part]).min_by_key(|part| (self.room(*part), *part));
            return self.take_part(best.unwrap_or(part), left);
        }
    }

    fn is_fresh(&self, part: Part) -> bool {
        let Part::Node(position) = part else { return false };
        let node = self.ground.topology.order()[position as usize];
        let gpus = self.ground.cluster.gpus(node);
        if gpus.is_empty() {
            self.ground.cluster.free(node) == self.ground.cluster.class(node).capacity
        } else {
            gpus.iter().all(crate::gpu::GpuFree::is_unused)
        }
    }
}
