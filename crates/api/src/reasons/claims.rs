//! Reasons about claims.

use super::{Reason, row};

/// Where most refusals are.
const REFUSAL: &str = "ResourceClaim: condition `Ready` is `False`, event";
/// Where refusals without a claim to report on are.
const NO_CLAIM: &str = "Pod: event of the kubelet";
const READY: &str = "ResourceClaim: condition `Ready` is `True`";
const ENFORCED: &str = "ResourceClaim: condition `Enforced` is `True`";
const NOT_SWAPPABLE: &str = "ResourceClaim: condition `MemorySwap` is `False`";
const NOT_ENFORCED: &str = "ResourceClaim: condition `Enforced` is `False`";

const WAIT: &str = "Wait: the kubelet retries. If it lasts, see the log of the node's agent.";
const RESCHEDULE: &str = "Delete the pod so that it is scheduled again.";
const FOREIGN: &str = "Destroy the instances with `nvidia-smi mig -dci` and `-dgi`. Do not partition GPUs under dynamic MIG by hand.";
const ONE_SCHEDULER: &str = "Delete the pod of one of the claims. Let one scheduler own the node.";

/// Where all refusals are.
pub(super) const REFUSALS_NOTE: &str = "The label `error_type` has them, too, in the metrics `nvidia_dra_node_prepare_errors_total` and `nvidia_dra_node_unprepare_errors_total`.";

