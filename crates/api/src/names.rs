//! Names on which users, controllers and other programs rely. They are contracts: a change breaks manifests.

/// The DRA driver: in slices, classes, claims and the kubelet's registry.
pub const DRIVER: &str = "gpu.nvidia.com";

/// Group and version of NVIDIA's opaque configs and `ComputeDomains`.
pub const NVIDIA_GROUP: &str = "resource.nvidia.com";
/// Version in [`NVIDIA_GROUP`].
pub const NVIDIA_VERSION: &str = "v1beta1";
/// API version of NVIDIA's opaque configs and `ComputeDomains`.
pub const NVIDIA_API_VERSION: &str = "resource.nvidia.com/v1beta1";

/// API version of Octavo's own opaque configs.
pub const OCTAVO_API_VERSION: &str = "octavo.dev/v1alpha1";

/// `DeviceClass` of whole GPUs.
pub const CLASS_GPU: &str = "gpu.nvidia.com";
/// `DeviceClass` of MIG devices.
pub const CLASS_MIG: &str = "mig.nvidia.com";

/// The DRA driver of `ComputeDomains`.
pub const DRIVER_COMPUTE_DOMAIN: &str = "compute-domain.nvidia.com";
/// `DeviceClass` of the channel by which a pod enters a domain.
pub const CLASS_CHANNEL: &str = "compute-domain-default-channel.nvidia.com";
/// `DeviceClass` of a domain's daemon on a node.
pub const CLASS_DAEMON: &str = "compute-domain-daemon.nvidia.com";
/// Label with a domain's UID: of what is made for it, and of its nodes. Its finalizer has the same name.
pub const LABEL_COMPUTE_DOMAIN: &str = "resource.nvidia.com/computeDomain";
/// Label of a `ComputeDomainClique` with its clique id.
pub const LABEL_COMPUTE_DOMAIN_CLIQUE: &str = "resource.nvidia.com/computeDomain.cliqueID";
/// Label of a domain's claim templates: [`TARGET_DAEMON`] or [`TARGET_WORKLOAD`].
pub const LABEL_COMPUTE_DOMAIN_TARGET: &str = "resource.nvidia.com/computeDomainTarget";
/// The template of the daemons' claims.
pub const TARGET_DAEMON: &str = "Daemon";
/// The template of the pods' claims.
pub const TARGET_WORKLOAD: &str = "Workload";
/// Annotation of a claim from a domain's template: the domain, `<namespace>/<name>`. A hint: the UID in the claim's config decides.
pub const ANNOTATION_COMPUTE_DOMAIN: &str = "octavo.dev/compute-domain";
/// Annotation of a `ComputeDomain`: which daemons a pod waits for without end. See [`ReadyWhen`](crate::compute_domain::ReadyWhen).
pub const ANNOTATION_READY_WHEN: &str = "octavo.dev/ready-when";
/// Annotation of a `ComputeDomainClique`: a count that each change of its indices raises by one. A change holds only at the count
/// for which it was decided. So two controllers never give one index twice, and the daemons' writes do not disturb a change.
pub const ANNOTATION_INDEX_CHANGES: &str = "octavo.dev/index-changes";
/// Condition of a `ComputeDomain`: whether the daemons of all nodes with an allocated channel are ready. Prepare waits for it.
pub const CONDITION_MEMBERS_READY: &str = "MembersReady";
/// Stands for a domain's UID in what is made for all domains together: the IMEX domains of cliques, with `imex.isolation: channel`.
/// It is the name-based UUID (version 5) of the DNS name `shared.compute-domain.octavo.dev`.
pub const SHARED_IMEX_DOMAIN: &str = "43edba59-0cc9-511f-aa1d-c5e3f5616e80";
/// Reason of [`CONDITION_MEMBERS_READY`] and of the condition `Ready`: the hosts run the IMEX services.
pub const REASON_HOST_MANAGED: &str = "HostManaged";
/// Condition of a `ComputeDomain`: whether another domain has nodes in the same NVLink clique.
pub const CONDITION_SHARED_CLIQUE: &str = "SharedClique";
/// Condition of a `ComputeDomain`: what is wrong with the certificate of its daemons, where they encrypt.
pub const CONDITION_CERTIFICATE_PROBLEM: &str = "CertificateProblem";
/// Begin of the names of slots, by which the daemons of an IMEX domain call each other; four digits follow. They are those of
/// NVIDIA's driver.
pub const IMEX_SLOT_PREFIX: &str = "compute-domain-daemon-";
/// Prefix of the field managers of domains' daemons; a hash of the node's name follows.
pub const IMEX_DAEMON_MANAGER_PREFIX: &str = "octavo-imex-daemon-";
/// `reportingController` of the controller's events, and its field manager.
pub const CONTROLLER: &str = "octavo.dev/controller";
/// Field manager of the controller's part of a `NodeHealth`'s spec, and of the status of a `HealthPolicy`.
pub const HEALTH_CONTROLLER: &str = "octavo.dev/health-controller";
/// Condition of a `NodeHealth`: whether all devices are in service.
pub const CONDITION_HEALTHY: &str = "Healthy";
/// Condition of a `NodeHealth`: whether the policy that selects the node can be used.
pub const CONDITION_POLICY_ACCEPTED: &str = "PolicyAccepted";
/// Field manager of the orders of persons in a `NodeHealth`'s spec, as `octavo health fence` gives them.
pub const HEALTH_ORDERS: &str = "octavo.dev/health-orders";
/// Condition of a `HealthPolicy`: whether this version of it is in use.
pub const CONDITION_ACCEPTED: &str = "Accepted";
/// Condition of a `HealthPolicy`: whether many failures at once have stopped remedies.
pub const CONDITION_BREAKER_OPEN: &str = "BreakerOpen";
/// Condition of a `HealthPolicy`: whether the records of all its devices can be read.
pub const CONDITION_RECORDS_READABLE: &str = "RecordsReadable";
/// Condition of a `HealthPolicy`: whether objects can be made of its template.
pub const CONDITION_TEMPLATE_USABLE: &str = "TemplateUsable";
/// Label of objects of a `HealthPolicy`'s template: the number of the attempt.
pub const LABEL_REMEDIATION: &str = "octavo.dev/remediation";
/// Condition of a `Maintenance`: whether owners of pods had their event.
pub const CONDITION_ANNOUNCED: &str = "Announced";
/// Condition of a `Maintenance`: whether the work may be done now. Its reason is the phase.
pub const CONDITION_IN_PROGRESS: &str = "InProgress";
/// Condition of a `Maintenance`: whether no pod with a GPU of its nodes is left.
pub const CONDITION_DRAINED: &str = "Drained";
/// Reason of events of owners of pods: work on the nodes of their pods is planned.
pub const REASON_MAINTENANCE_PLANNED: &str = "MaintenancePlanned";
/// Reason of an event of a pod that is evicted, since work on its node is in progress.
pub const REASON_NODE_IN_MAINTENANCE: &str = "NodeInMaintenance";
/// Reason of the condition `DisruptionTarget` of a pod that is deleted for the taint of a device, as of Kubernetes' own controller.
pub const REASON_DEVICE_TAINT: &str = "DeletionByDeviceTaintManager";
/// Reason of an event of a pod that is evicted or deleted, since its GPU is out of service.
pub const REASON_GPU_OUT_OF_SERVICE: &str = "GpuOutOfService";
/// Reason of an event of a pod and of its controller, once the pod is to leave a GPU.
pub const REASON_EVICTION_PLANNED: &str = "EvictionPlanned";
/// Variable of a domain's daemon, from its CDI spec, as in NVIDIA's driver: the clique of its node, or empty.
pub const ENV_CLIQUE_ID: &str = "CLIQUE_ID";
/// The same: UID of the domain.
pub const ENV_COMPUTE_DOMAIN_UUID: &str = "COMPUTE_DOMAIN_UUID";
/// The same: name of the domain.
pub const ENV_COMPUTE_DOMAIN_NAME: &str = "COMPUTE_DOMAIN_NAME";
/// The same: namespace of the domain.
pub const ENV_COMPUTE_DOMAIN_NAMESPACE: &str = "COMPUTE_DOMAIN_NAMESPACE";

