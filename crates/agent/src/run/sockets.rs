//! A node's sockets, served in the background.

use std::sync::Arc;

use octavo_kube_io::admin::Check;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::call_gate::{CallGate, GatedPreparer};
use super::node::NodeAgent;
use super::retry::retry_delays;
use crate::claims::Claims;
use crate::kubelet::endpoint::{Endpoint, HealthSource, Services};
use crate::kubelet::registration::KubeletRegistration;
use crate::node::DraDriver;

/// Sockets for the kubelet's calls. Dropping this closes them.
pub(super) struct Sockets {
    gate: watch::Sender<CallGate>,
    again: watch::Sender<()>,
    registration: Arc<KubeletRegistration>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Sockets {
    /// Serves the node's sockets, with retries. Calls wait at the gate. `bound` are already bound sockets to start
    /// with.
    pub(super) fn start(agent: &NodeAgent, bound: Option<Endpoint>) -> Self {
        let check = agent.check("sockets", "the sockets are not bound yet");
        let kubelet = agent.check("kubelet", "the kubelet has not registered the driver yet");
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
            health: Some(HealthSource { snapshots: snapshots.clone(), again: listener.clone() }),
            metrics: Arc::clone(&metrics),
            registration: Arc::clone(&served),
        };
        let serve = serve(Arc::clone(&agent.config), bound, check, parts, stop.clone());
        let task = agent.shared.tasks.spawn(serve);
        Self { gate, again, registration, stop: stop.drop_guard(), task }
    }

    /// Waits until the kubelet has registered the driver through these sockets.
    pub(super) async fn registered(&self) {
        self.registration.registered().await;
    }

    /// Passes calls to the claims. Another agent's sockets will close soon, so the health of the GPUs is sent again.
    pub(super) fn open(&self, claims: Claims) {
        self.gate.send_replace(CallGate::Open(claims));
        self.again.send_replace(());
    }

    /// Refuses calls, also those that wait.
    pub(super) fn refuse_calls(&self) {
        self.gate.send_replace(CallGate::Closed);
    }

    /// Closes the sockets; calls under way are answered.
    pub(super) async fn close(self) {
        self.refuse_calls();
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the task that serves the sockets failed");
        }
    }
}

async fn serve(
    config: Arc<crate::config::NodeConfig>,
    mut bound: Option<Endpoint>,
    check: Check,
    parts: impl Fn() -> Services<GatedPreparer>,
    stop: CancellationToken,
) {
    let mut backoff = retry_delays();
    while !stop.is_cancelled() {
        let endpoint = bound.take().map_or_else(|| Endpoint::bind(DraDriver::GPU, &config), Ok);
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
        tracing::error!(node = %config.node_name, %error, "the kubelet cannot reach the agent");
        check.fail(error);
        stop.run_until_cancelled(sleep(backoff.next_delay())).await;
    }
}
