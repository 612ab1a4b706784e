//! A case: a cluster and the claims of one pod, as the API has them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use serde::{Deserialize, Serialize};

/// A cluster and one pod's claims. Both sides read the same objects.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Case {
    pub(crate) nodes: Vec<core::Node>,
    pub(crate) slices: Vec<api::ResourceSlice>,
    pub(crate) device_classes: Vec<api::DeviceClass>,
    /// The pod's, in its order. Those that are allocated only have to be reachable.
    pub(crate) claims: Vec<api::ResourceClaim>,
    /// The cluster's other claims, allocated.
    pub(crate) other_claims: Vec<api::ResourceClaim>,
    /// A pod that asks for extended resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<core::Pod>,
}

/// What came of the pod's claims on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Feasible,
    /// Other nodes may do.
    Infeasible,
    /// The claims, classes or slices are at fault.
    Error,
    /// The search was given up.
    Timeout,
    /// Kubernetes' code panicked: whatever ours says, it is no agreement.
    Panic,
}

/// Allocations by node, one for each claim that was to be allocated.
pub(crate) type AllocationsByNode = BTreeMap<String, Vec<api::AllocationResult>>;

/// Every request of a claim, alternatives apart.
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

    /// The pod's claims that are to be allocated.
    pub(crate) fn open_claims(&self) -> impl Iterator<Item = &api::ResourceClaim> {
        self.claims.iter().filter(|claim| allocation(claim).is_none())
    }

    /// What the open claims ask for.
    pub(crate) fn requests(&self) -> Vec<AnyRequest<'_>> {
        let mut all = Vec::new();
        for request in self.open_claims().flat_map(requests) {
            all.extend(request.exactly.iter().map(AnyRequest::Exactly));
            all.extend(request.first_available.iter().flatten().map(AnyRequest::Alternative));
        }
        all
    }

    /// What must hold between devices of the open claims.
    pub(crate) fn constraints(&self) -> impl Iterator<Item = &api::DeviceConstraint> {
        let devices = self.open_claims().filter_map(|claim| claim.spec.devices.as_ref());
        devices.flat_map(|devices| devices.constraints.iter().flatten())
    }

    /// Results of all claims that are allocated.
    pub(crate) fn results(&self) -> impl Iterator<Item = &api::DeviceRequestAllocationResult> {
        let claims = self.other_claims.iter().chain(&self.claims);
        let devices = claims.filter_map(|claim| allocation(claim)?.devices.as_ref());
        devices.flat_map(|devices| devices.results.iter().flatten())
    }
}

/// What a claim was given.
pub(crate) fn allocation(claim: &api::ResourceClaim) -> Option<&api::AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// What a claim asks for.
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
