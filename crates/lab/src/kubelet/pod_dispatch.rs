//! One watch over the pods of all nodes; each pod's changes go to its own task.

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

use super::node::Node;
use super::pod;

/// How long an interrupted watch waits before it is taken up again. There is one watch for all
/// nodes, so nothing is to be spread, and people wait for the pods.
const AGAIN: Duration = Duration::from_secs(1);

/// A back-off that stays the same.
struct Steady;

/// The tasks of all pods, by the pods' UIDs.
struct Dispatch {
    nodes: BTreeMap<String, Arc<Node>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    pods: HashMap<String, watch::Sender<Option<Arc<Pod>>>>,
    /// UIDs seen since the watch began anew; none between two such times.
    seen: Option<BTreeSet<String>>,
    started: bool,
}

/// Watches until `shutdown`. A watch that ends is taken up again: that is routine.
pub(super) async fn run(
    client: Client,
    nodes: BTreeMap<String, Arc<Node>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
) {
    let mut dispatch = Dispatch {
        nodes,
        tasks,
        shutdown: shutdown.clone(),
        pods: HashMap::new(),
        seen: None,
        started: false,
    };
    let config = watcher::Config::default().fields("spec.nodeName!=");
    let stream = watch_pods(Api::<Pod>::all(client), config).backoff(Steady);
    let mut stream = std::pin::pin!(stream);
    while let Some(next) = shutdown.run_until_cancelled(stream.try_next()).await {
        match next {
            Ok(Some(event)) => dispatch.take(event),
            Ok(None) => return,
            Err(error) => tracing::debug!(%error, "pod watch interrupted"),
        }
    }
}

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(AGAIN)
    }
}

impl Backoff for Steady {
    fn reset(&mut self) {}
}

impl Dispatch {
    fn take(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.seen = Some(BTreeSet::new()),
            Event::InitApply(pod) => {
                if let Some(seen) = &mut self.seen {
                    seen.insert(pod.uid().unwrap_or_default());
                }
                self.apply(pod);
            }
            Event::InitDone => self.settle(),
            Event::Apply(pod) => self.apply(pod),
            Event::Delete(pod) => self.gone(&pod.uid().unwrap_or_default()),
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
            shutdown.run_until_cancelled(pod::live(node, latest)).await;
        });
    }

    fn gone(&mut self, uid: &str) {
        if let Some(sender) = self.pods.remove(uid) {
            sender.send_replace(None);
        }
    }

    /// After a full list: whoever is not on it is gone.
    fn settle(&mut self) {
        let Some(seen) = self.seen.take() else { return };
        let vanished: Vec<String> =
            self.pods.keys().filter(|uid| !seen.contains(*uid)).cloned().collect();
        for uid in vanished {
            self.gone(&uid);
        }
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        // Pods that went while no process of this lab was there to see it.
        for node in self.nodes.values() {
            for uid in node.ledger().orphans(&seen) {
                let (node, shutdown) = (Arc::clone(node), self.shutdown.clone());
                self.tasks.spawn(async move {
                    shutdown.run_until_cancelled(pod::release_orphan(node, uid)).await;
                });
            }
        }
    }
}
