//! The claims that a pod names, and whether it may use them (pure).

pub(crate) mod claim_info;
pub(crate) mod prepare;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;

/// A claim that a pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedClaim {
    /// Name of the claim object, in the pod's namespace.
    pub(crate) name: String,
    /// Whether the claim was generated from a template for this pod, which must then own it.
    pub(crate) owned: bool,
}

/// A claim that may be prepared for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsableClaim {
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// UID.
    pub(crate) uid: String,
    /// Drivers of the allocated devices.
    pub(crate) drivers: BTreeSet<String>,
}

/// A device request of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerRequest {
    /// Name of the claim object.
    pub(crate) claim: String,
    /// Request within the claim; `None`: all requests.
    pub(crate) request: Option<String>,
}

/// A pod's claims cannot be prepared; the texts are the kubelet's.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ClaimProblem {
    /// The claim controller has not created the template's claim yet.
    #[error("pod \"{0}\": ResourceClaim not created yet")]
    NotCreated(String),
    /// `resourceClaims` names neither claim nor template.
    #[error("pod claim {0}: neither claim nor template is named")]
    Unnamed(String),
    /// The claim has no allocation.
    #[error("ResourceClaim {0}: not allocated")]
    NotAllocated(String),
    /// A claim made from a template belongs to another pod.
    #[error("ResourceClaim {0} was not created for pod {1}")]
    NotOwned(String, String),
    /// The pod's UID is not in `status.reservedFor`.
    #[error("pod {pod} ({pod_uid}) is not allowed to use ResourceClaim {claim} ({claim_uid})")]
    NotReserved { pod: String, pod_uid: String, claim: String, claim_uid: String },
}

/// The claims that `pod` names, with those of extended resources last. Omits a template that yields
/// no claim according to the claim controller.
pub(crate) fn claims_of(pod: &Pod) -> Result<Vec<NamedClaim>, ClaimProblem> {
    let mut claims = Vec::new();
    for entry in pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
        if let Some(name) = claim_name(pod, &entry.name)? {
            let owned = entry.resource_claim_name.is_none();
            claims.push(NamedClaim { name, owned });
        }
    }
    if let Some(extended) =
        pod.status.as_ref().and_then(|s| s.extended_resource_claim_status.as_ref())
    {
        claims.push(NamedClaim { name: extended.resource_claim_name.clone(), owned: false });
    }
    Ok(claims)
}

/// Checks that `claim` is allocated and that `pod` may use it.
pub(crate) fn check(
    pod: &Pod,
    named: &NamedClaim,
    claim: &ResourceClaim,
) -> Result<UsableClaim, ClaimProblem> {
    let pod_uid = pod.uid().unwrap_or_default();
    let uid = claim.uid().unwrap_or_default();
    let owner =
        claim.owner_references().iter().any(|o| o.uid == pod_uid && o.controller == Some(true));
    if named.owned && !owner {
        return Err(ClaimProblem::NotOwned(named.name.clone(), pod.name_any()));
    }
    let status = claim.status.as_ref();
    let reserved = status
        .and_then(|status| status.reserved_for.as_ref())
        .is_some_and(|consumers| consumers.iter().any(|consumer| consumer.uid == pod_uid));
    if !reserved {
        return Err(ClaimProblem::NotReserved {
            pod: pod.name_any(),
            pod_uid,
            claim: named.name.clone(),
            claim_uid: uid,
        });
    }
    let Some(allocation) = status.and_then(|status| status.allocation.as_ref()) else {
        return Err(ClaimProblem::NotAllocated(named.name.clone()));
    };
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    Ok(UsableClaim {
        namespace: claim.namespace().unwrap_or_default(),
        name: claim.name_any(),
        uid,
        drivers: results.map(|result| result.driver.clone()).collect(),
    })
}

/// The requests of `container` in `pod`, from its claims and its extended resources.
pub(crate) fn requests_of(pod: &Pod, container: &Container) -> Vec<ContainerRequest> {
    let resources = container.resources.as_ref();
    let mut requests = Vec::new();
    for wanted in resources.iter().flat_map(|r| r.claims.iter().flatten()) {
        if let Ok(Some(claim)) = claim_name(pod, &wanted.name) {
            let request = wanted.request.clone().filter(|request| !request.is_empty());
            requests.push(ContainerRequest { claim, request });
        }
    }
    let extended = pod.status.as_ref().and_then(|s| s.extended_resource_claim_status.as_ref());
    for mapping in extended.iter().flat_map(|extended| &extended.request_mappings) {
        let asks = resources
            .and_then(|r| r.requests.as_ref().or(r.limits.as_ref()))
            .and_then(|requests| requests.get(&mapping.resource_name))
            .is_some_and(|quantity| quantity.0 != "0");
        if asks && mapping.container_name == container.name {
            requests.push(ContainerRequest {
                claim: extended.map(|e| e.resource_claim_name.clone()).unwrap_or_default(),
                request: Some(mapping.request_name.clone()),
            });
        }
    }
    requests
}

/// Name of the claim behind `entry` in the pod's `resourceClaims`. `None` if the claim controller
/// found that the template yields none.
pub(crate) fn claim_name(pod: &Pod, entry: &str) -> Result<Option<String>, ClaimProblem> {
    let mut entries = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let Some(found) = entries.find(|candidate| candidate.name == entry) else {
        return Err(ClaimProblem::Unnamed(entry.to_owned()));
    };
    if found.resource_claim_name.is_some() {
        return Ok(found.resource_claim_name.clone());
    }
    if found.resource_claim_template_name.is_none() {
        return Err(ClaimProblem::Unnamed(entry.to_owned()));
    }
    pod.status
        .iter()
        .flat_map(|status| status.resource_claim_statuses.iter().flatten())
        .find(|status| status.name == entry)
        .map(|status| status.resource_claim_name.clone())
        .ok_or_else(|| {
            let namespace = pod.namespace().unwrap_or_default();
            ClaimProblem::NotCreated(format!("{namespace}/{}", pod.name_any()))
        })
}

#[cfg(test)]
mod tests;
