//! The worker of one pod on its node.
//!
//! ```text
//! admit: devices of plugins, or Failed
//!   v
//! start: prepare claims -> create containers -> Running -- run-for --> exited -> restart | done
//!   ^ retried with back-off                        |                               |
//!   +----------------------------------------------+------- deleted ---------------+
//!                                                  v
//!              stop: unprepare (until it succeeds), free devices -> final status -> delete
//! ```

mod admission;
mod status_writes;
mod termination;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use tokio::sync::watch;

pub(crate) use self::termination::release_orphan;
use crate::kubelet::backoff;
use crate::kubelet::claims;
use crate::kubelet::node::Node;
use crate::kubelet::pod_addresses::AddressRange;
use crate::kubelet::pods::containers;
use crate::kubelet::pods::plan::{AfterExit, Plan, restart_delay};
use crate::kubelet::pods::processes::{self, ProcessEvent};
use crate::kubelet::pods::status::{Phase, State, View};
use crate::kubelet::pods::volumes;

/// Receives the newest version of a pod; `None` after its deletion.
pub(crate) type PodReceiver = watch::Receiver<Option<Arc<Pod>>>;

/// The task of a pod.
struct PodWorker {
    node: Arc<Node>,
    latest: PodReceiver,
    uid: String,
    address: Option<Ipv4Addr>,
    view: View,
    sent: Option<PodStatus>,
}

/// Result of a wait.
#[derive(Debug, PartialEq, Eq)]
enum WaitResult {
    /// The pod is being deleted, or gone.
    Ending,
    /// The time is over, or the awaited change occurred.
    Due,
}

/// Runs the pod behind `latest` on `node` until the pod is gone. May be dropped at any time: the
/// next process continues from the claim cache and the pod status.
pub(crate) async fn run_pod(node: Arc<Node>, latest: PodReceiver) {
    let Some(pod) = latest.borrow().clone() else { return };
    let mut worker = PodWorker::new(node, latest, &pod);
    worker.node.devices.add_pod(&worker.uid, worker.latest.clone());
    if !is_terminal(&pod) && !is_ending(&worker.latest) {
        worker.run_containers().await;
    } else if is_terminal(&pod) {
        worker.adopt_final_status(&pod);
    }
    worker.unprepare().await;
    worker.node.devices.release(&worker.uid);
    containers::remove(&worker.node, &worker.uid);
    worker.terminate().await;
    if let Some(address) = worker.address {
        worker.node.pod_addresses.release(address);
    }
}

impl PodWorker {
    /// Starts from the pod's status as written by an earlier process.
    fn new(node: Arc<Node>, latest: PodReceiver, pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let address = status.pod_ip.as_deref().and_then(|ip| ip.parse().ok());
        if let Some(address) = address {
            node.pod_addresses.reserve(address);
        }
        let first = status.container_statuses.iter().flatten().next();
        let view = View {
            phase: Phase::Pending,
            start_time: status.start_time.map_or_else(Timestamp::now, |time| time.0),
            host_ip: node.address.to_string(),
            pod_ip: status.pod_ip.clone(),
            is_ready: true,
            state: creating(),
            exceptions: BTreeMap::new(),
            last: None,
            restarts: first.map_or(0, |status| status.restart_count),
            resources: BTreeMap::new(),
            rejection: None,
        };
        let uid = pod.uid().unwrap_or_default();
        Self { node, latest, uid, address, view, sent: None }
    }

    /// Starts the pod's containers and runs them until they finish or the pod is deleted.
    async fn run_containers(&mut self) {
        let Some(pod) = self.pod() else { return };
        let plan = match Plan::of(&pod) {
            Ok(plan) => plan,
            Err(message) => return self.report_invalid(message).await,
        };
        let mut started = running_since(&pod);
        let Some(()) = self.admit(&pod, started.is_some()).await else { return };
        let Some(()) = self.start(started.is_some()).await else { return };
        if let Some(container) = processes::container_of(&pod) {
            return Box::pin(self.run_process(&container, &plan)).await;
        }
        loop {
            let since = *started.get_or_insert_with(Timestamp::now);
            self.view.phase = Phase::Running;
            self.view.state = State::Running { started: since };
            self.report().await;
            if self.watch_until(plan.run_for.map(|time| remaining(since, time))).await
                == WaitResult::Ending
            {
                return;
            }
            let exit_code = plan.exit_code;
            let finished = Timestamp::now();
            let ended = State::Terminated { exit_code, started: Some(since), finished };
            if self.exited(&plan, ended).await == WaitResult::Ending {
                return;
            }
            started = None;
        }
    }

