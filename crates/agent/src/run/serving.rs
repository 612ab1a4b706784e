//! Work of the node's active agent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use octavo_api::names;
use octavo_enforcement::swap::{HostBudget, SwapSettings};
use octavo_enforcement::watchdog::{self, FindingSinks, WatchedNode};
use octavo_kube_io::events::Events;
use octavo_node::failpoint;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::call_gate::GatedClaims as _;
use super::compute_domains::ServedDomains;
use super::health_object::HealthObject;
use super::node::NodeAgent;
use super::publish_loop::{PublishLoop, PublishOutputs};
use super::sockets::NodeSockets;
use super::{clique_label, hook_socket, pool, publish};
use crate::claims::{Claims, HeldCounts, KubeReader, KubeReporter};
use crate::compute_domain::DomainCounts;
use crate::config::TimeEnforcement;
use crate::devices::Note;
use crate::handover::{self, HandoverRequest};
use crate::kubelet::socket::stale;
use crate::monitor::Snapshot;
use crate::node::DraDriver;

/// Interval between sweeps for claims that disappeared without a kubelet call.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_mins(10);
/// Delay before a missing claim is checked again.
pub(super) const RECHECK_DELAY: Duration = Duration::from_secs(35);
/// Seconds over which the sweeps of a cluster's agents are spread.
const SWEEP_SPREAD_SECONDS: u64 = 60;
/// Timeout for the first devices before a node that was handed over is served.
const FIRST_DEVICES_TIMEOUT: Duration = Duration::from_secs(2);
/// Time until the record of GPUs' health is read. The driver's thread may be opening the driver.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);
/// Time in which calls of the kubelet wait for the first trial of the hooks' program.
const HOOK_TRIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for unsent reports on claims at shutdown.
const FINAL_REPORTS_TIMEOUT: Duration = Duration::from_secs(2);

/// What is closed when another agent gets the node.
struct Served {
    sockets: NodeSockets,
    claims: Claims,
    domains: Option<ServedDomains>,
}

/// The time in which an agent is active: its tasks and their stop token.
#[derive(Clone)]
pub(super) struct ActivePeriod {
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl ActivePeriod {
    /// Runs a task until it is done, or the period ends.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let (stop, task) = (self.stop.clone(), Box::pin(task));
        self.tasks.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }
}

impl NodeAgent {
    /// Serves the node until the agent stops or another one requests it. On return no part of the node is in use. The
    /// caller holds the lock throughout.
    pub(super) async fn serve(
        &self,
        ahead: Option<NodeSockets>,
        client: &Client,
    ) -> Option<HandoverRequest> {
        let stop = self.shared.stop.child_token();
        let period = ActivePeriod { stop, tasks: TaskTracker::new() };
        let (sender, mut requests) = mpsc::channel(1);
        let listen = handover::listen(
            Arc::clone(&self.config),
            self.has_driver(),
            sender,
            period.stop.clone(),
        );
        period.tasks.spawn(listen);
        let mut served = None;
        let request = tokio::select! {
            () = self.shared.stop.cancelled() => None,
            request = requests.recv() => request,
            () = self.begin(ahead, client, &period, &mut served) => None,
        };
        failpoint::hit("handover.leaving");
        if let Some(Served { sockets, claims, domains }) = served {
            // Before the gates are closed, which its task could open again.
            let domain_claims = domains.and_then(ServedDomains::end);
            sockets.refuse_calls();
            if let Some(domain_claims) = domain_claims {
                domain_claims.close().await;
            }
            claims.close().await;
            failpoint::hit("handover.closed");
            sockets.close().await;
        }
        period.stop.cancel();
        period.tasks.close();
        period.tasks.wait().await;
        // Whatever ended it, also before the record was read.
        self.waker.rest().await;
        let (node, metrics) = (&self.config.node_name, &self.shared.metrics);
        metrics.in_mode(node, None);
        metrics.prepared(node, HeldCounts::default());
        if self.config.compute_domains.is_some() {
            metrics.prepared_in_domains(node, DomainCounts::default());
        }
        for driver in self.config.drivers() {
            metrics.registered(driver, node, false);
        }
        request
    }

