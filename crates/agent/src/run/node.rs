//! One node's agent: its parts and the order in which they start.
//!
//! The driver's thread, the API client and the checkpoints start side by side, since each waits for
//! something else; slices are written as soon as the first two are there. Whatever cannot start is
//! tried again while the rest works, and the readiness report says what is missing.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use octavo_api::{Refusal, names};
use octavo_gpu::nvml::{Nvml, find_library};
use octavo_gpu::{Driver, DriverError};
use octavo_kube_io::Backoff;
use octavo_kube_io::admin::Check;
use octavo_kube_io::client::{self, ClientOptions};
use octavo_kube_io::events::Events;
use octavo_kube_io::slices::{Pool, PublishState, Publisher};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Shared, pool};
use crate::claims::{Claims, KubeReader, KubeReporter};
use crate::config::NodeConfig;
use crate::endpoint::{Endpoint, Parts};
use crate::metrics::Metrics;
use crate::monitor::{self, Opener, Snapshot};
use crate::node::{ClaimRef, DRIVER_NAME, PreparedDevice};
use crate::plugin::Preparer;

/// How often claims are looked at whose objects went without a call of the kubelet.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);
/// When a claim that was found gone is looked at again.
const SECOND_LOOK: Duration = Duration::from_secs(35);
/// Over how long the looks of a cluster's agents are spread, in seconds.
const SPREAD_SECONDS: u64 = 60;

/// One node's agent.
pub(super) struct NodeAgent {
    config: Arc<NodeConfig>,
    shared: Shared,
    snapshots: watch::Receiver<Snapshot>,
}

impl NodeAgent {
    /// Starts the node's tasks under the process' tracker. Fails only if the system gives no thread.
    pub(super) fn start(config: NodeConfig, shared: Shared) -> anyhow::Result<()> {
        let node = config.node_name.clone();
        let (metrics, stop) = (Arc::clone(&shared.metrics), shared.stop.clone());
        let snapshots = monitor::start(&node, opener(&config), metrics, stop)
            .with_context(|| format!("cannot start the driver's thread of node {node}"))?;
        let agent = Self { config: Arc::new(config), shared, snapshots };
        let tasks = agent.shared.tasks.clone();
        let stop = agent.shared.stop.clone();
        tasks.spawn(agent.follow_driver());
        tasks.spawn(async move {
            stop.run_until_cancelled(Box::pin(agent.run())).await;
        });
        Ok(())
    }

