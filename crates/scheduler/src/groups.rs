//! Whose pods belong together: gangs as pod groups, workloads and labels announce them.
//!
//! ```text
//!  objects (PodGroups, JobSets, ...) --apply--> specs by name --.
//!                                                                +--membership--> alone, member, or not yet
//!  a pod's labels, owner, schedulingGroup ----------------------'
//! ```
//!
//! A pod says itself, by labels that its controller writes, which group it is in and as which member;
//! the group's object says how many there are and what they wish. The first that says something
//! counts: Octavo's own `PodGroup`, Kubernetes' own, that of the scheduler plugins, the workload.
//! What contradicts itself is an error of that group: it waits with a reason, and others go on.

mod declared;
mod error;
mod name;
mod operators;
mod placement_hints;
mod podgroups;
mod spec;
mod spec_field;
#[cfg(test)]
mod tests;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_api::names;
use octavo_kube_io::objects::{Delta, ObjectName, Phase, Pod, WatchedObject};

pub use error::GroupError;
pub use name::{GroupKind, GroupName, WatchedKind};
pub use placement_hints::PlacementHints;
pub use spec::{
    Announcer, DEFAULT_SUBGROUP, GroupSpec, MissingMembers, SegmentTopology, Subgroup,
    TopologyRequests,
};

/// All groups that objects announce.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    objects: BTreeMap<GroupName, Result<Arc<GroupSpec>, GroupError>>,
}

/// A pod's part in a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Membership {
    /// It is placed by itself.
    Alone,
    /// It is placed with others.
    Member(Member),
    /// It says that it is in a group, and cannot be placed before something is known or corrected.
    Unresolved(Unresolved),
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The group.
    pub group: GroupName,
    /// The subgroup; there is one of this name in [`Member::spec`].
    pub sub: Arc<str>,
    /// Its place among the members of its subgroup: who has a lower one comes first in rings. Neither
    /// dense nor promised to be unique; the pod's name parts equals.
    pub rank: Option<u32>,
    /// What is known of the group: the object's word, or where there is none the pod's own; then that
    /// of the first of its pods counts for all.
    pub spec: Arc<GroupSpec>,
}

/// Why a pod is no member yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The group it will be in, as far as it says so. A pod that runs is counted to it.
    pub group: Option<GroupName>,
    /// Why.
    pub error: GroupError,
}

/// Whether a pod counts for its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// It runs or waits.
    Present,
    /// It has ended well: it is not made again, and what the group needs it has given.
    Done,
    /// It has failed or is being deleted: its controller makes another, which is a member of the same
    /// group.
    Leaving,
}

impl MemberState {
    /// Of a pod.
    pub fn of(pod: &Pod) -> Self {
        match pod.phase {
            Phase::Succeeded => Self::Done,
            Phase::Failed => Self::Leaving,
            _ if pod.meta.deleted.is_some() => Self::Leaving,
            _ => Self::Present,
        }
    }
}

