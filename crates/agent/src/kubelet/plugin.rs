//! The services on the DRA socket: preparing claims, in the two versions that kubelets use.
//!
//! The claims of a call are handled in parallel. An error affects only its own claim.

use std::sync::Arc;
use std::time::Duration;

use octavo_api::Refusal;
use octavo_kubelet_api::dra::{v1, v1beta1};
use octavo_node::ClaimRef;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};

use crate::metrics::{Metrics, Operation};
use crate::node::{DraDriver, PreparedDevice};

/// Time that a prepare may wait. Shorter than the kubelet's timeout (45 s), so that the kubelet gets the reason.
pub(crate) const PREPARE_TIMEOUT: Duration = Duration::from_secs(38);

/// Prepares and unprepares claims.
pub(crate) trait Preparer: Send + Sync + 'static {
    /// Makes the devices of a claim ready. Idempotent. What is waited for, is waited for until `deadline`.
    fn prepare(
        &self,
        claim: &ClaimRef,
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<PreparedDevice>, Refusal>> + Send;

    /// Releases the devices of a claim. An unknown claim has none.
    fn unprepare(&self, claim: &ClaimRef) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// Serves `DRAPlugin`.
#[derive(Debug)]
pub(crate) struct Plugin<P> {
    driver: DraDriver,
    preparer: Arc<P>,
    metrics: Arc<Metrics>,
    calls: TaskTracker,
}

/// Results by claim UID.
type Outcomes<T> = Vec<(String, Result<T, String>)>;

impl<P: Preparer> Plugin<P> {
    /// Serves a driver by `preparer`. Running calls are counted in `calls`.
    pub(crate) fn new(
        driver: DraDriver,
        preparer: Arc<P>,
        metrics: Arc<Metrics>,
        calls: TaskTracker,
    ) -> Self {
        Self { driver, preparer, metrics, calls }
    }

    async fn prepare_all(&self, claims: Vec<ClaimRef>) -> Outcomes<Vec<PreparedDevice>> {
        let (_call, driver) = (self.calls.token(), self.driver);
        let deadline = Instant::now() + PREPARE_TIMEOUT;
        side_by_side(claims, |claim| {
            let (preparer, metrics) = (Arc::clone(&self.preparer), Arc::clone(&self.metrics));
            async move {
                let _in_flight = metrics.begin(driver, Operation::Prepare);
                let prepared = preparer.prepare(&claim, deadline).await;
                report(driver, &metrics, Operation::Prepare, &claim, prepared)
            }
        })
        .await
    }

    async fn unprepare_all(&self, claims: Vec<ClaimRef>) -> Outcomes<()> {
        let (_call, driver) = (self.calls.token(), self.driver);
        side_by_side(claims, |claim| {
            let (preparer, metrics) = (Arc::clone(&self.preparer), Arc::clone(&self.metrics));
            async move {
                let _in_flight = metrics.begin(driver, Operation::Unprepare);
                report(
                    driver,
                    &metrics,
                    Operation::Unprepare,
                    &claim,
                    preparer.unprepare(&claim).await,
                )
            }
        })
        .await
    }
}

// Not derived: a derived impl would require `P: Clone`.
impl<P> Clone for Plugin<P> {
    fn clone(&self) -> Self {
        let (preparer, metrics) = (Arc::clone(&self.preparer), Arc::clone(&self.metrics));
        Self { driver: self.driver, preparer, metrics, calls: self.calls.clone() }
    }
}

/// Handles all claims in parallel; returns the results in the order of the claims.
async fn side_by_side<T, F>(claims: Vec<ClaimRef>, work: impl Fn(ClaimRef) -> F) -> Outcomes<T>
where
    F: Future<Output = Result<T, String>>,
{
    let work = claims.into_iter().map(|claim| {
        let uid = claim.uid.clone();
        let work = work(claim);
        async move { (uid, work.await) }
    });
    futures::future::join_all(work).await
}

fn report<T>(
    driver: DraDriver,
    metrics: &Metrics,
    operation: Operation,
    claim: &ClaimRef,
    outcome: Result<T, Refusal>,
) -> Result<T, String> {
    let ClaimRef { namespace, name, uid } = claim;
    match outcome {
        Ok(value) => {
            tracing::debug!(%namespace, %name, %uid, ?operation, "done");
            Ok(value)
        }
        Err(refusal) => {
            metrics.refused(driver, operation, refusal.reason());
            tracing::warn!(%namespace, %name, %uid, ?operation, error = %refusal, "refused");
            Err(refusal.to_string())
        }
    }
}

#[tonic::async_trait]
impl<P: Preparer> v1::dra_plugin_server::DraPlugin for Plugin<P> {
    async fn node_prepare_resources(
        &self,
        request: Request<v1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1::NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(|claim| ClaimRef {
            namespace: claim.namespace,
            name: claim.name,
            uid: claim.uid,
        });
        let outcomes = self.prepare_all(claims.collect()).await;
        let answer = |outcome| match outcome {
            Ok(devices) => v1::NodePrepareResourceResponse {
                devices: Vec::into_iter(devices).map(device_v1).collect(),
                error: String::new(),
            },
            Err(error) => v1::NodePrepareResourceResponse { devices: Vec::new(), error },
        };
        let claims = outcomes.into_iter().map(|(uid, outcome)| (uid, answer(outcome))).collect();
        Ok(Response::new(v1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1::NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(|claim| ClaimRef {
            namespace: claim.namespace,
            name: claim.name,
            uid: claim.uid,
        });
        let outcomes = self.unprepare_all(claims.collect()).await;
        let answer = |outcome: Result<(), _>| v1::NodeUnprepareResourceResponse {
            error: outcome.err().unwrap_or_default(),
        };
        let claims = outcomes.into_iter().map(|(uid, outcome)| (uid, answer(outcome))).collect();
        Ok(Response::new(v1::NodeUnprepareResourcesResponse { claims }))
    }
}

#[tonic::async_trait]
impl<P: Preparer> v1beta1::dra_plugin_server::DraPlugin for Plugin<P> {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(|claim| ClaimRef {
            namespace: claim.namespace,
            name: claim.name,
            uid: claim.uid,
        });
        let outcomes = self.prepare_all(claims.collect()).await;
        let answer = |outcome| match outcome {
            Ok(devices) => v1beta1::NodePrepareResourceResponse {
                devices: Vec::into_iter(devices).map(device_v1beta1).collect(),
                error: String::new(),
            },
            Err(error) => v1beta1::NodePrepareResourceResponse { devices: Vec::new(), error },
        };
        let claims = outcomes.into_iter().map(|(uid, outcome)| (uid, answer(outcome))).collect();
        Ok(Response::new(v1beta1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(|claim| ClaimRef {
            namespace: claim.namespace,
            name: claim.name,
            uid: claim.uid,
        });
        let outcomes = self.unprepare_all(claims.collect()).await;
        let answer = |outcome: Result<(), _>| v1beta1::NodeUnprepareResourceResponse {
            error: outcome.err().unwrap_or_default(),
        };
        let claims = outcomes.into_iter().map(|(uid, outcome)| (uid, answer(outcome))).collect();
        Ok(Response::new(v1beta1::NodeUnprepareResourcesResponse { claims }))
    }
}

fn device_v1(device: PreparedDevice) -> v1::Device {
    v1::Device {
        request_names: device.requests,
        pool_name: device.pool,
        device_name: device.device,
        cdi_device_ids: device.cdi_ids,
        share_id: device.share_id,
    }
}

/// Version 1beta1 does not know shares.
fn device_v1beta1(device: PreparedDevice) -> v1beta1::Device {
    v1beta1::Device {
        request_names: device.requests,
        pool_name: device.pool,
        device_name: device.device,
        cdi_device_ids: device.cdi_ids,
    }
}

#[cfg(test)]
mod tests;
