//! The residual demand of a request: what each group still needs beside its pinned members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gang::{Gang, NodeLimit, Segment};
use crate::node::NodeId;
use crate::shape::Shape;
use crate::solve::Request;
use crate::solve::constraints::{GroupConstraints, LimitUsage};
use crate::topology::{DomainId, LevelId, Topology};

/// The remaining demand of one group.
#[derive(Clone, Debug)]
pub(crate) struct GroupDemand {
    /// Index of the group.
    pub(crate) group: u32,
    pub(crate) shape: Arc<Shape>,
    /// Ranks of segments with a pinned member: they must go to its domain.
    pub(crate) pinned_segments: Vec<PinnedSegment>,
    /// The other ranks to place, ascending: whole segments, if there are segments.
    pub(crate) ranks: Vec<u32>,
    /// The minimum number of members to place, in pinned segments and others.
    pub(crate) min: u32,
    pub(crate) segment: Option<Segment>,
    pub(crate) required: Option<LevelId>,
    pub(crate) preferred: Option<LevelId>,
    /// Groups with the same number must share one domain of the required level.
    pub(crate) colocation_id: Option<u32>,
    /// The domain that pinned members impose on the group.
    pub(crate) allowed: AllowedDomain,
    /// Members that are pinned.
    pub(crate) pinned: u32,
    /// Constraints on its nodes.
    pub(crate) constraints: GroupConstraints,
}

/// Ranks that must go where a pinned member of their segment is.
#[derive(Clone, Debug)]
pub(crate) struct PinnedSegment {
    /// The domain; none: the pinned member is in no domain of the segments' level.
    pub(crate) domain: Option<DomainId>,
    pub(crate) ranks: Vec<u32>,
}

/// The domain that pinned members allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllowedDomain {
    /// Wherever the request allows.
    Anywhere,
    /// In this domain.
    Within(DomainId),
    /// Nowhere: the pinned members are apart already.
    Nowhere,
}

impl AllowedDomain {
    /// The domain allowed to members that must share a domain of a level with these pins.
    pub(crate) fn of(topology: &Topology, level: Option<LevelId>, pins: &[NodeId]) -> Self {
        let (Some(level), Some((first, others))) = (level, pins.split_first()) else {
            return Self::Anywhere;
        };
        match topology.domain_of(*first, level) {
            Some(domain) if others.iter().all(|pin| contains(topology, domain, *pin)) => {
                Self::Within(domain)
            }
            _ => Self::Nowhere,
        }
    }
}

impl GroupDemand {
    /// Members that are to be placed.
    pub(crate) fn count(&self) -> u32 {
        self.pinned_segments
            .iter()
            .fold(len(&self.ranks), |sum, pinned_segment| sum + len(&pinned_segment.ranks))
    }

    /// Whether another group must share a domain of the required level.
    pub(crate) fn is_colocated_with(&self, other: &Self) -> bool {
        self.group != other.group
            && self.colocation_id.is_some()
            && self.colocation_id == other.colocation_id
    }

    /// Members of runs.
    pub(crate) fn segment_members(&self) -> u32 {
        self.pinned_segments.iter().map(|pinned_segment| len(&pinned_segment.ranks)).sum()
    }

    /// `most`, rounded down to whole segments.
    pub(crate) fn whole(&self, most: u64) -> u32 {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.segment.map_or(most, |segment| most / segment.size * segment.size)
    }

    /// The minimum number of members outside pinned segments, whichever of these segments are
    /// placed.
    pub(crate) fn min_unpinned(&self) -> u32 {
        self.unpinned_beside(self.segment_members()).min(len(&self.ranks))
    }

    /// The minimum number of members outside pinned segments, beside `in_segments` members in them.
    /// Rounded up to whole segments, possibly beyond the available ones.
    pub(crate) fn unpinned_beside(&self, in_segments: u32) -> u32 {
        let min = self.min.saturating_sub(in_segments);
        let size = self.segment.map_or(1, |segment| segment.size);
        min.div_ceil(size).saturating_mul(size)
    }
}