impl Groups {
    /// The kinds of objects to watch, as far as they are served.
    pub fn kinds() -> &'static [WatchedKind] {
        &name::WATCHED_KINDS
    }

    /// Takes in a change of an object; objects of other kinds are not looked at. Returns the groups
    /// whose spec is another now, each for all its parts: membership of pods that name them is to be
    /// asked for anew.
    pub fn apply(&mut self, delta: &Delta<WatchedObject>) -> Vec<GroupName> {
        match delta {
            Delta::Upsert(object) => self.set(object).into_iter().collect(),
            Delta::Delete(object) => {
                let name = name_of(object);
                name.filter(|name| self.objects.remove(name).is_some()).into_iter().collect()
            }
            Delta::Replace(kind, objects) => {
                let Some(kind) = GroupKind::of(&kind.api_version, &kind.kind) else {
                    return Vec::new();
                };
                let there: BTreeSet<_> =
                    objects.iter().filter_map(|object| name_of(object)).collect();
                let of_kind = self.objects.keys().filter(|name| name.kind == kind);
                let gone: Vec<_> = of_kind.filter(|name| !there.contains(name)).cloned().collect();
                for name in &gone {
                    self.objects.remove(name);
                }
                let set = objects.iter().filter_map(|object| self.set(object));
                let set: Vec<_> = set.collect();
                gone.into_iter().chain(set).collect()
            }
        }
    }

    fn set(&mut self, object: &WatchedObject) -> Option<GroupName> {
        let name = name_of(object)?;
        // Where the watch shows all Jobs: those that do not ask are none of ours.
        if name.kind == GroupKind::Job
            && placement_hints::annotation_or_label(&object.meta, names::GANG).is_none()
        {
            return self.objects.remove(&name).map(|_| name);
        }
        let read = read(object, name.clone()).map(Arc::new);
        if self.objects.get(&name) == Some(&read) {
            return None;
        }
        self.objects.insert(name.clone(), read);
        Some(name)
    }

    /// What is known of a group by its object; `None` too where pods announce it themselves
    /// ([`Member::spec`] has it then), or its object is wrong ([`Groups::errors`]).
    pub fn spec(&self, name: &GroupName) -> Option<&Arc<GroupSpec>> {
        self.objects.get(&name.whole())?.as_ref().ok()
    }

    /// All groups that objects announce and that make sense, in the order of their names.
    pub fn specs(&self) -> impl Iterator<Item = &Arc<GroupSpec>> {
        self.objects.values().filter_map(|read| read.as_ref().ok())
    }

    /// Groups whose objects make no sense, in the order of their names.
    pub fn errors(&self) -> impl Iterator<Item = (&GroupName, &GroupError)> {
        self.objects.iter().filter_map(|(name, read)| Some((name, read.as_ref().err()?)))
    }

    /// A pod's part in a group. It depends on the pod's metadata and `spec.group` alone, and on the
    /// group's object.
    pub fn membership(&self, pod: &Pod) -> Membership {
        let declared = match declared::declared(pod) {
            Ok(Some(declared)) => declared,
            Ok(None) => return Membership::Alone,
            Err(error) => return Membership::Unresolved(Unresolved { group: None, error }),
        };
        match self.member(pod, &declared) {
            Ok(None) => Membership::Alone,
            Ok(Some(member)) => Membership::Member(member),
            Err(error) => Membership::Unresolved(Unresolved { group: Some(declared.group), error }),
        }
    }

    fn member(
        &self,
        pod: &Pod,
        declared: &declared::Declared,
    ) -> Result<Option<Member>, GroupError> {
        let group = declared.group.clone();
        let spec = match (declared.count, self.objects.get(&group.whole())) {
            (Some(count), _) => Arc::new(announced(pod, &group, count)?),
            (None, Some(read)) => Arc::clone(read.as_ref().map_err(Clone::clone)?),
            (None, None) => {
                let words = group.to_string();
                return Err(match group.kind {
                    GroupKind::Job => GroupError::JobNotFound { group: words },
                    _ => GroupError::GroupNotFound { group: words },
                });
            }
        };
        // The native policy `basic`: they have a common name and nothing else in common.
        if group.kind == GroupKind::NativePodGroup && spec.min == 0 && spec.required.is_none() {
            return Ok(None);
        }
        let sub = match (&declared.sub, spec.subs.as_slice()) {
            (None, [only]) => Arc::clone(&only.name),
            (None, _) => {
                let key = names::POD_SUBGROUP;
                let (group, known) = (group.to_string(), spec.sub_names());
                return Err(GroupError::SubgroupUnspecified { group, key, known });
            }
            // A group of one subgroup that nobody named has all its pods in it.
            (Some(_), [only]) if &*only.name == DEFAULT_SUBGROUP => Arc::clone(&only.name),
            (Some(name), _) => {
                let sub = spec.sub(name).ok_or_else(|| GroupError::UnknownSubgroup {
                    group: group.to_string(),
                    found: name.to_string(),
                    known: spec.sub_names(),
                })?;
                Arc::clone(&sub.name)
            }
        };
        let rank = declared.rank.of(spec.sub(&sub).and_then(|sub| sub.count));
        Ok(Some(Member { group, sub, rank, spec }))
    }
}

/// What a pod says of a group that no object announces.
fn announced(pod: &Pod, name: &GroupName, count: u32) -> Result<GroupSpec, GroupError> {
    let announcer = match &pod.meta.owner {
        Some(owner) if name.kind == GroupKind::Job => Announcer {
            kind: octavo_kube_io::objects::Kind::new(&owner.api_version, &owner.kind),
            name: name.object.clone(),
            uid: Arc::clone(&owner.uid),
            generation: 0,
        },
        _ => Announcer { name: name.object.clone(), ..Announcer::default() },
    };
    let members = Subgroup { name: DEFAULT_SUBGROUP.into(), min: count, ..Subgroup::default() };
    GroupSpec::new(name.whole(), announcer, vec![members])
        .with(&PlacementHints::of(&pod.meta)?)
        .checked()
}

fn name_of(object: &WatchedObject) -> Option<GroupName> {
    let kind = GroupKind::of(&object.api_version, &object.kind)?;
    let ObjectName { namespace, name } = &object.meta.name;
    Some(GroupName::new(kind, ObjectName::new(Arc::clone(namespace), Arc::clone(name))))
}

fn read(object: &WatchedObject, name: GroupName) -> Result<GroupSpec, GroupError> {
    let announcer = Announcer {
        kind: octavo_kube_io::objects::Kind::new(&object.api_version, &object.kind),
        name: object.meta.name.clone(),
        uid: Arc::clone(&object.meta.uid),
        generation: object.generation,
    };
    let spec = match name.kind {
        GroupKind::PodGroup => podgroups::octavo(object, name, announcer),
        GroupKind::NativePodGroup => podgroups::native(object, name, announcer),
        GroupKind::CoschedulingPodGroup | GroupKind::VolcanoPodGroup => {
            podgroups::foreign(object, name, announcer)
        }
        GroupKind::JobSet => workloads::job_set(object, name, announcer),
        GroupKind::LeaderWorkerSet => workloads::leader_worker_set(object, name, announcer),
        GroupKind::PyTorchJob
        | GroupKind::TfJob
        | GroupKind::XgBoostJob
        | GroupKind::PaddleJob
        | GroupKind::JaxJob
        | GroupKind::MpiJob => operators::training(object, name, announcer),
        GroupKind::RayCluster => operators::ray(object, name, announcer),
        GroupKind::SparkApplication => operators::spark(object, name, announcer),
        GroupKind::VolcanoJob => operators::volcano(object, name, announcer),
        GroupKind::Job | GroupKind::KueueGroup => workloads::job(object, name, announcer),
    };
    spec?.checked()
}
