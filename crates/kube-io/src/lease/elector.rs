//! Takes, renews and releases a lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::record::{ObservedLease, new_lease};
use super::{Deadline, Leadership, LeaseError, LeaseOptions, Term};
use crate::backoff::random_fraction;

/// Timeout for releasing the lease.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Immediate retries of a write that conflicts with another program's.
const MAX_CONFLICTS: usize = 3;

/// Takes part in an election.
pub struct Elector {
    leases: Api<Lease>,
    options: LeaseOptions,
    observed: Option<ObservedLease>,
    leadership: watch::Sender<Leadership>,
    problem: Option<String>,
}

/// Result of an attempt to take or renew the lease.
enum Attempt {
    /// This program holds it; the write started then.
    Ours(Deadline),
    /// Another program holds it.
    Others(Option<String>),
}

impl Elector {
    /// Prepares an election. It reads and writes nothing before [`run`](Self::run).
    pub fn new(
        client: &Client,
        options: LeaseOptions,
    ) -> Result<(Self, watch::Receiver<Leadership>), LeaseError> {
        options.check()?;
        let (leadership, receiver) = watch::channel(Leadership::Following { holder: None });
        let leases = Api::namespaced(client.clone(), &options.namespace);
        Ok((Self { leases, options, observed: None, leadership, problem: None }, receiver))
    }

    /// Takes part until `stop`, then releases the lease. All writers that need leadership must have
    /// stopped before.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.campaign() => {}
        }
        self.release().await;
    }

    async fn campaign(&mut self) {
        loop {
            // Without answers, a leader must step down in time and still try more than once before
            // that.
            let limit = self.options.renew_deadline / 2;
            let limit = self.time_left().map_or(limit, |time_left| time_left.min(limit));
            match timeout(limit, self.attempt()).await {
                Ok(Ok(Attempt::Ours(begun))) => self.lead(begun),
                Ok(Ok(Attempt::Others(holder))) => self.follow(holder),
                Ok(Err(error)) => self.record_failure(&error.to_string()),
                Err(_) => self.record_failure("the API server does not answer"),
            }
            let Some(time_left) = self.time_left() else {
                // Spread the attempts of all followers.
                sleep(self.options.retry.mul_f64(1.0 + random_fraction())).await;
                continue;
            };
            if time_left.is_zero() {
                tracing::warn!(lease = %self.options.name, "no longer leading: the lease could not be renewed");
                self.follow(None);
                continue;
            }
            sleep(self.options.retry.min(time_left)).await;
        }
    }

    /// Remaining time of leadership; `None` if this program does not lead.
    fn time_left(&self) -> Option<Duration> {
        match &*self.leadership.borrow() {
            Leadership::Leading(term) => {
                let is_over = term.until.has_come(Instant::now(), std::time::SystemTime::now());
                let time_left = term.until.at.saturating_duration_since(Instant::now());
                Some(if is_over { Duration::ZERO } else { time_left })
            }
            Leadership::Following { .. } => None,
        }
    }

    /// Reads the lease if necessary, and takes or renews it if allowed.
    async fn attempt(&mut self) -> Result<Attempt, Error> {
        // The leader knows the lease unless another program wrote it, so it need not read it first.
        let mut must_look = self.time_left().is_none() || self.observed.is_none();
        for _ in 0..MAX_CONFLICTS {
            if must_look {
                let found = self.leases.get_opt(&self.options.name).await?;
                self.observed =
                    found.map(|lease| ObservedLease::after(self.observed.take(), lease));
            }
            must_look = true;
            if let Some(observed) = &self.observed
                && observed.is_held_by_other(&self.options)
            {
                return Ok(Attempt::Others(observed.holder().map(str::to_owned)));
            }
            // Others start to count when they see the write, which is after its start.
            let begun = Deadline::now();
            let params = PostParams::default();
            let written = match &self.observed {
                Some(observed) => {
                    let lease = observed.taken(&self.options);
                    self.leases.replace(&self.options.name, &params, &lease).await
                }
                None => self.leases.create(&params, &new_lease(&self.options)).await,
            };
            match written {
                Ok(lease) => {
                    self.observed = Some(ObservedLease::after(self.observed.take(), lease));
                    return Ok(Attempt::Ours(begun));
                }
                // Another program wrote it or deleted it.
                Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Attempt::Others(None))
    }

    fn lead(&mut self, begun: Deadline) {
        let number = self.observed.as_ref().map_or(0, ObservedLease::transitions);
        let term =
            Term::after(&self.leadership.borrow(), &self.options, number, begun, Deadline::now());
        let before = self.leadership.send_replace(Leadership::Leading(term));
        if matches!(before, Leadership::Following { .. }) {
            let LeaseOptions { name, identity, .. } = &self.options;
            tracing::info!(lease = %name, %identity, number, "leading");
        }
        self.problem = None;
    }

    fn follow(&mut self, holder: Option<String>) {
        self.problem = None;
        let now = Leadership::Following { holder };
        self.leadership.send_if_modified(|leadership| {
            let is_new = *leadership != now;
            if is_new {
                tracing::info!(lease = %self.options.name, leadership = ?now, "following");
                *leadership = now;
            }
            is_new
        });
    }

    /// Logs a problem once.
    fn record_failure(&mut self, problem: &str) {
        if self.problem.as_deref() != Some(problem) {
            let LeaseOptions { namespace, name, .. } = &self.options;
            tracing::warn!(
                lease = %format_args!("{namespace}/{name}"),
                "cannot take or renew the lease: {problem}; it needs the verbs get, create and \
                 update on leases in coordination.k8s.io"
            );
            self.problem = Some(problem.to_owned());
        }
    }

    /// Releases the lease if this program holds it.
    async fn release(&mut self) {
        let was_leading = self.time_left().is_some();
        self.leadership.send_replace(Leadership::Following { holder: None });
        if was_leading && timeout(RELEASE_TIMEOUT, self.give_back()).await.is_err() {
            tracing::warn!(lease = %self.options.name, "could not release the lease in time");
        }
    }

    async fn give_back(&mut self) {
        for _ in 0..MAX_CONFLICTS {
            let name = &self.options.name;
            // A write may have been interrupted, so the observed lease may be old.
            let Ok(Some(lease)) = self.leases.get_opt(name).await else { return };
            let observed = ObservedLease::after(None, lease);
            if observed.holder() != Some(self.options.identity.as_str()) {
                return;
            }
            let written =
                self.leases.replace(name, &PostParams::default(), &observed.released()).await;
            match written {
                Ok(_) => return,
                Err(Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    tracing::warn!(lease = %name, %error, "cannot release the lease");
                    return;
                }
            }
        }
    }
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("options", &self.options).finish_non_exhaustive()
    }
}