/// Label of claim templates for pods of HAMi and KAI Scheduler that were translated at their admission: `true`.
pub const LABEL_TRANSLATED: &str = "octavo.dev/translated";
/// Annotation of such a template: when a pod last needed it, RFC 3339.
pub const ANNOTATION_LAST_USED: &str = "octavo.dev/last-used";

/// Extended resource provided by the class of whole GPUs.
pub const EXTENDED_RESOURCE_GPU: &str = "nvidia.com/gpu";

/// Taint on a device that reported a critical XID; the value is the code.
pub const TAINT_XID: &str = "gpu.nvidia.com/xid";
/// Taint on a device that the driver lost.
pub const TAINT_GPU_LOST: &str = "gpu.nvidia.com/gpu-lost";

/// Taint on every device of a node whose driver does not answer, was released (the value is then
/// [`DRIVER_RELEASED`]), or lacks a kernel module ([`MISSING_MODULE_PREFIX`]).
pub const TAINT_DRIVER_UNAVAILABLE: &str = "octavo.dev/driver-unavailable";
/// Value of [`TAINT_DRIVER_UNAVAILABLE`]: the agent holds nothing of the driver, at a request.
pub const DRIVER_RELEASED: &str = "released";
/// Begin of the value of [`TAINT_DRIVER_UNAVAILABLE`] that ends in the name of a kernel module that is not loaded.
pub const MISSING_MODULE_PREFIX: &str = "missing-";
/// Taint on a device for which the driver advises an action; the value is the action.
pub const TAINT_RECOVERY_ACTION: &str = "octavo.dev/recovery-action";
/// Taint on a device that is not in full service for another reason; the value is the reason, or `Probation`. The effect is `None`
/// while the device still takes pods.
pub const TAINT_HEALTH: &str = "octavo.dev/health";
/// Taint of nodes on which work is in progress, with the effect `NoSchedule`. The controller adds and removes it: see `Maintenance`.
pub const TAINT_MAINTENANCE: &str = "octavo.dev/maintenance";
/// Taint on a GPU that its NVLink fabric does not serve; the value is `not-started`, `in-progress`, `failed` or
/// `route-unhealthy`.
pub const TAINT_FABRIC: &str = "octavo.dev/fabric-not-ready";
/// Taint on the channel and the daemon of a node that is in an NVLink fabric and cannot serve claims of `ComputeDomains`. The
/// value says what is missing: [`NO_IMEX_CHANNELS`], [`NO_IMEX_SERVICE`] or [`NO_IMEX_CONTROL`].
pub const TAINT_IMEX: &str = "octavo.dev/imex-unavailable";
/// Value of [`TAINT_IMEX`]: the kernel module has no channels.
pub const NO_IMEX_CHANNELS: &str = "no-channels";
/// Value of [`TAINT_IMEX`]: the driver's root has no `nvidia-imex`.
pub const NO_IMEX_SERVICE: &str = "no-nvidia-imex";
/// Value of [`TAINT_IMEX`]: the driver's root has no `nvidia-imex-ctl`, by which the host's service is asked.
pub const NO_IMEX_CONTROL: &str = "no-nvidia-imex-ctl";
/// Taint on a dynamic MIG instance on a GPU that left dynamic MIG. It disappears with its claim.
pub const TAINT_WITHDRAWN: &str = "octavo.dev/withdrawn";
/// Taint on a MIG placement that overlaps a foreign instance.
pub const TAINT_FOREIGN_MIG: &str = "octavo.dev/foreign-mig-instance";

