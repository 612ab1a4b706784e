//! Events before pods leave: those of owners before work on nodes, and those of pods and their controllers before evictions for devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use octavo_kube_io::events::{EventType, Events};
use tokio::sync::{mpsc, watch};

use super::evict::Evictor;
use super::round::Finding;
use crate::health::maintenance::Notice;
use crate::health::notices::{Announced, Announcement, Departing};
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
/// Most time of the events of a node's pods: they hold up no eviction.
const NODE_TIMEOUT: Duration = Duration::from_secs(10);

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
        let announcement = Announcement::of_work(notice, by_uid.into_values().collect());
        Ok(give(&self.events, &self.leader, &announcement).await)
    }
}

/// Announces pods that are to leave devices, each with its controller and once for an eviction.
#[derive(Default)]
pub(super) struct PodAnnouncer {
    announced: Mutex<Announced>,
}

impl PodAnnouncer {
    /// Gives the departing pods of a node their event, unless they have it. Of pods with a UID in `unread` too little could be read.
    pub(super) async fn announce(
        &self,
        evictor: &Evictor,
        node: &str,
        found: Vec<Departing>,
        unread: &BTreeSet<String>,
    ) {
        let open = self.announced().open(node, found, unread);
        let Evictor { events, leader, .. } = evictor;
        let all = async {
            for pod in &open {
                if !leader.is_leading() {
                    return;
                }
                // Before the event, so that a slow server gets none twice.
                self.announced().note(node, pod);
                give(events, leader, &pod.announcement).await;
            }
        };
        let _ = tokio::time::timeout(NODE_TIMEOUT, all).await;
    }

    /// Forgets the pods of a node, since none is to leave.
    pub(super) fn forget(&self, node: &str) {
        self.retain(|other| other != node);
    }

    /// Forgets the pods of all other nodes.
    pub(super) fn retain(&self, is_wanted: impl Fn(&str) -> bool) {
        self.announced().retain(is_wanted);
    }

    fn announced(&self) -> MutexGuard<'_, Announced> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives each object of an announcement its event. Returns whether this process led until the end.
async fn give(events: &Events, leader: &Leader, announcement: &Announcement) -> bool {
    let Announcement { to, reason, note, is_warning } = announcement;
    for object in to {
        if !leader.is_leading() {
            return false;
        }
        let kind = if *is_warning { EventType::Warning } else { EventType::Normal };
        let event = events.record(object, kind, reason, ACTION, note);
        let _ = tokio::time::timeout(EVENT_TIMEOUT, event).await;
    }
    leader.is_leading()
}
