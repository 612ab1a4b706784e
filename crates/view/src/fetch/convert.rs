//! Conversion of Kubernetes objects to the snapshot's types. Absent fields become empty; unknown
//! fields of newer API servers are ignored.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::explain::Event;
use crate::snapshot::{
    AllocatedDevice, Allocation, Claim, ClaimSource, Class, Condition, DeviceStatus,
    ExtendedResource, Node, ObjectName, Pod, PodClaim, Request, RequestAlternative,
};

/// Resources of this domain belong to Kubernetes, except those that stand for a device class.
const KUBERNETES_DOMAIN: &str = "kubernetes.io/";
const IMPLICIT_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

pub(super) fn node(node: core::Node) -> (String, Node) {
    let status = node.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let ready = conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True");
    let cordoned = node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
    let plugin_resources = status
        .allocatable
        .unwrap_or_default()
        .into_iter()
        .filter(|(name, amount)| is_extended(name) && amount.0 != "0")
        .map(|(name, _)| name)
        .collect();
    (node.metadata.name.unwrap_or_default(), Node { ready, cordoned, plugin_resources })
}

pub(super) fn class(class: resource::DeviceClass) -> (String, Class) {
    let found = Class {
        selectors: expressions(class.spec.selectors),
        extended_resource: class.spec.extended_resource_name,
    };
    (class.metadata.name.unwrap_or_default(), found)
}

pub(super) fn claim(claim: resource::ResourceClaim) -> (ObjectName, Claim) {
    let status = claim.status.unwrap_or_default();
    let requests = claim.spec.devices.and_then(|devices| devices.requests).unwrap_or_default();
    let found = Claim {
        requests: requests.into_iter().map(request).collect(),
        allocation: status.allocation.map(allocation),
        reserved_for: status
            .reserved_for
            .unwrap_or_default()
            .into_iter()
            .filter(|consumer| consumer.resource == "pods")
            .map(|consumer| consumer.name)
            .collect(),
        devices: status.devices.unwrap_or_default().into_iter().map(device_status).collect(),
        deleting: claim.metadata.deletion_timestamp.is_some(),
    };
    (object_name(&claim.metadata), found)
}

pub(super) fn pod(pod: core::Pod) -> Pod {
    let spec = pod.spec.unwrap_or_default();
    let status = pod.status.unwrap_or_default();
    let generated: BTreeMap<String, Option<String>> = status
        .resource_claim_statuses
        .unwrap_or_default()
        .into_iter()
        .map(|found| (found.name, found.resource_claim_name))
        .collect();
    let scheduled = status
        .conditions
        .unwrap_or_default()
        .into_iter()
        .find(|found| found.type_ == "PodScheduled")
        .map(|found| Condition {
            kind: found.type_,
            status: found.status,
            reason: found.reason.unwrap_or_default(),
            message: found.message.unwrap_or_default(),
        });
    let mut extended = Vec::new();
    for container in spec.init_containers.unwrap_or_default() {
        extended.extend(limits(container, true));
    }
    for container in spec.containers {
        extended.extend(limits(container, false));
    }
    Pod {
        phase: status.phase.unwrap_or_else(|| "Unknown".to_owned()),
        node: spec.node_name.filter(|name| !name.is_empty()),
        scheduler: spec.scheduler_name.unwrap_or_else(|| "default-scheduler".to_owned()),
        created: pod.metadata.creation_timestamp.map(time),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        scheduled,
        gates: spec
            .scheduling_gates
            .unwrap_or_default()
            .into_iter()
            .map(|gate| gate.name)
            .collect(),
        claims: spec
            .resource_claims
            .unwrap_or_default()
            .into_iter()
            .filter_map(|named| pod_claim(named, &generated))
            .collect(),
        extended,
        extended_claim: status.extended_resource_claim_status.map(|made| made.resource_claim_name),
    }
}

pub(crate) fn event(event: core::Event) -> Event {
    let series = event.series.unwrap_or_default();
    let last_seen = series
        .last_observed_time
        .or(event.event_time)
        .map(|found| found.0)
        .or_else(|| event.last_timestamp.map(time))
        .or_else(|| event.metadata.creation_timestamp.map(time));
    let source = event
        .reporting_component
        .filter(|name| !name.is_empty())
        .or_else(|| event.source.and_then(|source| source.component))
        .unwrap_or_default();
    Event {
        last_seen,
        source,
        kind: event.type_.unwrap_or_default(),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
        count: series.count.or(event.count).unwrap_or(1),
    }
}