/// Taint on every device of a node with an owning scheduler. The value is the scheduler's name, as in a pod's
/// `spec.schedulerName`. It is unrelated to health: only the owner tolerates it, so no other scheduler allocates the
/// device a second time. A node with a device plugin, whose GPUs have no taints, may have it itself.
pub const TAINT_OWNER: &str = "octavo.dev/scheduler";

/// Value of [`LABEL_OWNER`] and [`TAINT_OWNER`]: Octavo's scheduler owns the node.
pub const OWNER_OCTAVO: &str = "octavo";

/// Capacity of a GPU: its memory in bytes.
pub const CAPACITY_MEMORY: &str = "memory";
/// Capacity of a GPU: its time, in percent. A claim without it gets a fair part of idle time.
pub const CAPACITY_COMPUTE: &str = "compute";

/// Attribute of a GPU: whether a share of it is held to its [`CAPACITY_COMPUTE`].
pub const ATTRIBUTE_TIME_ENFORCED: &str = "octavo.dev/timeEnforced";

/// Capacity of a GPU: equal shares of it, where a node counts them. The name is that of NVIDIA's DRA driver.
pub const CAPACITY_SHARES: &str = "shares";

/// Node label with the GPUs under dynamic MIG: `all`, `none`, or minor numbers or UUIDs joined by `_` (`0_3`). It takes
/// precedence over the agent's setting.
pub const LABEL_DYNAMIC_MIG: &str = "octavo.dev/dynamic-mig";

