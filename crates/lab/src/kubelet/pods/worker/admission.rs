//! Whether the node accepts a pod: its devices of plugins must be there.

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::EventType;

use super::PodWorker;
use crate::kubelet::pods::status::{Phase, Rejection};

/// The kubelet's reason for a pod whose devices are not there.
const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";

impl PodWorker {
    /// Gives the pod its devices. `None`: the pod was rejected, which is final. `is_running`: the pod ran before this process
    /// started.
    pub(super) async fn admit(&mut self, pod: &Pod, is_running: bool) -> Option<()> {
        let error = self.node.devices.admit(pod, is_running).await.err();
        let Some(error) = error else { return Some(()) };
        let message = format!("Allocate failed due to {error}, which is unexpected");
        tracing::warn!(node = self.node.name, pod = self.uid, %error, "pod rejected");
        let reason = UNEXPECTED_ADMISSION_ERROR;
        self.node.event(pod, EventType::Warning, reason, &message).await;
        self.view.phase = Phase::Failed;
        self.view.rejection = Some(Rejection { reason, message });
        None
    }
}
