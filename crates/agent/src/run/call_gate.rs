//! Gate between the kubelet's calls and a driver's claims. During a handover calls wait at the new agent's gate, so
//! that no pod start fails.

use std::sync::Arc;
use std::time::Duration;

use octavo_api::Refusal;
use octavo_node::ClaimRef;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::claims::Claims;
use crate::compute_domain::DomainClaims;
use crate::kubelet::plugin::Preparer;
use crate::metrics::Metrics;
use crate::node::PreparedDevice;

/// Maximum wait of an unprepare. Shorter than the kubelet's timeout (45 s), so that the kubelet gets the reason.
const UNPREPARE_TIMEOUT: Duration = Duration::from_secs(40);

/// A driver's claims, as the gate sees them.
pub(super) trait GatedClaims: Preparer + Clone {
    /// Updates the metrics of the devices that they hold.
    fn count(&self, node: &str, metrics: &Metrics);
}

/// State of the gate.
#[derive(Clone)]
pub(super) enum CallGate<C> {
    /// Calls wait: this agent will have the node soon.
    Waiting,
    /// They go through.
    Open(C),
    /// They are refused: another agent has the node.
    Closed,
}

/// Passes the kubelet's calls to the claims while the gate is open.
pub(super) struct GatedPreparer<C> {
    gate: watch::Receiver<CallGate<C>>,
    node: String,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
}

impl<C: GatedClaims> GatedPreparer<C> {
    /// Follows `gate` until `stop`, after which no call waits.
    pub(super) fn new(
        gate: watch::Receiver<CallGate<C>>,
        node: String,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> Self {
        Self { gate, node, metrics, stop }
    }

    async fn claims(&self, claim: &ClaimRef, deadline: Instant) -> Result<C, Refusal> {
        let mut gate = self.gate.clone();
        let decided = async {
            let decided = gate.wait_for(|gate| !matches!(gate, CallGate::Waiting)).await;
            decided.map_or(CallGate::Closed, |gate| gate.clone())
        };
        match self.stop.run_until_cancelled(timeout_at(deadline, decided)).await {
            Some(Ok(CallGate::Open(claims))) => Ok(claims),
            _ => Err(Refusal::HandedOver { claim: claim.to_string(), node: self.node.clone() }),
        }
    }
}

impl<C: GatedClaims> Preparer for GatedPreparer<C> {
    async fn prepare(
        &self,
        claim: &ClaimRef,
        deadline: Instant,
    ) -> Result<Vec<PreparedDevice>, Refusal> {
        let claims = self.claims(claim, deadline).await?;
        let outcome = claims.prepare(claim, deadline).await;
        claims.count(&self.node, &self.metrics);
        outcome
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        let claims = self.claims(claim, Instant::now() + UNPREPARE_TIMEOUT).await?;
        let outcome = claims.unprepare(claim).await;
        claims.count(&self.node, &self.metrics);
        outcome
    }
}

impl Preparer for Claims {
    async fn prepare(
        &self,
        claim: &ClaimRef,
        _deadline: Instant,
    ) -> Result<Vec<PreparedDevice>, Refusal> {
        Self::prepare(self, claim).await
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        Self::unprepare(self, claim).await
    }
}

impl GatedClaims for Claims {
    fn count(&self, node: &str, metrics: &Metrics) {
        metrics.prepared(node, self.counts());
    }
}

impl Preparer for DomainClaims {
    async fn prepare(
        &self,
        claim: &ClaimRef,
        deadline: Instant,
    ) -> Result<Vec<PreparedDevice>, Refusal> {
        Self::prepare(self, claim, deadline).await
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        Self::unprepare(self, claim).await
    }
}

impl GatedClaims for DomainClaims {
    fn count(&self, node: &str, metrics: &Metrics) {
        metrics.prepared_in_domains(node, self.counts());
    }
}
