//! The second driver of a node: its claims, its slice and its sweeps.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Client;
use octavo_kube_io::events::Events;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::call_gate::{CallGate, GatedClaims as _};
use super::node::NodeAgent;
use super::publish;
use super::serving::{ActivePeriod, RECHECK_DELAY, SWEEP_INTERVAL, spread};
use super::sockets::NodeSockets;
use crate::claims::KubeReader;
use crate::compute_domain::{DomainClaims, DomainNode, pool};
use crate::config::ComputeDomains;
use crate::node::DraDriver;

/// Interval between looks for the programs of a node, which may be installed at any time.
const OBSTACLE_INTERVAL: Duration = Duration::from_mins(1);

/// The driver of domains, as it is opened beside that of GPUs: an error of its files delays no GPU.
pub(super) struct ServedDomains {
    opening: CancellationToken,
    claims: Arc<OnceLock<DomainClaims>>,
}

impl ServedDomains {
    /// Ends the opening. Returns the claims if they were opened, which must be closed.
    pub(super) fn end(self) -> Option<DomainClaims> {
        self.opening.cancel();
        self.claims.get().cloned()
    }
}

impl NodeAgent {
    /// Opens the claims on channels and daemons and serves them, in a task of its own; `None` if the agent is no driver
    /// of domains.
    pub(super) fn start_domains(
        &self,
        sockets: &NodeSockets,
        client: &Client,
        events: &Events,
        period: &ActivePeriod,
    ) -> Option<ServedDomains> {
        let settings = self.config.compute_domains.clone()?;
        let gate = sockets.domain_gate()?;
        let served = ServedDomains { opening: period.stop.child_token(), claims: Arc::default() };
        let (opening, opened) = (served.opening.clone(), Arc::clone(&served.claims));
        let (agent, client, events) = (self.clone(), client.clone(), events.clone());
        let period = period.clone();
        period.tasks.clone().spawn(async move {
            let open = agent.open_domain_claims(settings, &client, &events, &period);
            let Some(claims) = opening.run_until_cancelled(Box::pin(open)).await else { return };
            // Nothing is awaited from here on: who ends the opening sees the claims, or they are not served.
            if opened.set(claims.clone()).is_err() || opening.is_cancelled() {
                return;
            }
            gate.send_replace(CallGate::Open(claims.clone()));
            agent.serve_domains(claims, &client, &events, &period);
        });
        Some(served)
    }

    async fn open_domain_claims(
        &self,
        settings: ComputeDomains,
        client: &Client,
        events: &Events,
        period: &ActivePeriod,
    ) -> DomainClaims {
        let ComputeDomains { namespace, imex } = settings;
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let driver = DraDriver::COMPUTE_DOMAIN;
        let check = self.check_of(driver, "claims", "the checkpoints are being read");
        let node = &self.config.node_name;
        let (claims, opened) = self
            .until_ok(&check, || {
                let node = DomainNode {
                    name: node.clone(),
                    paths: self.config.paths.clone(),
                    namespace: namespace.clone(),
                    imex: imex.clone(),
                    snapshots: self.snapshots.clone(),
                };
                let (client, events) = (client.clone(), events.clone());
                let reader = Arc::new(KubeReader::new(client.clone()));
                // A task of the period: the node must not pass to another agent before it ends.
                let task = period
                    .tasks
                    .spawn_blocking(move || DomainClaims::open(node, reader, client, events));
                async move {
                    let opened = task.await.map_err(|error| error.to_string())?;
                    opened.map_err(|error| error.to_string())
                }
            })
            .await;
        for damage in &opened.damage {
            tracing::error!(%node, driver = driver.name(), "{damage}");
        }
        let (held, forgotten) = (opened.held, opened.forgotten);
        tracing::info!(%node, driver = driver.name(), held, forgotten, "claims are known");
        claims.count(node, &self.shared.metrics);
        claims
    }

    /// Publishes the node's channel and daemon, and sweeps their claims, while the period lasts.
    fn serve_domains(
        &self,
        claims: DomainClaims,
        client: &Client,
        events: &Events,
        period: &ActivePeriod,
    ) {
        let (stop, tasks) = (&period.stop, &period.tasks);
        let driver = DraDriver::COMPUTE_DOMAIN;
        let wanted = publish::start(self, driver, client.clone(), events.clone(), stop, tasks);
        let (node, mut settings) = (self.config.node_name.clone(), self.settings.subscribe());
        let (mut snapshots, offered) = (self.snapshots.clone(), claims.clone());
        let publish = async move {
            let services = offered.services();
            loop {
                // Before the labels are read, the owner is not known.
                let owner = settings
                    .borrow_and_update()
                    .as_ref()
                    .and_then(|settings| settings.is_read.then(|| settings.owner.clone()));
                if let Some(owner) = owner {
                    snapshots.mark_unchanged();
                    let pool = pool(&node, &owner, services, offered.obstacle().await);
                    wanted.send_if_modified(|wanted| {
                        let is_other = wanted.as_deref() != Some(&pool);
                        if is_other {
                            *wanted = Some(Arc::new(pool));
                        }
                        is_other
                    });
                }
                let changed = tokio::select! {
                    changed = settings.changed() => changed,
                    changed = snapshots.changed() => changed,
                    () = sleep(OBSTACLE_INTERVAL) => Ok(()),
                };
                if changed.is_err() {
                    return;
                }
            }
        };
        let (node, metrics) = (self.config.node_name.clone(), Arc::clone(&self.shared.metrics));
        let regular = SWEEP_INTERVAL + Duration::from_secs(spread(&node));
        let sweep = async move {
            loop {
                sleep(if claims.has_gone() { RECHECK_DELAY } else { regular }).await;
                for claim in claims.sweep().await {
                    tracing::info!(%node, %claim, "a claim was gone; its channel or daemon is free again");
                }
                claims.count(&node, &metrics);
            }
        };
        let stop = stop.clone();
        tasks.spawn(async move {
            stop.run_until_cancelled(async { tokio::join!(publish, sweep) }).await;
        });
    }
}
