//! The task of one pod: it asks, waits until the pod is done or its time is over, and reports.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use octavo_api::checkpoint::{self as api, CheckpointOutcome, CheckpointReport, FileRequest};
use octavo_enforcement::process::Process;
use octavo_enforcement::process::container::{Containers, Signal, send};
use octavo_node::files::StorageError;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::HookPaths;
use super::file::{ControlFile, FileError};
use super::http::HttpError;
use super::record::{Asked, RecordFile, Way};
use super::request::{Hook, Request};
use crate::metrics::Metrics;

/// Most steps at once that use files. Waits are none, so that a pod that does not answer is in nothing's way.
const MAX_STEPS: usize = 32;
/// Interval of looks whether a pod has removed its file.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Longest message, in characters.
const MAX_MESSAGE: usize = 512;

/// What the tasks of a node share.
#[derive(Debug)]
pub(super) struct Node {
    paths: HookPaths,
    boot_id: String,
    containers: Containers,
    record: Mutex<RecordFile>,
    metrics: Arc<Metrics>,
    /// Steps that use files.
    steps: TaskTracker,
    permits: Semaphore,
    pub(super) reports: watch::Sender<BTreeMap<String, CheckpointReport>>,
}

/// The task of a pod.
#[derive(Debug)]
pub(super) struct PodTask {
    pub(super) node: Arc<Node>,
    /// UID of the pod.
    pub(super) uid: String,
    /// `since` of the request.
    pub(super) since: String,
    /// Whether the request has left.
    pub(super) gone: CancellationToken,
}