    /// Starts what needs the API; every part then runs in a task of its own.
    async fn run(self) {
        let api = self.check("api", "the client is being made");
        let options = ClientOptions {
            kubeconfig: self.config.kubeconfig.clone(),
            context: None,
            user_agent: concat!("octavo-agent/", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let client = self.until_ok(&api, || client::connect(&options)).await;
        drop(api);
        let events = Events::new(client.clone(), names::AGENT_CONTROLLER, &self.config.node_name);
        let wanted = self.start_publisher(client.clone());
        let claims = self.open_claims(client).await;
        self.shared.tasks.spawn(self.sweep(claims.clone()));
        self.start_endpoint(claims.clone());
        self.shared.tasks.spawn(self.tell(events));
        self.follow_gpus(claims, wanted).await;
    }

    /// Publishes whatever the returned sender is given.
    fn start_publisher(&self, client: Client) -> watch::Sender<Option<Pool>> {
        let node = &self.config.node_name;
        let (wanted, receiver) = watch::channel(pool::pool(node, &self.snapshots.borrow()));
        let (state, mut states) = watch::channel(PublishState::Waiting);
        let check = self.check("slices", "nothing is published yet");
        self.shared.tasks.spawn(async move {
            while states.changed().await.is_ok() {
                match &*states.borrow_and_update() {
                    PublishState::Waiting => check.fail("nothing is published yet"),
                    PublishState::Published { .. } => check.pass(),
                    PublishState::Failing { reason } => check.fail(reason),
                }
            }
        });
        let publisher = Publisher::new(client, DRIVER_NAME, node);
        // The first pool may be there already: the publisher looks when its list has come.
        let stop = self.shared.stop.clone();
        self.shared.tasks.spawn(Box::pin(publisher.run(receiver, state, stop)));
        wanted
    }

    async fn open_claims(&self, client: Client) -> Claims {
        let check = self.check("claims", "the checkpoints are being read");
        let node = &self.config.node_name;
        let (reporter, worker) = KubeReporter::new(client.clone(), node.clone());
        let stop = self.shared.stop.clone();
        self.shared.tasks.spawn(async move {
            stop.run_until_cancelled(Box::pin(worker.run())).await;
        });
        let (claims, opened) = self
            .until_ok(&check, || {
                let (config, client) = (Arc::clone(&self.config), client.clone());
                let reporter = Arc::new(reporter.clone());
                let task = tokio::task::spawn_blocking(move || {
                    let reader = Arc::new(KubeReader::new(client));
                    Claims::open(config.paths.clone(), config.node_name.clone(), reader, reporter)
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
        tracing::info!(%node, held = opened.held, forgotten = opened.forgotten, "claims are known");
        claims
    }

    /// Serves the sockets, again if they fail.
    fn start_endpoint(&self, claims: Claims) {
        let check = self.check("sockets", "the sockets are not bound yet");
        let kubelet =
            Arc::new(self.check("kubelet", "the kubelet has not registered the driver yet"));
        let preparer = Arc::new(Served {
            claims,
            node: self.config.node_name.clone(),
            metrics: Arc::clone(&self.shared.metrics),
        });
        preparer.count();
        let (config, shared) = (Arc::clone(&self.config), self.shared.clone());
        let snapshots = self.snapshots.clone();
        self.shared.tasks.spawn(async move {
            let mut backoff = retry_delays();
            while !shared.stop.is_cancelled() {
                let error = match Endpoint::bind(&config) {
                    Err(error) => error.to_string(),
                    Ok(endpoint) => {
                        check.pass();
                        backoff.reset();
                        let parts = Parts {
                            preparer: Arc::clone(&preparer),
                            snapshots: snapshots.clone(),
                            metrics: Arc::clone(&shared.metrics),
                            check: Arc::clone(&kubelet),
                        };
                        match Box::pin(endpoint.serve(parts, shared.stop.clone())).await {
                            Ok(()) => return,
                            Err(error) => format!("the sockets are not served any more: {error}"),
                        }
                    }
                };
                tracing::error!(node = %config.node_name, %error, "the kubelet cannot reach the agent");
                check.fail(error);
                let delay = sleep(backoff.next_delay());
                shared.stop.run_until_cancelled(delay).await;
            }
        });
    }

    /// Passes on what the driver's thread finds, as long as it lives.
    async fn follow_gpus(self, claims: Claims, wanted: watch::Sender<Option<Pool>>) {
        let node = &self.config.node_name;
        let mut snapshots = self.snapshots.clone();
        let mut old = Snapshot::default();
        snapshots.mark_changed();
        while snapshots.changed().await.is_ok() {
            let new = snapshots.borrow_and_update().clone();
            let pool = pool::pool(node, &new);
            wanted.send_if_modified(|old| {
                let is_changed = *old != pool;
                *old = pool;
                is_changed
            });
            if let Some(inventory) = &new.inventory
                && old.inventory.as_ref().is_none_or(|old| !Arc::ptr_eq(old, inventory))
            {
                let known = pool::known_devices(inventory);
                claims.set_devices(&inventory.versions.driver, known).await;
            }
            old = new;
        }
    }

    /// Tells people what the driver's thread finds; apart from what matters, for an API server that
    /// is away makes every event take its time.
    fn tell(&self, events: Events) -> impl Future<Output = ()> + use<> {
        let (node, stop) = (self.config.node_name.clone(), self.shared.stop.clone());
        let mut snapshots = self.snapshots.clone();
        snapshots.mark_changed();
        let tell = async move {
            let mut old = Snapshot::default();
            while snapshots.changed().await.is_ok() {
                let new = snapshots.borrow_and_update().clone();
                pool::tell(&node, &events, &old, &new).await;
                old = new;
            }
        };
        async move {
            stop.run_until_cancelled(Box::pin(tell)).await;
        }
    }

    /// Says in the readiness report whether the driver can be used.
    fn follow_driver(&self) -> impl Future<Output = ()> + use<> {
        let check = self.check("driver", "the GPUs are being read");
        let (mut snapshots, stop) = (self.snapshots.clone(), self.shared.stop.clone());
        async move {
            snapshots.mark_changed();
            while let Some(Ok(())) = stop.run_until_cancelled(snapshots.changed()).await {
                let snapshot = snapshots.borrow_and_update();
                match (&snapshot.error, &snapshot.inventory) {
                    (Some(error), _) => check.fail(error),
                    (None, Some(_)) => check.pass(),
                    (None, None) => {}
                }
            }
        }
    }

    fn sweep(&self, claims: Claims) -> impl Future<Output = ()> + use<> {
        let (node, stop) = (self.config.node_name.clone(), self.shared.stop.clone());
        let metrics = Arc::clone(&self.shared.metrics);
        let served = Served { claims: claims.clone(), node: node.clone(), metrics };
        // Agents that start together, after an upgrade say, do not ask the API server together.
        let spread = Duration::from_secs(spread(&node));
        let mut pause = spread;
        async move {
            while stop.run_until_cancelled(sleep(pause)).await.is_some() {
                let swept = claims.sweep().await;
                served.count();
                pause = if claims.has_gone() { SECOND_LOOK } else { SWEEP_INTERVAL + spread };
                for claim in swept.released {
                    tracing::info!(%node, %claim, "a claim was gone; its devices are free again");
                }
            }
        }
    }

    /// Tries until it works; says in `check` and in the log why it does not.
    async fn until_ok<T, E, F>(&self, check: &Check, attempt: impl Fn() -> F) -> T
    where
        E: Display,
        F: Future<Output = Result<T, E>>,
    {
        let mut backoff = retry_delays();
        loop {
            match attempt().await {
                Ok(value) => {
                    check.pass();
                    return value;
                }
                Err(error) => {
                    let error = error.to_string();
                    tracing::error!(node = %self.config.node_name, %error, "trying again");
                    check.fail(error);
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    fn check(&self, name: &str, reason: &str) -> Check {
        let name = if self.shared.is_many {
            format!("{}/{name}", self.config.node_name)
        } else {
            name.to_owned()
        };
        self.shared.readiness.check(name, reason)
    }
}

/// Claims with their count kept in the metrics.
struct Served {
    claims: Claims,
    node: String,
    metrics: Arc<Metrics>,
}

impl Served {
    fn count(&self) {
        let held = self.claims.holdings().iter().map(|holding| holding.devices.len()).sum();
        self.metrics.prepared(&self.node, held);
    }
}

impl Preparer for Served {
    async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, Refusal> {
        let outcome = self.claims.prepare(claim).await;
        self.count();
        outcome
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        let outcome = self.claims.unprepare(claim).await;
        self.count();
        outcome
    }
}

/// Seconds by which a node's looks are put off: the same for a node every time, evenly over nodes.
fn spread(node: &str) -> u64 {
    let hash = |hash: u64, byte: u8| hash.wrapping_mul(31).wrapping_add(byte.into());
    node.bytes().fold(7, hash) % SPREAD_SECONDS
}

/// Opens the node's management library.
fn opener(config: &NodeConfig) -> Opener {
    let library = config.driver_library.clone();
    let driver_root = config.paths.driver_root_seen.clone();
    let sys_root = config.paths.sys_root.clone();
    Box::new(move || {
        let library = match &library {
            Some(library) => library.clone(),
            None => find_library(&driver_root)?,
        };
        let driver: Arc<dyn Driver> = Arc::new(Nvml::open(&library, &sys_root)?);
        Ok::<_, DriverError>(driver)
    })
}

fn retry_delays() -> Backoff {
    Backoff::new(Duration::from_millis(500), Duration::from_secs(30))
}
