//! A case: a cluster and the claims of one pod, as API objects.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use serde::{Deserialize, Serialize};

/// A cluster and one pod's claims. Both allocators read the same objects.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Case {
    pub(crate) nodes: Vec<core::Node>,
    pub(crate) slices: Vec<api::ResourceSlice>,
    pub(crate) device_classes: Vec<api::DeviceClass>,
    /// The pod's claims in order. Allocated ones only have to be reachable.
    pub(crate) claims: Vec<api::ResourceClaim>,
    /// The cluster's other claims, all allocated.
    pub(crate) other_claims: Vec<api::ResourceClaim>,
    /// A pod with extended resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<core::Pod>,
}

/// Result for the pod's claims on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Feasible,
    /// Other nodes may be feasible.
    Infeasible,
    /// The claims, classes or slices are invalid.
    Error,
    /// The search was aborted.
    Timeout,
    /// Kubernetes' code panicked; this never counts as agreement.
    Panic,
}

/// Allocations by node, one per claim to allocate.
pub(crate) type AllocationsByNode = BTreeMap<String, Vec<api::AllocationResult>>;

/// A request of a claim, or one of its alternatives.
pub(crate) enum AnyRequest<'a> {
    Exactly(&'a api::ExactDeviceRequest),
    Alternative(&'a api::DeviceSubRequest),
}

impl Case {
    /// All published devices with their slices.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&api::ResourceSlice, &api::Device)> {
        self.slices.iter().flat_map(|slice| {
            slice.spec.devices.iter().flatten().map(move |device| (slice, device))
        })
    }

    /// The pod's claims that are not allocated.
    pub(crate) fn open_claims(&self) -> impl Iterator<Item = &api::ResourceClaim> {
        self.claims.iter().filter(|claim| allocation(claim).is_none())
    }

    /// The requests of the open claims.
    pub(crate) fn requests(&self) -> Vec<AnyRequest<'_>> {
        let mut all = Vec::new();
        for request in self.open_claims().flat_map(requests) {
            all.extend(request.exactly.iter().map(AnyRequest::Exactly));
            all.extend(request.first_available.iter().flatten().map(AnyRequest::Alternative));
        }
        all
    }

    /// The constraints of the open claims.
    pub(crate) fn constraints(&self) -> impl Iterator<Item = &api::DeviceConstraint> {
        let devices = self.open_claims().filter_map(|claim| claim.spec.devices.as_ref());
        devices.flat_map(|devices| devices.constraints.iter().flatten())
    }

    /// Results of all allocated claims.
    pub(crate) fn results(&self) -> impl Iterator<Item = &api::DeviceRequestAllocationResult> {
        let claims = self.other_claims.iter().chain(&self.claims);
        let devices = claims.filter_map(|claim| allocation(claim)?.devices.as_ref());
        devices.flat_map(|devices| devices.results.iter().flatten())
    }
}

/// The allocation of a claim.
pub(crate) fn allocation(claim: &api::ResourceClaim) -> Option<&api::AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// The requests of a claim.
pub(crate) fn requests(claim: &api::ResourceClaim) -> impl Iterator<Item = &api::DeviceRequest> {
    claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten())
}

impl AnyRequest<'_> {
    pub(crate) fn selectors(&self) -> usize {
        let selectors = match self {
            Self::Exactly(request) => &request.selectors,
            Self::Alternative(request) => &request.selectors,
        };
        selectors.as_ref().map_or(0, Vec::len)
    }

    pub(crate) fn is_for_all(&self) -> bool {
        let mode = match self {
            Self::Exactly(request) => &request.allocation_mode,
            Self::Alternative(request) => &request.allocation_mode,
        };
        mode.as_deref() == Some("All")
    }

    pub(crate) fn count(&self) -> i64 {
        match self {
            Self::Exactly(request) => request.count.unwrap_or(1),
            Self::Alternative(request) => request.count.unwrap_or(1),
        }
    }

    pub(crate) fn tolerations(&self) -> &[api::DeviceToleration] {
        let tolerations = match self {
            Self::Exactly(request) => &request.tolerations,
            Self::Alternative(request) => &request.tolerations,
        };
        tolerations.as_deref().unwrap_or_default()
    }

    pub(crate) fn has_capacity(&self) -> bool {
        match self {
            Self::Exactly(request) => request.capacity.is_some(),
            Self::Alternative(request) => request.capacity.is_some(),
        }
    }

    pub(crate) fn has_admin_access(&self) -> bool {
        matches!(self, Self::Exactly(request) if request.admin_access == Some(true))
    }
}
