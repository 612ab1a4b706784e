//! The end of a pod: its claims and devices, its final status, its deletion.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::runtime::events::EventType;

use super::{PodWorker, wait_until};
use crate::kubelet::claims::prepare;
use crate::kubelet::node::Node;
use crate::kubelet::pods::containers;
use crate::kubelet::pods::status::{Phase, State};
use crate::kubelet::{ApiError, backoff, within};

impl PodWorker {
    /// Unprepares the pod's claims, with retries until it succeeds.
    pub(super) async fn unprepare(&self) {
        let mut attempt = 0;
        while let Err(error) = prepare::unprepare(&self.node, &self.uid).await {
            tracing::warn!(node = self.node.name, pod = self.uid, %error, "claims not unprepared");
            if attempt == 0
                && let Some(pod) = self.pod()
            {
                let note = format!("Failed to unprepare dynamic resources: {error}");
                self.node.event(&pod, EventType::Warning, "FailedKillPod", &note).await;
            }
            pause_or_plugin_change(&self.node, backoff(attempt, &self.uid)).await;
            attempt += 1;
        }
    }

    /// Writes the final status, waits for the deletion request, and deletes the pod.
    pub(super) async fn terminate(&mut self) {
        if !self.view.phase.is_terminal() && self.pod().is_some() {
            let started = match self.view.state {
                State::Running { started } => Some(started),
                _ => None,
            };
            self.view.phase = Phase::Failed;
            // Exit code of a process ended by SIGTERM, as shells report it.
            let finished = Timestamp::now();
            self.view.state = State::Terminated { exit_code: 143, started, finished };
            self.view.exceptions.clear();
        }
        self.report().await;
        self.wait_until_ending().await;
        let mut attempt = 0;
        while let Some(pod) = self.pod() {
            match self.delete(&pod).await {
                Ok(()) => {}
                Err(error) => tracing::warn!(pod = pod.name_any(), %error, "pod not deleted"),
            }
            // Finalizers may keep the object; their owners remove them.
            let gone = wait_until(&mut self.latest, |pod| pod.is_none());
            let pause = backoff(attempt, &self.uid).max(Duration::from_secs(2));
            if tokio::time::timeout(pause, gone).await.is_ok() {
                return;
            }
            attempt += 1;
        }
    }

    async fn delete(&self, pod: &Pod) -> Result<(), ApiError> {
        let api: Api<Pod> = self.api(pod);
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match within(api.delete(&pod.name_any(), &params)).await {
            Err(error) if error.means_gone() => Ok(()),
            result => result.map(drop),
        }
    }
}

/// Unprepares the claims of a vanished pod, with retries until it succeeds, and frees its devices.
pub(crate) async fn release_orphan(node: Arc<Node>, uid: String) {
    let mut attempt = 0;
    while let Err(error) = prepare::unprepare(&node, &uid).await {
        tracing::warn!(node = node.name, pod = uid, %error, "claims of a vanished pod remain");
        pause_or_plugin_change(&node, backoff(attempt, &uid)).await;
        attempt += 1;
    }
    node.devices.release(&uid);
    containers::remove(&node, &uid);
}

async fn pause_or_plugin_change(node: &Node, pause: Duration) {
    let mut plugins = node.plugins.changes();
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        Ok(()) = plugins.changed() => {}
    }
}