/// The demands of a request, by group.
pub(crate) fn demands(topology: &Topology, request: &Request<'_>) -> Vec<GroupDemand> {
    let pins: BTreeMap<u32, NodeId> =
        request.pinned.iter().map(|pinned| (pinned.rank, pinned.placement.node)).collect();
    let usage = usage(request);
    let by_number = colocated_pins(request.gang, &pins);
    let mut first = 0;
    let mut demands = Vec::new();
    for (number, group) in (0..).zip(&request.gang.groups) {
        let rank_range = first..first + group.count;
        let pinned: Vec<NodeId> = pins.range(rank_range.clone()).map(|(_, node)| *node).collect();
        let is_free = |rank: &u32| !pins.contains_key(rank);
        let (mut pinned_segments, mut ranks) = (Vec::new(), Vec::new());
        match group.segment {
            Some(segment) => {
                for start in rank_range.clone().step_by(segment.size as usize) {
                    let ids = start..start + segment.size;
                    let free = ids.clone().filter(is_free);
                    match pins.range(ids).next() {
                        Some((_, pin)) => {
                            let domain = topology.domain_of(*pin, segment.level);
                            pinned_segments.push(PinnedSegment { domain, ranks: free.collect() });
                        }
                        None => ranks.extend(free),
                    }
                }
                pinned_segments.retain(|pinned_segment| !pinned_segment.ranks.is_empty());
            }
            None if pinned.is_empty() => ranks.extend(rank_range.clone()),
            None => ranks.extend(rank_range.clone().filter(is_free)),
        }
        let count = len(&pinned);
        let of_all = group.colocation_id.and_then(|number| by_number.get(&number));
        demands.push(GroupDemand {
            group: number,
            shape: Arc::clone(&group.shape),
            pinned_segments,
            ranks,
            min: group.min.saturating_sub(count),
            segment: group.segment,
            required: group.topology.required,
            preferred: group.topology.preferred,
            colocation_id: group.colocation_id,
            allowed: AllowedDomain::of(
                topology,
                group.topology.required,
                of_all.unwrap_or(&pinned),
            ),
            pinned: count,
            constraints: GroupConstraints::of(group, &usage),
        });
        first = rank_range.end;
    }
    demands
}

/// Nodes of pinned members of colocated groups, by colocation.
fn colocated_pins(gang: &Gang, pins: &BTreeMap<u32, NodeId>) -> BTreeMap<u32, Vec<NodeId>> {
    let mut by_number: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    let mut first = 0_u32;
    for group in &gang.groups {
        let rank_range = first..first.saturating_add(group.count);
        first = rank_range.end;
        if let Some(number) = group.colocation_id {
            by_number
                .entry(number)
                .or_default()
                .extend(pins.range(rank_range).map(|(_, node)| *node));
        }
    }
    by_number
}

/// Pinned members by limit. One with a rank beyond the gang may belong to any group, so it counts
/// for all limits.
fn usage(request: &Request<'_>) -> LimitUsage {
    let mut usage = LimitUsage::default();
    let groups = &request.gang.groups;
    if groups.iter().all(|group| group.limits.is_empty()) {
        return usage;
    }
    let pins: BTreeMap<u32, NodeId> =
        request.pinned.iter().map(|pinned| (pinned.rank, pinned.placement.node)).collect();
    for (rank, node) in pins {
        let mut end = 0_u32;
        let group = groups.iter().find(|group| {
            end = end.saturating_add(group.count);
            rank < end
        });
        if let Some(group) = group {
            usage.add(&group.limits, node, 1);
        } else {
            let all = groups.iter().flat_map(|group| &group.limits);
            let all: BTreeSet<NodeLimit> = all.copied().collect();
            usage.add(&Vec::from_iter(all), node, 1);
        }
    }
    usage
}

/// Whether a node is in a domain.
pub(crate) fn contains(topology: &Topology, domain: DomainId, node: NodeId) -> bool {
    topology.domain(domain).nodes.contains(&topology.position(node))
}

/// Whether one domain is within another, or the same.
pub(crate) fn is_within(topology: &Topology, inner: DomainId, outer: DomainId) -> bool {
    topology.ancestors(inner).any(|domain| domain == outer)
}

fn len<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}
