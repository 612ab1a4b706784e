//! The shortest ring for few members: exact, by dynamic programming over the tree.
//!
//! A ring in topology order enters each node and each domain once. Its hops are twice the number of
//! entered nodes, racks, blocks and so on, without the part that all members share. The program
//! therefore minimises the number of entered parts. For each domain and each number of members it
//! computes the fewest parts that hold them. In the tightest domains the parts are nodes, and the
//! largest are taken first.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::topology::{DomainId, Topology};

use super::{Part, Spread};

/// Most members.
const MAX_MEMBERS: usize = 128;
/// Most combinations that are looked at.
const MAX_COMBINATIONS: usize = 2_000_000;
/// More parts than there are: it cannot be.
const NEVER: u32 = u32::MAX / 2;

/// The fewest parts of one domain.
struct Table {
    /// By number of members: entered parts in the domain, [`NEVER`] if they do not fit.
    fewest: Vec<u32>,
    /// The parts of the domain; empty for a domain without inner domains, whose nodes need no
    /// table.
    parts: Vec<Part>,
    /// By part, then by number of members in it and the parts before it: its share.
    shares: Vec<Vec<u32>>,
}

impl Spread<'_> {
    /// Distributes `count` members over a domain by the shortest ring. False, with nothing placed,
    /// if that is too much work.
    pub(super) fn take_shortest(&mut self, domain: DomainId, count: u64) -> bool {
        let Ok(count) = usize::try_from(count) else { return false };
        if count > MAX_MEMBERS || !self.context.pins.is_empty() {
            return false;
        }
        let topology = self.context.topology;
        let levels = inside(topology, domain);
        let inner: usize = levels.iter().map(ExactSizeIterator::len).sum();
        let unpinned = topology.domain(domain).nodes.len();
        if (inner + count).saturating_mul(count).saturating_mul(count) + unpinned > MAX_COMBINATIONS
        {
            return false;
        }
        // Tables by id, from the tightest level up.
        let mut tables = BTreeMap::new();
        for ids in levels.iter().rev() {
            for id in ids.clone().map(DomainId) {
                let table = self.table(id, count, &tables);
                tables.insert(id, table);
            }
        }
        let best = tables.iter().min_by_key(|(id, table)| {
            let level = topology.domain(**id).level;
            let slots = self.context.slots.sums[id.0 as usize];
            (table.fewest[count], std::cmp::Reverse(level), slots, **id)
        });
        let Some((best, _)) = best.filter(|(_, table)| table.fewest[count] < NEVER) else {
            return false;
        };
        self.follow(*best, count, &tables);
        true
    }

    fn table(&self, domain: DomainId, most: usize, known: &BTreeMap<DomainId, Table>) -> Table {
        let topology = self.context.topology;
        let unpinned = topology.loose_nodes(domain).iter().map(|node| topology.position(*node));
        let nodes = unpinned.map(Part::Node).filter(|part| self.slots(*part) > 0);
        let mut fewest = vec![NEVER; most + 1];
        fewest[0] = 0;
        if topology.domain(domain).children.is_empty() {
            let entered = self.entered_by_node(domain);
            let mut free_slots: Vec<u64> = nodes.map(|part| self.slots(part)).collect();
            free_slots.sort_unstable_by(|a, b| b.cmp(a));
            let (mut held, mut parts) = (0, 0);
            for slots in free_slots {
                let more = usize::try_from(slots).unwrap_or(most).min(most - held);
                parts += entered;
                fewest[held + 1..=held + more].fill(parts);
                held += more;
            }
            return Table { fewest, parts: Vec::new(), shares: Vec::new() };
        }
        let children = topology.children(domain).map(Part::Domain);
        let parts: Vec<Part> = children.filter(|part| self.slots(*part) > 0).chain(nodes).collect();
        let mut shares = Vec::with_capacity(parts.len());
        for part in &parts {
            let options = self.options(domain, *part, most, known);
            let before = fewest.clone();
            let mut share = vec![0; most + 1];
            for (wanted, fewest) in fewest.iter_mut().enumerate().skip(1) {
                for (holds, cost) in &options {
                    let held = wanted.min(*holds);
                    let sum = before[wanted - held].saturating_add(*cost);
                    if sum < *fewest {
                        *fewest = sum;
                        share[wanted] = u32::try_from(held).unwrap_or(u32::MAX);
                    }
                }
            }
            shares.push(share);
        }
        Table { fewest, parts, shares }
    }

    /// Useful member counts of a part with the number of entered parts, itself included: the most
    /// members for each cost.
    fn options(
        &self,
        domain: DomainId,
        part: Part,
        most: usize,
        known: &BTreeMap<DomainId, Table>,
    ) -> Vec<(usize, u32)> {
        match part {
            Part::Node(_) => {
                let holds = usize::try_from(self.slots(part)).unwrap_or(most).min(most);
                vec![(holds, self.entered_by_node(domain))]
            }
            Part::Domain(child) => {
                let Some(table) = known.get(&child) else { return Vec::new() };
                let cost = |members: usize| table.fewest.get(members).copied().unwrap_or(NEVER);
                let last =
                    |members: &usize| cost(*members) < NEVER && cost(*members) < cost(members + 1);
                (1..=most).filter(last).map(|members| (members, cost(members) + 1)).collect()
            }
        }
    }

    /// The parts that a node counts for: itself, and one for each level below its domain that it
    /// skips.
    fn entered_by_node(&self, domain: DomainId) -> u32 {
        let topology = self.context.topology;
        let level = usize::from(topology.domain(domain).level.0);
        u32::try_from(topology.levels().len() - level).unwrap_or(1)
    }

    /// Places members according to a table.
    fn follow(&mut self, domain: DomainId, count: usize, tables: &BTreeMap<DomainId, Table>) {
        let topology = self.context.topology;
        let Some(table) = tables.get(&domain) else { return };
        if table.parts.is_empty() {
            let unpinned = topology.loose_nodes(domain).iter();
            let nodes = unpinned.map(|node| Part::Node(topology.position(*node))).collect();
            return self.take_parts(nodes, count as u64);
        }
        let mut left = count;
        for (part, shares) in table.parts.iter().zip(&table.shares).rev() {
            let share = shares[left] as usize;
            match part {
                _ if share == 0 => {}
                Part::Node(_) => self.take_part(*part, share as u64),
                Part::Domain(child) => self.follow(*child, share, tables),
            }
            left -= share;
        }
    }
}

/// Ids of a domain and of those in it, level by level.
pub(super) fn inside(topology: &Topology, domain: DomainId) -> Vec<Range<u32>> {
    let below = |ids: &Range<u32>| {
        let children = ids.clone().map(|id| topology.domain(DomainId(id)).children.clone());
        let filled: Vec<_> = children.filter(|children| !children.is_empty()).collect();
        Some(filled.first()?.start..filled.last()?.end)
    };
    std::iter::successors(Some(domain.0..domain.0 + 1), below).collect()
}
