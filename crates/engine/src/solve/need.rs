//! What a request still needs of each group, when pinned members are where they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gang::{Gang, NodeLimit, Segment};
use crate::node::NodeId;
use crate::shape::Shape;
use crate::solve::Request;
use crate::solve::rules::{Rules, Seated};
use crate::topology::{DomainId, LevelId, Topology};

/// What is to be placed of one group.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// Index of the group.
    pub(crate) group: u32,
    pub(crate) shape: Arc<Shape>,
    /// Ranks of segments of which a member is pinned: they must go where it is.
    pub(crate) runs: Vec<Run>,
    /// The other ranks that are to be placed, ascending: whole segments, where there are segments.
    pub(crate) ranks: Vec<u32>,
    /// Members that must be placed at least: of runs and ranks together.
    pub(crate) min: u32,
    pub(crate) segment: Option<Segment>,
    pub(crate) required: Option<LevelId>,
    pub(crate) preferred: Option<LevelId>,
    /// Groups with the same number must be in one domain of the required level.
    pub(crate) together: Option<u32>,
    /// Where the group must be, because pinned members are there.
    pub(crate) home: Home,
    /// Members that are pinned.
    pub(crate) pinned: u32,
    /// What else nodes must be like.
    pub(crate) rules: Rules,
}

/// Ranks that must go where a pinned member of their segment is.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Where; none: the pinned member is in no domain of the segments' level.
    pub(crate) domain: Option<DomainId>,
    pub(crate) ranks: Vec<u32>,
}

/// Where pinned members allow the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Wherever the request allows.
    Anywhere,
    /// In this domain.
    Within(DomainId),
    /// Nowhere: the pinned members are apart already.
    Nowhere,
}

impl Home {
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

impl Need {
    /// Members that are to be placed.
    pub(crate) fn count(&self) -> u32 {
        self.runs.iter().fold(len(&self.ranks), |sum, run| sum + len(&run.ranks))
    }

    /// Whether another group must be in one domain of the required level with it.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.group != other.group && self.together.is_some() && self.together == other.together
    }

    /// Members of runs.
    pub(crate) fn run_count(&self) -> u32 {
        self.runs.iter().map(|run| len(&run.ranks)).sum()
    }

    /// So many of `most` as make whole segments.
    pub(crate) fn whole(&self, most: u64) -> u32 {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.segment.map_or(most, |segment| most / segment.size * segment.size)
    }

    /// Members beyond the runs that must be placed at least, whichever of the runs are.
    pub(crate) fn loose_min(&self) -> u32 {
        self.loose_beside(self.run_count()).min(len(&self.ranks))
    }

    /// Members beyond the runs that must be placed beside so many members of runs: whole segments,
    /// perhaps more than there are.
    pub(crate) fn loose_beside(&self, in_runs: u32) -> u32 {
        let min = self.min.saturating_sub(in_runs);
        let size = self.segment.map_or(1, |segment| segment.size);
        min.div_ceil(size).saturating_mul(size)
    }
}

/// What a request needs, by group.
pub(crate) fn needs(topology: &Topology, request: &Request<'_>) -> Vec<Need> {
    let pins: BTreeMap<u32, NodeId> =
        request.pinned.iter().map(|pinned| (pinned.rank, pinned.placement.node)).collect();
    let seated = seated(request);
    let by_number = pins_together(request.gang, &pins);
    let mut first = 0;
    let mut needs = Vec::new();
    for (number, group) in (0..).zip(&request.gang.groups) {
        let own = first..first + group.count;
        let pinned: Vec<NodeId> = pins.range(own.clone()).map(|(_, node)| *node).collect();
        let is_free = |rank: &u32| !pins.contains_key(rank);
        let (mut runs, mut ranks) = (Vec::new(), Vec::new());
        match group.segment {
            Some(segment) => {
                for start in own.clone().step_by(segment.size as usize) {
                    let ids = start..start + segment.size;
                    let free = ids.clone().filter(is_free);
                    match pins.range(ids).next() {
                        Some((_, pin)) => {
                            let domain = topology.domain_of(*pin, segment.level);
                            runs.push(Run { domain, ranks: free.collect() });
                        }
                        None => ranks.extend(free),
                    }
                }
                runs.retain(|run| !run.ranks.is_empty());
            }
            None if pinned.is_empty() => ranks.extend(own.clone()),
            None => ranks.extend(own.clone().filter(is_free)),
        }
        let count = len(&pinned);
        let of_all = group.together.and_then(|number| by_number.get(&number));
        needs.push(Need {
            group: number,
            shape: Arc::clone(&group.shape),
            runs,
            ranks,
            min: group.min.saturating_sub(count),
            segment: group.segment,
            required: group.topology.required,
            preferred: group.topology.preferred,
            together: group.together,
            home: Home::of(topology, group.topology.required, of_all.unwrap_or(&pinned)),
            pinned: count,
            rules: Rules::of(group, &seated),
        });
        first = own.end;
    }
    needs
}

/// Nodes of pinned members of groups that must lie together, by their number.
fn pins_together(gang: &Gang, pins: &BTreeMap<u32, NodeId>) -> BTreeMap<u32, Vec<NodeId>> {
    let mut by_number: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    let mut first = 0_u32;
    for group in &gang.groups {
        let own = first..first.saturating_add(group.count);
        first = own.end;
        if let Some(number) = group.together {
            by_number.entry(number).or_default().extend(pins.range(own).map(|(_, node)| *node));
        }
    }
    by_number
}

/// Pinned members by limit. One of a rank that the gang has not may be of any group.
fn seated(request: &Request<'_>) -> Seated {
    let mut seated = Seated::default();
    let groups = &request.gang.groups;
    if groups.iter().all(|group| group.limits.is_empty()) {
        return seated;
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
            seated.add(&group.limits, node, 1);
        } else {
            let all = groups.iter().flat_map(|group| &group.limits);
            let all: BTreeSet<NodeLimit> = all.copied().collect();
            seated.add(&Vec::from_iter(all), node, 1);
        }
    }
    seated
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