/// Why a pod was not asked, or has not saved its work.
#[derive(Debug, thiserror::Error)]
enum HookError {
    #[error("the pod is not on this node: it has no folder of the kubelet and no process")]
    NotHere,
    #[error("container {0} has no process on this node: it did not start, or has ended")]
    NoProcess(String),
    #[error("the container's process cannot be asked: {0}")]
    Process(#[from] io::Error),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the agent started again after it had begun to ask, so the outcome is not known")]
    Unknown,
    #[error("the node started again before the pod had saved its work")]
    OtherBoot,
    #[error("the pod is not asked, since that cannot be recorded: {0}")]
    Record(#[from] StorageError),
    #[error("a step of the agent failed")]
    Step,
}

/// What is waited for.
enum Wait {
    /// The end of a process; `None`: it has ended.
    Process(Option<OwnedFd>),
    /// The answer to a POST, which is not sent yet.
    Post,
    /// The removal of a file.
    File(FileRequest),
}

impl Node {
    pub(super) fn new(
        paths: HookPaths,
        boot_id: String,
        metrics: Arc<Metrics>,
        steps: TaskTracker,
    ) -> Self {
        Self {
            containers: Containers::new(paths.proc_root.clone()),
            record: Mutex::new(RecordFile::read(paths.record.clone())),
            paths,
            boot_id,
            metrics,
            steps,
            permits: Semaphore::new(MAX_STEPS),
            reports: watch::Sender::default(),
        }
    }

    /// The record, locked; never across an await.
    pub(super) fn record(&self) -> MutexGuard<'_, RecordFile> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self, since: &str, way: Way) -> Asked {
        let (at, since) = (Timestamp::now().as_millisecond(), since.to_owned());
        Asked { since, at, boot_id: self.boot_id.clone(), way, report: None }
    }

    /// Asks a pod for the first time, as far as that needs files.
    fn ask(&self, uid: &str, since: &str, hook: &Hook) -> Result<Wait, HookError> {
        match hook {
            Hook::Signal(request) => {
                let id = &request.container_id;
                let process = self.containers.first_process(uid, id)?;
                let opened = process.map(|process| self.containers.open(process)).transpose()?;
                let (Some(process), Some(opened)) = (process, opened.flatten()) else {
                    return Err(HookError::NoProcess(id.clone()));
                };
                self.record().set(uid, self.asked(since, Way::signal(process)))?;
                send(&opened, signal(request.signal))?;
                Ok(Wait::Process(Some(opened)))
            }
            Hook::Http(_) => {
                let folder = self.paths.kubelet_root.join("pods").join(uid);
                if !folder.is_dir() && !self.containers.has_pod(uid)? {
                    return Err(HookError::NotHere);
                }
                self.record().set(uid, self.asked(since, Way::Http))?;
                Ok(Wait::Post)
            }
            Hook::File(file) => {
                let found = self.find(uid, file)?;
                // The record must not have it: another agent would take the pod's file for one of its own, and remove it.
                found.check_missing()?;
                let way = |is_made| Way::File { file: file.clone(), is_made };
                let asked = self.asked(since, way(false));
                self.record().set(uid, asked.clone())?;
                if let Err(error) = found.make() {
                    self.record().remove(uid)?;
                    return Err(error.into());
                }
                self.record().set(uid, Asked { way: way(true), ..asked })?;
                Ok(Wait::File(file.clone()))
            }
        }
    }

    /// Waits on for a pod that an earlier agent asked.
    fn resume(&self, uid: &str, asked: &Asked) -> Result<Wait, HookError> {
        if asked.boot_id != self.boot_id {
            return Err(HookError::OtherBoot);
        }
        match &asked.way {
            Way::Signal { pid, start_time } => {
                let process = Process { pid: *pid, start_time: *start_time };
                Ok(Wait::Process(self.containers.open(process)?))
            }
            Way::Http => Err(HookError::Unknown),
            Way::File { file, is_made } => {
                if !is_made {
                    // One that is not there was removed by the pod, or never made.
                    if !self.is_left(uid, file)? {
                        return Err(HookError::Unknown);
                    }
                    let way = Way::File { file: file.clone(), is_made: true };
                    self.record().set(uid, Asked { way, ..asked.clone() })?;
                }
                Ok(Wait::File(file.clone()))
            }
        }
    }

    fn find(&self, uid: &str, file: &FileRequest) -> Result<ControlFile, FileError> {
        ControlFile::find(&self.paths.kubelet_root, uid, file)
    }

    /// Whether a pod has not removed its file yet. Nothing stays open: an open folder would keep the kubelet from ending the volume.
    fn is_left(&self, uid: &str, file: &FileRequest) -> Result<bool, FileError> {
        match self.find(uid, file) {
            // The pod removed the folder, too.
            Err(FileError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Ok(false)
            }
            found => Ok(found?.is_there()),
        }
    }

    /// Removes a file that the agent made for a pod, if it is left.
    fn clean(&self, uid: &str) {
        let way = self.record().get(uid).map(|asked| asked.way.clone());
        if let Some(Way::File { file, is_made: true }) = way
            && let Ok(found) = self.find(uid, &file)
        {
            found.remove();
        }
    }
}

impl PodTask {
    /// Serves a request until it leaves. Without one only what is left of an earlier one is removed.
    pub(super) async fn run(self, request: Option<Result<Request, String>>) {
        if let Some(request) = request.filter(|_| !self.gone.is_cancelled()) {
            match request {
                Ok(request) => self.serve(request).await,
                Err(why) => self.publish(CheckpointOutcome::Failed, Duration::ZERO, Some(why)),
            }
            self.gone.cancelled().await;
        }
        self.forget().await;
    }

    /// Removes what is left of a request.
    async fn forget(&self) {
        let uid = self.uid.clone();
        let forget = move |node: &Node| {
            node.clean(&uid);
            node.record().remove(&uid)
        };
        if let Ok(Err(error)) = self.step(forget).await {
            tracing::warn!(uid = self.uid, %error, "what was asked of a pod that leaves stays recorded");
        }
    }

