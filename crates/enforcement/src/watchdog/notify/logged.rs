//! Findings in the log alone, on a machine without a cluster.

use crate::share::{ActiveShare, ShareFinding};
use crate::watchdog::notify::notifier::Notify;
use crate::watchdog::visibility::BlindSpot;

/// Writes findings to the log.
pub(in crate::watchdog) struct Logged;

impl Notify for Logged {
    fn share(&self, share: &ActiveShare, finding: ShareFinding) {
        let (name, reason, message) = (&share.claim.name, finding.reason, &finding.message);
        if finding.is_good() {
            tracing::info!(share = name, reason, "{message}");
        } else {
            tracing::warn!(share = name, reason, "{message}");
        }
    }

    fn foreign_processes(&self, gpu: &str, pids: &[u32]) {
        // Not all programs of such a machine need a share.
        tracing::info!(gpu, ?pids, "processes without a share use the GPU");
    }

    fn visibility(&self, gpu: &str, _: Option<BlindSpot>, now: Option<BlindSpot>) {
        if let Some(kind) = now {
            let why = kind.explanation();
            tracing::warn!(gpu, "what the driver counts of the shares is not known: {why}");
        } else {
            tracing::info!(gpu, "what the driver counts of the shares is known again");
        }
    }
}
