//! Which pods leave a device, when and how. Pure.
//!
//! Kubernetes evicts pods with claims by the taint of a device where its feature is on, and leaves out those that got a GPU as an
//! extended resource. Here both are evicted, within the budget of the policy. A pod of a device plugin is not: no object says which
//! GPU it has.

mod lost;
mod references;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Pod, Toleration};
use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceToleration, ResourceClaim,
};
use octavo_api::names::{DRIVER, REASON_GPU_OUT_OF_SERVICE};

pub use self::lost::{GangMember, member};
pub use self::references::{controller, reference};
pub use self::work::{PodWithGpus, owner, pod_with_gpus};
use super::checkpoints::Progress;
use super::plan::{Eviction, Urgency};

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
    /// How it leaves.
    pub urgency: Urgency,
    /// Why, for programs.
    pub reason: &'static str,
    /// Why, for people.
    pub note: String,
}

impl Victim {
    /// A pod that leaves for a reason.
    fn new(pod: &Pod, urgency: Urgency, reason: &'static str, note: String) -> Self {
        let metadata = &pod.metadata;
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            urgency,
            reason,
            note,
        }
    }

    /// The pod, if it leaves now that its work is saved, or is not. The words for people say which.
    pub fn after(mut self, progress: &Progress) -> Option<Self> {
        let needs_checkpoint = self.urgency == Urgency::AtCheckpoint;
        match progress {
            Progress::Saved => self.note.push_str("; the work of the pod is saved"),
            Progress::NotSaved(why) if !needs_checkpoint => {
                let _ = write!(self.note, "; the work of the pod is not saved: {why}");
            }
            Progress::NoHook if !needs_checkpoint => {}
            _ => return None,
        }
        Some(self)
    }
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

/// Names of the devices of a node that a pod has by its claims, those that it has for administrators aside.
pub fn devices<'a>(claims: &'a [ResourceClaim], node: &str) -> BTreeSet<&'a str> {
    results(claims).filter_map(|result| device(result, node)).collect()
}

/// Whether a pod leaves now, by its claims and the devices of its node whose pods are evicted. One that is being deleted leaves already.
pub fn victim(
    pod: &Pod,
    claims: &[ResourceClaim],
    evictions: &[Eviction],
    now: u64,
) -> Option<Victim> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let reasons = left(claims, evictions).filter(|(_, due)| *due <= now);
    // Of several with one urgency the first.
    let (first, _) = reasons.rev().max_by_key(|(eviction, _)| eviction.urgency)?;
    let Eviction { node, device, reason, .. } = first;
    let note = format!("{device} of node {node} is out of service: {reason}");
    Some(Victim::new(pod, first.urgency, REASON_GPU_OUT_OF_SERVICE, note))
}

/// The evictions whose devices claims have, and when a pod with the claims leaves for each, in seconds since 1970. One that a claim
/// tolerates for ever is left out.
pub(super) fn left<'a>(
    claims: &'a [ResourceClaim],
    evictions: &'a [Eviction],
) -> impl DoubleEndedIterator<Item = (&'a Eviction, u64)> {
    results(claims).filter_map(move |result| {
        let is_left = |eviction: &&Eviction| {
            device(result, &eviction.node).is_some_and(|device| device == eviction.device)
        };
        let eviction = evictions.iter().find(is_left)?;
        Some((eviction, due(result, eviction)?))
    })
}

/// What is allocated to claims.
fn results(
    claims: &[ResourceClaim],
) -> impl DoubleEndedIterator<Item = &DeviceRequestAllocationResult> {
    claims.iter().flat_map(|claim| {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
        devices.into_iter().flat_map(|devices| devices.results.iter().flatten())
    })
}

/// The device of a node of which a claim has the whole, a share or a MIG instance. Access for administrators is no use of it, and is
/// there to find out what is wrong.
fn device<'a>(result: &'a DeviceRequestAllocationResult, node: &str) -> Option<&'a str> {
    let in_node = result.pool.strip_prefix(node)?;
    let is_here = in_node.is_empty() || in_node.starts_with('/');
    let device = result.device.split_once("-mig-").map_or(&*result.device, |(gpu, _)| gpu);
    let is_admin = result.admin_access == Some(true);
    (result.driver == DRIVER && is_here && !is_admin).then_some(device)
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

/// Whether a toleration of a pod is one of a taint of nodes without a value. As Kubernetes compares: no effect and no key mean any.
fn tolerates_taint(toleration: &Toleration, key: &str, effect: &str) -> bool {
    let is_empty_or = |found: &Option<String>, wanted: &str| {
        found.as_deref().is_none_or(|found| found.is_empty() || found == wanted)
    };
    let exists = toleration.operator.as_deref() == Some("Exists");
    let has_key = match toleration.key.as_deref() {
        None | Some("") => exists,
        Some(found) => found == key,
    };
    has_key
        && is_empty_or(&toleration.effect, effect)
        && (exists || is_empty_or(&toleration.value, ""))
}
