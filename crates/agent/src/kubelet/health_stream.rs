//! `DRAResourceHealth`: reports the health of devices, which the kubelet shows in pod status.
//!
//! The kubelet marks health as unknown after a timeout that the plugin sets. Health is sent at once and on every
//! change. Repeats in between are rare, so that an idle node stays idle. The kubelet detects a dead agent by the end of
//! the stream, not by the timeout.

use std::time::Duration;

use futures::stream::{BoxStream, StreamExt, unfold};
use octavo_gpu::Gpu;
use octavo_kubelet_api::health::{v1, v1alpha1};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::devices::{device_name, is_offered, mig_name};
use crate::health::GpuState;
use crate::monitor::Snapshot;

/// Time without a report after which the kubelet marks health as unknown.
const HEALTH_LIFETIME: Duration = Duration::from_hours(1);
/// Interval of reports without a change.
const REPEAT_INTERVAL: Duration = Duration::from_mins(20);
/// Delays of the first repeats. The kubelet keeps one cache for all agents of a node, and clears it when any agent's
/// stream ends. Reports of a new agent from before the old one ended are lost.
const FIRST_REPEAT_DELAYS: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_mins(1)];

/// Serves device health in both versions of the service.
#[derive(Clone, Debug)]
pub(crate) struct HealthService {
    pool: String,
    snapshots: watch::Receiver<Snapshot>,
    again: watch::Receiver<()>,
    stop: CancellationToken,
}

/// Health of one device, independent of the service version.
struct DeviceHealth {
    device: String,
    /// `None`: the driver does not answer, and is not known to be gone or released.
    is_healthy: Option<bool>,
    since: i64,
    message: String,
}

impl HealthService {
    /// Reports the health of the devices in `pool` until `stop`. A change of `again` restarts the fast repeats.
    pub(crate) fn new(
        pool: &str,
        snapshots: watch::Receiver<Snapshot>,
        again: watch::Receiver<()>,
        stop: CancellationToken,
    ) -> Self {
        Self { pool: pool.to_owned(), snapshots, again, stop }
    }

    /// The current state, then the state after each change or interval. Ends at shutdown.
    fn states(&self) -> BoxStream<'static, Vec<DeviceHealth>> {
        let mut snapshots = self.snapshots.clone();
        snapshots.mark_changed();
        let mut again = self.again.clone();
        again.mark_unchanged();
        unfold((snapshots, again, self.stop.clone(), 0), async |state| {
            let (mut snapshots, mut again, stop, mut repeats) = state;
            tokio::select! {
                () = stop.cancelled() => return None,
                changed = snapshots.changed() => changed.ok()?,
                Ok(()) = again.changed() => repeats = 0,
                () = sleep(FIRST_REPEAT_DELAYS.get(repeats).copied().unwrap_or(REPEAT_INTERVAL)) => repeats += 1,
            }
            let devices = report(&snapshots.borrow_and_update());
            Some((devices, (snapshots, again, stop, repeats)))
        })
        .boxed()
    }
}

fn report(snapshot: &Snapshot) -> Vec<DeviceHealth> {
    let Some(inventory) = &snapshot.inventory else { return Vec::new() };
    let now = jiff::Timestamp::now().as_second();
    let named =
        inventory.gpus.iter().flat_map(|gpu| names(gpu).into_iter().map(move |name| (name, gpu)));
    let mut devices: Vec<_> = named
        .map(|(device, gpu)| {
            let state = snapshot.health.get(&gpu.uuid);
            let (is_healthy, message) = match (state, &snapshot.error) {
                (Some(state), _) if !state.takes_pods() => (Some(false), state.message()),
                (_, Some(error)) => (None, error.clone()),
                (state, None) => (Some(true), state.map(GpuState::message).unwrap_or_default()),
            };
            let since = state.map_or(now, |state| state.since);
            DeviceHealth { device, is_healthy, since, message }
        })
        .collect();
    devices.sort_by(|a, b| a.device.cmp(&b.device));
    devices
}

/// Names of a GPU's devices. In MIG mode each place for an instance is one: pods may hold any of them, and they are as
/// healthy as their GPU.
fn names(gpu: &Gpu) -> Vec<String> {
    if is_offered(gpu) {
        return vec![device_name(gpu)];
    }
    let places = gpu.mig_profiles.iter().flat_map(|profile| {
        profile.placements.iter().map(|placement| mig_name(gpu.number, profile, *placement))
    });
    places.collect()
}

fn health_timeout_seconds() -> i64 {
    i64::try_from(HEALTH_LIFETIME.as_secs()).unwrap_or(i64::MAX)
}

#[tonic::async_trait]
impl v1::dra_resource_health_server::DraResourceHealth for HealthService {
    type NodeWatchResourcesStream =
        BoxStream<'static, Result<v1::NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<v1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let pool = self.pool.clone();
        let device = move |found: DeviceHealth| v1::DeviceHealth {
            device: Some(v1::DeviceIdentifier {
                pool_name: pool.clone(),
                device_name: found.device,
            }),
            health: match found.is_healthy {
                Some(true) => v1::HealthStatus::Healthy.into(),
                Some(false) => v1::HealthStatus::Unhealthy.into(),
                None => v1::HealthStatus::Unknown.into(),
            },
            last_updated_time: found.since,
            health_check_timeout_seconds: health_timeout_seconds(),
            message: found.message,
        };
        let answers = self.states().map(move |devices| {
            let devices = devices.into_iter().map(&device).collect();
            Ok(v1::NodeWatchResourcesResponse { devices })
        });
        Ok(Response::new(answers.boxed()))
    }
}

#[tonic::async_trait]
impl v1alpha1::dra_resource_health_server::DraResourceHealth for HealthService {
    type NodeWatchResourcesStream =
        BoxStream<'static, Result<v1alpha1::NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<v1alpha1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let pool = self.pool.clone();
        let device = move |found: DeviceHealth| v1alpha1::DeviceHealth {
            device: Some(v1alpha1::DeviceIdentifier {
                pool_name: pool.clone(),
                device_name: found.device,
            }),
            health: match found.is_healthy {
                Some(true) => v1alpha1::HealthStatus::Healthy.into(),
                Some(false) => v1alpha1::HealthStatus::Unhealthy.into(),
                None => v1alpha1::HealthStatus::Unknown.into(),
            },
            last_updated_time: found.since,
            health_check_timeout_seconds: health_timeout_seconds(),
            message: found.message,
        };
        let answers = self.states().map(move |devices| {
            let devices = devices.into_iter().map(&device).collect();
            Ok(v1alpha1::NodeWatchResourcesResponse { devices })
        });
        Ok(Response::new(answers.boxed()))
    }
}

#[cfg(test)]
mod tests;
