//! Which pods leave a device, when and how. Pure.
//!
//! Kubernetes evicts pods with claims by the taint of a device where its feature is on, and leaves out those that got a GPU as an
//! extended resource. Here both are evicted, within the budget of the policy. A pod of a device plugin is not: no object says which
//! GPU it has.

#[cfg(test)]
mod tests;
mod work;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceToleration, ResourceClaim,
};
use octavo_api::names::{DRIVER, REASON_GPU_OUT_OF_SERVICE};

pub use self::work::{Guest, guest, owner};
use super::plan::Eviction;

/// The effect of a taint that ends pods.
const NO_EXECUTE: &str = "NoExecute";

/// A pod that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether it is deleted, and not evicted under its disruption budgets.
    pub is_deleted: bool,
    /// Why, for programs.
    pub reason: &'static str,
    /// Why, for people.
    pub note: String,
}

/// Names of the claims of a pod that may be evicted, in its namespace. A pod that has ended, or is being deleted, may not.
pub fn claims_of(pod: &Pod) -> Vec<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    held_by(pod)
}

/// Names of the claims of a pod, in its namespace. A pod that has ended holds none.
pub fn held_by(pod: &Pod) -> Vec<String> {
    if has_ended(pod) {
        return Vec::new();
    }
    let status = pod.status.as_ref();
    let named = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let named = named.filter_map(|claim| claim.resource_claim_name.clone());
    let made = status.and_then(|status| status.resource_claim_statuses.as_ref());
    let made = made.into_iter().flatten().filter_map(|claim| claim.resource_claim_name.clone());
    let extended = status.and_then(|status| status.extended_resource_claim_status.as_ref());
    let extended = extended.map(|claim| claim.resource_claim_name.clone());
    named.chain(made).chain(extended).collect()
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a pod leaves now, by its claims and the devices of its node whose pods are evicted.
pub fn victim(
    pod: &Pod,
    claims: &[ResourceClaim],
    evictions: &[Eviction],
    now: u64,
) -> Option<Victim> {
    let results = claims.iter().flat_map(|claim| {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
        devices.into_iter().flat_map(|devices| devices.results.iter().flatten())
    });
    let reasons: Vec<&Eviction> = results
        .filter_map(|result| {
            let eviction = evictions.iter().find(|eviction| has(result, eviction))?;
            (due(result, eviction)? <= now).then_some(eviction)
        })
        .collect();
    let first = reasons.first()?;
    let metadata = &pod.metadata;
    Some(Victim {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        is_deleted: reasons.iter().any(|eviction| eviction.is_dead),
        reason: REASON_GPU_OUT_OF_SERVICE,
        note: format!(
            "{} of node {} is out of service: {}",
            first.device, first.node, first.reason
        ),
    })
}

/// Whether a claim has a device, a share of it or a MIG instance on it. Access for administrators is no use of it, and is there to find
/// out what is wrong.
fn has(result: &DeviceRequestAllocationResult, eviction: &Eviction) -> bool {
    let in_node = result.pool.strip_prefix(&eviction.node);
    let is_here = in_node.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let device = result.device.split_once("-mig-").map_or(&*result.device, |(gpu, _)| gpu);
    let is_admin = result.admin_access == Some(true);
    result.driver == DRIVER && is_here && device == eviction.device && !is_admin
}

/// When the claim no longer tolerates the taint of its device, in seconds since 1970. `None`: never. As with taints of nodes, the
/// shortest of the tolerations counts.
fn due(result: &DeviceRequestAllocationResult, eviction: &Eviction) -> Option<u64> {
    let tolerations = result.tolerations.iter().flatten();
    let mut tolerated = tolerations.filter(|toleration| tolerates(toleration, eviction)).peekable();
    if tolerated.peek().is_none() {
        return Some(eviction.since);
    }
    let shortest = tolerated.filter_map(|toleration| toleration.toleration_seconds).min()?;
    Some(eviction.since.saturating_add(u64::try_from(shortest).unwrap_or_default()))
}

/// As Kubernetes compares: no effect and no key mean any, and a value is compared unless the operator is `Exists`.
fn tolerates(toleration: &DeviceToleration, eviction: &Eviction) -> bool {
    let (key, value) = &eviction.taint;
    let is_any_or = |found: &Option<String>, wanted: &str| {
        found.as_deref().is_none_or(|found| found.is_empty() || found == wanted)
    };
    let has_value = match toleration.operator.as_deref() {
        None | Some("" | "Equal") => toleration.value.as_deref().unwrap_or_default() == value,
        operator => operator == Some("Exists"),
    };
    is_any_or(&toleration.key, key) && is_any_or(&toleration.effect, NO_EXECUTE) && has_value
}