/// An entry of `spec.resourceClaims`; absent if the control plane reports that no claim is needed.
fn pod_claim(
    named: core::PodResourceClaim,
    generated: &BTreeMap<String, Option<String>>,
) -> Option<PodClaim> {
    let made = generated.get(&named.name);
    if let Some(template) = named.resource_claim_template_name {
        if made.is_some_and(Option::is_none) {
            return None;
        }
        let claim = made.cloned().flatten();
        let source = ClaimSource::ResourceClaimTemplate(template);
        return Some(PodClaim { name: named.name, source, claim });
    }
    let claim = named.resource_claim_name?;
    let source = ClaimSource::ResourceClaim(claim.clone());
    Some(PodClaim { name: named.name, source, claim: Some(claim) })
}

fn limits(container: core::Container, init: bool) -> Vec<ExtendedResource> {
    let limits = container.resources.and_then(|resources| resources.limits).unwrap_or_default();
    limits
        .into_iter()
        .filter(|(name, _)| is_extended(name))
        .filter_map(|(resource, quantity)| {
            // Extended resources are whole numbers; the API server rejects others.
            let count = quantity.0.parse().ok().filter(|count| *count > 0)?;
            Some(ExtendedResource { container: container.name.clone(), init, resource, count })
        })
        .collect()
}

fn is_extended(resource: &str) -> bool {
    resource.starts_with(IMPLICIT_CLASS_PREFIX)
        || (resource.contains('/') && !resource.contains(KUBERNETES_DOMAIN))
}

fn request(request: resource::DeviceRequest) -> Request {
    let mut alternatives = Vec::new();
    if let Some(exact) = request.exactly {
        alternatives.push(RequestAlternative {
            class: exact.device_class_name,
            count: count(exact.allocation_mode.as_deref(), exact.count),
            selectors: expressions(exact.selectors),
            capacity: amounts(exact.capacity),
            admin_access: exact.admin_access.unwrap_or_default(),
            tolerates: exact.tolerations.is_some_and(|tolerations| !tolerations.is_empty()),
        });
    }
    for sub in request.first_available.unwrap_or_default() {
        alternatives.push(RequestAlternative {
            class: sub.device_class_name,
            count: count(sub.allocation_mode.as_deref(), sub.count),
            selectors: expressions(sub.selectors),
            capacity: amounts(sub.capacity),
            admin_access: false,
            tolerates: sub.tolerations.is_some_and(|tolerations| !tolerations.is_empty()),
        });
    }
    Request { name: request.name, alternatives }
}

/// The number of devices: 1 by default, and `None` for allocation mode `All`.
fn count(mode: Option<&str>, count: Option<i64>) -> Option<i64> {
    if mode == Some("All") { None } else { Some(count.unwrap_or(1)) }
}

fn expressions(selectors: Option<Vec<resource::DeviceSelector>>) -> Vec<String> {
    selectors
        .unwrap_or_default()
        .into_iter()
        .filter_map(|selector| selector.cel)
        .map(|cel| cel.expression)
        .collect()
}

fn amounts(capacity: Option<resource::CapacityRequirements>) -> BTreeMap<String, String> {
    capacity
        .and_then(|capacity| capacity.requests)
        .unwrap_or_default()
        .into_iter()
        .map(|(name, quantity)| (name, quantity.0))
        .collect()
}

fn allocation(allocation: resource::AllocationResult) -> Allocation {
    let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
    Allocation {
        devices: results
            .into_iter()
            .map(|given| AllocatedDevice {
                request: given.request,
                driver: given.driver,
                pool: given.pool,
                device: given.device,
                share_id: given.share_id,
                consumed: given
                    .consumed_capacity
                    .unwrap_or_default()
                    .into_iter()
                    // The API server accepts only valid quantities.
                    .filter_map(|(name, amount)| Some((name, amount.0.parse().ok()?)))
                    .collect(),
                admin_access: given.admin_access.unwrap_or_default(),
            })
            .collect(),
        at: allocation.allocation_timestamp.map(time),
    }
}

fn device_status(status: resource::AllocatedDeviceStatus) -> DeviceStatus {
    let conditions = status.conditions.unwrap_or_default();
    DeviceStatus {
        driver: status.driver,
        pool: status.pool,
        device: status.device,
        share_id: status.share_id,
        uuid: status.data.and_then(|data| Some(data.0.get("uuid")?.as_str()?.to_owned())),
        conditions: conditions
            .into_iter()
            .map(|found| Condition {
                kind: found.type_,
                status: found.status,
                reason: found.reason,
                message: found.message,
            })
            .collect(),
    }
}

fn object_name(meta: &ObjectMeta) -> ObjectName {
    ObjectName::new(
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn time(Time(time): Time) -> Timestamp {
    time
}

#[cfg(test)]
mod tests;
