//! A gang: pods that are placed all together or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::node::NodeId;
use crate::shape::Shape;
use crate::topology::LevelId;
use crate::workload::{Profile, TopologyConstraint};

/// Most members of one gang.
pub const MAX_MEMBERS: u32 = 100_000;

/// Pods to place together. A single pod is a gang of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang {
    /// Scheduling attributes. Their topology constraint applies to all groups together.
    pub profile: Profile,
    /// Groups in rank order: the first rank of a group follows the last rank of the previous group.
    pub groups: Vec<Group>,
}

/// Members of a gang that ask for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name, unique in the gang.
    pub name: Arc<str>,
    /// The request of each member.
    pub shape: Arc<Shape>,
    /// How many members there are to be.
    pub count: u32,
    /// The minimum number of members; with fewer the gang is not placed. Members above it are
    /// placed as far as they fit.
    pub min: u32,
    /// The topology constraint of the group, within the domain of the gang.
    pub topology: TopologyConstraint,
    /// Groups with the same number share one domain of their required level, which must be equal in
    /// all of them. They are members of one subgroup with different requests.
    pub colocation_id: Option<u32>,
    /// Segments: members that must share a domain in equal chunks.
    pub segment: Option<Segment>,
    /// Nodes on which no member of this group is placed.
    pub forbidden: BTreeSet<NodeId>,
    /// How many members one node may have.
    pub limits: Vec<NodeLimit>,
    /// Points of preferences that a member misses on a node; 0 on nodes that are not listed.
    pub penalties: Arc<BTreeMap<NodeId, u32>>,
}

/// The maximum number of members on one node, over all groups that name the same limit. An example
/// is a host port, which a node has once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeLimit {
    /// Number of the limit in the gang; groups with the same number share it.
    pub over: u32,
    /// Members at most; the same in all groups that share it.
    pub most: u32,
}

/// Each `size` consecutive ranks of a group lie in one domain of a level, as in Slurm's block
/// topology and Kueue's podset slices. An example is tensor-parallel members in one NVLink clique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// Members of a segment; divides the group's counts.
    pub size: u32,
    /// The level.
    pub level: LevelId,
}

/// Why a gang makes no sense, whatever the cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GangError {
    /// No groups, or a group without members.
    #[error("gang {gang:?} has no members{}", .group.as_ref().map_or(String::new(), |group| format!(" in group {group:?}")))]
    Empty {
        /// The gang.
        gang: Arc<str>,
        /// The group; none: there is no group.
        group: Option<Arc<str>>,
    },
    /// Two groups of one name.
    #[error("gang {gang:?} has two groups named {group:?}")]
    DuplicateGroup {
        /// The gang.
        gang: Arc<str>,
        /// The name.
        group: Arc<str>,
    },
    /// More wanted at least than there are.
    #[error(
        "gang {gang:?}, group {group:?}: at least {min} members are wanted, but it has {count}"
    )]
    MinAboveCount {
        /// The gang.
        gang: Arc<str>,
        /// The group.
        group: Arc<str>,
        /// Members wanted at least.
        min: u32,
        /// Members.
        count: u32,
    },
    /// Too many members.
    #[error("gang {gang:?} has {count} members; at most {MAX_MEMBERS} are possible")]
    TooMany {
        /// The gang.
        gang: Arc<str>,
        /// Members.
        count: u64,
    },
    /// Segments that do not divide the group.
    #[error(
        "gang {gang:?}, group {group:?}: segments of {size} members do not divide {count} members \
         (at least {min})"
    )]
    UnevenSegments {
        /// The gang.
        gang: Arc<str>,
        /// The group.
        group: Arc<str>,
        /// Members of a segment.
        size: u32,
        /// Members wanted at least.
        min: u32,
        /// Members.
        count: u32,
    },
    /// Two groups with different values for one limit.
    #[error(
        "gang {gang:?}, group {group:?}: at most {most} members of limit {over} may be on one node, \
         but another group allows {other}"
    )]
    UnevenLimits {
        /// The gang.
        gang: Arc<str>,
        /// The second of the groups.
        group: Arc<str>,
        /// The limit.
        over: u32,
        /// The value of this group.
        most: u32,
        /// The value of another group.
        other: u32,
    },
    /// Colocated groups without a common required level.
    #[error("gang {gang:?}, group {group:?}: colocated groups need the same required level")]
    UnevenColocation {
        /// The gang.
        gang: Arc<str>,
        /// The first group with a different level or without one.
        group: Arc<str>,
    },
    /// A required level that is tighter than the preferred one.
    #[error("{whose}: the preferred level must be the required one or a tighter one")]
    PreferredAboveRequired {
        /// Gang or group.
        whose: String,
    },
    /// A level that the topology has not.
    #[error("{whose}: the topology has no level number {}", level.0)]
    UnknownLevel {
        /// Gang or group.
        whose: String,
        /// The level.
        level: LevelId,
    },
}

