//! Ends pods: evicts them under their disruption budgets, or deletes them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use octavo_api::checkpoint::CheckpointError;
use octavo_api::names::{
    HEALTH_CONTROLLER, REASON_CHECKPOINT_INVALID, REASON_DEVICE_TAINT, REASON_GPU_OUT_OF_SERVICE,
};
use octavo_kube_io::events::{EventType, Events};
use serde_json::{Value, json};

use crate::health::facts::{date, unix};
use crate::health::plan::Urgency;
use crate::health::pods::Victim;
use crate::shell::leader::{Leader, LeaderError};

/// The actions of events.
const ACTION: &str = "Evict";
const CHECKPOINT_ACTION: &str = "Checkpoint";
/// Most time of one event. Events are best effort.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Evicts while this process leads.
pub(super) struct Evictor {
    pub(super) client: Client,
    pub(super) events: Events,
    pub(super) leader: Leader,
}

impl Evictor {
    pub(super) fn new(client: Client, events: Events, leader: Leader) -> Self {
        Self { client, events, leader }
    }

    /// The claims of a pod with some names, those that exist.
    pub(super) async fn claims(
        &self,
        pod: &Pod,
        names: Vec<String>,
    ) -> kube::Result<Vec<ResourceClaim>> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let mut found = Vec::new();
        for name in names {
            found.extend(claims.get_opt(&name).await?);
        }
        Ok(found)
    }

    /// Ends a pod. One that is gone already is no failure.
    pub(super) async fn end(&self, victim: &Victim, now: Timestamp) -> Result<(), LeaderError> {
        let Victim { namespace, name, uid, .. } = victim;
        self.record(victim, victim.reason, ACTION, &victim.note).await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        if victim.urgency != Urgency::Deleted {
            // The API server writes the condition of such a pod itself, and asks disruption budgets.
            let (post, body) = (PostParams::default(), eviction(victim));
            let evict = pods.create_subresource::<Value, Value>("eviction", name, &post, &body);
            self.leader.write("evict-pod", evict).await?;
            return Ok(());
        }
        let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
        let delete = DeleteParams::default().preconditions(preconditions);
        let manager = PatchParams {
            field_manager: Some(HEALTH_CONTROLLER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Strategic(mark(victim, now));
        let mark = pods.patch_status(name, &manager, &patch);
        if self.leader.write("mark-pod", mark).await?.is_some() {
            self.leader.write("delete-pod", pods.delete(name, &delete)).await?;
        }
        Ok(())
    }

    /// Tells the owner of a pod that leaves without a checkpoint why its annotations cannot be used.
    pub(super) async fn refuse_checkpoint(&self, victim: &Victim, error: &CheckpointError) {
        let note = format!("the pod leaves without a checkpoint: {error}");
        self.record(victim, REASON_CHECKPOINT_INVALID, CHECKPOINT_ACTION, &note).await;
    }

    async fn record(&self, victim: &Victim, reason: &str, action: &str, note: &str) {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(victim.namespace.clone()),
            name: Some(victim.name.clone()),
            uid: Some(victim.uid.clone()),
            ..ObjectReference::default()
        };
        let event = self.events.record(&regarding, EventType::Warning, reason, action, note);
        let _ = tokio::time::timeout(EVENT_TIMEOUT, event).await;
    }
}

/// The eviction of a pod, and of no other one of its name. kube's own writes the options under a name that the API server does not know.
fn eviction(victim: &Victim) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim.name, "namespace": victim.namespace},
        "deleteOptions": {"preconditions": {"uid": victim.uid}},
    })
}

/// The condition of a pod that is deleted. For a device it is as Kubernetes' own controller writes it before.
fn mark(victim: &Victim, now: Timestamp) -> Value {
    let is_of_device = victim.reason == REASON_GPU_OUT_OF_SERVICE;
    let reason = if is_of_device { REASON_DEVICE_TAINT } else { victim.reason };
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": victim.note,
        "lastTransitionTime": date(unix(now)),
    });
    json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}})
}
