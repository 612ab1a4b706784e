//! Which containers have which devices (pure).

use std::collections::{BTreeMap, BTreeSet};

use octavo_kubelet_api::device_plugin::v1beta1::ContainerAllocateResponse;

use super::resources::{DeviceId, ResourceName};

/// Number that stands for the NUMA node of devices without one.
pub(crate) const NO_NUMA_NODE: i64 = -1;

/// Devices by NUMA node. A device near several nodes is listed under each.
pub(crate) type DevicesByNumaNode = BTreeMap<i64, Vec<DeviceId>>;

/// What a container has of each resource.
pub(crate) type ContainerDevices = BTreeMap<ResourceName, Allocated>;

/// What a container has of a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Allocated {
    /// Its devices.
    pub(crate) devices: DevicesByNumaNode,
    /// What the plugin said that the container needs to use them.
    pub(crate) answer: ContainerAllocateResponse,
}

/// A container: UID of its pod, and its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContainerKey<'a> {
    /// UID of the pod.
    pub(crate) pod: &'a str,
    /// Name of the container.
    pub(crate) container: &'a str,
}

/// Devices of all containers of a node, by pod UID and container name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Allocations {
    pods: BTreeMap<String, BTreeMap<String, ContainerDevices>>,
}

impl Allocated {
    /// The ids of its devices.
    pub(crate) fn ids(&self) -> BTreeSet<DeviceId> {
        self.devices.values().flatten().cloned().collect()
    }
}

impl Allocations {
    /// Notes the devices of a container.
    pub(crate) fn insert(&mut self, key: ContainerKey<'_>, resource: &str, allocated: Allocated) {
        let containers = self.pods.entry(key.pod.to_owned()).or_default();
        let devices = containers.entry(key.container.to_owned()).or_default();
        devices.insert(resource.to_owned(), allocated);
    }

    /// Frees the devices of a pod. Returns whether it had any.
    pub(crate) fn remove(&mut self, pod: &str) -> bool {
        self.pods.remove(pod).is_some()
    }

    /// Whether a pod has devices.
    pub(crate) fn has_pod(&self, pod: &str) -> bool {
        self.pods.contains_key(pod)
    }

    /// What a container has of each resource.
    pub(crate) fn of_container(&self, key: ContainerKey<'_>) -> Option<&ContainerDevices> {
        self.pods.get(key.pod)?.get(key.container)
    }

    /// The devices that a container has of a resource; `None`: it was never given any.
    pub(crate) fn devices(
        &self,
        key: ContainerKey<'_>,
        resource: &str,
    ) -> Option<BTreeSet<DeviceId>> {
        Some(self.of_container(key)?.get(resource)?.ids())
    }

    /// The devices of a resource that containers have; `None`: no container has any.
    pub(crate) fn in_use(&self, resource: &str) -> Option<BTreeSet<DeviceId>> {
        let containers = self.pods.values().flat_map(BTreeMap::values);
        let mut held = containers.filter_map(|devices| devices.get(resource)).peekable();
        held.peek()?;
        Some(held.flat_map(Allocated::ids).collect())
    }

    /// Pods that have devices and are not in `living`.
    pub(crate) fn orphans(&self, living: &BTreeSet<String>) -> BTreeSet<String> {
        self.pods.keys().filter(|pod| !living.contains(*pod)).cloned().collect()
    }

    /// Everything, in order of pods, containers and resources.
    pub(crate) fn entries(
        &self,
    ) -> impl Iterator<Item = (ContainerKey<'_>, &ResourceName, &Allocated)> {
        self.pods.iter().flat_map(|(pod, containers)| {
            containers.iter().flat_map(move |(container, devices)| {
                let key = ContainerKey { pod, container };
                devices.iter().map(move |(resource, allocated)| (key, resource, allocated))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocated(devices: &[(i64, &[&str])]) -> Allocated {
        let devices = devices
            .iter()
            .map(|(node, ids)| (*node, ids.iter().map(|id| (*id).to_owned()).collect()))
            .collect();
        Allocated { devices, answer: ContainerAllocateResponse::default() }
    }

    #[test]
    fn devices_are_in_use_until_their_pod_is_removed() {
        let mut allocations = Allocations::default();
        let key = |pod, container| ContainerKey { pod, container };
        allocations.insert(key("a", "init"), "r", allocated(&[(0, &["0", "1"]), (1, &["1"])]));
        allocations.insert(key("a", "main"), "r", allocated(&[(NO_NUMA_NODE, &["2"])]));
        allocations.insert(key("b", "main"), "other", allocated(&[(NO_NUMA_NODE, &["0"])]));
        let ids = |ids: &[&str]| Some(ids.iter().map(|id| (*id).to_owned()).collect());
        assert_eq!(allocations.in_use("r"), ids(&["0", "1", "2"]));
        assert_eq!(allocations.devices(key("a", "init"), "r"), ids(&["0", "1"]));
        assert_eq!(allocations.devices(key("b", "main"), "r"), None);
        assert_eq!(allocations.orphans(&["b".to_owned()].into()), ["a".to_owned()].into());
        assert_eq!(allocations.entries().count(), 3);
        assert!(allocations.remove("a") && !allocations.remove("a"));
        assert_eq!(allocations.in_use("r"), None);
        assert!(allocations.has_pod("b") && !allocations.has_pod("a"));
    }
}
