//! What a pod declares about its group: its labels and owner references, as the controllers write
//! them. docs/workloads.md lists them in a table.

use std::sync::Arc;

use octavo_api::names;
use octavo_kube_io::objects::{ObjectName, Pod};

use super::error::GroupError;
use super::name::{GroupKind, GroupName};
use super::operators::{RAY_HEAD_GROUP, TRAINING_KINDS};
use super::placement_hints::{GangHint, annotation_or_label};
use super::spec::DEFAULT_SUBGROUP;

/// What a pod declares about its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declared {
    /// The group.
    pub(super) group: GroupName,
    /// The subgroup, if declared.
    pub(super) sub: Option<Arc<str>>,
    /// See [`super::Member::rank`].
    pub(super) rank: Rank,
    /// The size of the group, if only its pods declare it.
    pub(super) count: Option<u32>,
}

/// A pod's rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rank {
    /// Number of its part, and of how many equal parts: the Job of a `JobSet`'s replicated job.
    pub(super) part: Option<(u32, u32)>,
    /// Its number, within the part if it is in one.
    pub(super) number: Option<u32>,
}

impl Rank {
    /// The rank in the whole subgroup, which has `count` members.
    pub(super) fn of(self, count: Option<u32>) -> Option<u32> {
        match (self.part, self.number) {
            (Some((part, parts)), number) => {
                let size = count.map_or(MAX_PART_SIZE, |count| count / parts.max(1));
                Some(part.saturating_mul(size).saturating_add(number.unwrap_or(0)))
            }
            (None, number) => number,
        }
    }
}

/// More members than a part of undeclared size has. Ranks need not be dense.
const MAX_PART_SIZE: u32 = 1 << 16;

const JOB_INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";

/// What a pod declares; `None` if it is in no group.
pub(super) fn declared(pod: &Pod) -> Result<Option<Declared>, GroupError> {
    let gang = GangHint::of(&pod.meta)?;
    let label = |key: &str| pod.meta.labels.get(key).map(String::as_str);
    let text = |key: &str| annotation_or_label(&pod.meta, key);
    let number = |key: &str| text(key).and_then(|text| text.parse().ok());
    let group = |kind, name: &str| {
        GroupName::new(kind, ObjectName::new(Arc::clone(&pod.meta.name.namespace), name))
    };
    let declare = |kind, name: &str, sub: Option<&str>| {
        let indices = [
            JOB_INDEX_LABEL,
            "training.kubeflow.org/replica-index",
            "leaderworkerset.sigs.k8s.io/worker-index",
            "volcano.sh/task-index",
            "apps.kubernetes.io/pod-index",
            "kueue.x-k8s.io/pod-group-pod-index",
        ];
        // Pods of a JobSet in a group of another object: ranked Job by Job.
        let part = number("jobset.sigs.k8s.io/job-global-index").map(|part| (part, 1));
        let number = indices.iter().find_map(|key| number(key));
        Declared {
            group: group(kind, name),
            sub: sub.map(Arc::from),
            rank: Rank { part, number },
            count: None,
        }
    };
    if let Some(name) = text(names::POD_GROUP) {
        return Ok(Some(declare(GroupKind::PodGroup, name, text(names::POD_SUBGROUP))));
    }
    if gang == Some(GangHint::Off) {
        return Ok(None);
    }
    if let Some(name) = &pod.spec.group {
        return Ok(Some(declare(GroupKind::NativePodGroup, name, Some(DEFAULT_SUBGROUP))));
    }
    if let Some(name) = label("scheduling.x-k8s.io/pod-group") {
        return Ok(Some(declare(GroupKind::CoschedulingPodGroup, name, Some(DEFAULT_SUBGROUP))));
    }
    if let Some(name) = label("jobset.sigs.k8s.io/jobset-name") {
        let part = number("jobset.sigs.k8s.io/job-index");
        let parts = number("jobset.sigs.k8s.io/replicatedjob-replicas");
        let sub = label("jobset.sigs.k8s.io/replicatedjob-name");
        let mut declared = declare(GroupKind::JobSet, name, sub);
        declared.rank = Rank { part: part.zip(parts), number: number(JOB_INDEX_LABEL) };
        return Ok(Some(declared));
    }
    if let Some(name) = label("leaderworkerset.sigs.k8s.io/name") {
        let worker: Option<u32> = number("leaderworkerset.sigs.k8s.io/worker-index");
        let sub = if worker == Some(0) { "leader" } else { "worker" };
        let mut declared = declare(GroupKind::LeaderWorkerSet, name, Some(sub));
        declared.group.part = Some(number("leaderworkerset.sigs.k8s.io/group-index").unwrap_or(0));
        declared.rank.number = worker.map(|worker| worker.saturating_sub(1));
        return Ok(Some(declared));
    }
    if let Some(name) = label("training.kubeflow.org/job-name") {
        let role = label("training.kubeflow.org/replica-type")
            .or_else(|| label("training.kubeflow.org/job-role"));
        return Ok(training_kind(pod).map(|kind| declare(kind, name, role)));
    }
    if let Some(name) = label("ray.io/cluster") {
        return Ok(ray(&label, &number).map(|(sub, rank)| Declared {
            rank,
            ..declare(GroupKind::RayCluster, name, Some(sub))
        }));
    }
    if let (Some(name), Some(role)) = (label("sparkoperator.k8s.io/app-name"), label("spark-role"))
    {
        let mut declared = declare(GroupKind::SparkApplication, name, Some(role));
        declared.rank.number = number("spark-exec-id");
        return Ok(Some(declared));
    }
    if let Some(name) = text("volcano.sh/job-name") {
        return Ok(Some(declare(GroupKind::VolcanoJob, name, text("volcano.sh/task-spec"))));
    }
    let volcano = ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"];
    if let Some(name) = volcano.iter().find_map(|key| pod.meta.annotations.get(*key)) {
        let task = text("volcano.sh/task-spec");
        return Ok(Some(declare(GroupKind::VolcanoPodGroup, name, task)));
    }
    if let Some(name) = label("kueue.x-k8s.io/pod-group-name") {
        return kueue(pod, declare(GroupKind::KueueGroup, name, Some(DEFAULT_SUBGROUP)));
    }
    let Some(gang) = gang else { return Ok(None) };
    let owner = pod.meta.owner.as_ref();
    let Some(owner) = owner.filter(|owner| owner.kind == "Job" && owner.api_version == "batch/v1")
    else {
        let owner =
            owner.map_or("none".to_owned(), |owner| format!("{} {}", owner.kind, owner.name));
        return Err(GroupError::invalid(format!(
            "{} is for pods of a Job, and this pod's controller is {owner}; make a PodGroup and \
             name it with the label {}",
            names::GANG,
            names::POD_GROUP
        )));
    };
    let mut declared = declare(GroupKind::Job, &owner.name, Some(DEFAULT_SUBGROUP));
    if let GangHint::Count(count) = gang {
        declared.count = Some(count);
    }
    Ok(Some(declared))
}

