//! What a request still needs of each group, when pinned members are where they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gang::{Gang, NodeLimit, Segment};
use crate::node::NodeId;
use crate::shape::Shape;
use crate::solve::Request;
use crate::solve::constraints::{GroupConstraints, LimitUsage};
use crate::topology::{DomainId, LevelId, Topology};

/// What is to be placed of one group.
#[derive(Clone, Debug)]
pub(crate) struct GroupDemand {
    /// Index of the group.
    pub(crate) group: u32,
    pub(crate) shape: Arc<Shape>,
    /// Ranks of segments of which a member is pinned: they must go where it is.
    pub(crate) pinned_segments: Vec<PinnedSegment>,
    /// The other ranks that are to be placed, ascending: whole segments, where there are segments.
    pub(crate) ranks: Vec<u32>,
    /// Members that must be placed at least: of runs and ranks together.
    pub(crate) min: u32,
    pub(crate) segment: Option<Segment>,
    pub(crate) required: Option<LevelId>,
    pub(crate) preferred: Option<LevelId>,
    /// Groups with the same number must be in one domain of the required level.
    pub(crate) colocation_id: Option<u32>,
    /// Where the group must be, because pinned members are there.
    pub(crate) allowed: AllowedDomain,
    /// Members that are pinned.
    pub(crate) pinned: u32,
    /// What else nodes must be like.
    pub(crate) constraints: GroupConstraints,
}

/// Ranks that must go where a pinned member of their segment is.
#[derive(Clone, Debug)]
pub(crate) struct PinnedSegment {
    /// Where; none: the pinned member is in no domain of the segments' level.
    pub(crate) domain: Option<DomainId>,
    pub(crate) ranks: Vec<u32>,
}

/// Where pinned members allow the others.
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
    /// The home of members that must be in one domain of a level with these.
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

    /// Whether another group must be in one domain of the required level with it.
    pub(crate) fn is_colocated_with(&self, other: &Self) -> bool {
        self.group != other.group
            && self.colocation_id.is_some()
            && self.colocation_id == other.colocation_id
    }

    /// Members of runs.
    pub(crate) fn segment_members(&self) -> u32 {
        self.pinned_segments.iter().map(|pinned_segment| len(&pinned_segment.ranks)).sum()
    }

    /// So many of `most` as make whole segments.
    pub(crate) fn whole(&self, most: u64) -> u32 {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.segment.map_or(most, |segment| most / segment.size * segment.size)
    }

    /// Members beyond the runs that must be placed at least, whichever of the runs are.
    pub(crate) fn min_unpinned(&self) -> u32 {
        self.unpinned_beside(self.segment_members()).min(len(&self.ranks))
    }

    /// Members beyond the runs that must be placed beside so many members of runs: whole segments,
    /// perhaps more than there are.
    pub(crate) fn unpinned_beside(&self, in_segments: u32) -> u32 {
        let min = self.min.saturating_sub(in_segments);
        let size = self.segment.map_or(1, |segment| segment.size);
        min.div_ceil(size).saturating_mul(size)
    }
}

/// What a request needs, by group.
pub(crate) fn demands(topology: &Topology, request: &Request<'_>) -> Vec<GroupDemand> {
    let pins: BTreeMap<u32, NodeId> =
        request.pinned.iter().map(|pinned| (pinned.rank, pinned.placement.node)).collect();
    let usage = usage(request);
    let by_number = colocated_pins(request.gang, &pins);
    let mut first = 0;
    let mut demands = Vec::new();
    for (number, group) in (0..).zip(&request.gang.groups) {
        let own = first..first + group.count;
        let pinned: Vec<NodeId> = pins.range(own.clone()).map(|(_, node)| *node).collect();
        let is_free = |rank: &u32| !pins.contains_key(rank);
        let (mut pinned_segments, mut ranks) = (Vec::new(), Vec::new());
        match group.segment {
            Some(segment) => {
                for start in own.clone().step_by(segment.size as usize) {
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
            None if pinned.is_empty() => ranks.extend(own.clone()),
            None => ranks.extend(own.clone().filter(is_free)),
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
        first = own.end;
    }
    demands
}

/// Nodes of pinned members of groups that must lie together, by their number.
fn colocated_pins(gang: &Gang, pins: &BTreeMap<u32, NodeId>) -> BTreeMap<u32, Vec<NodeId>> {
    let mut by_number: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    let mut first = 0_u32;
    for group in &gang.groups {
        let own = first..first.saturating_add(group.count);
        first = own.end;
        if let Some(number) = group.colocation_id {
            by_number.entry(number).or_default().extend(pins.range(own).map(|(_, node)| *node));
        }
    }
    by_number
}

/// Pinned members by limit. One of a rank that the gang has not may be of any group.
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
