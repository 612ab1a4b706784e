//! A node of a test: a kubelet's folder, a proc file system with processes of pods, a server.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use octavo_api::checkpoint::{CheckpointOutcome, CheckpointReport};
use octavo_testkit::eventually;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::super::record::RecordFile;
use super::super::{CheckpointHooks, HookPaths};
use crate::metrics::Metrics;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A request as the controller writes it.
pub(super) fn request(uid: &str, seconds: u64, hook: &Value) -> Value {
    let mut value = json!({"uid": uid, "namespace": "team", "name": "train",
        "since": "2026-01-05T12:00:00Z", "deadlineSeconds": seconds});
    value.as_object_mut().unwrap().extend(hook.as_object().unwrap().clone());
    value
}

/// The report of a request.
pub(super) fn report(hooks: &CheckpointHooks, uid: &str) -> Option<CheckpointReport> {
    hooks.reports().borrow().get(uid).cloned()
}

/// A node, which outlives its agents.
pub(super) struct Node {
    folder: tempfile::TempDir,
    registry: Registry,
    metrics: Arc<Metrics>,
    steps: TaskTracker,
    pub(super) boot_id: String,
}

impl Node {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let mut registry = Registry::default();
        let metrics = Arc::new(Metrics::new(&mut registry));
        let steps = TaskTracker::new();
        Self { folder, registry, metrics, steps, boot_id: "boot".to_owned() }
    }

    fn paths(&self) -> HookPaths {
        HookPaths {
            kubelet_root: self.folder.path().join("kubelet"),
            proc_root: self.folder.path().join("proc"),
            record: self.folder.path().join("record.json"),
        }
    }

    /// An agent of the node.
    pub(super) fn hooks(&self) -> CheckpointHooks {
        let metrics = Arc::clone(&self.metrics);
        CheckpointHooks::new(self.paths(), self.boot_id.clone(), metrics, self.steps.clone())
    }

    /// Ends an agent as another one gets the node: its steps have ended.
    pub(super) async fn leave(&self, hooks: CheckpointHooks) {
        drop(hooks);
        self.steps.close();
        self.steps.wait().await;
        self.steps.reopen();
    }

    /// Makes a pod's folder.
    pub(super) fn pod(&self, uid: &str) -> PathBuf {
        let folder = self.paths().kubelet_root.join("pods").join(uid);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Makes a volume of a pod.
    pub(super) fn volume(&self, uid: &str, name: &str) -> PathBuf {
        let folder = self.pod(uid).join("volumes/kubernetes.io~empty-dir").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// What became of a request.
    pub(super) async fn end(&self, hooks: &CheckpointHooks, uid: &str) -> CheckpointReport {
        let mut reports = hooks.reports();
        let has_ended = |report: &CheckpointReport| report.outcome != CheckpointOutcome::Running;
        let found = reports.wait_for(|reports| reports.get(uid).is_some_and(has_ended));
        timeout(TIMEOUT, found).await.expect(uid).unwrap()[uid].clone()
    }

    pub(super) async fn appears(&self, file: &Path) {
        eventually("the file is made", || file.exists()).await;
    }

    pub(super) async fn is_recorded(&self, uid: &str) {
        let is_there = || RecordFile::read(self.paths().record).get(uid).is_some();
        eventually("it is recorded", is_there).await;
    }

    pub(super) async fn is_forgotten(&self, uid: &str) {
        let is_there = || RecordFile::read(self.paths().record).get(uid).is_some();
        eventually("it is forgotten", || !is_there()).await;
    }

    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

/// A program that says when it gets `SIGUSR1`, and ends when it is let.
pub(super) struct Trainer {
    child: Child,
    lines: BufReader<ChildStdout>,
    signals: usize,
}

impl Trainer {
    /// A process of a pod's container.
    pub(super) fn start(node: &Node, uid: &str, container: &str) -> Self {
        let script = "trap 'echo signal' USR1; echo ready; while ! read line; do :; done; exit 0";
        let mut command = Command::new("bash");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let pid = child.id().to_string();
        let folder = node.paths().proc_root.join(&pid);
        std::fs::create_dir(&folder).unwrap();
        for file in ["stat", "task"] {
            symlink(Path::new("/proc").join(&pid).join(file), folder.join(file)).unwrap();
        }
        std::fs::write(folder.join("cgroup"), format!("0::/kubepods/pod{uid}/{container}\n"))
            .unwrap();
        Self { child, lines, signals: 0 }
    }

    /// Waits until it has got so many signals.
    pub(super) fn has_signals(&mut self, count: usize) {
        while self.signals < count {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            assert_eq!(line, "signal\n");
            self.signals += 1;
        }
    }

    /// Lets it end.
    pub(super) fn end(&mut self) {
        std::io::Write::write_all(&mut self.child.stdin.take().unwrap(), b"end\n").unwrap();
    }

    /// Waits for its end.
    pub(super) fn reap(&mut self) {
        self.child.wait().unwrap();
    }
}

impl Drop for Trainer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server of a pod, which notes what it is asked.
pub(super) struct Server {
    address: std::net::SocketAddr,
    posts: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    /// A server that answers so, or never.
    pub(super) async fn start(answer: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (posts, answer) = (Arc::<Mutex<Vec<String>>>::default(), answer.map(str::to_owned));
        let noted = Arc::clone(&posts);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (noted, answer) = (Arc::clone(&noted), answer.clone());
                connections.spawn(async move {
                    let (reader, mut writer) = stream.into_split();
                    let mut lines = tokio::io::BufReader::new(reader).lines();
                    let first = lines.next_line().await.unwrap().unwrap();
                    noted.lock().unwrap().push(first);
                    while lines
                        .next_line()
                        .await
                        .is_ok_and(|line| line.is_some_and(|line| !line.is_empty()))
                    {
                    }
                    match answer {
                        Some(answer) => writer.write_all(answer.as_bytes()).await.unwrap(),
                        None => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, posts, _task: AbortOnDropHandle::new(task) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/save?all=1", self.address)
    }

    /// First lines of what it was asked.
    pub(super) fn posts(&self) -> Vec<String> {
        self.posts.lock().unwrap().clone()
    }

    pub(super) async fn has_posts(&self, count: usize) {
        let has = || self.posts().len() == count;
        eventually("the server has its POSTs", has).await;
    }
}
