//! The whole scheduler with a fake API server: event loop, binder and status writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_kube_io::objects::{Budget, Node};
use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::bind::{Binder, BinderOptions};

/// Longer than any expected delay. Time is paused while any task has work.
const LONG: Duration = Duration::from_hours(10);

pub(super) struct Whole {
    pub(super) api: FakeApi,
    tell: mpsc::Sender<WatchEvent>,
    /// Versions of the pods that the watch has delivered, by path.
    delivered: BTreeMap<String, String>,
    registry: Registry,
    event_loop: JoinHandle<()>,
    stop: CancellationToken,
}

pub(super) fn path(pod: &str) -> String {
    format!("/api/v1/namespaces/team/pods/{pod}")
}

/// A pod as the API server stores it.
pub(super) fn pod(name: &str, cpu: &str, priority: i32) -> Value {
    json!({"metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"),
            "labels": {"app": name.split('-').next()}},
        "spec": {"schedulerName": "octavo", "priority": priority,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"}})
}

impl Whole {
    /// A leader with these nodes of four cores each.
    pub(super) async fn new(nodes: &[&str]) -> Self {
        let api = FakeApi::default();
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let stop = CancellationToken::new();
        let leadership = Leadership::always();
        let (writers, gate) = leadership.gated();
        let binder = Binder::start(
            api.client(),
            BinderOptions::default(),
            writers.clone(),
            metrics.clone(),
            stop.clone(),
        );
        let status = StatusWriter::start(
            api.client(),
            StatusOptions::new("octavo", "octavo-0"),
            writers,
            binder.load.clone(),
            metrics.clone(),
            stop.clone(),
        );
        let (tell, watch_events) = mpsc::channel(1024);
        let (_asks, questions) = admin::questions();
        let channels = Channels {
            watch_events,
            relists: Relist::default(),
            op_results: binder.results,
            write_ops: binder.ops,
            reports: status.sender,
            questions,
            leadership,
            gate,
            metrics,
            synced: Box::new(|| {}),
            stop: stop.clone(),
        };
        let event_loop = tokio::spawn(run(Scheduler::new(SchedulerConfig::default()), channels));
        let whole = Self { api, tell, delivered: BTreeMap::new(), registry, event_loop, stop };
        for name in nodes {
            let amounts = json!({"cpu": "4", "memory": "64Gi", "pods": "110"});
            let node = json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "labels":
                    {"octavo.dev/scheduler": "octavo", "kubernetes.io/hostname": name}},
                "status": {"allocatable": amounts, "capacity": amounts,
                    "conditions": [{"type": "Ready", "status": "True"}]}});
            let node = Arc::new(Node::from_value(node).unwrap());
            whole.change(Change::Node(Delta::Upsert(node))).await;
        }
        whole.tell.send(WatchEvent::FreshAsOf(Instant::now())).await.unwrap();
        whole.tell.send(WatchEvent::Synced).await.unwrap();
        whole
    }

    async fn change(&self, change: Change) {
        self.tell.send(WatchEvent::Change(change)).await.unwrap();
    }

    /// A client creates a pod.
    pub(super) async fn create(&mut self, pod: Value) {
        let path = path(pod["metadata"]["name"].as_str().unwrap());
        self.api.put(&path, pod);
        self.deliver(&path).await;
    }

    /// A budget that allows this many evictions of pods whose name begins so.
    pub(super) async fn budget(&self, app: &str, allowed: i32) {
        let budget = json!({"metadata": {"name": app, "namespace": "team", "uid": app},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed}});
        let budget = Arc::new(Budget::from_value(budget).unwrap());
        self.change(Change::Budget(Delta::Upsert(budget))).await;
    }

    /// The watch delivers a pod, if it has changed. A pod that is being deleted is gone.
    async fn deliver(&mut self, path: &str) {
        let Some(object) = self.api.object(path) else { return };
        let version = object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        if self.delivered.get(path) == Some(&version) {
            return;
        }
        self.delivered.insert(path.to_owned(), version);
        let is_deleted = !object["metadata"]["deletionTimestamp"].is_null();
        let pod = Arc::new(Pod::from_value(object).unwrap());
        if is_deleted {
            self.api.remove(path);
            self.change(Change::Pod(Delta::Delete(pod))).await;
        } else {
            self.change(Change::Pod(Delta::Upsert(pod))).await;
        }
    }

    /// Lets the scheduler work until a condition holds, while the watch delivers what it writes to
    /// these pods.
    pub(super) async fn until(
        &mut self,
        what: &str,
        pods: &[String],
        is_met: impl Fn(&Self) -> bool,
    ) {
        let begin = Instant::now();
        while !is_met(self) {
            assert!(begin.elapsed() < LONG, "{what}");
            sleep(Duration::from_millis(100)).await;
            for name in pods {
                self.deliver(&path(name)).await;
            }
        }
    }

    pub(super) fn node_of(&self, pod: &str) -> Option<String> {
        let node = self.api.object(&path(pod))?["spec"]["nodeName"].as_str()?.to_owned();
        Some(node)
    }

    /// The condition of a pod, as reason and message.
    pub(super) fn condition(&self, pod: &str) -> Option<(String, String)> {
        let object = self.api.object(&path(pod))?;
        let condition = &object["status"]["conditions"][0];
        let text = |key: &str| condition[key].as_str().map(str::to_owned);
        Some((text("reason")?, text("message")?))
    }

    /// The value of a metric.
    pub(super) fn metric(&self, name: &str) -> Option<u64> {
        let mut page = String::new();
        encode(&mut page, &self.registry).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.parse().ok()
    }

    pub(super) async fn end(self) {
        self.stop.cancel();
        timeout(LONG, self.event_loop).await.unwrap().unwrap();
    }
}
