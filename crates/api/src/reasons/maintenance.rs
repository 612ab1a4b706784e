//! Reasons about work on nodes.

use super::{Reason, row};

/// Reasons on `Maintenances` and on pods of their nodes.
pub(super) const WORK: &[Reason] = &[
    row(
        "MaintenancePlanned",
        "owner of a pod, or the pod: event",
        "Work on the node of the pod is planned for the times in the message. Its GPUs take no new pods then.",
        "Save the work of the pod before, or move it.",
    ),
    row(
        "NodeInMaintenance",
        "Pod: event",
        "Work on the node of the pod is in progress, so the pod is evicted.",
        "A pod that is to stay tolerates the taint `octavo.dev/maintenance`.",
    ),
];
