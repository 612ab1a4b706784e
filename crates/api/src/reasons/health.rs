//! Reasons about the health of GPUs.

use super::{Reason, row};

/// The condition `Accepted` of a policy in use.
const ACCEPTED: &str = "HealthPolicy: condition `Accepted` is `True`";

/// Reasons on policies and on pods of GPUs out of service.
pub(super) const POLICIES: &[Reason] = &[
    row("Accepted", ACCEPTED, "This version of the policy is in use.", ""),
    row(
        "AllInService",
        "NodeHealth: condition `Healthy` is `True`",
        "All GPUs of the node are in service.",
        "",
    ),
    row(
        "CheckpointInvalid",
        "Pod: event",
        "The pod is to leave, and its annotations for a checkpoint cannot be used for the reason in the message. It is evicted without one.",
        "Correct the annotations `checkpoint.octavo.dev/...` of the workload's pod template.",
    ),
    row(
        "DeletionByDeviceTaintManager",
        "Pod: condition `DisruptionTarget`",
        "The pod is deleted, because its GPU is lost. Kubernetes' own controller has the same reason.",
        "",
    ),
    row(
        "DevicesOutOfService",
        "NodeHealth: condition `Healthy` is `False`",
        "The GPUs in the message take no new pods.",
        "See what they wait for: `octavo health describe NODE/GPU`.",
    ),
    row(
        "EvictionPlanned",
        "controller of a pod, and the pod: event",
        "The pod is to leave its GPU for the reason in the message, which says what happens when.",
        "Save the work of the pod. Tolerations in the claims of later pods, with `tolerationSeconds`, give them more time.",
    ),
    row(
        "FewFailures",
        "HealthPolicy: condition `BreakerOpen` is `False`",
        "Remedies may begin within the budget.",
        "",
    ),
    row(
        "GpuOutOfService",
        "Pod: event",
        "The GPU of the pod is out of service for the reason in the message, so the pod is evicted, or deleted if the GPU is lost.",
        "A pod that is to stay longer tolerates the taint `octavo.dev/health` in its claim, with `tolerationSeconds`.",
    ),
    row(
        "InvalidPolicy",
        "HealthPolicy: condition `Accepted` is `False`; NodeHealth: condition `PolicyAccepted` is `False`",
        "The policy has the wrong field of the message. Its nodes have no policy: no other one takes its place.",
        "Change that field.",
    ),
    row(
        "MalformedRecord",
        "HealthPolicy: condition `RecordsReadable` is `False`",
        "The controller cannot read what the agents of the nodes in the message remember of their GPUs. It leaves these nodes as they are.",
        "Upgrade the controller, if the agents are newer.",
    ),
    row(
        "ManyFailures",
        "HealthPolicy: condition `BreakerOpen` is `True`",
        "GPUs of many nodes left service at about the same time. Remedies of one GPU do not cure a common cause, so none begins for a time.",
        "Look for what the nodes have in common: a driver, a switch, a power feed.",
    ),
    row(
        "NoPolicy",
        "NodeHealth: condition `PolicyAccepted` is `True`",
        "No HealthPolicy selects the node. The agent fences and tests GPUs, and remedies are a person's.",
        "",
    ),
    row(
        "OtherPolicyFirst",
        ACCEPTED,
        "A policy whose name comes first in the alphabet selects the same nodes, and applies to them.",
        "Give the policies selectors that share no node.",
    ),
    row(
        "PolicyInForce",
        "NodeHealth: condition `PolicyAccepted` is `True`",
        "The agent decides by the HealthPolicy that `status.policy` names.",
        "",
    ),
    row(
        "RecordsRead",
        "HealthPolicy: condition `RecordsReadable` is `True`",
        "The records of all GPUs of the policy can be read.",
        "",
    ),
    row(
        "RemediationFailed",
        "HealthPolicy: condition `TemplateUsable` is `False`",
        "The program that applies remedies of nodes gave up on the node in the message. After `times.remedyLimitSeconds` the next remedy follows.",
        "See the object that the message names, and the log of that program.",
    ),
    row(
        "TemplateProblem",
        "HealthPolicy: condition `TemplateUsable` is `False`",
        "No object can be made of `spec.template`, for the reason in the message. Nodes wait for their remedy.",
        "Correct the template, or give the controller the right: `health.remediationRules` of the chart.",
    ),
    row(
        "TemplateRead",
        "HealthPolicy: condition `TemplateUsable` is `True`",
        "The template can be read, and no object of it has failed.",
        "",
    ),
];
