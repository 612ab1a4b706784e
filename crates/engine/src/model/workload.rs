//! Running workloads, their members and placements.

mod eviction_limits;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gang::{Gang, Group};
use crate::node::NodeId;
use crate::placement::Placement;
use crate::shape::Shape;
use crate::topology::LevelId;

pub use eviction_limits::{EvictionLimits, LimitId};

/// Index of a workload; not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadId(pub u32);

/// One member of one workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// The workload.
    pub workload: WorkloadId,
    /// Index in its members.
    pub member: u32,
}

/// Levels within which members must, or should, be together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologyConstraint {
    /// All members in one domain of this level, or none at all.
    pub required: Option<LevelId>,
    /// All members in one domain of this level if possible, else in one of the next looser level.
    pub preferred: Option<LevelId>,
}

/// Scheduling attributes of a workload, running or waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name, unique in the cluster (namespace and name in Kubernetes).
    pub name: Arc<str>,
    /// Tenant for accounting.
    pub tenant: Arc<str>,
    /// Priority: a higher priority may preempt a lower one.
    pub priority: i32,
    /// Whether it may be evicted for others at all.
    pub is_preemptible: bool,
    /// Whether its members may be moved: restarted elsewhere.
    pub is_movable: bool,
    /// Seconds of work that all members lose when one member fails or is disrupted: the average
    /// time since the last checkpoint, plus the restart.
    pub seconds_at_risk: u32,
    /// Topology constraint of all members.
    pub topology: TopologyConstraint,
}

/// A workload that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Scheduling attributes.
    pub profile: Profile,
    /// The gang size: with fewer members the workload is useless. 1 or less: each member is useful
    /// alone.
    pub min_members: u32,
    /// Further coupling of its members.
    pub coupling: Coupling,
    /// Its members by rank; none where one is missing.
    pub members: Vec<Option<Member>>,
}

/// How the groups of a gang couple its running members. The groups themselves are not kept. By
/// default only the profile and the minimum couple members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coupling {
    /// Whether the workload is evicted whole or not at all. With several groups, or with segments,
    /// the members above the minimum are unknown.
    pub is_whole: bool,
    /// Whether no member can be moved alone: groups or segments require domains tighter than the
    /// one of the profile.
    pub is_fixed: bool,
}

/// A member that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The request.
    pub shape: Arc<Shape>,
    /// The placement.
    pub placement: Placement,
    /// The limit that its eviction counts against, and a move likewise; none: it is not limited.
    pub limit: Option<LimitId>,
}

/// All workloads that run, by id, name and node.
#[derive(Clone, Debug, Default)]
pub struct Workloads {
    list: BTreeMap<WorkloadId, Workload>,
    /// The id of the next one: ids are not used again.
    next: u32,
    ids: BTreeMap<Arc<str>, WorkloadId>,
    on_node: BTreeMap<NodeId, BTreeSet<MemberId>>,
    /// Limits that members name.
    pub eviction_limits: EvictionLimits,
    totals: Totals,
}

/// Sums over all workloads and members. Each that comes or goes changes them by what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Totals {
    /// Preemptible workloads of each priority.
    preemptible: BTreeMap<i32, u32>,
    /// Movable workloads.
    movable: u32,
    /// Compute of each tenant in thousandths of a GPU, and its members.
    tenants: BTreeMap<Arc<str>, (i64, u32)>,
    /// Members of each shape.
    shapes: BTreeMap<Arc<Shape>, u32>,
}

impl Profile {
    /// Default attributes: priority 0, preemptible, movable, nothing at risk.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            tenant: "default".into(),
            priority: 0,
            is_preemptible: true,
            is_movable: true,
            seconds_at_risk: 0,
            topology: TopologyConstraint::default(),
        }
    }
}

impl Coupling {
    /// The coupling that the groups of a gang imply.
    pub fn of(gang: &Gang) -> Self {
        let required = gang.profile.topology.required.unwrap_or_default();
        let is_segmented = |group: &Group| group.segment.is_some_and(|segment| segment.size > 1);
        let is_tight = |group: &Group| {
            let segment = group.segment.map(|segment| segment.level);
            [group.topology.required, segment].into_iter().flatten().any(|level| level > required)
        };
        Self {
            is_whole: gang.groups.len() > 1 || gang.groups.iter().any(is_segmented),
            is_fixed: gang.groups.iter().any(is_tight),
        }
    }
}

impl Workload {
    /// How many members are there.
    pub fn member_count(&self) -> u32 {
        u32::try_from(self.members.iter().flatten().count()).unwrap_or(u32::MAX)
    }

    /// Compute of all members in thousandths of a GPU.
    pub fn gpu_milli(&self) -> i64 {
        self.members.iter().flatten().map(Member::gpu_milli).sum()
    }
}

impl Member {
    /// Compute in thousandths of a GPU.
    pub fn gpu_milli(&self) -> i64 {
        self.placement.gpus.iter().map(|part| i64::from(part.milli)).sum()
    }
}

impl Totals {
    fn add_workload(&mut self, profile: &Profile) {
        if profile.is_preemptible {
            *self.preemptible.entry(profile.priority).or_default() += 1;
        }
        self.movable += u32::from(profile.is_movable);
    }

    fn remove_workload(&mut self, profile: &Profile) {
        if profile.is_preemptible
            && let Some(workloads) = self.preemptible.get_mut(&profile.priority)
        {
            *workloads -= 1;
            if *workloads == 0 {
                self.preemptible.remove(&profile.priority);
            }
        }
        self.movable -= u32::from(profile.is_movable);
    }

    fn add(&mut self, tenant: &Arc<str>, member: &Member) {
        let (milli, members) = self.tenants.entry(Arc::clone(tenant)).or_default();
        (*milli, *members) = (*milli + member.gpu_milli(), *members + 1);
        *self.shapes.entry(Arc::clone(&member.shape)).or_default() += 1;
    }

