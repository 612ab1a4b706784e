//! Which pods have which devices: `PodResources` v1, as the kubelet serves it.
//!
//! Devices of resource claims are left out: the containers' records have them. Processors and memory are simulated, so no
//! container has any of its own.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use octavo_kubelet_api::pod_resources::v1::pod_resources_lister_server::PodResourcesLister;
use octavo_kubelet_api::pod_resources::v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ContainerResources, GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest,
    ListPodResourcesResponse, NumaNode, PodResources, TopologyInfo,
};
use tonic::{Request, Response, Status};

use super::allocations::{Allocations, ContainerKey, NO_NUMA_NODE};
use crate::kubelet::node::Node;

/// The service of a node.
pub(super) struct PodResourcesService {
    pub(super) node: Arc<Node>,
}

#[tonic::async_trait]
impl PodResourcesLister for PodResourcesService {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let pods = self.pods();
        let state = self.node.devices.state();
        let pod_resources = pods.iter().map(|pod| of_pod(pod, &state.allocations)).collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let state = self.node.devices.state();
        let devices = state.resources.all_healthy().flat_map(|(resource, id, device)| {
            let nodes = device.numa_nodes.as_slice();
            let nodes = if nodes.is_empty() { &[NO_NUMA_NODE][..] } else { nodes };
            nodes.iter().map(move |node| entry(resource, id, *node))
        });
        let devices = devices.collect();
        Ok(Response::new(AllocatableResourcesResponse { devices, ..Default::default() }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        let GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let mut pods = self.pods().into_iter();
        let found = pods.find(|pod| {
            pod.name_any() == pod_name && pod.namespace().unwrap_or_default() == pod_namespace
        });
        let pod = found.ok_or_else(|| {
            Status::unknown(format!("pod {pod_name} in namespace {pod_namespace} not found"))
        })?;
        let pod_resources = Some(of_pod(&pod, &self.node.devices.state().allocations));
        Ok(Response::new(GetPodResourcesResponse { pod_resources }))
    }
}

impl PodResourcesService {
    /// The pods that have not ended.
    fn pods(&self) -> Vec<Arc<Pod>> {
        let pods = self.node.devices.pods();
        pods.values().filter_map(|latest| latest.borrow().clone()).collect()
    }
}

/// What a pod has. As in the kubelet, init containers that end are left out.
fn of_pod(pod: &Pod, allocations: &Allocations) -> PodResources {
    let uid = pod.uid().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let init = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let stay = init.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let containers = stay.chain(spec.into_iter().flat_map(|spec| &spec.containers));
    let containers = containers.map(|container| {
        let key = ContainerKey { pod: &uid, container: &container.name };
        let devices = allocations.of_container(key).into_iter().flatten();
        let devices = devices.flat_map(|(resource, allocated)| {
            allocated
                .devices
                .iter()
                .flat_map(move |(node, ids)| ids.iter().map(move |id| entry(resource, id, *node)))
        });
        ContainerResources {
            name: container.name.clone(),
            devices: devices.collect(),
            ..ContainerResources::default()
        }
    });
    PodResources {
        name: pod.name_any(),
        namespace: pod.namespace().unwrap_or_default(),
        containers: containers.collect(),
    }
}

/// A device at a NUMA node.
fn entry(resource: &str, id: &str, node: i64) -> ContainerDevices {
    let topology =
        (node != NO_NUMA_NODE).then(|| TopologyInfo { nodes: vec![NumaNode { id: node }] });
    ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.to_owned()],
        topology,
    }
}
