//! Names that HAMi and KAI Scheduler read, and what is done with each.
//!
//! HAMi: `pkg/device/nvidia/device.go`, `pkg/util/types.go`, `charts/hami/values.yaml`. KAI: `pkg/common/constants`,
//! `pkg/podgrouper/podgrouper/plugins/constants`.

/// HAMi: memory of each GPU in MiB.
pub(crate) const GPUMEM: &str = "nvidia.com/gpumem";
/// HAMi: memory of each GPU in percent.
pub(crate) const GPUMEM_PERCENTAGE: &str = "nvidia.com/gpumem-percentage";
/// HAMi: time of each GPU in percent.
pub(crate) const GPUCORES: &str = "nvidia.com/gpucores";
/// HAMi: 0 is high, 1 is low.
pub(crate) const PRIORITY: &str = "nvidia.com/priority";
/// HAMi's resources beside the number of GPUs.
pub(crate) const HAMI_RESOURCES: [&str; 4] = [GPUMEM, GPUMEM_PERCENTAGE, GPUCORES, PRIORITY];

pub(crate) const USE_GPUTYPE: &str = "nvidia.com/use-gputype";
pub(crate) const NOUSE_GPUTYPE: &str = "nvidia.com/nouse-gputype";
pub(crate) const USE_GPUUUID: &str = "nvidia.com/use-gpuuuid";
pub(crate) const NOUSE_GPUUUID: &str = "nvidia.com/nouse-gpuuuid";
pub(crate) const NUMA_BIND: &str = "nvidia.com/numa-bind";
pub(crate) const VGPU_MODE: &str = "nvidia.com/vgpu-mode";
pub(crate) const NODE_POLICY: &str = "hami.io/node-scheduler-policy";
pub(crate) const GPU_POLICY: &str = "hami.io/gpu-scheduler-policy";

pub(crate) const GPU_FRACTION: &str = "gpu-fraction";
pub(crate) const GPU_MEMORY: &str = "gpu-memory";
pub(crate) const GPU_FRACTION_NUM_DEVICES: &str = "gpu-fraction-num-devices";
pub(crate) const GPU_FRACTION_CONTAINER: &str = "gpu-fraction-container-name";
pub(crate) const MPS: &str = "mps";
pub(crate) const PRIORITY_LABEL: &str = "priorityClassName";
const QUEUES: [&str; 2] = ["kai.scheduler/queue", "runai/queue"];
const TOPOLOGY: &str = "kai.scheduler/topology";
const TOPOLOGY_REQUIRED: &str = "kai.scheduler/topology-required-placement";
const TOPOLOGY_PREFERRED: &str = "kai.scheduler/topology-preferred-placement";
const NODE_POOL: &str = "kai.scheduler/node-pool";

/// Annotations of a pod that `hami` and `kai` read.
const READ: [&str; 12] = [
    USE_GPUTYPE,
    NOUSE_GPUTYPE,
    USE_GPUUUID,
    NOUSE_GPUUUID,
    NUMA_BIND,
    VGPU_MODE,
    NODE_POLICY,
    GPU_POLICY,
    GPU_FRACTION,
    GPU_MEMORY,
    GPU_FRACTION_NUM_DEVICES,
    GPU_FRACTION_CONTAINER,
];

/// Written by the schedulers and their webhooks, found in manifests that were read from a cluster.
const STATE: [&str; 14] = [
    "hami.io/vgpu-time",
    "hami.io/vgpu-node",
    "hami.io/bind-time",
    "hami.io/bind-phase",
    "hami.io/vgpu-devices-to-allocate",
    "hami.io/vgpu-devices-allocated",
    "hami.io/vgpu-mig-allocations",
    "hami.io/webhook",
    "kai.scheduler/stale-podgroup-timestamp",
    "kai.scheduler/last-start-timestamp",
    "kai.scheduler/top-owner-metadata",
    "kai.scheduler/accounting",
    "runai/shared-gpu-configmap",
    "runai-gpu-group",
];

/// The same, under names that may also be of others. They, [`MPS`] and [`PRIORITY_LABEL`] alone say nothing.
const AMBIGUOUS_STATE: [&str; 2] = ["pod-group-name", "received-resource-type"];

/// KAI writes keys that begin with it.
const GROUP_PREFIX: &str = "runai-gpu-group/";
const PREFIXES: [&str; 5] = ["hami.io/", "kai.scheduler/", "runai/", "run.ai/", GROUP_PREFIX];

/// Name of HAMi's scheduler, by its chart.
const HAMI_SCHEDULER: &str = "hami-scheduler";
/// Names of KAI's scheduler, and of the one from which it comes.
const KAI_SCHEDULERS: [&str; 2] = ["kai-scheduler", "runai-scheduler"];
/// Whether a pod's scheduler is HAMi's or KAI's.
pub(crate) fn is_scheduler(name: &str) -> bool {
    schedulers().any(|scheduler| scheduler == name)
}

/// Whether a pod's scheduler is KAI's.
pub(crate) fn is_scheduler_of_kai(name: &str) -> bool {
    KAI_SCHEDULERS.contains(&name)
}

