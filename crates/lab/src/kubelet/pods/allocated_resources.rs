//! Health of a container's devices for `allocatedResourcesStatus` of its pod (KEP-4680, pure).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceHealth, ResourceStatus};
use kube::ResourceExt;

use crate::kubelet::claims::claim_info::ClaimInfoCache;
use crate::kubelet::claims::claim_name;
use crate::kubelet::plugins::health::Reports;

/// Health of the devices of all containers of `pod` that name claims, by container name.
pub(crate) fn of_pod(
    pod: &Pod,
    cache: &ClaimInfoCache,
    reports: &Reports,
    now: Instant,
) -> BTreeMap<String, Vec<ResourceStatus>> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .map(|container| {
            (container.name.clone(), of_container(pod, container, cache, reports, now))
        })
        .filter(|(_, statuses)| !statuses.is_empty())
        .collect()
}

/// Puts the health of devices of plugins before that of claims' devices, as in the kubelet. Init containers show none.
pub(crate) fn put_first(
    statuses: &mut BTreeMap<String, Vec<ResourceStatus>>,
    pod: &Pod,
    mut of_plugins: BTreeMap<String, Vec<ResourceStatus>>,
) {
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        if let Some(devices) = of_plugins.remove(&container.name) {
            statuses.entry(container.name.clone()).or_default().splice(..0, devices);
        }
    }
}

/// One status per claim or request that `container` names. As in the kubelet, claims of extended
/// resources are not shown.
fn of_container(
    pod: &Pod,
    container: &Container,
    cache: &ClaimInfoCache,
    reports: &Reports,
    now: Instant,
) -> Vec<ResourceStatus> {
    let namespace = pod.namespace().unwrap_or_default();
    let wanted = container.resources.iter().flat_map(|r| r.claims.iter().flatten());
    let mut statuses = BTreeMap::new();
    for claim in wanted {
        let request = claim.request.as_deref().filter(|request| !request.is_empty());
        let Ok(Some(object)) = claim_name(pod, &claim.name) else { continue };
        let Some(info) = cache.get(&namespace, &object) else { continue };
        let mut seen = BTreeSet::new();
        let mut resources = Vec::new();
        for (driver, device) in info.devices(request) {
            let resource_id = device
                .cdi_ids
                .first()
                .cloned()
                .unwrap_or_else(|| format!("{driver}/{}/{}", device.pool, device.name));
            if seen.insert(resource_id.clone()) {
                let (health, message) = reports.get(driver, &device.pool, &device.name, now);
                resources.push(ResourceHealth {
                    resource_id,
                    health: Some(health.as_str().to_owned()),
                    message: message.map(ToOwned::to_owned),
                });
            }
        }
        if !resources.is_empty() {
            let name = match request {
                Some(request) => format!("claim:{}/{request}", claim.name),
                None => format!("claim:{}", claim.name),
            };
            statuses.insert(name, resources);
        }
    }
    statuses
        .into_iter()
        .map(|(name, resources)| ResourceStatus { name, resources: Some(resources) })
        .collect()
}

#[cfg(test)]
mod tests;
