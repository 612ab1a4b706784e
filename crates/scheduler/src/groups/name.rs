//! Names of groups, and the kinds of objects that announce them.

use std::fmt;

use octavo_kube_io::objects::ObjectName;

/// What announces a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum GroupKind {
    /// Octavo's own `PodGroup`.
    PodGroup,
    /// Kubernetes' own `PodGroup` (KEP-4671, KEP-5832).
    NativePodGroup,
    /// `PodGroup` of the scheduler plugins' coscheduling.
    CoschedulingPodGroup,
    /// `JobSet`; a `TrainJob` creates one too.
    JobSet,
    /// A replica of a `LeaderWorkerSet`.
    LeaderWorkerSet,
    /// `PyTorchJob` of the training operator.
    PyTorchJob,
    /// `TFJob` of the training operator.
    TfJob,
    /// `XGBoostJob` of the training operator.
    XgBoostJob,
    /// `PaddleJob` of the training operator.
    PaddleJob,
    /// `JAXJob` of the training operator.
    JaxJob,
    /// `MPIJob` of the MPI operator or of the training operator.
    MpiJob,
    /// `RayCluster`; a `RayJob` or `RayService` creates one too.
    RayCluster,
    /// `SparkApplication`.
    SparkApplication,
    /// Volcano's `Job`.
    VolcanoJob,
    /// Volcano's `PodGroup`.
    VolcanoPodGroup,
    /// A group of pods that Kueue admits together. Its pods declare it.
    KueueGroup,
    /// A `batch/v1` `Job` with the gang annotation.
    Job,
}

/// A kind of object to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedKind {
    /// What it announces.
    pub group_kind: GroupKind,
    /// API group.
    pub api_group: &'static str,
    /// Supported versions, the preferred one first. One that is served is enough.
    pub versions: &'static [&'static str],
    /// Kind.
    pub kind: &'static str,
    /// Only objects with this label matter, so the watch can select them.
    pub label: Option<&'static str>,
}

/// Name of a group, unique in the cluster. It stays the same as long as its object has its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName {
    /// What announces it.
    pub kind: GroupKind,
    /// Name of the object.
    pub object: ObjectName,
    /// Which of the object's identical groups: the replica of a `LeaderWorkerSet`. In results of
    /// [`super::Groups::apply`] `None` stands for all of them.
    pub part: Option<u32>,
}

const fn watched(
    group_kind: GroupKind,
    api_group: &'static str,
    versions: &'static [&'static str],
    kind: &'static str,
) -> WatchedKind {
    WatchedKind { group_kind, api_group, versions, kind, label: None }
}

/// All kinds of objects that announce groups, in order of precedence.
pub(super) const WATCHED_KINDS: [WatchedKind; 16] = [
    watched(GroupKind::PodGroup, "octavo.dev", &["v1alpha1"], "PodGroup"),
    watched(
        GroupKind::NativePodGroup,
        "scheduling.k8s.io",
        &["v1beta1", "v1alpha3", "v1alpha2"],
        "PodGroup",
    ),
    watched(GroupKind::CoschedulingPodGroup, "scheduling.x-k8s.io", &["v1alpha1"], "PodGroup"),
    watched(GroupKind::JobSet, "jobset.x-k8s.io", &["v1alpha2"], "JobSet"),
    watched(GroupKind::LeaderWorkerSet, "leaderworkerset.x-k8s.io", &["v1"], "LeaderWorkerSet"),
    watched(GroupKind::PyTorchJob, "kubeflow.org", &["v1"], "PyTorchJob"),
    watched(GroupKind::TfJob, "kubeflow.org", &["v1"], "TFJob"),
    watched(GroupKind::XgBoostJob, "kubeflow.org", &["v1"], "XGBoostJob"),
    watched(GroupKind::PaddleJob, "kubeflow.org", &["v1"], "PaddleJob"),
    watched(GroupKind::JaxJob, "kubeflow.org", &["v1"], "JAXJob"),
    watched(GroupKind::MpiJob, "kubeflow.org", &["v2beta1", "v1"], "MPIJob"),
    watched(GroupKind::RayCluster, "ray.io", &["v1"], "RayCluster"),
    watched(GroupKind::SparkApplication, "sparkoperator.k8s.io", &["v1beta2"], "SparkApplication"),
    watched(GroupKind::VolcanoJob, "batch.volcano.sh", &["v1alpha1"], "Job"),
    watched(GroupKind::VolcanoPodGroup, "scheduling.volcano.sh", &["v1beta1"], "PodGroup"),
    WatchedKind {
        label: Some(octavo_api::names::GANG),
        ..watched(GroupKind::Job, "batch", &["v1"], "Job")
    },
];

impl GroupKind {
    /// The kind that objects of this `apiVersion` and kind announce, in any version.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        WATCHED_KINDS
            .iter()
            .find(|watched| watched.api_group == group && watched.kind == kind)
            .map(|watched| watched.group_kind)
    }

    /// The kind for messages, with its API group where the kind is ambiguous.
    pub fn words(self) -> &'static str {
        match self {
            Self::NativePodGroup => "PodGroup.scheduling.k8s.io",
            Self::CoschedulingPodGroup => "PodGroup.scheduling.x-k8s.io",
            Self::VolcanoJob => "Job.batch.volcano.sh",
            Self::VolcanoPodGroup => "PodGroup.scheduling.volcano.sh",
            _ => {
                let watched = WATCHED_KINDS.iter().find(|watched| watched.group_kind == self);
                watched.map_or("pod group of Kueue", |watched| watched.kind)
            }
        }
    }
}

impl GroupName {
    /// The group that an object announces.
    pub fn new(kind: GroupKind, object: ObjectName) -> Self {
        Self { kind, object, part: None }
    }

    /// The name that stands for all parts.
    #[must_use]
    pub fn whole(&self) -> Self {
        Self { part: None, ..self.clone() }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.words(), self.object)?;
        match self.part {
            Some(part) => write!(f, " replica {part}"),
            None => Ok(()),
        }
    }
}
