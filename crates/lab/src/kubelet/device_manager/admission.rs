//! Gives the containers of a pod their devices, before the pod starts.
//!
//! ```text
//! init containers, then the others: choice -> GetPreferredAllocation -> Allocate -> checkpoint
//! ```

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use octavo_kubelet_api::device_plugin::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, PreferredAllocationRequest,
};

use super::allocations::{Allocated, ContainerKey, DevicesByNumaNode, NO_NUMA_NODE};
use super::choice::{self, Candidates, Choice, ChoiceError, Reusable, Wish};
use super::resources::{DeviceId, Resources};
use super::{DeviceManager, Plugin, checkpoint};

/// A pod cannot have its devices; the texts are the kubelet's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmissionError {
    /// Its devices are not there.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// The plugin has ended meanwhile.
    #[error("endpoint of {0} has been stopped")]
    Stopped(String),
    /// The plugin did not say which devices it prefers.
    #[error(
        "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = {:?} desc = {}",
        .0.code(),
        .0.message()
    )]
    Preferred(Box<tonic::Status>),
    /// The plugin refused the devices.
    #[error("rpc error: code = {:?} desc = {}", .0.code(), .0.message())]
    Allocate(Box<tonic::Status>),
    /// The plugin answered without a container.
    #[error("no containers return in allocation response of {0}")]
    NoContainer(String),
    /// The checkpoint could not be written.
    #[error("failed to write checkpoint file {file:?}: {0}", file = checkpoint::FILE)]
    Checkpoint(std::io::Error),
    /// The pod's cgroup could not be made.
    #[error("failed to create container for pod: {0}")]
    Cgroup(std::io::Error),
}

impl DeviceManager {
    /// Gives every container of `pod` its devices. Containers keep those that they have. `is_running`: the pod ran before
    /// this process started. After an error the pod may hold some devices until it is released.
    pub(crate) async fn admit(&self, pod: &Pod, is_running: bool) -> Result<(), AdmissionError> {
        let _turn = self.admission.lock().await;
        let uid = pod.uid().unwrap_or_default();
        let spec = pod.spec.as_ref();
        let init = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
        let init = init.map(|it| (it, it.restart_policy.as_deref() != Some("Always")));
        let others = spec.into_iter().flat_map(|spec| &spec.containers).map(|it| (it, false));
        let mut reusable = Reusable::new();
        for (container, ends) in init.chain(others) {
            self.give(pod, &uid, (container, is_running), &reusable).await?;
            let key = ContainerKey { pod: &uid, container: &container.name };
            choice::pass_on(&mut reusable, key, ends, &self.state().allocations);
        }
        self.make_cgroup(&uid).map_err(AdmissionError::Cgroup)
    }

    /// Gives a container its devices of all resources.
    async fn give(
        &self,
        pod: &Pod,
        uid: &str,
        (container, is_running): (&Container, bool),
        reusable: &Reusable,
    ) -> Result<(), AdmissionError> {
        let key = ContainerKey { pod: uid, container: &container.name };
        let wishes = {
            let state = self.state();
            choice::wishes(pod, container, &state.resources, &state.allocations)
        };
        let mut has_new = false;
        for (resource, count) in &wishes {
            let wish = Wish { key, resource, count: *count, is_running };
            let choice = {
                let state = self.state();
                choice::choose(wish, &state.resources, &state.allocations, reusable)?
            };
            let devices = match choice {
                Choice::Nothing => continue,
                Choice::Fixed(devices) => devices,
                Choice::Among(candidates) => self.preferred(wish, candidates).await?,
            };
            let answer = self.allocate(resource, &devices).await?;
            let mut state = self.state();
            let devices = by_numa_node(&state.resources, resource, devices);
            state.allocations.insert(key, resource, Allocated { devices, answer });
            has_new = true;
        }
        if has_new {
            self.save(&self.state()).map_err(AdmissionError::Checkpoint)?;
        }
        Ok(())
    }

    /// Lets the plugin choose among the candidates, if it wants to.
    async fn preferred(
        &self,
        wish: Wish<'_>,
        candidates: Candidates,
    ) -> Result<BTreeSet<DeviceId>, AdmissionError> {
        let mut plugin = self.plugin(wish.resource)?;
        if !plugin.options.get_preferred_allocation_available {
            return Ok(candidates.complete(&[]));
        }
        let request = ContainerPreferredAllocationRequest {
            available_device_i_ds: candidates.available(),
            must_include_device_i_ds: candidates.taken.iter().cloned().collect(),
            allocation_size: i32::try_from(wish.count).unwrap_or(i32::MAX),
        };
        let request = PreferredAllocationRequest { container_requests: vec![request] };
        let answer = plugin.client.get_preferred_allocation(request).await;
        let answer = answer.map_err(|status| AdmissionError::Preferred(Box::new(status)))?;
        let first = answer.into_inner().container_responses.into_iter().next();
        Ok(candidates.complete(&first.unwrap_or_default().device_i_ds))
    }

    /// Asks the plugin what a container needs to use the devices.
    async fn allocate(
        &self,
        resource: &str,
        devices: &BTreeSet<DeviceId>,
    ) -> Result<ContainerAllocateResponse, AdmissionError> {
        let mut plugin = self.plugin(resource)?;
        let request = ContainerAllocateRequest { devices_ids: devices.iter().cloned().collect() };
        let request = AllocateRequest { container_requests: vec![request] };
        let answer = plugin.client.allocate(request).await;
        let answer = answer.map_err(|status| AdmissionError::Allocate(Box::new(status)))?;
        let first = answer.into_inner().container_responses.into_iter().next();
        first.ok_or_else(|| AdmissionError::NoContainer(resource.to_owned()))
    }

    fn plugin(&self, resource: &str) -> Result<Plugin, AdmissionError> {
        let plugin = self.state().resources.plugin(resource);
        plugin.ok_or_else(|| AdmissionError::Stopped(resource.to_owned()))
    }
}

/// Devices by the NUMA nodes that the plugin lists for them.
fn by_numa_node(
    resources: &Resources<Plugin>,
    resource: &str,
    devices: BTreeSet<DeviceId>,
) -> DevicesByNumaNode {
    let mut by_node = DevicesByNumaNode::new();
    for id in devices {
        let listed = resources.device(resource, &id);
        let nodes = listed.map(|it| it.numa_nodes.as_slice()).unwrap_or_default();
        let nodes = if nodes.is_empty() { &[NO_NUMA_NODE][..] } else { nodes };
        for node in nodes {
            by_node.entry(*node).or_default().push(id.clone());
        }
    }
    by_node
}