    fn remove(&mut self, tenant: &str, member: &Member) {
        if let Some((milli, members)) = self.tenants.get_mut(tenant) {
            (*milli, *members) = (*milli - member.gpu_milli(), *members - 1);
            if *members == 0 {
                self.tenants.remove(tenant);
            }
        }
        if let Some(members) = self.shapes.get_mut(&member.shape) {
            *members -= 1;
            if *members == 0 {
                self.shapes.remove(&member.shape);
            }
        }
    }
}

impl Workloads {
    /// Adds a workload whose members are already placed in the cluster. `None`: the name is taken.
    pub fn add(&mut self, workload: Workload) -> Option<WorkloadId> {
        let name = Arc::clone(&workload.profile.name);
        if self.ids.contains_key(&name) {
            return None;
        }
        let id = WorkloadId(self.next);
        self.next = self.next.checked_add(1)?;
        self.ids.insert(name, id);
        self.totals.add_workload(&workload.profile);
        for (number, member) in (0..).zip(&workload.members) {
            if let Some(member) = member {
                let id = MemberId { workload: id, member: number };
                self.on_node.entry(member.placement.node).or_default().insert(id);
                self.totals.add(&workload.profile.tenant, member);
            }
        }
        self.list.insert(id, workload);
        Some(id)
    }

    /// Removes a workload. The caller releases its members in the cluster.
    pub fn remove(&mut self, id: WorkloadId) -> Option<Workload> {
        let workload = self.list.remove(&id)?;
        self.ids.remove(&workload.profile.name);
        self.totals.remove_workload(&workload.profile);
        for (number, member) in (0..).zip(&workload.members) {
            if let Some(member) = member {
                let id = MemberId { workload: id, member: number };
                self.leave(member.placement.node, id);
                self.totals.remove(&workload.profile.tenant, member);
            }
        }
        Some(workload)
    }

    /// Sets, replaces or removes one member and returns the previous one. Missing ranks are
    /// created. No effect for an unknown workload.
    pub fn set_member(&mut self, id: MemberId, member: Option<Member>) -> Option<Member> {
        let workload = self.list.get_mut(&id.workload)?;
        let index = id.member as usize;
        if workload.members.len() <= index {
            workload.members.resize(index + 1, None);
        }
        let new_node = member.as_ref().map(|member| member.placement.node);
        let tenant = &workload.profile.tenant;
        if let Some(old) = &workload.members[index] {
            self.totals.remove(tenant, old);
        }
        if let Some(new) = &member {
            self.totals.add(tenant, new);
        }
        let old = std::mem::replace(&mut workload.members[index], member);
        if let Some(old) = &old {
            self.leave(old.placement.node, id);
        }
        if let Some(node) = new_node {
            self.on_node.entry(node).or_default().insert(id);
        }
        old
    }

    /// Changes the attributes of a workload. No effect for an unknown workload or a different name.
    pub fn describe(
        &mut self,
        id: WorkloadId,
        profile: Profile,
        min_members: u32,
        coupling: Coupling,
    ) {
        let Some(workload) = self.list.get_mut(&id) else { return };
        if workload.profile.name != profile.name {
            return;
        }
        if workload.profile.tenant != profile.tenant {
            for member in workload.members.iter().flatten() {
                self.totals.remove(&workload.profile.tenant, member);
                self.totals.add(&profile.tenant, member);
            }
        }
        self.totals.remove_workload(&workload.profile);
        self.totals.add_workload(&profile);
        (workload.profile, workload.min_members, workload.coupling) =
            (profile, min_members, coupling);
    }

    /// A workload.
    pub fn workload(&self, id: WorkloadId) -> Option<&Workload> {
        self.list.get(&id)
    }

    /// A member.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.workload(id.workload)?.members.get(id.member as usize)?.as_ref()
    }

    /// Changes the limit of a member. No effect for an unknown member.
    pub fn set_limit(&mut self, id: MemberId, limit: Option<LimitId>) {
        let workload = self.list.get_mut(&id.workload);
        let member = workload.and_then(|workload| workload.members.get_mut(id.member as usize));
        if let Some(Some(member)) = member {
            member.limit = limit;
        }
    }

    /// The workload of that name.
    pub fn named(&self, name: &str) -> Option<WorkloadId> {
        self.ids.get(name).copied()
    }

    /// All workloads, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (WorkloadId, &Workload)> {
        self.list.iter().map(|(id, workload)| (*id, workload))
    }

    /// Whether a preemptible workload has a priority below this one.
    pub fn has_preemptible_below(&self, priority: i32) -> bool {
        self.totals.preemptible.first_key_value().is_some_and(|(lowest, _)| *lowest < priority)
    }

    /// Whether a workload may be moved.
    pub fn has_movable(&self) -> bool {
        self.totals.movable > 0
    }

    /// Compute that each tenant with members uses, in thousandths of a GPU.
    pub fn used_by_tenant(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        self.totals.tenants.iter().map(|(tenant, (milli, _))| (tenant, *milli))
    }

    /// The shapes of all members, each with the number of its members.
    pub fn shapes(&self) -> impl Iterator<Item = (&Shape, u32)> {
        self.totals.shapes.iter().map(|(shape, members)| (&**shape, *members))
    }

    /// Members on a node, in the order in which their workloads came.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = MemberId> + '_ {
        self.on_node.get(&node).into_iter().flatten().copied()
    }

    fn leave(&mut self, node: NodeId, id: MemberId) {
        if let Some(members) = self.on_node.get_mut(&node) {
            members.remove(&id);
            if members.is_empty() {
                self.on_node.remove(&node);
            }
        }
    }
}
