//! Reads the object of a group.

use octavo_kube_io::objects::WatchedObject;

use super::error::GroupError;
use super::name::{GroupKind, GroupName};
use super::placement_hints::PlacementHints;
use super::spec::{Announcer, GroupSpec, Subgroup, lower_minimums, min_above_count};
use super::spec_field::SpecField;
use super::{operators, podgroups, workloads};

/// The object of a group, and what has been read of it.
pub(super) struct GroupReader<'a> {
    pub(super) object: &'a WatchedObject,
    pub(super) spec: SpecField<'a>,
    pub(super) group: GroupSpec,
    /// Hints for the whole group, first those of the object's labels and annotations.
    pub(super) hints: PlacementHints,
}

/// Reads the spec of a group from its object.
pub(super) fn read(object: &WatchedObject, name: GroupName) -> Result<GroupSpec, GroupError> {
    let announcer = Announcer {
        kind: octavo_kube_io::objects::Kind::new(&object.api_version, &object.kind),
        name: object.meta.name.clone(),
        uid: object.meta.uid.clone(),
        generation: object.generation,
    };
    let (kind, words) = (name.kind, name.to_string());
    let mut reader = GroupReader {
        object,
        spec: SpecField::spec(&object.spec, &words),
        group: GroupSpec::new(name, announcer),
        hints: PlacementHints::of(&object.meta)?,
    };
    let read = match kind {
        GroupKind::PodGroup => podgroups::octavo,
        GroupKind::NativePodGroup => podgroups::native,
        GroupKind::CoschedulingPodGroup | GroupKind::VolcanoPodGroup => podgroups::foreign,
        GroupKind::JobSet => workloads::job_set,
        GroupKind::LeaderWorkerSet => workloads::leader_worker_set,
        GroupKind::PyTorchJob
        | GroupKind::TfJob
        | GroupKind::XgBoostJob
        | GroupKind::PaddleJob
        | GroupKind::JaxJob
        | GroupKind::MpiJob => operators::training,
        GroupKind::RayCluster => operators::ray,
        GroupKind::SparkApplication => operators::spark,
        GroupKind::VolcanoJob => operators::volcano,
        GroupKind::Job | GroupKind::KueueGroup => workloads::job,
    };
    read(&mut reader)?;
    reader.group.finish(reader.hints)
}

impl GroupReader<'_> {
    /// Hints of a pod template. Those other than topology go to the group.
    pub(super) fn pod_hints(
        &mut self,
        template: &SpecField<'_>,
    ) -> Result<PlacementHints, GroupError> {
        let hints = PlacementHints::of_template(template.value())?;
        self.hints.fill_for_group(&hints);
        Ok(hints)
    }

    /// Adds a subgroup.
    pub(super) fn add(&mut self, sub: Subgroup) {
        self.group.subs.push(sub);
    }

    /// Lowers the minimum of the group to that of a field, if it is set.
    pub(super) fn lower_minimum(&mut self, min: &SpecField<'_>) -> Result<(), GroupError> {
        let Some(min) = min.count()? else { return Ok(()) };
        let subs = &mut self.group.subs;
        let count = subs.iter().filter_map(|sub| sub.count).map(u64::from).sum();
        if u64::from(min) > count {
            return Err(min_above_count(self.spec.group(), min, count));
        }
        lower_minimums(subs, min);
        Ok(())
    }
}
