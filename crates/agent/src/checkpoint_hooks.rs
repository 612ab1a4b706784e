//! Pods that leave save their work first: each is asked once, as the controller requests, and what became of it is reported.
//!
//! ```text
//! NodeHealth.spec.checkpoints --> a task for each pod --record--> signal, POST or file --> NodeHealth.status.checkpoints
//! ```
//!
//! The record has a request on the disk before the pod is asked. So another agent of the node waits on, and asks no pod twice.

mod file;
mod http;
mod record;
mod request;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use octavo_api::checkpoint::CheckpointReport;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::config::NodeConfig;
use crate::metrics::Metrics;
use request::{Request, Wanted};
use task::{Node, PodTask};

/// Most requests of a node, as in its `NodeHealth`.
const MAX_REQUESTS: usize = 256;

/// Where the pods of a node are.
#[derive(Clone, Debug)]
pub(crate) struct HookPaths {
    /// The kubelet's root, with the volumes of pods.
    pub(crate) kubelet_root: PathBuf,
    /// The proc file system, with their processes.
    pub(crate) proc_root: PathBuf,
    /// The record of what was asked.
    pub(crate) record: PathBuf,
}

/// The pods of a node that are to save their work. Waiting ends when this is dropped; another agent goes on from the record.
#[derive(Debug)]
pub(crate) struct CheckpointHooks {
    node: Arc<Node>,
    pods: BTreeMap<String, Pod>,
}

/// A pod's task. It lasts as long as the request.
#[derive(Debug)]
struct Pod {
    since: String,
    gone: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl HookPaths {
    /// Those of a node.
    pub(crate) fn of(config: &NodeConfig) -> Self {
        Self {
            kubelet_root: config.paths.kubelet_root.clone(),
            proc_root: config.paths.proc_root.clone(),
            record: config.plugin_folder().join("checkpoint-hooks.json"),
        }
    }
}

impl CheckpointHooks {
    /// Nothing is asked yet. The node must not pass to another agent before `steps` have ended.
    pub(crate) fn new(
        paths: HookPaths,
        boot_id: String,
        metrics: Arc<Metrics>,
        steps: TaskTracker,
    ) -> Self {
        let node = Arc::new(Node::new(paths, boot_id, metrics, steps));
        Self { node, pods: BTreeMap::new() }
    }

    /// What became of the requests, by UID of the pod.
    pub(crate) fn reports(&self) -> watch::Receiver<BTreeMap<String, CheckpointReport>> {
        self.node.reports.subscribe()
    }

    /// Takes all requests of the node. One that is not among them any more is no longer waited for, and its report leaves.
    pub(crate) fn set_requests(&mut self, requests: &[Value]) {
        let requests = requests.iter().take(MAX_REQUESTS).filter_map(Wanted::read);
        let requests: BTreeMap<_, _> = requests.collect();
        let is_wanted =
            |uid: &str, since: &str| requests.get(uid).is_some_and(|wanted| wanted.since == since);
        for pod in self.pods.iter().filter(|(uid, pod)| !is_wanted(uid, &pod.since)) {
            pod.1.gone.cancel();
        }
        self.node.reports.send_if_modified(|reports| {
            let known = reports.len();
            reports.retain(|uid, report| is_wanted(uid, &report.since));
            reports.len() != known
        });
        self.pods.retain(|_, pod| !(pod.gone.is_cancelled() && pod.task.is_finished()));
        // Requests that left while no agent was there.
        let recorded: BTreeSet<String> = self.node.record().uids();
        let left = recorded.into_iter().filter(|uid| !requests.contains_key(uid));
        for uid in left.filter(|uid| !self.pods.contains_key(uid)).collect::<Vec<_>>() {
            let gone = CancellationToken::new();
            gone.cancel();
            self.start(uid, String::new(), gone, None);
        }
        for (uid, Wanted { since, request }) in requests {
            if self.pods.get(&uid).is_none_or(|pod| pod.gone.is_cancelled()) {
                self.start(uid, since, CancellationToken::new(), Some(request));
            }
        }
    }

    /// Starts the task of a pod, after an earlier one of it has ended. Without a request it tidies up.
    fn start(
        &mut self,
        uid: String,
        since: String,
        gone: CancellationToken,
        request: Option<Result<Request, String>>,
    ) {
        let task = PodTask {
            node: Arc::clone(&self.node),
            uid: uid.clone(),
            since: since.clone(),
            gone: gone.clone(),
        };
        let former = self.pods.remove(&uid).map(|pod| pod.task);
        let task = tokio::spawn(async move {
            if let Some(former) = former {
                // One that panicked has ended, too.
                let _ = former.await;
            }
            task.run(request).await;
        });
        self.pods.insert(uid, Pod { since, gone, task: AbortOnDropHandle::new(task) });
    }
}

#[cfg(test)]
mod tests;