impl Gang {
    /// A gang of one group without constraints.
    pub fn new(name: impl Into<Arc<str>>, shape: Shape, count: u32) -> Self {
        let group = Group::new("members", Arc::new(shape), count);
        Self { profile: Profile::new(name), groups: vec![group] }
    }

    /// Members of all groups.
    pub fn count(&self) -> u32 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.count))
    }

    /// Members without which the gang is not placed.
    pub fn min(&self) -> u32 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.min))
    }

    /// Whether the gang makes sense in a topology of `levels` levels.
    pub fn check(&self, levels: usize) -> Result<(), GangError> {
        let gang = || Arc::clone(&self.profile.name);
        if self.groups.is_empty() {
            return Err(GangError::Empty { gang: gang(), group: None });
        }
        let count = self.groups.iter().map(|group| u64::from(group.count)).sum();
        if count > u64::from(MAX_MEMBERS) {
            return Err(GangError::TooMany { gang: gang(), count });
        }
        check_wish(self.profile.topology, levels, || format!("gang {:?}", self.profile.name))?;
        let mut names = BTreeSet::new();
        let mut limits: BTreeMap<u32, u32> = BTreeMap::new();
        let mut colocation_levels: BTreeMap<u32, Option<LevelId>> = BTreeMap::new();
        for group in &self.groups {
            let &Group { count, min, .. } = group;
            let name = || Arc::clone(&group.name);
            if count == 0 {
                return Err(GangError::Empty { gang: gang(), group: Some(name()) });
            }
            if !names.insert(&group.name) {
                return Err(GangError::DuplicateGroup { gang: gang(), group: name() });
            }
            if min > count {
                let (gang, group) = (gang(), name());
                return Err(GangError::MinAboveCount { gang, group, min, count });
            }
            for &NodeLimit { over, most } in &group.limits {
                let other = *limits.entry(over).or_insert(most);
                if other != most {
                    let (gang, group) = (gang(), name());
                    return Err(GangError::UnevenLimits { gang, group, over, most, other });
                }
            }
            if let Some(number) = group.colocation_id {
                let level = group.topology.required;
                if level.is_none() || *colocation_levels.entry(number).or_insert(level) != level {
                    return Err(GangError::UnevenColocation { gang: gang(), group: name() });
                }
            }
            let whose = || format!("gang {:?}, group {:?}", self.profile.name, group.name);
            check_wish(group.topology, levels, whose)?;
            if let Some(Segment { size, level }) = group.segment {
                if usize::from(level.0) >= levels {
                    return Err(GangError::UnknownLevel { whose: whose(), level });
                }
                if size == 0 || count % size != 0 || min % size != 0 {
                    let (gang, group) = (gang(), name());
                    return Err(GangError::UnevenSegments { gang, group, size, min, count });
                }
            }
        }
        Ok(())
    }
}

impl Group {
    /// A group that needs all its members, without constraints.
    pub fn new(name: impl Into<Arc<str>>, shape: Arc<Shape>, count: u32) -> Self {
        Self {
            name: name.into(),
            shape,
            count,
            min: count,
            topology: TopologyConstraint::default(),
            colocation_id: None,
            segment: None,
            forbidden: BTreeSet::new(),
            limits: Vec::new(),
            penalties: Arc::default(),
        }
    }

    /// Points of preferences that a member misses on a node.
    pub fn penalty(&self, node: NodeId) -> u32 {
        self.penalties.get(&node).copied().unwrap_or(0)
    }
}

fn check_wish(
    wish: TopologyConstraint,
    levels: usize,
    whose: impl Fn() -> String,
) -> Result<(), GangError> {
    for level in [wish.required, wish.preferred].into_iter().flatten() {
        if usize::from(level.0) >= levels {
            return Err(GangError::UnknownLevel { whose: whose(), level });
        }
    }
    match (wish.required, wish.preferred) {
        (Some(required), Some(preferred)) if preferred < required => {
            Err(GangError::PreferredAboveRequired { whose: whose() })
        }
        _ => Ok(()),
    }
}
