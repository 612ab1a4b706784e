//! One watch over the pods of all nodes; dispatches changes to one task per pod.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch_pods};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::kubelet::node::Node;
use crate::kubelet::pods::worker;

/// Delay before an interrupted watch restarts. There is one watch for all nodes, so no jitter is
/// needed, and users wait for the pods.
const WATCH_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A constant back-off.
struct ConstantBackoff;

/// The tasks of all pods, by pod UID.
struct PodDispatch {
    nodes: BTreeMap<String, Arc<Node>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    pods: HashMap<String, watch::Sender<Option<Arc<Pod>>>>,
    /// UIDs in the list that is being read; `None` outside of a list.
    listed: Option<BTreeSet<String>>,
    has_listed_once: bool,
}

/// Watches until `shutdown`. An ended watch is restarted.
pub(crate) async fn run(
    client: Client,
    nodes: BTreeMap<String, Arc<Node>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
) {
    let mut dispatch = PodDispatch {
        nodes,
        tasks,
        shutdown: shutdown.clone(),
        pods: HashMap::new(),
        listed: None,
        has_listed_once: false,
    };
    let config = watcher::Config::default().fields("spec.nodeName!=");
    let stream = watch_pods(Api::<Pod>::all(client), config).backoff(ConstantBackoff);
    let mut stream = std::pin::pin!(stream);
    while let Some(next) = shutdown.run_until_cancelled(stream.try_next()).await {
        match next {
            Ok(Some(event)) => dispatch.handle(event),
            Ok(None) => return,
            Err(error) => tracing::debug!(%error, "pod watch interrupted"),
        }
    }
}

impl Iterator for ConstantBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(WATCH_RETRY_DELAY)
    }
}

impl Backoff for ConstantBackoff {
    fn reset(&mut self) {}
}

impl PodDispatch {
    fn handle(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed = Some(BTreeSet::new()),
            Event::InitApply(pod) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(pod.uid().unwrap_or_default());
                }
                self.apply(pod);
            }
            Event::InitDone => self.finish_list(),
            Event::Apply(pod) => self.apply(pod),
            Event::Delete(pod) => self.remove(&pod.uid().unwrap_or_default()),
        }
    }

    fn apply(&mut self, mut pod: Pod) {
        let name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let Some(node) = self.nodes.get(&name) else { return };
        pod.managed_fields_mut().clear();
        let uid = pod.uid().unwrap_or_default();
        let pod = Some(Arc::new(pod));
        if let Some(sender) = self.pods.get(&uid) {
            sender.send_replace(pod);
            return;
        }
        let (sender, latest) = watch::channel(pod);
        self.pods.insert(uid, sender);
        let (node, shutdown) = (Arc::clone(node), self.shutdown.clone());
        self.tasks.spawn(async move {
            shutdown.run_until_cancelled(worker::run_pod(node, latest)).await;
        });
    }

    fn remove(&mut self, uid: &str) {
        if let Some(sender) = self.pods.remove(uid) {
            sender.send_replace(None);
        }
    }

    /// Handles the end of a list: pods missing from it are gone.
    fn finish_list(&mut self) {
        let Some(listed) = self.listed.take() else { return };
        let missing: Vec<String> =
            self.pods.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
        for uid in missing {
            self.remove(&uid);
        }
        if std::mem::replace(&mut self.has_listed_once, true) {
            return;
        }
        // Pods that were deleted while no process of this lab watched.
        for node in self.nodes.values() {
            let mut orphans = node.claim_infos().orphans(&listed);
            orphans.extend(node.devices.orphans(&listed));
            for uid in orphans {
                let (node, shutdown) = (Arc::clone(node), self.shutdown.clone());
                self.tasks.spawn(async move {
                    shutdown.run_until_cancelled(worker::release_orphan(node, uid)).await;
                });
            }
        }
    }
}
