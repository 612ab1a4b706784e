//! Reasons of the scheduler.

use super::{Reason, row};

/// Where a pending reason is.
const PENDING: &str = "Pod: condition `PodScheduled` is `False`, event `FailedScheduling`; PodGroup: condition `Scheduled` is `False`, event; metric `octavo_scheduler_decisions_total`";
const GROUP: &str =
    "PodGroup: condition `Scheduled` is `False`, event; metric `octavo_scheduler_decisions_total`";
const POD_EVENT: &str = "Pod: event";
const DISRUPTION: &str = "Pod: condition `DisruptionTarget`";
const POLICY: &str = "PlacementPolicy: condition `Accepted` is `False`, event";
const NODES: &str = "label `reason` of the metric `octavo_scheduler_nodes_unmodeled`";
const FAILURE: &str = "label `kind` of the metric `octavo_scheduler_order_failures_total`";

const NO_ACTION: &str = "None: it is tried again.";

/// Reasons about pods and gangs.
pub(super) const PODS: &[Reason] = &[
    row(
        "FailedScheduling",
        POD_EVENT,
        "The pod has no node. The event's message begins with one of the reasons below.",
        "See the reason in the message.",
    ),
    row(
        "GangBelowMinimum",
        "Pod: condition `DisruptionTarget`, event",
        "The pod's gang had fewer pods in places than its minimum for longer than its policy's `belowMinimumSeconds`.",
        "Nothing: the gang waits for places as a whole. See why pods of it ended.",
    ),
    row(
        "Gathering",
        GROUP,
        "Fewer pods exist than the gang needs.",
        "Wait for the workload's controller, or correct the gang's minimum.",
    ),
    row(
        "Gone",
        "metric `octavo_scheduler_decisions_total`",
        "The pod was deleted before it had a place.",
        "",
    ),
    row(
        "IncompleteSegment",
        PENDING,
        "The last segment of a subgroup lacks members.",
        "Make the subgroup's size a multiple of the segment's.",
    ),
    row(
        "InvalidPodGroup",
        PENDING,
        "The gang's description is invalid.",
        "Correct the field in the message.",
    ),
    row(
        "Moved",
        POD_EVENT,
        "The pod is restarted elsewhere to make room.",
        "Remove `octavo.dev/movable` if the workload must not be moved.",
    ),
    row(
        "NodeLost",
        "Pod: condition `DisruptionTarget`, event",
        "The pod's node is lost. Its gang gets a new member on another node.",
        "Repair or remove the node.",
    ),
    row(
        "NotSupported",
        PENDING,
        "The gang uses a feature that Octavo does not support.",
        "The message names an alternative.",
    ),
    row(
        "OrderUndecided",
        "`octavo explain`",
        "The outcome of the pod's binding is unknown, because the API server's response was lost.",
        "Wait: the scheduler reads the pod again.",
    ),
    row(
        "PlacementPolicyUnusable",
        PENDING,
        "The placement policy does not fit this cluster.",
        "Correct the policy, for example a topology level that does not exist.",
    ),
    row(
        "PodGroupNotFound",
        PENDING,
        "The pod's PodGroup or Job does not exist.",
        "Create it, or correct the pod's label.",
    ),
    row(
        "PodGroupTooLarge",
        PENDING,
        "The gang has more members than the engine supports.",
        "Divide the gang.",
    ),
    row(
        "PolicyNotFound",
        PENDING,
        "The named PlacementPolicy does not exist.",
        "Create it, or name one of those in the message.",
    ),
    row(
        "PolicyNotUsable",
        PENDING,
        "The named PlacementPolicy never had a valid version.",
        "Correct the policy.",
    ),
    row(
        "Preempted",
        POD_EVENT,
        "The pod is evicted for one of higher priority.",
        "Raise the pod's priority if that is not intended.",
    ),
    row("PreemptionByScheduler", DISRUPTION, "The pod is evicted to make room for another.", ""),
    row(
        "Scheduled",
        "Pod: event; PodGroup: condition `Scheduled` or `PodGroupScheduled` is `True`, event",
        "The pod, or the gang's minimum, has its places.",
        "",
    ),
    row("SchedulerError", PENDING, "A write of the decision failed.", NO_ACTION),
    row(
        "SubgroupNotFound",
        PENDING,
        "The pod names no subgroup of its PodGroup, or one that does not exist.",
        "Correct the label `octavo.dev/pod-subgroup`.",
    ),
    row(
        "TooManyRepairs",
        POD_EVENT,
        "The pod's gang had more faults within `repairWindowSeconds` than `maxRepairs`. Its next members get places as those of a new gang do.",
        "See why its pods end. A gang that fails by itself is no case for spare nodes.",
    ),
    row(
        "TopologyLevelNotFound",
        PENDING,
        "The topology has no level of this name.",
        "Use one of the levels in the message.",
    ),
    row(
        "UnevenSegment",
        PENDING,
        "Members of one segment have different requests.",
        "Give members that differ a subgroup of their own.",
    ),
    row(
        "Unschedulable",
        "Pod: condition `PodScheduled` is `False`, event `FailedScheduling`; PodGroup: condition `Scheduled` or `PodGroupScheduled` is `False`, event; metric `octavo_scheduler_decisions_total`",
        "No node satisfies the request, victims have to leave first, or the pod would hold up a `Maintenance` of nodes. Cluster autoscalers add nodes for this reason alone.",
        "`octavo explain pod` tells what would help.",
    ),
    row(
        "WaitingForClaims",
        PENDING,
        "Claims of the pod do not exist yet, or cannot be used.",
        "Wait for the claims, or correct the claim in the message.",
    ),
    row(
        "WaitingForVolumes",
        PENDING,
        "Volumes of the pod cannot be used, or are being bound for its nominated node.",
        "Correct the volume in the message. A volume that does not come in ten minutes is requested again: see its provisioner.",
    ),
];

