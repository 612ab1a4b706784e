//! Which pods form a gang, from pod groups, workloads and labels.
//!
//! ```text
//!  objects (PodGroups, JobSets, ...) --apply--> specs by name --.
//!                                                                +--membership--> alone, member, or unresolved
//!  a pod's labels, owner, schedulingGroup ----------------------'
//! ```
//!
//! A pod's labels, which its controller writes, say which group it is in and as which member. The
//! group's object says how many members there are and where they should run. The first source that
//! applies counts: Octavo's own `PodGroup`, Kubernetes' own, that of the scheduler plugins, the
//! workload. A contradiction is an error of that group alone: its pods wait with a reason.

mod declared;
mod error;
mod name;
mod operators;
mod placement_hints;
mod podgroups;
mod reader;
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
    /// It is placed on its own.
    Alone,
    /// It is placed with others.
    Member(Member),
    /// It belongs to a group, but cannot be placed until the group is known or corrected.
    Unresolved(Unresolved),
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The group.
    pub group: GroupName,
    /// The subgroup; [`Member::spec`] has one of this name.
    pub sub: Arc<str>,
    /// Rank among the members of its subgroup. Members with lower ranks come first in communication
    /// rings. Ranks need not be dense or unique; ties are broken by pod name.
    pub rank: Option<u32>,
    /// The group's spec, from its object, or from the pod if there is none. In the latter case the
    /// spec of the group's first pod counts.
    pub spec: Arc<GroupSpec>,
}

/// Why a pod is not yet a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The group it will be in, as far as its labels say. A running pod counts towards it.
    pub group: Option<GroupName>,
    /// Why.
    pub error: GroupError,
}

/// Whether a pod counts towards its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// It runs or waits.
    Present,
    /// It has succeeded. It is not recreated, and it counts as having done its part.
    Done,
    /// It has failed or is being deleted. Its controller creates another member of the same group.
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
    /// The kinds of objects to watch, where the API server serves them.
    pub fn kinds() -> &'static [WatchedKind] {
        &name::WATCHED_KINDS
    }

    /// Applies a change of an object. Objects of other kinds are ignored. Returns the groups whose
    /// spec changed, each for all its parts. The membership of pods that name them must be
    /// recomputed.
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
                let listed: BTreeSet<_> =
                    objects.iter().filter_map(|object| name_of(object)).collect();
                let of_kind = self.objects.keys().filter(|name| name.kind == kind);
                let gone: Vec<_> = of_kind.filter(|name| !listed.contains(name)).cloned().collect();
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
        // The watch may deliver all Jobs. Those without the annotation are ignored.
        if name.kind == GroupKind::Job
            && placement_hints::annotation_or_label(&object.meta, names::GANG).is_none()
        {
            return self.objects.remove(&name).map(|_| name);
        }
        let read = reader::read(object, name.clone()).map(Arc::new);
        if self.objects.get(&name) == Some(&read) {
            return None;
        }
        self.objects.insert(name.clone(), read);
        Some(name)
    }

    /// A pod's part in a group. It depends only on the pod's metadata, on `spec.group` and on the
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
                let message = match group.kind {
                    GroupKind::Job => format!(
                        "{group} is not observed, although its pods have {key}: \"true\"; put the \
                         label {key}: \"true\" on the Job itself too, or write the number of pods \
                         instead of \"true\"",
                        key = names::GANG
                    ),
                    _ => format!(
                        "{group} does not exist: create it, or remove the pod's label or field that \
                         names it; if it exists, check whether Octavo may watch its kind"
                    ),
                };
                return Err(GroupError::new("PodGroupNotFound", message));
            }
        };
        // The native policy `basic`: these pods share only a name.
        if group.kind == GroupKind::NativePodGroup && spec.min == 0 && spec.required.is_none() {
            return Ok(None);
        }
        let unknown_sub =
            |message: String| GroupError::new("SubgroupNotFound", format!("{group} has {message}"));
        let sub = match (&declared.sub, spec.subs.as_slice()) {
            (None, [only]) => Arc::clone(&only.name),
            (None, _) => {
                return Err(unknown_sub(format!(
                    "the subgroups {}; name the pod's subgroup with the label {}",
                    spec.sub_names(),
                    names::POD_SUBGROUP
                )));
            }
            // All pods of a group with a single unnamed subgroup are in it.
            (Some(_), [only]) if &*only.name == DEFAULT_SUBGROUP => Arc::clone(&only.name),
            (Some(name), _) => {
                let sub = spec.sub(name).ok_or_else(|| {
                    let known = spec.sub_names();
                    unknown_sub(format!(
                        "no subgroup {name:?}, which the pod names; it has: {known}"
                    ))
                })?;
                Arc::clone(&sub.name)
            }
        };
        let rank = declared.rank.of(spec.sub(&sub).and_then(|sub| sub.count));
        Ok(Some(Member { group, sub, rank, spec }))
    }
}

/// The spec that a pod declares for a group without an object.
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
    let mut group = GroupSpec::new(name.whole(), announcer);
    group.subs.push(Subgroup::only(count));
    group.finish(PlacementHints::of(&pod.meta)?)
}

fn name_of(object: &WatchedObject) -> Option<GroupName> {
    let kind = GroupKind::of(&object.api_version, &object.kind)?;
    let ObjectName { namespace, name } = &object.meta.name;
    Some(GroupName::new(kind, ObjectName::new(Arc::clone(namespace), Arc::clone(name))))
}
