//! The sockets of a node's drivers, served in the background.

use std::sync::Arc;
use std::time::Duration;

use octavo_kube_io::admin::Check;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::call_gate::{CallGate, GatedClaims, GatedPreparer};
use super::node::NodeAgent;
use super::retry::retry_delays;
use crate::claims::Claims;
use crate::compute_domain::DomainClaims;
use crate::config::NodeConfig;
use crate::kubelet::endpoint::{Endpoint, HealthSource, Services};
use crate::kubelet::registration::KubeletRegistration;
use crate::kubelet::socket::SocketError;
use crate::node::DraDriver;

/// Sockets for the kubelet's calls to one driver. Dropping this closes them.
pub(super) struct Sockets<C> {
    gate: watch::Sender<CallGate<C>>,
    again: watch::Sender<()>,
    registration: Arc<KubeletRegistration>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl<C: GatedClaims> Sockets<C> {
    /// Serves a driver's sockets, with retries. Calls wait at the gate. `bound` are already bound sockets to start
    /// with.
    fn start(
        agent: &NodeAgent,
        driver: DraDriver,
        bound: Option<Endpoint>,
        has_health: bool,
    ) -> Self {
        let check = agent.check_of(driver, "sockets", "the sockets are not bound yet");
        let kubelet =
            agent.check_of(driver, "kubelet", "the kubelet has not registered the driver yet");
        let registration = Arc::new(KubeletRegistration::new(kubelet));
        let (gate, _) = watch::channel(CallGate::Waiting);
        let (again, _) = watch::channel(());
        let stop = agent.shared.stop.child_token();
        let (node, metrics) = (agent.config.node_name.clone(), Arc::clone(&agent.shared.metrics));
        let preparer =
            GatedPreparer::new(gate.subscribe(), node, Arc::clone(&metrics), stop.clone());
        let preparer = Arc::new(preparer);
        let (snapshots, listener, served) =
            (agent.snapshots.clone(), again.subscribe(), Arc::clone(&registration));
        let parts = move || Services {
            preparer: Arc::clone(&preparer),
            health: has_health
                .then(|| HealthSource { snapshots: snapshots.clone(), again: listener.clone() }),
            metrics: Arc::clone(&metrics),
            registration: Arc::clone(&served),
        };
        let serve = serve(driver, Arc::clone(&agent.config), bound, check, parts, stop.clone());
        let task = agent.shared.tasks.spawn(serve);
        Self { gate, again, registration, stop: stop.drop_guard(), task }
    }

    /// Waits until the kubelet has registered the driver through these sockets.
    async fn registered(&self) {
        self.registration.registered().await;
    }

    /// Passes calls to the claims. Another agent's sockets will close soon, so the health of the GPUs is sent again.
    fn open(&self, claims: C) {
        self.gate.send_replace(CallGate::Open(claims));
        self.again.send_replace(());
    }

    /// Refuses calls, also those that wait.
    fn refuse_calls(&self) {
        self.gate.send_replace(CallGate::Closed);
    }

    /// Closes the sockets; calls under way are answered.
    async fn close(self) {
        self.refuse_calls();
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the task that serves the sockets failed");
        }
    }
}

/// Time for the kubelet to register the driver of domains after that of GPUs, at a handover.
const DOMAIN_REGISTRATION_TIMEOUT: Duration = Duration::from_secs(1);

/// The sockets of all drivers of a node.
pub(super) struct NodeSockets {
    gpu: Sockets<Claims>,
    domain: Option<Sockets<DomainClaims>>,
}

/// Bound sockets of all drivers of a node, not served yet.
pub(super) struct BoundSockets {
    gpu: Endpoint,
    domain: Option<Endpoint>,
}

impl BoundSockets {
    /// Binds the sockets of a node's drivers. Fails if those for GPUs cannot be bound.
    pub(super) fn bind(config: &NodeConfig) -> Result<Self, SocketError> {
        let gpu = Endpoint::bind(DraDriver::GPU, config)?;
        let domain = config.compute_domains.as_ref();
        // If it fails, it is tried again while the GPUs are served.
        let domain = domain.and_then(|_| Endpoint::bind(DraDriver::COMPUTE_DOMAIN, config).ok());
        Ok(Self { gpu, domain })
    }
}

impl NodeSockets {
    /// Serves the sockets of a node's drivers, with retries. Calls wait. `bound` are already bound sockets.
    pub(super) fn start(agent: &NodeAgent, bound: Option<BoundSockets>) -> Self {
        let (gpu, domain) = match bound {
            Some(bound) => (Some(bound.gpu), bound.domain),
            None => (None, None),
        };
        let is_on = agent.config.compute_domains.is_some();
        let start = || Sockets::start(agent, DraDriver::COMPUTE_DOMAIN, domain, false);
        Self { gpu: Sockets::start(agent, DraDriver::GPU, gpu, true), domain: is_on.then(start) }
    }

    /// Waits until the kubelet has registered the drivers through these sockets; for that of domains not long.
    pub(super) async fn registered(&self) {
        self.gpu.registered().await;
        if let Some(domain) = &self.domain {
            let _ = timeout(DOMAIN_REGISTRATION_TIMEOUT, domain.registered()).await;
        }
    }

    /// Passes calls for GPUs to the claims.
    pub(super) fn open(&self, claims: Claims) {
        self.gpu.open(claims);
    }

    /// The gate of the driver of domains, which is opened later than that of GPUs.
    pub(super) fn domain_gate(&self) -> Option<watch::Sender<CallGate<DomainClaims>>> {
        self.domain.as_ref().map(|sockets| sockets.gate.clone())
    }

    /// Refuses calls, also those that wait.
    pub(super) fn refuse_calls(&self) {
        self.gpu.refuse_calls();
        if let Some(domain) = &self.domain {
            domain.refuse_calls();
        }
    }

    /// Closes the sockets; calls under way are answered.
    pub(super) async fn close(self) {
        let domain = async {
            if let Some(domain) = self.domain {
                domain.close().await;
            }
        };
        tokio::join!(self.gpu.close(), domain);
    }
}

async fn serve<C: GatedClaims>(
    driver: DraDriver,
    config: Arc<NodeConfig>,
    mut bound: Option<Endpoint>,
    check: Check,
    parts: impl Fn() -> Services<GatedPreparer<C>>,
    stop: CancellationToken,
) {
    let mut backoff = retry_delays();
    while !stop.is_cancelled() {
        let endpoint = bound.take().map_or_else(|| Endpoint::bind(driver, &config), Ok);
        let error = match endpoint {
            Err(error) => error.to_string(),
            Ok(endpoint) => {
                check.pass();
                backoff.reset();
                match Box::pin(endpoint.serve(parts(), stop.clone())).await {
                    Ok(()) => return,
                    Err(error) => format!("the sockets are not served any more: {error}"),
                }
            }
        };
        tracing::error!(node = %config.node_name, driver = driver.name(), %error, "the kubelet cannot reach the agent");
        check.fail(error);
        stop.run_until_cancelled(sleep(backoff.next_delay())).await;
    }
}
