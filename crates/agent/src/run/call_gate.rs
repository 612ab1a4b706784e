//! The door between the kubelet's calls and the node's claims: while a node passes from one agent to another,
//! calls wait at the new agent's door, so that no pod has to start anew for it.

use std::sync::Arc;
use std::time::Duration;

use octavo_api::Refusal;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::claims::Claims;
use crate::kubelet::plugin::Preparer;
use crate::metrics::Metrics;
use crate::node::{ClaimRef, PreparedDevice};

/// How long a call waits: less than the kubelet does (45 s), so that it hears why.
const CALL_TIMEOUT: Duration = Duration::from_secs(40);

/// What becomes of calls.
#[derive(Clone)]
pub(super) enum CallGate {
    /// They wait: this agent is to have the node soon.
    Waiting,
    /// They go through.
    Open(Claims),
    /// They are refused: another agent has the node.
    Closed,
}

/// Takes the kubelet's calls to the claims, when the door is open.
pub(super) struct GatedPreparer {
    gate: watch::Receiver<CallGate>,
    node: String,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
}

impl GatedPreparer {
    /// Stands at `door` until `stop`: then nothing waits any more.
    pub(super) fn new(
        gate: watch::Receiver<CallGate>,
        node: String,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> Self {
        Self { gate, node, metrics, stop }
    }

    async fn claims(&self, claim: &ClaimRef) -> Result<Claims, Refusal> {
        let mut gate = self.gate.clone();
        let decided = async {
            let decided = gate.wait_for(|gate| !matches!(gate, CallGate::Waiting)).await;
            decided.map_or(CallGate::Closed, |gate| gate.clone())
        };
        match self.stop.run_until_cancelled(timeout(CALL_TIMEOUT, decided)).await {
            Some(Ok(CallGate::Open(claims))) => Ok(claims),
            _ => Err(Refusal::HandedOver { claim: claim.to_string(), node: self.node.clone() }),
        }
    }
}

impl Preparer for GatedPreparer {
    async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, Refusal> {
        let claims = self.claims(claim).await?;
        let outcome = claims.prepare(claim).await;
        count(&claims, &self.node, &self.metrics);
        outcome
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        let claims = self.claims(claim).await?;
        let outcome = claims.unprepare(claim).await;
        count(&claims, &self.node, &self.metrics);
        outcome
    }
}

/// Tells the metrics how many devices a node's claims hold.
pub(super) fn count(claims: &Claims, node: &str, metrics: &Metrics) {
    metrics.prepared(node, claims.counts());
}
