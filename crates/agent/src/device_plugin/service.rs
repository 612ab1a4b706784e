//! The service of one resource: `DevicePlugin` v1beta1, called by the kubelet.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use octavo_kubelet_api::device_plugin::v1beta1::device_plugin_server::DevicePlugin;
use octavo_kubelet_api::device_plugin::v1beta1::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, Device,
    DevicePluginOptions, Empty, ListAndWatchResponse, NumaNode, PreStartContainerRequest,
    PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
    TopologyInfo,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::Offer;
use super::resources::PluginDevice;
use crate::metrics::PluginMetrics;

/// Health of a device, in the kubelet's words.
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";
/// Time in which a device that is offered no more is still listed, as unhealthy. A kubelet looks up the devices of an answer to
/// `Allocate` in its list, and crashes where one is missing (`podDevices.insert` in Kubernetes 1.36).
const LEAVE_TIME: Duration = Duration::from_secs(2);

/// The service of one resource.
#[derive(Clone)]
pub(super) struct ResourceService {
    resource: String,
    offers: watch::Receiver<Arc<Offer>>,
    /// Lists that the kubelet follows. It has the resource only while it follows one.
    followed: Arc<AtomicUsize>,
    metrics: AllocationCounter,
    stop: CancellationToken,
}

/// Counts the allocations of a node.
#[derive(Clone)]
pub(crate) struct AllocationCounter {
    /// The node.
    pub(crate) node: String,
    /// The metrics.
    pub(crate) metrics: Arc<PluginMetrics>,
}

/// A list that the kubelet follows, counted while it does.
struct Followed(Arc<AtomicUsize>);

impl Followed {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ResourceService {
    /// The service of the resource with this name, until `stop`.
    pub(super) fn new(
        resource: String,
        offers: watch::Receiver<Arc<Offer>>,
        followed: Arc<AtomicUsize>,
        metrics: AllocationCounter,
        stop: CancellationToken,
    ) -> Self {
        Self { resource, offers, followed, metrics, stop }
    }

    fn offer(&self) -> Arc<Offer> {
        Arc::clone(&self.offers.borrow())
    }
}

/// What the plugin can do besides listing and allocating.
pub(super) fn options() -> DevicePluginOptions {
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true }
}

/// The devices of a resource, as the kubelet lists them. None, once it is offered no more: the kubelet then counts 0.
fn listed(offer: &Offer, resource: &str) -> Vec<Device> {
    offer.resource(resource).map(|it| it.devices.iter().map(device).collect()).unwrap_or_default()
}

fn device(device: &PluginDevice) -> Device {
    let topology =
        device.numa_node.map(|node| TopologyInfo { nodes: vec![NumaNode { id: i64::from(node) }] });
    let health = if device.is_healthy { HEALTHY } else { UNHEALTHY };
    Device { id: device.id.clone(), health: health.to_owned(), topology }
}

/// The lists of a resource's devices that the kubelet gets, one after another.
struct List {
    resource: String,
    offers: watch::Receiver<Arc<Offer>>,
    /// The last list.
    sent: Option<Vec<Device>>,
    /// When devices that are offered no more disappear from the list.
    leave_at: Option<Instant>,
    _followed: Followed,
}

impl List {
    /// The next list that differs from the last. `None`: the agent ends.
    async fn next(&mut self) -> Option<Vec<Device>> {
        loop {
            let devices = self.devices();
            if self.sent.as_ref() != Some(&devices) {
                self.sent = Some(devices.clone());
                return Some(devices);
            }
            let left = async {
                match self.leave_at {
                    Some(time) => sleep_until(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.offers.changed() => changed.ok()?,
                () = left => {}
            }
        }
    }

    /// The devices that are offered, and for a while those that were.
    fn devices(&mut self) -> Vec<Device> {
        let mut devices = listed(&self.offers.borrow_and_update(), &self.resource);
        let is_gone = |sent: &&Device| devices.iter().all(|device| device.id != sent.id);
        let gone = self.sent.iter().flatten().filter(is_gone);
        let leaving: Vec<Device> =
            gone.map(|it| Device { health: UNHEALTHY.to_owned(), ..it.clone() }).collect();
        if leaving.is_empty() {
            self.leave_at = None;
            return devices;
        }
        let now = Instant::now();
        if now < *self.leave_at.get_or_insert(now + LEAVE_TIME) {
            devices.extend(leaving);
        } else {
            self.leave_at = None;
        }
        devices
    }
}

type Lists = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for ResourceService {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(options()))
    }

    type ListAndWatchStream = Lists;

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Lists>, Status> {
        let list = List {
            resource: self.resource.clone(),
            offers: self.offers.clone(),
            sent: None,
            leave_at: None,
            _followed: Followed::new(&self.followed),
        };
        let lists = stream::unfold(list, |mut list| async move {
            let devices = list.next().await?;
            Some((Ok(ListAndWatchResponse { devices }), list))
        });
        let stop = self.stop.clone();
        let until_stop = lists.take_until(async move { stop.cancelled().await });
        Ok(Response::new(Box::pin(until_stop)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let offer = self.offer();
        let resource = offer.resource(&self.resource).ok_or_else(|| self.gone())?;
        let mut container_responses = Vec::new();
        for container in request.into_inner().container_requests {
            let size = usize::try_from(container.allocation_size).unwrap_or_default();
            let sets = (
                container.available_device_i_ds.as_slice(),
                container.must_include_device_i_ds.as_slice(),
            );
            let device_i_ds = offer.preferred(resource, sets, size);
            container_responses.push(ContainerPreferredAllocationResponse { device_i_ds });
        }
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let offer = self.offer();
        let resource = offer.resource(&self.resource).ok_or_else(|| self.gone())?;
        let mut container_responses = Vec::new();
        for container in request.into_inner().container_requests {
            let answer = offer.allocate(resource, &container.devices_ids);
            let AllocationCounter { node, metrics } = &self.metrics;
            metrics.allocated(node, &self.resource, answer.is_ok());
            let answer = answer.map_err(|error| Status::invalid_argument(error.to_string()))?;
            container_responses.push(answer);
        }
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

impl ResourceService {
    fn gone(&self) -> Status {
        Status::unavailable(format!("{} is not offered any more", self.resource))
    }
}