/// Node label with which the agent releases the driver: `true`. It then holds nothing of the driver open, so that
/// modules can be unloaded, GPUs reset and MIG modes changed by hand.
pub const LABEL_DRIVER_RELEASED: &str = "octavo.dev/driver-released";
/// Prefix of the node labels by which NVIDIA's GPU Operator deploys its components. Before it unloads the driver, it
/// gives those of the components that run a value with `paused-for-` in it. One such label releases the driver, too.
pub const LABEL_PREFIX_OPERATOR_DEPLOY: &str = "nvidia.com/gpu.deploy.";

/// Node label with the owning scheduler; empty means none. It takes precedence over the agent's setting, and becomes
/// the taint [`TAINT_OWNER`] of the node's devices.
pub const LABEL_OWNER: &str = "octavo.dev/scheduler";

/// Node label with the way in which the node offers its GPUs: `dra`, `device-plugin` or `none`. It takes precedence over the
/// agent's setting.
pub const LABEL_MODE: &str = "octavo.dev/mode";
/// Annotation of a node that leaves with its release: `NAMESPACE/RELEASE` and the former value of [`LABEL_MODE`], as
/// `octavo-system/octavo=device-plugin`.
pub const ANNOTATION_LEAVING: &str = "octavo.dev/leaving";
/// Value of [`LABEL_MODE`] for a node that is about to leave Octavo.
pub const MODE_NONE: &str = "none";
/// Metric of the agent with the labels `node` and `mode`: 1 for the mode in which the node is.
pub const NODE_MODE_METRIC: &str = "octavo_agent_node_mode";
/// Metric of the agent with the labels `node` and `reason`: how much keeps the node from being as its settings ask. The reasons are those
/// of the node's events.
pub const NODE_PROBLEMS_METRIC: &str = "octavo_agent_node_problems";
/// Node label with the name of the device plugin's config, as of NVIDIA's device plugin.
pub const LABEL_PLUGIN_CONFIG: &str = "nvidia.com/device-plugin.config";

/// Node label of NVIDIA's GPU Operator: `true` where the node has a GPU.
pub const LABEL_GPU_PRESENT: &str = "nvidia.com/gpu.present";

/// Annotation of a scheduler's `Lease`: address of the holder's admin server, `HOST:PORT`. It is absent if the holder is
/// a pod, since pods are reached through the API server.
pub const ANNOTATION_ADDRESS: &str = "octavo.dev/address";

/// Folder with the limits of shares, on the host and in containers: `<folder>/<share>/limits.json`.
pub const SHARES_FOLDER: &str = "/run/octavo/shares";

/// Node label that names the layout of its GPUs' MIG devices, as of NVIDIA's MIG manager.
pub const LABEL_MIG_CONFIG: &str = "nvidia.com/mig.config";
/// Node label with the state of that layout: `pending`, `success` or `failed`.
pub const LABEL_MIG_CONFIG_STATE: &str = "nvidia.com/mig.config.state";
/// Node label with the NVLink clique, `<cluster uuid>.<clique>`.
pub const LABEL_CLIQUE: &str = "nvidia.com/gpu.clique";

/// Condition on `claim.status.devices[]`: whether the device is ready for the claim's containers.
pub const CONDITION_READY: &str = "Ready";

/// Condition on `claim.status.devices[]` of a share: whether memory enforcement limits its containers.
pub const CONDITION_ENFORCED: &str = "Enforced";

/// Condition on `claim.status.devices[]` of a share: whether its containers are held to their part of the GPU's time.
pub const CONDITION_TIME_ENFORCED: &str = "TimeEnforced";