/// The kind of Kubeflow job that a pod belongs to, by its owner. The launcher of an `MPIJob` is
/// owned by a Job, so there the operator label counts.
fn training_kind(pod: &Pod) -> Option<GroupKind> {
    let owner = pod.meta.owner.as_ref();
    let of_owner = owner.and_then(|owner| GroupKind::of(&owner.api_version, &owner.kind));
    let operator = pod.meta.labels.get("training.kubeflow.org/operator-name").map(String::as_str);
    let mut kinds = TRAINING_KINDS.iter();
    let known = kinds.clone().find(|(kind, ..)| Some(*kind) == of_owner);
    let known = known.or_else(|| kinds.find(|(_, name, _)| Some(*name) == operator));
    known.map(|(kind, ..)| *kind)
}

/// A Ray node's group and rank. A pod that submits a job or cleans up belongs to no group.
fn ray<'a>(
    label: &impl Fn(&str) -> Option<&'a str>,
    number: &impl Fn(&str) -> Option<u32>,
) -> Option<(&'a str, Rank)> {
    match label("ray.io/node-type")? {
        "head" => Some((RAY_HEAD_GROUP, Rank { part: None, number: Some(0) })),
        "worker" => {
            let replica = number("ray.io/worker-group-replica-index");
            let rank = match number("ray.io/replica-host-index") {
                // Hosts of one replica have consecutive ranks. The labels do not tell their number.
                Some(host) => replica
                    .map(|replica| replica.saturating_mul(MAX_RAY_HOSTS).saturating_add(host)),
                None => replica,
            };
            Some((label("ray.io/group")?, Rank { part: None, number: rank }))
        }
        _ => None,
    }
}

/// More hosts than a replica of a Ray worker group has. Ranks need not be dense.
const MAX_RAY_HOSTS: u32 = 1 << 12;

fn kueue(pod: &Pod, declared: Declared) -> Result<Option<Declared>, GroupError> {
    const TOTAL_COUNT_KEY: &str = "kueue.x-k8s.io/pod-group-total-count";
    let found = pod.meta.annotations.get(TOTAL_COUNT_KEY);
    let count = found.and_then(|found| found.parse().ok()).filter(|count| *count > 0);
    let count = count.ok_or_else(|| {
        let wanted = "the number of pods of the group, the same on all of them";
        GroupError::invalid_hint(TOTAL_COUNT_KEY, found.map_or("", String::as_str), wanted)
    })?;
    Ok(Some(Declared { count: Some(count), ..declared }))
}
