//! Writes a pod's status.

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::PodWorker;
use crate::kubelet::pods::allocated_resources;
use crate::kubelet::pods::status::{Phase, status_of};
use crate::kubelet::{ApiError, backoff, within};

impl PodWorker {
    /// Writes the status if it differs from the last one written, with retries.
    pub(super) async fn report(&mut self) {
        let mut attempt = 0;
        loop {
            let Some(pod) = self.pod() else { return };
            {
                let (cache, reports) = (self.node.claim_infos(), self.node.reports.borrow());
                if !self.view.phase.is_terminal() {
                    self.view.resources =
                        allocated_resources::of_pod(&pod, &cache, &reports, Instant::now());
                    let of_plugins = self.node.devices.health(&self.uid);
                    allocated_resources::put_first(&mut self.view.resources, &pod, of_plugins);
                }
            }
            let status = status_of(&pod, &self.view, Timestamp::now());
            if self.sent.as_ref().is_some_and(|sent| is_same_status(sent, &status)) {
                return;
            }
            // The UID protects a later pod of the same name.
            let patch = Patch::Strategic(json!({"metadata": {"uid": self.uid}, "status": status}));
            let api: Api<Pod> = self.api(&pod);
            let params = PatchParams::default();
            match within(api.patch_status(&pod.name_any(), &params, &patch)).await {
                Ok(_) => {
                    self.sent = Some(status);
                    return;
                }
                Err(ApiError::Kube(kube::Error::Api(status))) if status.code == 404 => return,
                // A conflict has two causes. Either another pod has the name, which the watch will
                // report, or another client wrote at the same time. In the second case the status
                // would be lost without a retry.
                Err(error) => {
                    tracing::warn!(pod = pod.name_any(), %error, "pod status not written");
                    tokio::time::sleep(backoff(attempt, &self.uid)).await;
                    attempt += 1;
                }
            }
        }
    }

    /// Takes over the final status that an earlier process wrote.
    pub(super) fn adopt_final_status(&mut self, pod: &Pod) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        self.view.phase = if phase == Some("Succeeded") { Phase::Succeeded } else { Phase::Failed };
        // The status is already written, so only the deletion remains.
        self.sent = Some(status_of(pod, &self.view, Timestamp::now()));
    }

    pub(super) fn api(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.node.client.clone(), &pod.namespace().unwrap_or_default())
    }
}

/// Whether two statuses are equal except for the dates of their conditions.
fn is_same_status(left: &PodStatus, right: &PodStatus) -> bool {
    let undated = |status: &PodStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_transition_time = None;
        }
        status
    };
    undated(left) == undated(right)
}