    /// Asks, waits and reports.
    async fn serve(&self, request: Request) {
        let mut known = self.node.record().get(&self.uid).cloned();
        // The request before left while no agent was there.
        if known.as_ref().is_some_and(|asked| asked.since != self.since) {
            self.forget().await;
            known = None;
        }
        if let Some(report) = known.as_ref().and_then(|asked| asked.report.clone()) {
            self.send(report);
            return;
        }
        let passed = known.as_ref().map_or(Duration::ZERO, |asked| {
            let passed = Timestamp::now().as_millisecond().saturating_sub(asked.at);
            Duration::from_millis(passed.try_into().unwrap_or_default())
        });
        let (begin, pod) = (Instant::now(), &request.pod);
        let until = begin + request.limit.saturating_sub(passed);
        self.publish(CheckpointOutcome::Running, passed, None);
        let (uid, since, hook) = (self.uid.clone(), self.since.clone(), request.hook.clone());
        let ask = move |node: &Node| match known {
            None => node.ask(&uid, &since, &hook),
            Some(asked) => node.resume(&uid, &asked),
        };
        let asked = self.step(ask).await.flatten();
        let ended = match asked {
            Err(error) => Ok(Err(error)),
            Ok(wait) => tokio::select! {
                () = self.gone.cancelled() => return,
                ended = timeout_at(until, self.wait(wait, &request.hook)) => ended,
            },
        };
        let took = passed + begin.elapsed();
        let (outcome, message) = match ended {
            Ok(Ok(())) => (CheckpointOutcome::Saved, None),
            Ok(Err(error)) => (CheckpointOutcome::Failed, Some(error.to_string())),
            Err(_) => {
                let seconds = request.limit.as_secs();
                let message = format!("the pod has not saved its work within {seconds} s");
                (CheckpointOutcome::TimedOut, Some(message))
            }
        };
        let hook = request.hook.name();
        tracing::info!(
            pod,
            hook,
            ?outcome,
            message,
            milliseconds = took.as_millis(),
            "a pod that leaves was asked to save its work"
        );
        self.node.metrics.checkpoint(hook, outcome, took);
        let report = self.report(outcome, took, message);
        let (uid, recorded) = (self.uid.clone(), report.clone());
        let finish = move |node: &Node| {
            node.clean(&uid);
            let mut record = node.record();
            // A pod that was not asked may be asked by another agent.
            let Some(asked) = record.get(&uid).cloned() else { return Ok(()) };
            record.set(&uid, Asked { report: Some(recorded), ..asked })
        };
        if let Ok(Err(error)) = self.step(finish).await {
            tracing::warn!(pod, %error, "the outcome of a checkpoint is not recorded");
        }
        self.send(report);
    }

    /// Waits until the pod is done.
    async fn wait(&self, wait: Wait, hook: &Hook) -> Result<(), HookError> {
        match wait {
            Wait::Process(None) => Ok(()),
            Wait::Process(Some(process)) => {
                #[expect(deprecated, reason = "the other way is unsafe; the descriptor is owned")]
                let process = AsyncFd::with_interest(process, Interest::READABLE)?;
                let _ended = process.readable().await?;
                Ok(())
            }
            Wait::Post => match hook {
                Hook::Http(target) => Ok(target.post().await?),
                _ => Err(HookError::Unknown),
            },
            Wait::File(file) => loop {
                let (uid, file) = (self.uid.clone(), file.clone());
                if !self.step(move |node| node.is_left(&uid, &file)).await?? {
                    return Ok(());
                }
                sleep(LOOK_INTERVAL).await;
            },
        }
    }

    /// Does what uses files off the runtime's threads.
    async fn step<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, HookError> {
        let _permit = self.node.permits.acquire().await.map_err(|_| HookError::Step)?;
        let node = Arc::clone(&self.node);
        let done = self.node.steps.spawn_blocking(move || work(&node)).await;
        done.map_err(|_| HookError::Step)
    }

    fn report(
        &self,
        outcome: CheckpointOutcome,
        took: Duration,
        message: Option<String>,
    ) -> CheckpointReport {
        CheckpointReport {
            uid: self.uid.clone(),
            since: self.since.clone(),
            outcome,
            milliseconds: took.as_millis().try_into().unwrap_or(i64::MAX),
            message: message.map(|text| text.chars().take(MAX_MESSAGE).collect()),
        }
    }

    fn publish(&self, outcome: CheckpointOutcome, took: Duration, message: Option<String>) {
        self.send(self.report(outcome, took, message));
    }

    /// Reports, unless the request has left.
    fn send(&self, report: CheckpointReport) {
        self.node.reports.send_if_modified(|reports| {
            if self.gone.is_cancelled() {
                return false;
            }
            let former = reports.insert(self.uid.clone(), report.clone());
            former != Some(report)
        });
    }
}

fn signal(signal: api::Signal) -> Signal {
    match signal {
        api::Signal::Usr1 => Signal::USR1,
        api::Signal::Usr2 => Signal::USR2,
        api::Signal::Term => Signal::TERM,
        api::Signal::Hup => Signal::HUP,
        api::Signal::Int => Signal::INT,
    }
}