/// Reason of [`CONDITION_TIME_ENFORCED`]: processes need leases of the agent.
pub const REASON_LEASES: &str = "Leases";
/// Reason of [`CONDITION_TIME_ENFORCED`] with status `False`: the driver divides the time.
pub const REASON_TIME_NOT_ENFORCED: &str = "TimeNotEnforced";

/// Reason of [`CONDITION_TIME_ENFORCED`] with status `False`, and of an event: a process has a guard that knows no leases.
pub const REASON_OLD_GUARD: &str = "OldGuard";
/// Reason of [`CONDITION_TIME_ENFORCED`] with status `False`, and of an event: the agent could not start to give leases, or had to
/// stop.
pub const REASON_LEASES_STOPPED: &str = "LeasesStopped";

/// Reason of an event: a share waits long for its GPU's time.
pub const REASON_LONG_WAIT: &str = "WaitsForGpuTime";

/// Condition on `claim.status.devices[]` of a share with a `memoryLimit` above its request: whether the agent can move its memory to the
/// host when other shares need theirs.
pub const CONDITION_MEMORY_SWAP: &str = "MemorySwap";
/// Reason of [`CONDITION_MEMORY_SWAP`]: the agent can.
pub const REASON_SWAPPABLE: &str = "Swappable";
/// Reason of [`CONDITION_MEMORY_SWAP`] with status `False`: a process of the share has managed memory, which the driver does not move.
pub const REASON_USES_MANAGED_MEMORY: &str = "UsesManagedMemory";
/// Reason of [`CONDITION_MEMORY_SWAP`] with status `False`: a process shares memory with others, by IPC or multicast.
pub const REASON_SHARES_MEMORY: &str = "SharesMemory";
/// Reason of [`CONDITION_MEMORY_SWAP`] with status `False`: a process sees several GPUs, and its guard moves memory of one only.
pub const REASON_SEVERAL_GPUS: &str = "SeveralGpus";
/// Reason of [`CONDITION_MEMORY_SWAP`] with status `False`, and of an event: the driver refused to move a process.
pub const REASON_SWAP_FAILED: &str = "SwapFailed";
/// Reason of [`CONDITION_MEMORY_SWAP`] with status `False`: the host has no memory left for it.
pub const REASON_NO_HOST_MEMORY: &str = "NoHostMemory";
/// Reason of [`CONDITION_MEMORY_SWAP`] with status `False`: the driver has no process checkpoints.
pub const REASON_DRIVER_TOO_OLD: &str = "DriverTooOld";
/// Reason of [`CONDITION_MEMORY_SWAP`] with status `False`: the node's setting was turned off after the share was prepared.
pub const REASON_SWAP_OFF: &str = "SwapOff";
/// Reason of an event: processes of a share were moved to the host's memory.
pub const REASON_SWAPPED_OUT: &str = "SwappedOut";
/// Reason of an event: processes of a share are on the GPU again.
pub const REASON_SWAPPED_IN: &str = "SwappedIn";

/// Condition on `claim.status.devices[]` of a share: whether its containers exceeded the share's memory.
pub const CONDITION_OVERFLOW: &str = "MemoryOverflow";

/// Reason of [`CONDITION_ENFORCED`]: the guard in the containers enforces the limit.
pub const REASON_GUARD: &str = "Guard";
/// Reason of [`CONDITION_ENFORCED`]: the driver enforces the limit.
pub const REASON_DRIVER: &str = "Driver";
/// Reason of [`CONDITION_ENFORCED`] with status `False`: memory enforcement is off.
pub const REASON_ENFORCEMENT_OFF: &str = "EnforcementOff";
/// Reason of [`CONDITION_ENFORCED`] and [`CONDITION_TIME_ENFORCED`] with status `False`: an administrator exempted the claim's namespace.
pub const REASON_EXEMPT: &str = "Exempt";
/// Reason of [`CONDITION_ENFORCED`] with status `False`: the share was prepared before memory enforcement existed.
pub const REASON_NO_GUARD: &str = "NoGuard";

/// Reason of [`CONDITION_ENFORCED`] with status `Unknown`, and of an event: the guard enforces the limit, but
/// allocations that bypass it would not be detected.
pub const REASON_NOT_WATCHED: &str = "NotWatched";
/// Reason of an event: allocations that bypass the guard are detected again.
pub const REASON_WATCHED: &str = "Watched";

