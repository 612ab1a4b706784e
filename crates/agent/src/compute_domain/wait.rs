//! Waits until a domain is ready for a node's channel.
//!
//! The agent reads the one domain that the claim names, and follows it by a watch that selects its name.

mod readiness;

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use octavo_api::Refusal;
use octavo_api::compute_domain::ComputeDomain;
use octavo_node::ClaimRef;
use tokio::time::{Instant, sleep, timeout_at};

use super::plan::WaitFor;
use super::waiters::Waiter;
use super::{Inner, taken_back};
use readiness::{DomainState, Place, state};

/// Delay after a failed request.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// A prepare that need not wait any more.
pub(super) struct Admitted {
    /// The domain's channel.
    pub(super) channel: u32,
    /// Which members are missing, if any.
    pub(super) missing: Option<String>,
}

impl Inner {
    /// Waits until the domain is ready, the time is over, or the prepare must end.
    pub(super) async fn wait(
        &self,
        claim: &ClaimRef,
        domain: &WaitFor,
        deadline: Instant,
        waiter: &Waiter,
    ) -> Result<Admitted, Refusal> {
        let mut last = DomainState::Refused("its status was not read yet".to_owned());
        let outcome = tokio::select! {
            () = waiter.cancelled() => {
                if self.waiters.is_closed() {
                    return Err(self.handed_over(claim));
                }
                return Err(taken_back(claim));
            }
            outcome = timeout_at(deadline, self.follow(claim, domain, &mut last)) => outcome,
        };
        if let Ok(outcome) = outcome {
            return outcome.map(|channel| Admitted { channel, missing: None });
        }
        match last {
            DomainState::Ready(channel) => Ok(Admitted { channel, missing: None }),
            DomainState::Enough(channel, missing) => {
                Ok(Admitted { channel, missing: Some(missing) })
            }
            DomainState::Refused(problem) => Err(Refusal::ComputeDomainNotReady {
                claim: claim.to_string(),
                domain: domain.full_name(),
                problem,
            }),
        }
    }

    /// Follows the domain until it is ready; `last` is its state meanwhile.
    async fn follow(
        &self,
        claim: &ClaimRef,
        domain: &WaitFor,
        last: &mut DomainState,
    ) -> Result<u32, Refusal> {
        let api: Api<ComputeDomain> = Api::namespaced(self.client.clone(), &domain.namespace);
        loop {
            let version = match api.get_opt(&domain.name).await {
                Ok(found) => {
                    *last = self.state(claim, domain, found.as_ref())?;
                    if let DomainState::Ready(channel) = last {
                        return Ok(*channel);
                    }
                    found.and_then(|found| found.metadata.resource_version).unwrap_or_default()
                }
                Err(error) => {
                    *last = DomainState::Refused(format!("it could not be read: {error}"));
                    sleep(RETRY_DELAY).await;
                    continue;
                }
            };
            let params = WatchParams::default().fields(&format!("metadata.name={}", domain.name));
            match api.watch(&params, &version).await {
                Ok(changes) => {
                    let mut changes = Box::pin(changes);
                    while let Some(Ok(change)) = changes.next().await {
                        let (changed, is_there) = match change {
                            WatchEvent::Added(changed) | WatchEvent::Modified(changed) => {
                                (changed, true)
                            }
                            WatchEvent::Deleted(changed) => (changed, false),
                            WatchEvent::Bookmark(_) => continue,
                            WatchEvent::Error(_) => break,
                        };
                        if changed.metadata.name.as_ref() != Some(&domain.name) {
                            continue;
                        }
                        let found = is_there.then_some(changed);
                        *last = self.state(claim, domain, found.as_ref())?;
                        if let DomainState::Ready(channel) = last {
                            return Ok(*channel);
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "a watch of a ComputeDomain failed"),
            }
            // Ends of watches are routine, but must not become a storm of requests.
            sleep(RETRY_DELAY).await;
        }
    }

    /// The state of the domain; refused if the claim does not belong to it.
    fn state(
        &self,
        claim: &ClaimRef,
        wanted: &WaitFor,
        found: Option<&ComputeDomain>,
    ) -> Result<DomainState, Refusal> {
        let WaitFor { namespace, name, uid, clique } = wanted;
        let found = found.filter(|found| found.metadata.uid.as_deref() == Some(uid));
        let Some(found) = found else {
            let problem =
                format!("namespace {namespace} has no ComputeDomain {name} with UID {uid}");
            return Err(Refusal::NotInComputeDomain { claim: claim.to_string(), problem });
        };
        let (node, services) = (&self.node.name, self.node.imex.services());
        Ok(state(found, &Place { node, clique, services }))
    }
}

/// Refers to a claim.
pub(super) fn claim_reference(claim: &ClaimRef) -> ObjectReference {
    ObjectReference {
        api_version: Some("resource.k8s.io/v1".to_owned()),
        kind: Some("ResourceClaim".to_owned()),
        namespace: Some(claim.namespace.clone()),
        name: Some(claim.name.clone()),
        uid: Some(claim.uid.clone()),
        ..ObjectReference::default()
    }
}
