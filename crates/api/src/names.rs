//! Names that users, controllers and other programs rely on. They are contracts: a changed one breaks
//! somebody's manifest.

/// The DRA driver: in slices, classes, claims and the kubelet's registry.
pub const DRIVER: &str = "gpu.nvidia.com";

/// API version of NVIDIA's opaque configs and `ComputeDomains`.
pub const NVIDIA_API_VERSION: &str = "resource.nvidia.com/v1beta1";

/// API version of Octavo's own opaque configs.
pub const OCTAVO_API_VERSION: &str = "octavo.dev/v1alpha1";

/// `DeviceClass` of whole GPUs.
pub const CLASS_GPU: &str = "gpu.nvidia.com";
/// `DeviceClass` of MIG devices.
pub const CLASS_MIG: &str = "mig.nvidia.com";
/// `DeviceClass` of GPUs passed through to virtual machines.
pub const CLASS_VFIO: &str = "vfio.gpu.nvidia.com";

/// Extended resource that the class of whole GPUs serves.
pub const EXTENDED_RESOURCE_GPU: &str = "nvidia.com/gpu";

/// Taint on a device that reported a critical XID; the value is the code.
pub const TAINT_XID: &str = "gpu.nvidia.com/xid";
/// Taint on a device that the driver lost.
pub const TAINT_GPU_LOST: &str = "gpu.nvidia.com/gpu-lost";
/// Taint on a device whose health cannot be watched.
pub const TAINT_UNMONITORED: &str = "gpu.nvidia.com/unmonitored";

/// Taint on a device for which the driver advises an action; the value is the action.
pub const TAINT_RECOVERY_ACTION: &str = "octavo.dev/recovery-action";
/// Taint on a MIG instance that Octavo made on a GPU that it should no more cut: it goes when its
/// claim does.
pub const TAINT_WITHDRAWN: &str = "octavo.dev/withdrawn";
/// Taint on a MIG placement whose memory slices an instance has that Octavo did not make.
pub const TAINT_FOREIGN_MIG: &str = "octavo.dev/foreign-mig-instance";

/// Taint on every device of a node that one scheduler owns; the value is the scheduler's name, as in a pod's
/// `spec.schedulerName`. It says nothing of the device's health: only that scheduler ignores it, so that no
/// other gives the same device a second time.
pub const TAINT_OWNER: &str = "octavo.dev/scheduler";

/// Value of [`LABEL_OWNER`] and [`TAINT_OWNER`]: Octavo's scheduler owns the node.
pub const OWNER_OCTAVO: &str = "octavo";

/// Capacity of a GPU: its memory in bytes.
pub const CAPACITY_MEMORY: &str = "memory";
/// Capacity of a GPU: its time, in percent. A claim that takes none has a fair part of what is idle.
pub const CAPACITY_COMPUTE: &str = "compute";

/// Node label that says which GPUs of a node are cut by MIG as claims ask for it: `all`, `none`, or
/// minor numbers joined by `_` (`0_3`). It goes before the agent's own setting.
pub const LABEL_DYNAMIC_MIG: &str = "octavo.dev/dynamic-mig";

/// Node label that names the scheduler which owns the node; empty: none does. It goes before the agent's own
/// setting, and becomes the taint [`TAINT_OWNER`] of the node's devices.
pub const LABEL_OWNER: &str = "octavo.dev/scheduler";

/// Folder of what shares may have, on the host and in containers: `<folder>/<share>/limits.json`.
pub const SHARES_FOLDER: &str = "/run/octavo/shares";

/// Node label with the NVLink clique, `<cluster uuid>.<clique>`.
pub const LABEL_CLIQUE: &str = "nvidia.com/gpu.clique";

/// Condition on `claim.status.devices[]`: whether the device is ready for the claim's containers.
pub const CONDITION_READY: &str = "Ready";

/// Condition on `claim.status.devices[]` of a share: whether something holds its containers to it.
pub const CONDITION_ENFORCED: &str = "Enforced";

/// Condition on `claim.status.devices[]` of a share: whether its containers were found with more memory than
/// the share.
pub const CONDITION_OVERFLOW: &str = "MemoryOverflow";

/// Reason of [`CONDITION_ENFORCED`]: the guard in the containers holds them.
pub const REASON_GUARD: &str = "Guard";
/// Reason of [`CONDITION_ENFORCED`]: the driver holds them.
pub const REASON_DRIVER: &str = "Driver";
/// Reason of [`CONDITION_ENFORCED`] with status `False`: the wall is turned off.
pub const REASON_ENFORCEMENT_OFF: &str = "EnforcementOff";
/// Reason of [`CONDITION_ENFORCED`] with status `False`: a version before the wall prepared the share.
pub const REASON_NO_GUARD: &str = "NoGuard";

/// Reason of [`CONDITION_ENFORCED`] with status `Unknown`, and of an event: the guard holds the containers, and what
/// goes round it would not be seen.
pub const REASON_NOT_WATCHED: &str = "NotWatched";
/// Reason of an event: what goes round the guard is seen again.
pub const REASON_WATCHED: &str = "Watched";

/// Pod label: name of the `PodGroup` in the pod's namespace that it is in.
pub const POD_GROUP: &str = "octavo.dev/pod-group";
/// Pod label: name of the pod's subgroup, where its `PodGroup` has several.
pub const POD_SUBGROUP: &str = "octavo.dev/pod-subgroup";
/// Label or annotation of a Job's pod template: whether its pods start together. A number: so many
/// at least. `true`: as many as the Job runs at a time; the Job itself needs the label too.
/// `false`, on the pods of any workload: each of them by itself.
pub const GANG: &str = "octavo.dev/gang";
/// Annotation or label of a workload or pod template: topology level (or key of its node label) in
/// one domain of which the pods must lie.
pub const TOPOLOGY_REQUIRED: &str = "octavo.dev/topology-required";
/// Annotation or label of a workload or pod template: topology level in one domain of which the pods
/// had better lie.
pub const TOPOLOGY_PREFERRED: &str = "octavo.dev/topology-preferred";
/// Annotation or label of a workload, pod template or pod: name of its `PlacementPolicy`.
pub const PLACEMENT_POLICY: &str = "octavo.dev/placement-policy";
/// Annotation or label of a workload, pod template or pod: whether its pods may be restarted
/// elsewhere to make room, `true` or `false`; not given: they may not.
pub const MOVABLE: &str = "octavo.dev/movable";
/// Annotation or label of a workload, pod template or pod: seconds of work of all members that are
/// lost when one is disturbed.
pub const SECONDS_AT_RISK: &str = "octavo.dev/seconds-at-risk";

/// Who reports events and owns fields in server-side apply.
pub const AGENT: &str = "octavo-agent";
/// `reportingController` of the agent's events.
pub const AGENT_CONTROLLER: &str = "octavo.dev/agent";