    /// Starts everything and follows the GPUs forever. `served` must be closed afterwards.
    async fn begin(
        &self,
        ahead: Option<NodeSockets>,
        client: &Client,
        period: &ActivePeriod,
        served: &mut Option<Served>,
    ) {
        let node = &self.config.node_name;
        let events = Events::new(client.clone(), names::AGENT_CONTROLLER, node);
        let (stop, tasks) = (&period.stop, &period.tasks);
        // Before devices are published: a fence of an earlier agent must not be missing. A driver that hangs delays nothing else.
        let _ = timeout(RECORD_TIMEOUT, self.waker.serve()).await;
        let wanted =
            publish::start(self, DraDriver::GPU, client.clone(), events.clone(), stop, tasks);
        let setting = self.settings.subscribe();
        let claims = self.open_claims(client, period).await;
        claims.set_metrics(Arc::clone(&self.shared.metrics));
        claims.set_memory_enforcement(self.config.memory_enforcement);
        claims.set_min_overflow(self.config.min_overflow_policy);
        claims.set_has_leases(self.config.time_enforcement == TimeEnforcement::Leases);
        claims.set_exempt_namespaces(self.config.exempt_namespaces.clone());
        claims.set_has_swap(self.config.swap.is_some());
        claims.count(node, &self.shared.metrics);
        failpoint::hit("handover.opened");
        let is_taken_over = ahead.is_some();
        let sockets = ahead.unwrap_or_else(|| NodeSockets::start(self, None));
        let domains = self.start_domains(&sockets, client, &events, period);
        let Served { sockets, .. } =
            served.insert(Served { sockets, claims: claims.clone(), domains });
        let (notes, note_changes) = watch::channel(BTreeSet::new());
        let outputs = PublishOutputs { pool: wanted, notes };
        let snapshots = self.snapshots.clone();
        let inputs = self.start_offers(&claims, client, &events, period).await;
        let mut publish_loop =
            PublishLoop::new(node, claims.clone(), snapshots, setting, inputs, outputs);
        if is_taken_over {
            // Kubelet calls are already waiting and must not be refused for lack of devices.
            if timeout(FIRST_DEVICES_TIMEOUT, Box::pin(publish_loop.begin())).await.is_err() {
                tracing::warn!(%node, "the devices are not known yet; claims are refused until they are");
            }
        }
        claims.set_hook_problem(Some("it was not tried yet".to_owned()));
        let mut hook = Box::pin(self.install_hook(&claims));
        let is_installed = timeout(HOOK_TRIAL_TIMEOUT, &mut hook).await.is_ok();
        sockets.open(claims.clone());
        self.watch(claims.clone(), client.clone(), events.clone(), period);
        self.report(events, note_changes, period);
        period.tasks.spawn(self.sweep(claims.clone(), period));
        period.spawn(clique_label::follow(
            client.clone(),
            node.clone(),
            self.snapshots.clone(),
            self.reached.subscribe(),
        ));
        period.spawn(HealthObject::new(self, client.clone(), claims.clone(), period).follow());
        let hooks =
            hook_socket::serve(hook_socket::path(&self.config.paths.run_root), claims.clone());
        period.spawn(hooks);
        for driver in self.config.drivers() {
            let config = Arc::clone(&self.config);
            period.spawn(async move { stale::remove(driver, &config).await });
        }
        let retry_hook = async {
            if !is_installed {
                hook.await;
            }
        };
        tokio::join!(Box::pin(publish_loop.run()), retry_hook);
        // The driver's thread ends with the agent only.
        self.shared.stop.cancelled().await;
    }

    async fn open_claims(&self, client: &Client, period: &ActivePeriod) -> Claims {
        let check = self.check("claims", "the checkpoints are being read");
        let node = &self.config.node_name;
        let (reporter, worker) = KubeReporter::new(client.clone(), node.clone());
        let stop = period.stop.clone();
        period.tasks.spawn(async move {
            tokio::select! {
                // Ends by itself when the claims are done with.
                () = Box::pin(worker.run()) => {}
                () = async { stop.cancelled().await; sleep(FINAL_REPORTS_TIMEOUT).await } => {}
            }
        });
        let (claims, opened) = self
            .until_ok(&check, || {
                let (config, client) = (Arc::clone(&self.config), client.clone());
                let reporter = Arc::new(reporter.clone());
                // A task of the period, since it writes files: the node must not pass to another agent before it ends.
                let task = period.tasks.spawn_blocking(move || {
                    let (paths, node) = (config.paths.clone(), config.node_name.clone());
                    Claims::open_locked(paths, node, Arc::new(KubeReader::new(client)), reporter)
                });
                async move {
                    let opened = task.await.map_err(|error| error.to_string())?;
                    opened.map_err(|error| error.to_string())
                }
            })
            .await;
        for damage in &opened.damage {
            tracing::error!(%node, "{damage}");
        }
        let (held, forgotten, adopted) = (opened.held, opened.forgotten, opened.adopted);
        tracing::info!(%node, held, forgotten, adopted, "claims are known");
        claims
    }

