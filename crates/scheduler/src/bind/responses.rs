//! What the binder reads of claims in the API server's responses.

use octavo_dra::{Allocation, AllocationResult};
use octavo_kube_io::objects::Claim;

use super::PodRef;

/// Finalizer of claims that are allocated (`resource/v1` `Finalizer`).
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Annotation of claims for extended resources (`resource/v1` `ExtendedResourceClaimAnnotation`).
pub(super) const EXTENDED_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

pub(super) fn has_finalizer(claim: &Claim) -> bool {
    claim.meta.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
}

pub(super) fn is_reserved_for(claim: &Claim, pod: &PodRef) -> bool {
    claim.reserved_for.iter().any(|consumer| *consumer.uid == *pod.uid)
}

/// Whether a consumer other than the pod is reserved.
pub(super) fn has_other_consumers(claim: &Claim, pod: &PodRef) -> bool {
    claim.reserved_for.iter().any(|consumer| *consumer.uid != *pod.uid)
}

/// Whether a claim has exactly these devices.
pub(super) fn has_devices(claim: &Claim, allocation: &Allocation) -> bool {
    let found = claim.claim.allocation.as_ref();
    found.is_some_and(|found| {
        found.results.iter().map(device).eq(allocation.results.iter().map(device))
    })
}

fn device(result: &AllocationResult) -> (&str, &str, &str, &str, Option<&str>) {
    let AllocationResult { request, driver, pool, device, share_id, .. } = result;
    (request, driver, pool, device, share_id.as_deref())
}
