//! The numbers of devices in a Node's status: written once they change, and not on a timer.

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::kubelet::device_manager::resources::Counts;
use crate::kubelet::node::{Node, object};
use crate::kubelet::{backoff, within};

/// What the status shows, and what it should show.
pub(super) struct ShownDevices {
    wanted: watch::Receiver<Counts>,
    shown: Counts,
    /// Failed writes since the last success, and when the next is due.
    attempt: u32,
    due: Option<Instant>,
}

impl ShownDevices {
    /// Of a node whose status shows no devices.
    pub(super) fn new(node: &Node) -> Self {
        let wanted = node.devices.counts();
        Self { wanted, shown: Counts::new(), attempt: 0, due: None }
    }

    /// What the status should show.
    pub(super) fn wanted(&self) -> Counts {
        self.wanted.borrow().clone()
    }

    /// Notes what was written.
    pub(super) fn written(&mut self, counts: Counts) {
        (self.shown, self.attempt, self.due) = (counts, 0, None);
    }

    /// Waits until a write is due. Cancel safe.
    pub(super) async fn is_outdated(&mut self) {
        while *self.wanted.borrow_and_update() == self.shown {
            if self.wanted.changed().await.is_err() {
                // The sender lives as long as the node.
                std::future::pending::<()>().await;
            }
        }
        if let Some(due) = self.due {
            sleep_until(due).await;
        }
    }

    /// Writes the numbers. A failure is repeated after a delay.
    pub(super) async fn write(&mut self, node: &Node) {
        let wanted = self.wanted();
        let (capacity, allocatable) = object::devices(&wanted);
        let patch = json!({"status": {"capacity": capacity, "allocatable": allocatable}});
        let api: Api<NodeObject> = Api::all(node.client.clone());
        let params = PatchParams::default();
        match within(api.patch_status(&node.name, &params, &Patch::Strategic(patch))).await {
            Ok(_) => self.written(wanted),
            Err(error) => {
                tracing::warn!(node = node.name, %error, "numbers of devices not written");
                self.due = Some(Instant::now() + backoff(self.attempt, &node.name));
                self.attempt += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