/// Names of NVIDIA's runtime classes.
pub(crate) const RUNTIME_CLASSES: [&str; 3] = ["nvidia", "nvidia-cdi", "nvidia-legacy"];

/// What is done with an annotation or a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Of a pod: a demand or a selection is read from it, and it is removed.
    Read,
    /// Removed: it says where a pod was, not what it needs.
    State,
    /// Removed: Octavo has no queues.
    Queue,
    /// Becomes this annotation.
    Becomes(&'static str),
    /// Removed: the name of a topology. Octavo has one.
    Topology,
    /// The priority class under KAI's label.
    PriorityClass,
    /// Refused: the reason and the remedy.
    NoEqual(&'static str, &'static str),
    /// Refused: not known.
    Unknown,
}

/// What is done with a key of an annotation or a label; `None` if it is neither HAMi's nor KAI's.
pub(crate) fn handling(key: &str) -> Option<Handling> {
    Some(match key {
        _ if READ.contains(&key) => Handling::Read,
        _ if STATE.contains(&key) || AMBIGUOUS_STATE.contains(&key) => Handling::State,
        _ if key.starts_with(GROUP_PREFIX) => Handling::State,
        _ if QUEUES.contains(&key) => Handling::Queue,
        TOPOLOGY => Handling::Topology,
        TOPOLOGY_REQUIRED => Handling::Becomes(octavo_api::names::TOPOLOGY_REQUIRED),
        TOPOLOGY_PREFERRED => Handling::Becomes(octavo_api::names::TOPOLOGY_PREFERRED),
        PRIORITY_LABEL => Handling::PriorityClass,
        MPS => Handling::NoEqual(
            "Octavo starts no Multi-Process Service for shares",
            "remove it and the volume of the service's pipe",
        ),
        NODE_POOL => Handling::NoEqual(
            "Octavo has no node pools",
            "write the pool's nodes as `spec.nodeSelector`, and remove it",
        ),
        "kai.scheduler/preemptibility" => Handling::NoEqual(
            "preemption follows the priority class",
            "remove it, or write a PodGroup of octavo.dev with `preemptible`",
        ),
        "kai.scheduler/subgroup-name" => Handling::NoEqual(
            "it belongs to a PodGroup of KAI",
            "write a PodGroup of octavo.dev with `subGroups`, and remove it",
        ),
        "hami.io/device-scoring-weights" => Handling::NoEqual(
            "Octavo weighs GPUs by its own rules",
            "remove it, or write a PlacementPolicy",
        ),
        _ if is_prefixed(key) => Handling::Unknown,
        _ => return None,
    })
}

/// Whether a key of a pod shows that the pod was written for HAMi or KAI.
pub(crate) fn is_sign(key: &str) -> bool {
    READ.contains(&key) || STATE.contains(&key) || is_prefixed(key)
}

/// Whether an annotation of a pod shows at its admission that the pod was written for HAMi or KAI. What only their programs write
/// does not: it may be on a pod of theirs, or on a copy of another pod.
pub(crate) fn is_annotation_sign(key: &str) -> bool {
    is_sign(key) && handling(key) != Some(Handling::State)
}

/// The same for a label. Labels stay then, so one that is only removed elsewhere is no sign.
pub(crate) fn is_label_sign(key: &str) -> bool {
    use Handling::{Becomes, NoEqual, Unknown};
    is_sign(key) && matches!(handling(key), Some(Becomes(_) | NoEqual(..) | Unknown))
}

/// Annotations that are signs without one of [`sign_prefixes`].
pub(crate) fn exact_signs() -> impl Iterator<Item = &'static str> {
    READ.into_iter().filter(|key| !is_prefixed(key))
}

/// Prefixes of which each makes a key a sign at a pod's admission, unless it is of the exceptions.
pub(crate) fn sign_prefixes() -> impl Iterator<Item = &'static str> {
    PREFIXES.into_iter().filter(|prefix| *prefix != GROUP_PREFIX)
}

/// Keys with one of [`sign_prefixes`] that are no signs all the same.
pub(crate) fn exceptions(is_sign: fn(&str) -> bool) -> impl Iterator<Item = &'static str> {
    let known = READ.into_iter().chain(STATE).chain(QUEUES).chain([TOPOLOGY]);
    let has_prefix = |key: &str| sign_prefixes().any(|prefix| key.starts_with(prefix));
    known.filter(move |key| has_prefix(key) && !is_sign(key))
}

/// Names of the schedulers of HAMi and KAI.
pub(crate) fn schedulers() -> impl Iterator<Item = &'static str> {
    std::iter::once(HAMI_SCHEDULER).chain(KAI_SCHEDULERS)
}

/// Whether a key is KAI's. Of the names without a domain, those that it reads.
pub(crate) fn is_of_kai(key: &str) -> bool {
    let fractions = [GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_NUM_DEVICES, GPU_FRACTION_CONTAINER];
    fractions.contains(&key) || !key.starts_with("hami.io/") && is_prefixed(key)
}

/// Whether a key of a workload is HAMi's or KAI's. Names without a domain have no meaning there.
pub(crate) fn is_sign_of_workload(key: &str) -> bool {
    key.contains('/') && is_sign(key)
}

fn is_prefixed(key: &str) -> bool {
    PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}
