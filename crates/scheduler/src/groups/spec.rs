//! The spec of a group.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use octavo_engine::gang::{MAX_MEMBERS, Segment};
use octavo_engine::topology::LevelId;
use octavo_engine::workload::TopologyConstraint;
use octavo_kube_io::objects::{Kind, ObjectName};

use super::error::GroupError;
use super::name::GroupName;
use super::placement_hints::PlacementHints;

/// The object that announced a group, for its status and events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcer {
    /// `apiVersion` and kind.
    pub kind: Kind,
    /// Namespace and name.
    pub name: ObjectName,
    /// UID; empty if pods declare the group themselves.
    pub uid: Arc<str>,
    /// `metadata.generation` that was read.
    pub generation: i64,
}

/// The spec of a group. Topology levels are named as in the object: see
/// [`GroupSpec::resolve_topology`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Its name, for all parts.
    pub name: GroupName,
    /// What announced it.
    pub announcer: Announcer,
    /// Least number of members to place: the sum of its subgroups' minimums.
    pub min: u32,
    /// Its subgroups in the order of their ranks; at least one.
    pub subs: Vec<Subgroup>,
    /// Level whose domain must contain all members: the level's name or its node label.
    pub required: Option<Arc<str>>,
    /// Level whose domain should contain all members.
    pub preferred: Option<Arc<str>>,
    /// The `PlacementPolicy` that it names.
    pub policy: Option<Arc<str>>,
    /// Priority of the whole group; `None`: that of its pods.
    pub priority: Option<i32>,
    /// Whether it may be preempted.
    pub is_preemptible: bool,
    /// Whether its members may be restarted on other nodes.
    pub is_movable: bool,
    /// Whether it is disrupted as a whole or not at all, members above the minimum included.
    pub is_whole: bool,
    /// Seconds of work of all members that are lost when one is disrupted.
    pub seconds_at_risk: u32,
}

/// A subgroup: members of one template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subgroup {
    /// Its name; `members` if the group has only one.
    pub name: Arc<str>,
    /// Least number of members.
    pub min: u32,
    /// Number of members; `None`: as many as exist.
    pub count: Option<u32>,
    /// Whether its pods are created only after others of the group run or have ended. The group
    /// starts without them, and they are placed together once one of them exists.
    pub is_late: bool,
    /// Level whose domain must contain its members.
    pub required: Option<Arc<str>>,
    /// Level whose domain should contain its members.
    pub preferred: Option<Arc<str>>,
    /// Segments of consecutive ranks that must be placed together.
    pub segment: Option<SegmentTopology>,
}

/// Segments of consecutive ranks that must be placed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentTopology {
    /// Members of a segment.
    pub size: u32,
    /// Level whose domain must contain each segment.
    pub level: Arc<str>,
}

/// Topology constraints in the engine's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyRequests {
    /// Of the group.
    pub group: TopologyConstraint,
    /// Of its subgroups, in their order.
    pub subs: Vec<(TopologyConstraint, Option<Segment>)>,
}

/// How many members a subgroup lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingMembers {
    /// The subgroup.
    pub sub: Arc<str>,
    /// Existing members, including those that have succeeded.
    pub have: u32,
    /// Least number of members.
    pub min: u32,
}

/// Name of the only subgroup of a group without subgroups.
pub const DEFAULT_SUBGROUP: &str = "members";

impl Subgroup {
    /// The only subgroup of a group, without a name of its own.
    pub(super) fn only(min: u32) -> Self {
        Self { name: DEFAULT_SUBGROUP.into(), min, ..Self::default() }
    }

    /// A subgroup of exactly `count` members, all required.
    pub(super) fn fixed(name: &str, count: u32) -> Self {
        Self { name: name.into(), min: count, count: Some(count), ..Self::default() }
    }

    /// Adds the topology hints of a pod template.
    pub(super) fn with(mut self, hints: &PlacementHints) -> Self {
        self.required.clone_from(&hints.required);
        self.preferred.clone_from(&hints.preferred);
        self
    }
}

impl GroupSpec {
    /// A group without subgroups yet, with defaults.
    pub(super) fn new(name: GroupName, announcer: Announcer) -> Self {
        Self {
            name,
            announcer,
            min: 0,
            subs: Vec::new(),
            required: None,
            preferred: None,
            policy: None,
            priority: None,
            is_preemptible: true,
            // Without a hint its pods may run something that cannot be restarted.
            is_movable: false,
            is_whole: false,
            seconds_at_risk: 0,
        }
    }

    /// Completes the spec with hints of labels and annotations, and validates it. Values that are
    /// set already stay. Subgroups without members are left out.
    pub(super) fn finish(mut self, hints: PlacementHints) -> Result<Self, GroupError> {
        self.subs.retain(|sub| sub.count != Some(0));
        self.min = self.subs.iter().fold(0, |sum: u32, sub| sum.saturating_add(sub.min));
        self.required = self.required.or(hints.required);
        self.preferred = self.preferred.or(hints.preferred);
        self.policy = self.policy.or(hints.policy);
        self.is_movable = hints.is_movable.unwrap_or(self.is_movable);
        self.seconds_at_risk = hints.seconds_at_risk.unwrap_or(self.seconds_at_risk);
        self.checked()
    }