/// Pod label: name of the pod's `PodGroup` in the same namespace.
pub const POD_GROUP: &str = "octavo.dev/pod-group";
/// Pod label: name of the pod's subgroup, if its `PodGroup` has several.
pub const POD_SUBGROUP: &str = "octavo.dev/pod-subgroup";
/// Label or annotation of a Job's pod template: gang scheduling of its pods.
///
/// | value | meaning |
/// |---|---|
/// | a number | minimum number of pods that start together |
/// | `true` | the Job's parallelism; the Job itself needs the label too |
/// | `false` | no gang; valid on the pods of any workload |
pub const GANG: &str = "octavo.dev/gang";
/// Annotation or label of a workload or pod template: topology level, or its node label key. The pods must be in one
/// domain of it.
pub const TOPOLOGY_REQUIRED: &str = "octavo.dev/topology-required";
/// Annotation or label of a workload or pod template: topology level. The pods should be in one domain of it.
pub const TOPOLOGY_PREFERRED: &str = "octavo.dev/topology-preferred";
/// Annotation of pods in gangs, which their binding writes: the gang had places for its minimum then. The value is JSON:
/// `{"minMembers": {"worker": 4}, "youngestCreated": 2051676000}`, with the minimum by subgroup. The time is the creation of the youngest
/// pod with a place, in seconds since 1970. A scheduler that starts knows by it which gangs ran in full.
pub const GANG_PLACED: &str = "octavo.dev/gang-placed";
/// Annotation or label of a workload, pod template or pod: name of its `PlacementPolicy`.
pub const PLACEMENT_POLICY: &str = "octavo.dev/placement-policy";
/// Annotation or label of a workload, pod template or pod: whether its pods may be restarted on other nodes to free
/// capacity, `true` or `false` (default).
pub const MOVABLE: &str = "octavo.dev/movable";
/// Annotation or label of a workload, pod template or pod: seconds of work of all members that are lost when one is
/// disrupted.
pub const SECONDS_AT_RISK: &str = "octavo.dev/seconds-at-risk";
/// Annotation of pods: the signal that asks a container to save its work before the pod leaves, such as `SIGUSR1`.
pub const CHECKPOINT_SIGNAL: &str = "checkpoint.octavo.dev/signal";
/// Annotation of pods: the container that gets the signal; the first one if it is not set.
pub const CHECKPOINT_CONTAINER: &str = "checkpoint.octavo.dev/container";
/// Annotation of pods: port and path of the POST that asks a pod to save its work, such as `:8080/checkpoint`.
pub const CHECKPOINT_HTTP: &str = "checkpoint.octavo.dev/http";
/// Annotation of pods: volume and path of the file that asks a pod to save its work, such as `control/checkpoint`.
pub const CHECKPOINT_FILE: &str = "checkpoint.octavo.dev/file";
/// Annotation of pods: the time that they have to save their work, in seconds.
pub const CHECKPOINT_DEADLINE: &str = "checkpoint.octavo.dev/deadline-seconds";

/// Field manager of the controller's requests for checkpoints in a `NodeHealth`'s spec.
pub const CHECKPOINT_CONTROLLER: &str = "octavo.dev/checkpoint-controller";
/// Reason of the condition `DisruptionTarget` and of an event of a member of a gang that is deleted, since its node is lost.
pub const REASON_NODE_LOST: &str = "NodeLost";
/// Reason of an event of a pod that leaves without a checkpoint, since its annotations for one cannot be used.
pub const REASON_CHECKPOINT_INVALID: &str = "CheckpointInvalid";

/// Reporter of events and field manager in server-side apply.
pub const AGENT: &str = "octavo-agent";
/// Field manager of the agent's label [`LABEL_MIG_CONFIG_STATE`].
pub const MIG_MANAGER: &str = "octavo.dev/mig-manager";
/// Field manager of the label [`LABEL_GPU_PRESENT`] of `octavo discover`.
pub const DISCOVER_MANAGER: &str = "octavo.dev/discover";
/// Field manager of the agent's labels of GPU feature discovery.
pub const FEATURE_LABELS_MANAGER: &str = "octavo.dev/feature-labels";
/// `reportingController` of the agent's events.
pub const AGENT_CONTROLLER: &str = "octavo.dev/agent";