/// Every value of [`crate::Refusal::reason`].
pub(super) const REFUSALS: &[Reason] = &[
    row(
        "ApiUnavailable",
        NO_CLAIM,
        "The claim could not be read from the API server.",
        "Wait: the kubelet retries. If it lasts, check whether the node reaches the API server.",
    ),
    row(
        "BadClaimUid",
        NO_CLAIM,
        "The kubelet sent a claim UID with characters that a UID cannot have.",
        "Check the kubelet's version; its call is broken.",
    ),
    row(
        "ClaimNotFound",
        NO_CLAIM,
        "The claim has been deleted.",
        "Create the claim again if a pod still needs it.",
    ),
    row(
        "ClaimReplaced",
        NO_CLAIM,
        "The claim's name belongs to a newer claim.",
        "Delete the pod that refers to the old claim.",
    ),
    row(
        "ComputeDomainNotReady",
        NO_CLAIM,
        "Daemons of the claim's ComputeDomain are not ready.",
        "Wait: the kubelet retries. If it lasts, see the status of the ComputeDomain and the log of its daemon's pod.",
    ),
    row(
        "ConfigMismatch",
        REFUSAL,
        "The claim's config is for another type of device.",
        "Give the request a config of the device's type, or none.",
    ),
    row(
        "DeviceInUse",
        REFUSAL,
        "Another claim holds the device. Two claims were allocated the same device.",
        ONE_SCHEDULER,
    ),
    row(
        "DeviceMayBeInUse",
        REFUSAL,
        "The damaged checkpoint of another claim may hold the GPU.",
        "Delete that claim's pod. If no container uses the GPU, delete the file in the message and restart the agent.",
    ),
    row(
        "DeviceNotFreed",
        REFUSAL,
        "A deleted claim held the GPU, and its containers may still run.",
        "Wait: the GPU is free after the claim's grace period.",
    ),
    row(
        "DriverClosed",
        REFUSAL,
        "The driver does not answer, for example during an upgrade.",
        WAIT,
    ),
    row(
        "EnforcementNotReady",
        REFUSAL,
        "The share's memory limit cannot be enforced.",
        "Wait: the kubelet retries. If it lasts, check `memoryEnforcement` in the settings of the node's agent.",
    ),
    row(
        "FabricNotReady",
        NO_CLAIM,
        "The GPUs of the node are not all members of one NVLink clique yet.",
        "Wait: the kubelet retries. If it lasts, see the fabric state in `nvidia-smi -q` on the node.",
    ),
    row(
        "HandedOver",
        REFUSAL,
        "The node is being handed over to another agent.",
        "Wait: the kubelet retries. If it lasts, see the logs of the node's agents.",
    ),
    row(
        "HookNotReady",
        REFUSAL,
        "The program of the CDI hooks does not run on the node.",
        "Set `hookDir` of the agent to a folder of the host that can be written and allows execution. The kubelet retries.",
    ),
    row(
        "Interrupted",
        REFUSAL,
        "The work on the claim ended without a result.",
        "Wait: the kubelet retries.",
    ),
    row(
        "InvalidConfig",
        REFUSAL,
        "The opaque config of the claim or its class is invalid.",
        "Correct the manifest and create the claim again.",
    ),
    row(
        "InvalidShare",
        REFUSAL,
        "The allocation of a share is invalid.",
        "Delete the pod so that it is scheduled again. If it recurs, check that scheduler and agent have compatible versions.",
    ),
    row(
        "KernelModuleMissing",
        REFUSAL,
        "A kernel module of the driver, or of device nodes that the class adds, is not loaded on the node.",
        "Load the module in the message. The kubelet retries.",
    ),
    row(
        "LayoutChanges",
        REFUSAL,
        "The MIG devices of the GPU are about to change, as the node's label `nvidia.com/mig.config` says.",
        "Delete the pod so that it is scheduled again.",
    ),
    row(
        "LentToPlugin",
        REFUSAL,
        "The node offers its GPUs by its device plugin now.",
        "Delete the pod so that it is scheduled to another node, or set the node's mode to `dra`.",
    ),
    row(
        "MigInstancesInTheWay",
        REFUSAL,
        "The whole GPU is needed, but it has MIG instances that no claim holds.",
        FOREIGN,
    ),
    row(
        "MigModeNeedsReset",
        REFUSAL,
        "The GPU changes its MIG mode only with a reset.",
        "Drain the node and release its driver (`octavo driver release`). Set the mode with `nvidia-smi -mig` and reset the GPU, or take the GPU out of dynamic MIG.",
    ),
    row(
        "MigModeNotChanged",
        REFUSAL,
        "The driver refused to change the GPU's MIG mode.",
        "Wait: the kubelet retries. If it lasts, end processes that use the GPU outside of claims.",
    ),
    row(
        "MigNotCreated",
        REFUSAL,
        "The driver failed to create the MIG instance.",
        "Wait: the kubelet retries. If it lasts, see the agent's log and the GPU's health.",
    ),
    row(
        "MigNotDestroyed",
        REFUSAL,
        "The driver failed to destroy the MIG instance.",
        "Wait: the kubelet retries. If it lasts, end the processes that still use the instance.",
    ),
    row(
        "MigNotUsable",
        REFUSAL,
        "Containers cannot use the MIG instance.",
        "Wait: the kubelet retries. If it lasts, compare with `nvidia-smi mig -lgi` and `-lci`.",
    ),
    row(
        "MigPlacementTaken",
        REFUSAL,
        "A MIG instance that no claim holds occupies the placement.",
        FOREIGN,
    ),
    row(
        "MigProfileMissing",
        REFUSAL,
        "The GPU does not have the MIG profile or its placement.",
        "Delete the pod so that it is scheduled again. `nvidia-smi mig -lgipp` lists the placements.",
    ),
    row(
        "MpsNotReady",
        REFUSAL,
        "The claim's MPS daemon does not run yet, or does not end.",
        "Wait: the kubelet retries. If it lasts, see the pod of the DaemonSet `mps-daemon` on the node. The chart creates it with `agent.mps.enabled`.",
    ),
    row(
        "NotAllocated",
        REFUSAL,
        "The claim has no allocation.",
        "Wait for the scheduler. The claim's events tell why it does not allocate.",
    ),
    row(
        "NotInComputeDomain",
        NO_CLAIM,
        "The claim's config names a ComputeDomain of another namespace, or none.",
        "Create the claim from the template that the ComputeDomain names, in the domain's namespace.",
    ),
    row("NotReady", REFUSAL, "The agent has not read the node's GPUs yet.", WAIT),
    row(
        "NotYetSupported",
        REFUSAL,
        "The claim needs a feature that this version does not support.",
        "Remove the feature from the claim or its class.",
    ),
    row(
        "NothingForDriver",
        REFUSAL,
        "The allocation has no device of this driver.",
        "None here: another driver must prepare the claim.",
    ),
    row("OtherNode", REFUSAL, "The allocated device is on another node.", RESCHEDULE),
    row(
        "ShareDoesNotFit",
        REFUSAL,
        "Other shares of the GPU leave too little of it. The GPU is overallocated.",
        ONE_SCHEDULER,
    ),
    row(
        "SharingNotReset",
        REFUSAL,
        "A GPU did not get back its time slice or its compute mode.",
        "Wait: the kubelet retries. If it lasts, run `nvidia-smi compute-policy -l` and `nvidia-smi -q -d COMPUTE` on the node.",
    ),
    row(
        "SharingNotSet",
        REFUSAL,
        "A GPU did not get the time slice or the compute mode that the claim asks for.",
        "Wait: the kubelet retries. If it lasts, see whether the driver's root has `nvidia-smi`.",
    ),
    row(
        "Storage",
        REFUSAL,
        "A file of the node could not be written or removed.",
        "Wait: the kubelet retries. If it lasts, check the disk and its permissions.",
    ),
    row(
        "UnknownDevice",
        REFUSAL,
        "The node no longer has the GPU.",
        "Delete the pod so that it is scheduled again. `octavo top` lists the GPUs.",
    ),
];