    /// Validates the spec by itself.
    fn checked(self) -> Result<Self, GroupError> {
        let group = &self.name;
        let count: u64 =
            self.subs.iter().map(|sub| u64::from(sub.count.unwrap_or(sub.min).max(sub.min))).sum();
        if count > u64::from(MAX_MEMBERS) {
            let message =
                format!("{group} has {count} members, but at most {MAX_MEMBERS} are possible");
            return Err(GroupError::new("PodGroupTooLarge", message));
        }
        if self.subs.is_empty() {
            return Err(GroupError::invalid(format!(
                "{group} has no members; ask for at least one"
            )));
        }
        let mut names = BTreeSet::new();
        for Subgroup { name, min, count, segment, .. } in &self.subs {
            if !names.insert(name) {
                return Err(GroupError::invalid(format!(
                    "{group} has two subgroups named {name:?}; name them differently"
                )));
            }
            if let Some(count) = count.filter(|count| count < min) {
                return Err(min_above_count(group, *min, count.into()));
            }
            if let Some(SegmentTopology { size, .. }) = segment
                && (*size == 0 || min % size != 0)
            {
                return Err(GroupError::invalid(format!(
                    "{group}, subgroup {name:?}: segments of {size} members do not divide {min} \
                     members; choose a size that does"
                )));
            }
        }
        Ok(self)
    }

    /// A subgroup by name.
    pub fn sub(&self, name: &str) -> Option<&Subgroup> {
        self.subs.iter().find(|sub| &*sub.name == name)
    }

    /// Names of its subgroups, joined.
    pub(super) fn sub_names(&self) -> String {
        let names: Vec<_> = self.subs.iter().map(|sub| &*sub.name).collect();
        names.join(", ")
    }

    /// What is missing before it can be placed; empty if nothing is. `have` counts a subgroup's
    /// members that are [`super::MemberState::Present`] or [`super::MemberState::Done`]. A late
    /// subgroup without members is not waited for. Once it has one, its minimum counts.
    pub fn missing(&self, have: impl Fn(&str) -> u32) -> Vec<MissingMembers> {
        let mut missing = Vec::new();
        let mut all = 0_u64;
        for sub in &self.subs {
            let have = have(&sub.name);
            all += u64::from(have);
            if have < sub.min && !(sub.is_late && have == 0) {
                missing.push(MissingMembers { sub: Arc::clone(&sub.name), have, min: sub.min });
            }
        }
        // A group with only late subgroups, or without any minimum, needs at least one member.
        if all == 0
            && missing.is_empty()
            && let Some(sub) = self.subs.first()
        {
            missing.push(MissingMembers {
                sub: Arc::clone(&sub.name),
                have: 0,
                min: sub.min.max(1),
            });
        }
        missing
    }

    /// Its topology constraints in the engine's terms. `find` looks a level up by its name or node
    /// label; `known` lists the levels for error messages.
    pub fn resolve_topology(
        &self,
        find: impl Fn(&str) -> Option<LevelId>,
        known: &str,
    ) -> Result<TopologyRequests, GroupError> {
        let level = |name: &Option<Arc<str>>, field: &dyn Fn() -> String| match name {
            None => Ok(None),
            Some(name) => find(name).map(Some).ok_or_else(|| {
                let (group, field) = (&self.name, field());
                let message = format!(
                    "{group}: {field} names the topology level {name:?}, which does not exist; \
                     existing levels: {known}"
                );
                GroupError::new("TopologyLevelNotFound", message)
            }),
        };
        let group = TopologyConstraint {
            required: level(&self.required, &|| "the required topology".to_owned())?,
            preferred: level(&self.preferred, &|| "the preferred topology".to_owned())?,
        };
        let mut subs = Vec::with_capacity(self.subs.len());
        for sub in &self.subs {
            let of = |what: &str| format!("{what} of subgroup {:?}", sub.name);
            let wish = TopologyConstraint {
                required: level(&sub.required, &|| of("the required topology"))?,
                preferred: level(&sub.preferred, &|| of("the preferred topology"))?,
            };
            let segment = match &sub.segment {
                None => None,
                Some(segment) => level(&Some(Arc::clone(&segment.level)), &|| of("the segment"))?
                    .map(|level| Segment { size: segment.size, level }),
            };
            subs.push((wish, segment));
        }
        Ok(TopologyRequests { group, subs })
    }
}

/// The error of a minimum above the number of members.
pub(super) fn min_above_count(group: impl Display, min: u32, count: u64) -> GroupError {
    GroupError::invalid(format!(
        "{group} needs at least {min} members, but will have only {count}; lower the minimum"
    ))
}

/// Lowers the subgroups' minimums to a total of `min`, the last ones first, because workers follow
/// their leaders.
pub(super) fn lower_minimums(subs: &mut [Subgroup], min: u32) {
    let sum: u64 = subs.iter().map(|sub| u64::from(sub.min)).sum();
    let mut over = sum.saturating_sub(min.into());
    for sub in subs.iter_mut().rev() {
        let less = u32::try_from(over).unwrap_or(u32::MAX).min(sub.min);
        sub.min -= less;
        over -= u64::from(less);
    }
}
