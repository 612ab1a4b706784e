//! Events for owners of pods before work on the pods' nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use octavo_api::names::REASON_MAINTENANCE_PLANNED;
use octavo_kube_io::events::{EventType, Events};
use tokio::sync::{mpsc, watch};

use super::round::Finding;
use crate::health::maintenance::Notice;
use crate::health::pods;
use crate::shell::leader::Leader;

/// Nodes whose pods are read at the same time.
const MAX_NODES: usize = 8;
/// Time until a notice that failed is tried again.
const RETRY: Duration = Duration::from_mins(1);
/// The action of events.
const ACTION: &str = "Announce";
/// Most time of one event. Events are best effort.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Announces work while this process leads.
pub(super) struct Announcer {
    client: Client,
    events: Events,
    leader: Leader,
    findings: mpsc::Sender<Finding>,
}

impl Announcer {
    pub(super) fn new(
        client: Client,
        events: Events,
        leader: Leader,
        findings: mpsc::Sender<Finding>,
    ) -> Self {
        Self { client, events, leader, findings }
    }

    /// Goes on until the rounds end. A notice is wanted until it is known to be given.
    pub(super) async fn run(self, mut wanted: watch::Receiver<Vec<Notice>>) {
        loop {
            let notices = wanted.borrow_and_update().clone();
            let mut is_left = false;
            for notice in notices {
                match self.announce(&notice).await {
                    Ok(true) => {
                        let Notice { uid, generation, .. } = notice;
                        let finding = Finding::Informed(uid, generation);
                        // The rounds may have ended.
                        let _ = self.findings.send(finding).await;
                    }
                    // Another process leads, and announces it.
                    Ok(false) => {}
                    Err(error) => {
                        is_left = true;
                        let maintenance = notice.maintenance;
                        tracing::warn!(%maintenance, %error, "owners of pods are not informed of work on nodes; it is tried again");
                    }
                }
            }
            let changed = wanted.changed();
            let changed = if is_left {
                tokio::time::timeout(RETRY, changed).await.unwrap_or(Ok(()))
            } else {
                changed.await
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Gives each owner of pods with claims or GPUs on the nodes one event. Returns whether this process led until the end.
    async fn announce(&self, notice: &Notice) -> kube::Result<bool> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let pods = &pods;
        let owners = |node: &String| {
            let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
            async move {
                let found = pods.list(&of_node).await?;
                let owners = found.items.iter().filter_map(pods::owner);
                Ok::<Vec<ObjectReference>, kube::Error>(owners.collect())
            }
        };
        let found: Vec<Vec<ObjectReference>> =
            futures::stream::iter(notice.nodes.iter().map(owners))
                .buffer_unordered(MAX_NODES)
                .try_collect()
                .await?;
        let by_uid: BTreeMap<Option<String>, ObjectReference> =
            found.into_iter().flatten().map(|owner| (owner.uid.clone(), owner)).collect();
        let note =
            format!("the Maintenance {} of nodes of its pods {}", notice.maintenance, notice.note);
        for owner in by_uid.values() {
            if !self.leader.is_leading() {
                return Ok(false);
            }
            let (reason, normal) = (REASON_MAINTENANCE_PLANNED, EventType::Normal);
            let event = self.events.record(owner, normal, reason, ACTION, &note);
            let _ = tokio::time::timeout(EVENT_TIMEOUT, event).await;
        }
        Ok(self.leader.is_leading())
    }
}