    /// Reports the driver's findings and the notes. A separate task, since each event is slow while the API server is
    /// unreachable.
    fn report(
        &self,
        events: Events,
        mut notes: watch::Receiver<BTreeSet<Note>>,
        period: &ActivePeriod,
    ) {
        let node = self.config.node_name.clone();
        let metrics = Arc::clone(&self.shared.metrics);
        let mut snapshots = self.snapshots.clone();
        snapshots.mark_changed();
        period.spawn(async move {
            let (mut old, mut reported) = (Snapshot::default(), BTreeSet::new());
            loop {
                tokio::select! {
                    Ok(()) = snapshots.changed() => {
                        let new = snapshots.borrow_and_update().clone();
                        metrics.health(&node, &new.devices);
                        pool::record_health(&node, &events, &old, &new).await;
                        old = new;
                    }
                    Ok(()) = notes.changed() => {
                        let new = notes.borrow_and_update().clone();
                        let reasons = |notes: &BTreeSet<Note>| {
                            notes.iter().map(|note| note.reason).collect::<Vec<_>>()
                        };
                        metrics.problems(&node, reasons(&reported), reasons(&new));
                        pool::record_notes(&node, &events, &reported, &new).await;
                        reported = new;
                    }
                    else => return,
                }
            }
        });
    }

    /// Whether this agent has a driver, or is about to have one, whenever that is asked.
    fn has_driver(&self) -> impl Fn() -> bool + Send + use<> {
        let snapshots = self.snapshots.clone();
        move || !snapshots.borrow().has_no_driver()
    }

    /// Watches over the shares while their containers run.
    fn watch(&self, claims: Claims, client: Client, events: Events, period: &ActivePeriod) {
        let snapshots = self.snapshots.clone();
        let has_time_leases = self.config.time_enforcement == TimeEnforcement::Leases;
        let watched = WatchedNode {
            name: self.config.node_name.clone(),
            cgroup_root: self.config.paths.cgroup_root.clone(),
            interval: self.config.watch_interval.0,
            has_time_leases,
            // Shares that were prepared before the setting was turned off lend memory until their pods end.
            swap: self.config.swap.clone().or_else(|| {
                let driver_root = self.config.paths.driver_root_seen.clone();
                has_time_leases.then(|| SwapSettings { host: HostBudget::of(None), driver_root })
            }),
            shares: claims.active_shares(),
            driver: Box::new(move || snapshots.borrow().driver.clone()),
        };
        period.spawn(watchdog::watch(
            watched,
            Arc::clone(&self.shared.metrics.enforcement),
            FindingSinks { client, events, reports: Arc::new(claims) },
            period.tasks.clone(),
        ));
    }

    fn sweep(&self, claims: Claims, period: &ActivePeriod) -> impl Future<Output = ()> + use<> {
        let (node, stop) = (self.config.node_name.clone(), period.stop.clone());
        let metrics = Arc::clone(&self.shared.metrics);
        // Spreads the API requests of agents that start together, for example after an upgrade.
        let spread = Duration::from_secs(spread(&node));
        let mut pause = spread;
        async move {
            while stop.run_until_cancelled(sleep(pause)).await.is_some() {
                let swept = claims.sweep().await;
                claims.count(&node, &metrics);
                pause = if claims.has_gone() { RECHECK_DELAY } else { SWEEP_INTERVAL + spread };
                for claim in swept.released {
                    tracing::info!(%node, %claim, "a claim was gone; its devices are free again");
                }
            }
        }
    }
}

/// Delay of a node's sweeps in seconds: constant per node, evenly distributed over nodes.
pub(super) fn spread(node: &str) -> u64 {
    let hash = |hash: u64, byte: u8| hash.wrapping_mul(31).wrapping_add(byte.into());
    node.bytes().fold(7, hash) % SWEEP_SPREAD_SECONDS
}