    /// Handles the end of the containers: a final phase, or a restart after a delay.
    async fn exited(&mut self, plan: &Plan, ended: State) -> WaitResult {
        match plan.after_exit() {
            AfterExit::Finish { succeeded } => {
                self.view.phase = if succeeded { Phase::Succeeded } else { Phase::Failed };
                self.view.state = ended;
                WaitResult::Ending
            }
            AfterExit::Restart => {
                self.view.last = Some(ended);
                self.view.state = waiting("CrashLoopBackOff", "restarting".to_owned());
                self.report().await;
                if self.sleep(restart_delay(self.view.restarts)).await == WaitResult::Ending {
                    return WaitResult::Ending;
                }
                self.view.restarts += 1;
                WaitResult::Due
            }
        }
    }

    /// Runs a container as a process of this machine until the pod is deleted or finished.
    async fn run_process(&mut self, container: &Container, plan: &Plan) {
        loop {
            let Some(pod) = self.pod().filter(|_| !is_ending(&self.latest)) else { return };
            let address = self.view.pod_ip.clone().unwrap_or_default();
            let process = match processes::start(&self.node, &pod, container, &address).await {
                Ok(process) => process,
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(pod = pod.name_any(), error, "a process was not started");
                    self.view.state = waiting("RunContainerError", error);
                    self.report().await;
                    if self.sleep(restart_delay(self.view.restarts)).await == WaitResult::Ending {
                        return;
                    }
                    self.view.restarts += 1;
                    continue;
                }
            };
            let since = Timestamp::now();
            (self.view.phase, self.view.is_ready) = (Phase::Running, !process.has_probe());
            self.view.state = State::Running { started: since };
            self.report().await;
            loop {
                tokio::select! {
                    biased;
                    () = wait_until_ending(&mut self.latest) => {
                        let grace = self.pod().and_then(|pod| pod.metadata.deletion_grace_period_seconds);
                        process.stop(grace).await;
                        return;
                    }
                    event = process.next(self.view.is_ready) => match event {
                        ProcessEvent::Exited => break,
                        ProcessEvent::Ready(is_ready) => {
                            if self.view.is_ready != is_ready {
                                self.view.is_ready = is_ready;
                                self.report().await;
                            }
                        }
                    }
                }
            }
            let finished = Timestamp::now();
            self.view.is_ready = false;
            let ended = State::Terminated { exit_code: 1, started: Some(since), finished };
            if self.exited(plan, ended).await == WaitResult::Ending {
                return;
            }
        }
    }

    /// Mounts Secrets, prepares the claims and creates the containers, with retries. `None` if the pod is deleted
    /// first. A pod that ran before a restart keeps its status.
    async fn start(&mut self, runs: bool) -> Option<()> {
        let mut attempt = 0;
        loop {
            let pod = self.pod().filter(|_| !is_ending(&self.latest))?;
            let mut plugins = self.node.plugins.changes();
            let failure = match volumes::set_up(&self.node, &pod).await {
                Ok(()) => match containers::create(&self.node, &pod) {
                    Ok(()) => {
                        self.view.exceptions.clear();
                        self.assign_address();
                        return Some(());
                    }
                    Err(failed) => {
                        let state = waiting(failed.reason, failed.message.clone());
                        self.view.exceptions = BTreeMap::from([(failed.container, state)]);
                        self.assign_address();
                        ("Failed", format!("Error: {}", failed.message))
                    }
                },
                Err(failure) => {
                    self.view.exceptions.clear();
                    failure
                }
            };
            if !runs {
                self.report().await;
            }
            let (reason, note) = failure;
            self.node.event(&pod, EventType::Warning, reason, &note).await;
            let pause = backoff(attempt, &self.uid);
            attempt += 1;
            // A new plugin justifies an immediate attempt.
            tokio::select! {
                result = self.sleep(pause) => if result == WaitResult::Ending { return None },
                Ok(()) = plugins.changed() => {}
            }
        }
    }

    /// Shows an annotation's error until the pod is deleted.
    async fn report_invalid(&mut self, message: String) {
        let containers = self.pod().and_then(|pod| pod.spec.clone()).map(|spec| spec.containers);
        let names = containers.into_iter().flatten().map(|container| container.name);
        self.view.exceptions = names
            .map(|name| (name, waiting("CreateContainerConfigError", message.clone())))
            .collect();
        self.report().await;
        self.wait_until_ending().await;
    }

    /// Waits for the pod's deletion or for `time`, and reports device health meanwhile.
    async fn watch_until(&mut self, time: Option<Duration>) -> WaitResult {
        let due = time.map(|time| tokio::time::Instant::now() + time);
        let has_claims =
            self.pod().is_some_and(|pod| claims::claims_of(&pod).is_ok_and(|c| !c.is_empty()));
        let has_devices = self.node.devices.has_devices(&self.uid);
        let (mut reports, mut devices) =
            (self.node.reports.subscribe(), self.node.devices.counts());
        loop {
            tokio::select! {
                biased;
                () = wait_until_ending(&mut self.latest) => return WaitResult::Ending,
                () = sleep_until(due) => return WaitResult::Due,
                Ok(()) = reports.changed(), if has_claims => {
                    reports.mark_unchanged();
                    self.report().await;
                }
                Ok(()) = devices.changed(), if has_devices => self.report().await,
            }
        }
    }

    fn assign_address(&mut self) {
        let has_process = self.pod().is_some_and(|pod| processes::container_of(&pod).is_some());
        let range = if has_process { AddressRange::Loopback } else { AddressRange::Unused };
        let address = *self.address.get_or_insert_with(|| self.node.pod_addresses.allocate(range));
        self.view.pod_ip = Some(address.to_string());
    }

    fn pod(&self) -> Option<Arc<Pod>> {
        self.latest.borrow().clone()
    }

    async fn sleep(&mut self, pause: Duration) -> WaitResult {
        match tokio::time::timeout(pause, wait_until_ending(&mut self.latest)).await {
            Ok(()) => WaitResult::Ending,
            Err(_) => WaitResult::Due,
        }
    }

    async fn wait_until_ending(&mut self) {
        wait_until_ending(&mut self.latest).await;
    }
}

async fn wait_until_ending(latest: &mut PodReceiver) {
    wait_until(latest, is_ending_pod).await;
}

/// Waits until the pod is as `wanted`. A closed channel means that the process ends, not the pod;
/// the wait then never returns.
async fn wait_until(latest: &mut PodReceiver, wanted: impl Fn(Option<&Pod>) -> bool) {
    if latest.wait_for(|pod| wanted(pod.as_deref())).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn is_ending(latest: &PodReceiver) -> bool {
    is_ending_pod(latest.borrow().as_deref())
}

fn is_ending_pod(pod: Option<&Pod>) -> bool {
    pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
}

fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Start time of the containers, according to the status of an earlier process.
fn running_since(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let since = |status: &ContainerStatus| {
        Some(status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
    };
    status.container_statuses.iter().flatten().find_map(since)
}

fn remaining(since: Timestamp, time: Duration) -> Duration {
    let passed = Timestamp::now().duration_since(since);
    time.saturating_sub(passed.try_into().unwrap_or_default())
}

async fn sleep_until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn creating() -> State {
    waiting("ContainerCreating", String::new())
}

fn waiting(reason: &'static str, message: String) -> State {
    State::Waiting { reason, message }
}

#[cfg(test)]
mod tests;