/// Reasons about placement policies.
pub(super) const POLICIES: &[Reason] = &[
    row("Accepted", "PlacementPolicy: condition `Accepted` is `True`", "The policy is in use.", ""),
    row(
        "InvalidPolicy",
        POLICY,
        "The policy is invalid. Its last valid version stays in use.",
        "Correct the field in the message.",
    ),
    row(
        "LimitsNotKept",
        POLICY,
        "The policy's limits cannot be kept in this cluster, or it names an unknown level. It is used as far as possible.",
        "Change the limits or the level.",
    ),
    row(
        "SecondDefault",
        POLICY,
        "An older policy is the default already.",
        "Make one of the two not the default.",
    ),
];

/// Why the engine does not model a node's GPUs.
pub(super) const UNMODELED_NODES: &[Reason] = &[
    row(
        "Devices",
        NODES,
        "The engine cannot describe the node's devices.",
        "See the scheduler's log.",
    ),
    row(
        "MixedModels",
        NODES,
        "The node has GPUs of several models.",
        "None: the node is used only for claims that no other node can serve.",
    ),
    row(
        "ServedTwice",
        NODES,
        "A device plugin and the DRA driver serve the same GPUs.",
        "Disable one of them.",
    ),
    row(
        "SeveralPools",
        NODES,
        "The driver publishes several pools for the node.",
        "Publish one pool for each node.",
    ),
    row(
        "TooManyGpus",
        NODES,
        "The node has more GPUs than the engine supports.",
        "None: the node is used only for claims that no other node can serve.",
    ),
    row(
        "TooManyModels",
        NODES,
        "The cluster has more GPU models than the engine supports.",
        "Divide the cluster.",
    ),
];

/// Kinds of failed write operations.
pub(super) const FAILURES: &[Reason] = &[
    row(
        "BoundAlready",
        FAILURE,
        "The pod is already bound.",
        "Check whether a second scheduler has the same name, if it recurs.",
    ),
    row(
        "Budget",
        FAILURE,
        "A disruption budget forbids the eviction.",
        "None: the scheduler looks for other victims.",
    ),
    row("Conflict", FAILURE, "An object changed before the write.", NO_ACTION),
    row(
        "NotLeader",
        FAILURE,
        "The scheduler lost its lease before the write.",
        "None: the new leader decides again.",
    ),
    row("PodGone", FAILURE, "The pod was deleted.", ""),
    row(
        "Refused",
        FAILURE,
        "The API server rejected the write.",
        "See the scheduler's log, for example for a missing permission.",
    ),
    row(
        "Undecided",
        FAILURE,
        "The outcome of the write is unknown, because its response was lost.",
        "None: the scheduler reads the object again.",
    ),
    row(
        "Unreachable",
        FAILURE,
        "The API server did not answer.",
        "Check the API server, if it lasts.",
    ),
];
