//! Reasons about nodes and their GPUs.

use super::{Reason, row};

const EVENT: &str = "Node: event";
const BLIND: &str = "label `reason` of the metric `octavo_agent_watch_blind`";

/// Events of a node.
pub(super) const NODES: &[Reason] = &[
    row(
        "CdiSpecsNotWritten",
        EVENT,
        "The CDI specs of the device plugin cannot be written, so its last list of devices stays.",
        "See the message: a kernel module is not loaded, or a file cannot be written.",
    ),
    row(
        "DeviceNumbersUnknown",
        EVENT,
        "The numbers of device nodes cannot be read, so the last list of devices stays.",
        "See whether the agent sees the host's `/proc/devices`.",
    ),
    row(
        "DriverReleasedLabelInvalid",
        EVENT,
        "The node's label `octavo.dev/driver-released` is invalid and ignored.",
        "Correct the label: `true`, or remove it.",
    ),
    row(
        "DynamicMigLabelInvalid",
        EVENT,
        "The node's label `octavo.dev/dynamic-mig` is invalid and ignored.",
        "Correct the label: `all`, `none`, or minor numbers or UUIDs joined by `_`.",
    ),
    row(
        "DynamicMigNeedsReset",
        EVENT,
        "The GPU is opted into dynamic MIG, but its MIG mode changes only with a reset.",
        "Drain the node and release its driver (`octavo driver release`). Run `nvidia-smi -mig 1` and reset the GPU.",
    ),
    row(
        "DynamicMigUnavailable",
        EVENT,
        "A GPU is opted into dynamic MIG that the node does not have, or that has no MIG.",
        "Remove it from the setting `dynamicMig` or the node's label.",
    ),
    row(
        "FeatureLabelsNotWritten",
        EVENT,
        "The labels of GPU feature discovery are not written to the node.",
        "End the other program that writes them, or do what the message says.",
    ),
    row(
        "FieldsDropped",
        EVENT,
        "The API server drops fields of the node's devices, because a feature gate is off.",
        "Turn on the feature gate in the message, in API server, scheduler and controller manager.",
    ),
    row(
        "ForeignMigInstance",
        EVENT,
        "A GPU under dynamic MIG has instances that Octavo did not create.",
        "Destroy them with `nvidia-smi mig -dci` and `-dgi`, or opt the GPU out.",
    ),
    row(
        "ForeignProcess",
        EVENT,
        "Processes without a share use a GPU that is allocated in shares.",
        "End the processes, or move them to a pod with a share.",
    ),
    row(
        "GpuAtRisk",
        EVENT,
        "The GPU takes pods. It gave a warning of late, or returned from a repair.",
        "None at once. See the message; a warning that comes again calls for a check of the hardware.",
    ),
    row("GpuDriverAnswers", EVENT, "The driver answers again which processes use the GPU.", ""),
    row(
        "GpuDriverHangs",
        EVENT,
        "The driver does not answer which processes use the GPU.",
        "See the kernel's log (`dmesg`) on the node.",
    ),
    row("GpuHealthy", EVENT, "The GPU is healthy again and takes new pods.", ""),
    row(
        "GpuInMigMode",
        EVENT,
        "The GPU is in MIG mode without an instance that can be offered.",
        "Create instances, opt the GPU into dynamic MIG, or turn the mode off.",
    ),
    row(
        "GpuNotWatched",
        EVENT,
        "Allocations that bypass the limits of the GPU's shares are not detected.",
        "The message names the cause and the remedy.",
    ),
    row(
        "GpuUnhealthy",
        EVENT,
        "The GPU is tainted and takes no new pods.",
        "Do what the message says the GPU needs, for example a reset. The GPU returns after it and a test.",
    ),
    row(
        "GpuUnreadable",
        EVENT,
        "The driver cannot read the GPU. It is not offered.",
        "See the error in the message and the kernel's log (`dmesg`).",
    ),
    row(
        "GpuWatched",
        EVENT,
        "Allocations that bypass the limits of the GPU's shares are detected again.",
        "",
    ),
    row(
        "MigInstanceNotOffered",
        EVENT,
        "Several compute instances divide the MIG instance, so it is not offered.",
        "Create one compute instance that fills the instance.",
    ),
    row(
        "MigLayoutFailed",
        EVENT,
        "A GPU cannot have the MIG layout that the node's label `nvidia.com/mig.config` names.",
        "Correct the label or the layout, or do what the message says.",
    ),
    row(
        "MigLayoutMismatched",
        EVENT,
        "The MIG strategy is `single`, and the MIG devices of the node differ.",
        "Give all GPUs the same MIG devices, or set the strategy `mixed`.",
    ),
    row(
        "MigLayoutWaits",
        EVENT,
        "The MIG layout of a GPU changes once nothing uses what has to go.",
        "Wait for the pods and claims that the message names, or delete them.",
    ),
    row(
        "ModeLabelInvalid",
        EVENT,
        "The node's label `octavo.dev/mode` is invalid and ignored.",
        "Correct the label: `dra`, `device-plugin` or `none`.",
    ),
    row(
        "ModeWaits",
        EVENT,
        "The node changes its mode, and claims or pods of the other mode have its GPUs.",
        "Wait for them, or delete the pods that the message names.",
    ),
    row(
        "MpsDaemonStays",
        EVENT,
        "An MPS daemon is no longer wanted, and pods or programs still use it.",
        "Wait for them, or delete the pods that the message names. Its GPUs are not given to others meanwhile.",
    ),
    row(
        "MpsNotReady",
        EVENT,
        "An MPS daemon of the device plugin does not run as it should, so its devices are unhealthy.",
        "The message says why. See the pod of the DaemonSet `mps-daemon` on the node.",
    ),
    row(
        "PluginConfigInvalid",
        EVENT,
        "The device plugin's config cannot be used, so the last good one stays.",
        "Correct the file, or the node's label `nvidia.com/device-plugin.config`.",
    ),
    row(
        "PluginConfigWithoutEffect",
        EVENT,
        "Fields of the device plugin's config have no effect.",
        "Remove them, or read in the message what counts instead.",
    ),
    row(
        "ResourceNotServed",
        EVENT,
        "The socket of a resource cannot be served, often because another device plugin does.",
        "End the other plugin, or set the node's mode to `dra`; else see the message.",
    ),
    row(
        "SchedulerLabelInvalid",
        EVENT,
        "The node's label `octavo.dev/scheduler` is invalid and ignored.",
        "Correct the label: the name of a scheduler, or empty.",
    ),
];

/// Causes of `NotWatched` and `GpuNotWatched`, as a metric label.
pub(super) const BLIND_SPOTS: &[Reason] = &[
    row("driver-closed", BLIND, "The driver is not open.", "See the log of the node's agent."),
    row(
        "driver-hangs",
        BLIND,
        "The driver does not answer which processes use the GPU.",
        "See the kernel's log (`dmesg`) on the node.",
    ),
    row(
        "driver-refuses",
        BLIND,
        "The driver answers that question with an error.",
        "See the log of the node's agent.",
    ),
    row(
        "no-bytes",
        BLIND,
        "The driver does not report the memory of processes.",
        "Check the driver's mode, and whether the agent's container hides the driver.",
    ),
    row(
        "no-host-pid",
        BLIND,
        "The agent sees none of the processes that the driver lists.",
        "Run the agent in the host's PID namespace (`hostPID: true`).",
    ),
    row(
        "unreadable-proc",
        BLIND,
        "The agent may not read which container a process belongs to.",
        "Give the agent the capability `SYS_PTRACE`, as the chart does.",
    ),
];
