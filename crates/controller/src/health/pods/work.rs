//! Which pods leave for work on their node. The whole node is meant, so that pods of a device plugin leave, too.

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use octavo_api::names::{DRIVER, REASON_NODE_IN_MAINTENANCE, TAINT_MAINTENANCE};

use super::{Victim, controller, has_ended, reference, tolerates_taint};
use crate::health::plan::Urgency;

/// Begin of the names of extended resources of NVIDIA's GPUs.
const NVIDIA: &str = "nvidia.com/";
/// Annotation of pods that a kubelet runs from files: no API call ends them.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod with GPUs on a node where work is in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodWithGpus {
    /// It is to be evicted.
    ToEvict(Victim),
    /// It is being deleted.
    Terminating,
}

/// Whether a pod has GPUs and is to leave, by its claims. `note` says why, for people.
pub fn pod_with_gpus(pod: &Pod, claims: &[ResourceClaim], note: &str) -> Option<PodWithGpus> {
    let metadata = &pod.metadata;
    let is_mirror = metadata.annotations.iter().flatten().any(|(key, _)| key == MIRROR);
    if has_ended(pod) || is_mirror || tolerates(pod) {
        return None;
    }
    if !has_extended_resource(pod) && !claims.iter().any(has_gpu) {
        return None;
    }
    if metadata.deletion_timestamp.is_some() {
        return Some(PodWithGpus::Terminating);
    }
    let victim = Victim::new(pod, Urgency::Evicted, REASON_NODE_IN_MAINTENANCE, note.to_owned());
    Some(PodWithGpus::ToEvict(victim))
}

/// What gets an event before work on the node of a pod with claims or GPUs: the controller of the pod, or the pod if it has none.
pub fn owner(pod: &Pod) -> Option<ObjectReference> {
    let spec = pod.spec.as_ref()?;
    let has_claims = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
    if has_ended(pod) || tolerates(pod) || !(has_claims || has_extended_resource(pod)) {
        return None;
    }
    controller(pod).or_else(|| reference(pod))
}

/// Whether a container asks for GPUs as an extended resource.
fn has_extended_resource(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let containers = spec
        .into_iter()
        .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let mut limits =
        containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    limits.any(|limits| {
        limits.iter().any(|(name, count)| name.starts_with(NVIDIA) && !is_zero(count))
    })
}

/// Whether a quantity is zero, with any unit.
fn is_zero(quantity: &Quantity) -> bool {
    let digits = quantity.0.trim_end_matches(|c: char| c.is_alphabetic());
    digits.parse() == Ok(0.0)
}

/// Whether a claim has a GPU, or a part of one, other than for an administrator's look.
fn has_gpu(claim: &ResourceClaim) -> bool {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let mut results = devices.into_iter().flat_map(|devices| devices.results.iter().flatten());
    results.any(|result| result.driver == DRIVER && result.admin_access != Some(true))
}

fn tolerates(pod: &Pod) -> bool {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations
        .into_iter()
        .any(|toleration| tolerates_taint(toleration, TAINT_MAINTENANCE, "NoSchedule"))
}
