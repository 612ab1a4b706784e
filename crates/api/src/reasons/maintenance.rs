//! Reasons about work on nodes.

use super::{Reason, row};

/// The condition `Accepted`, of work that is not carried out.
const REFUSED: &str = "Maintenance: condition `Accepted` is `False`";
/// The condition `Accepted`, of work that is carried out.
const ACCEPTED: &str = "Maintenance: condition `Accepted` is `True`";
/// The condition `InProgress`, before and after the work.
const NOT_NOW: &str = "Maintenance: condition `InProgress` is `False`";

/// Reasons on `Maintenances` and on pods of their nodes.
pub(super) const WORK: &[Reason] = &[
    row("Accepted", ACCEPTED, "The work is carried out as its spec says.", ""),
    row("Ended", NOT_NOW, "The end of the work has come. The taint of its nodes is gone.", ""),
    row(
        "InProgress",
        "Maintenance: condition `InProgress` is `True`",
        "The nodes have the taint `octavo.dev/maintenance`, so that no new pods come.",
        "Wait for the condition `Drained` before the work.",
    ),
    row(
        "InvalidMaintenance",
        REFUSED,
        "The spec has the wrong field of the message. Nothing is done.",
        "Change that field.",
    ),
    row(
        "MaintenancePlanned",
        "owner of a pod, or the pod: event",
        "Work on the node of the pod is planned for the times in the message. Its GPUs take no new pods then.",
        "Save the work of the pod before, or move it.",
    ),
    row(
        "NoNodes",
        ACCEPTED,
        "No node has the labels or names of the spec.",
        "Compare them with the labels of nodes.",
    ),
    row(
        "NoPodsLeft",
        "Maintenance: condition `Drained` is `True`",
        "No pod with a GPU is left on the nodes, but for those that tolerate the taint.",
        "",
    ),
    row(
        "NodeInMaintenance",
        "Pod: event",
        "Work on the node of the pod is in progress, so the pod is evicted.",
        "A pod that is to stay tolerates the taint `octavo.dev/maintenance`.",
    ),
    row(
        "NotInformed",
        "Maintenance: condition `Announced` is `False`",
        "Owners of pods get their event `spec.noticeSeconds` before the start.",
        "",
    ),
    row(
        "OwnersInformed",
        "Maintenance: condition `Announced` is `True`",
        "Owners of pods that the nodes had then have their event.",
        "",
    ),
    row("Planned", NOT_NOW, "The start of the work has not come.", ""),
    row(
        "PodsLeft",
        "Maintenance: condition `Drained` is `False`",
        "Nodes have pods with GPUs. They leave within the budget of evictions and under their disruption budgets.",
        "If a pod does not leave, see its PodDisruptionBudget and its grace period.",
    ),
    row(
        "WindowInPast",
        REFUSED,
        "The end of the work was over when the object was made. Nothing is done.",
        "Check year and time zone, and make the object again.",
    ),
];