/// Reasons about prepared claims.
pub(super) const PREPARED: &[Reason] = &[
    row("Driver", ENFORCED, "The driver enforces the share's memory limit.", ""),
    row(
        "DriverTooOld",
        NOT_SWAPPABLE,
        "The driver cannot move processes to the host's memory.",
        "Install driver 570 or newer on the node.",
    ),
    row(
        "EnforcementOff",
        NOT_ENFORCED,
        "Memory enforcement is off on the node, so the containers can exceed the share.",
        "Set `memoryEnforcement` of the agent to `auto` if that is not intended.",
    ),
    row(
        "Exempt",
        "ResourceClaim: conditions `Enforced` and `TimeEnforced` are `False`",
        "An administrator exempted the claim's namespace, so the containers can exceed the share.",
        "Take the namespace out of `exemptNamespaces` of the agent, and delete the pods, if that is not intended.",
    ),
    row("Guard", ENFORCED, "The guard in the containers enforces the share's memory limit.", ""),
    row(
        "Leases",
        "ResourceClaim: condition `TimeEnforced` is `True`",
        "The share's processes need leases of GPU time, which the agent gives.",
        "",
    ),
    row(
        "LeasesStopped",
        "ResourceClaim: condition `TimeEnforced` is `False`, event; Pod: event",
        "The agent gives no leases of GPU time, because their thread could not be started or has failed.",
        "See the log of the node's agent, and delete its pod so that it starts again.",
    ),
    row(
        "MemoryOverflow",
        "ResourceClaim: condition `MemoryOverflow` is `True`, event; Pod: event",
        "The share's containers have more memory than its limit.",
        "Delete the pod, or give the claim more memory. The message tells what the agent did.",
    ),
    row(
        "MemoryWithinLimit",
        "ResourceClaim: condition `MemoryOverflow` is `False`; Pod: event",
        "The share is within its limit again.",
        "",
    ),
    row(
        "MigInstanceGone",
        "ResourceClaim: condition `Ready` is `False`",
        "The MIG instance no longer exists, as after a reset of its GPU.",
        "Delete the pod so that another instance is created.",
    ),
    row(
        "NoGuard",
        NOT_ENFORCED,
        "A version without memory enforcement prepared the share.",
        "Delete the pods so that the share is prepared again.",
    ),
    row(
        "NoHostMemory",
        NOT_SWAPPABLE,
        "The host has no memory left for the share's processes.",
        "Raise `swapHostMemory` of the agent, or the memory limit of the pod.",
    ),
    row(
        "NotWatched",
        "ResourceClaim: condition `Enforced` is `Unknown`, event; Pod: event",
        "The guard enforces the limit, but allocations that bypass it are not detected.",
        "The message names the cause and the remedy.",
    ),
    row(
        "OldGuard",
        "ResourceClaim: condition `TimeEnforced` is `False`, event; Pod: event",
        "A process of the share has a guard of a version without leases. It launches whenever it wants.",
        "Delete the pod, so that its containers start with the guard of this version.",
    ),
    row("Prepared", READY, "The MIG instance is ready for the containers.", ""),
    row(
        "SeveralGpus",
        NOT_SWAPPABLE,
        "A process of the share sees several GPUs. With `swapUnit: Pages` its memory is moved only if it sees one.",
        "Give each process one GPU, or set `swapUnit: Processes`.",
    ),
    row(
        "SharesMemory",
        NOT_SWAPPABLE,
        "A process of the share shares GPU memory with others, by IPC or multicast. The driver does not move it.",
        "Give the claim no `memoryLimit`, or end the process.",
    ),
    row(
        "StateTampered",
        "ResourceClaim: condition `Enforced` is `False`, event; Pod: event",
        "The share's slot table was changed or is gone. Its containers can no longer allocate or launch.",
        "Delete the pod and check its programs.",
    ),
    row(
        "SwapFailed",
        "ResourceClaim: condition `MemorySwap` is `False`, event; Pod: event",
        "The driver failed to move a process of the share.",
        "See the message. Delete the pod if its process hangs.",
    ),
    row(
        "SwapOff",
        NOT_SWAPPABLE,
        "The node's setting `memorySwap` was turned off after the share was prepared.",
        "Delete the pod so that the share is prepared again, or turn the setting on.",
    ),
    row(
        "Swappable",
        "ResourceClaim: condition `MemorySwap` is `True`",
        "The share may have more than its request. The agent moves its memory to the host when other shares need theirs.",
        "",
    ),
    row(
        "SwappedIn",
        "ResourceClaim: event; Pod: event",
        "The share's processes are on the GPU again.",
        "",
    ),
    row(
        "SwappedOut",
        "ResourceClaim: event; Pod: event",
        "The share's processes wait in the host's memory, because other shares need their own on the GPU.",
        "Ask for more `memory` if the share should not wait.",
    ),
    row(
        "TimeNotEnforced",
        "ResourceClaim: condition `TimeEnforced` is `False`",
        "The claim asks for a part of the GPU's time, but the node does not divide it.",
        "Set `timeEnforcement` of the agent to `leases` if shares need their parts.",
    ),
    row(
        "UnknownDriverFunction",
        "ResourceClaim: event; Pod: event",
        "The containers use driver functions that the guard does not know. Only the driver counts what these allocate.",
        "Update Octavo, or set `strictness: Strict`.",
    ),
    row(
        "UsesManagedMemory",
        NOT_SWAPPABLE,
        "A process of the share has managed memory (`cudaMallocManaged`). The driver does not move it.",
        "Use other memory, or give the claim no `memoryLimit`.",
    ),
    row(
        "WaitsForGpuTime",
        "ResourceClaim: event; Pod: event",
        "The share has waited for its GPU's time for more than 10 s.",
        "Ask for more `compute`, or move a share to another GPU. `octavo top --shares` shows the time of each share.",
    ),
    row(
        "Watched",
        "ResourceClaim: condition `Enforced` is `True`; Pod: event",
        "Allocations that bypass the guard are detected again.",
        "",
    ),
];
