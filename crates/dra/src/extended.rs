//! Extended resources that classes serve: the claim behind `limits: {nvidia.com/gpu: 1}`
//! (KEP-5004).
//!
//! The scheduler makes one claim for all such resources of a pod. Its requests are named
//! `container-<i>-request-<j>`. `i` counts init containers first; `j` is the resource's index among
//! all resource names of the container.
//!
//! An init container that ends before the others start reuses their devices and requests only the
//! difference. Of several init containers only the largest request counts.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::Quantity;
use crate::claim::{Ask, Claim, Count, DeviceRequest, Request};
use crate::classes::{CLASS_RESOURCE_PREFIX, Classes};

/// Name of the claim before the API server has it.
pub const EXTENDED_CLAIM_NAME: &str = "<extended-resources>";

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// All its resource requests. Other resources matter because request names count them.
    pub requests: BTreeMap<String, Quantity>,
}

/// When a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerKind {
    /// Before the main containers.
    Init,
    /// From its position among the init containers until the pod ends (`restartPolicy: Always`).
    Sidecar,
    /// After the init containers.
    Main,
}

/// The requests of a pod's extended resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtendedClaim {
    /// The requests, by name.
    pub requests: Vec<Request>,
    /// Which request each container uses for each resource.
    pub mappings: Vec<RequestMapping>,
}

/// The request that a container uses for a resource
/// (`pod.status.extendedResourceClaimStatus.requestMappings`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestMapping {
    /// Name of the container.
    pub container: String,
    /// The extended resource.
    pub resource: String,
    /// Name of the request.
    pub request: String,
}

/// Neither a device plugin of the node nor a class serves a resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither a device plugin of the node nor a device class serves {resource}")]
pub struct NotServed {
    /// The extended resource.
    pub resource: String,
}

impl ExtendedClaim {
    /// The claim without UID, which the API server assigns.
    pub fn claim(&self, namespace: &str) -> Claim {
        Claim {
            namespace: namespace.to_owned(),
            name: EXTENDED_CLAIM_NAME.to_owned(),
            requests: self.requests.clone(),
            ..Claim::default()
        }
    }
}

/// The claim for the extended resources of a pod on a node; `None` if it needs none.
///
/// `containers` are in the pod's order, init containers (with sidecars) first. `allocatable` counts
/// the devices of the node's device plugins. A plugin with any device of a resource serves it.
pub fn extended_claim(
    containers: &[Container],
    classes: &Classes,
    allocatable: &BTreeMap<String, i64>,
) -> Result<Option<ExtendedClaim>, NotServed> {
    let asked: BTreeSet<&String> = containers
        .iter()
        .flat_map(|container| &container.requests)
        .filter(|(name, amount)| **amount != Quantity::ZERO && is_extended_resource(name))
        .map(|(name, _)| name)
        .collect();
    let mut claim = ExtendedClaim::default();
    for resource in asked {
        let plugin = allocatable.get(resource).copied();
        match classes.for_resource(resource) {
            Some(class) if plugin.unwrap_or(0) == 0 => claim.add(containers, resource, &class.name),
            None if plugin.is_none() => return Err(NotServed { resource: resource.clone() }),
            _ => {}
        }
    }
    claim.requests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((!claim.requests.is_empty()).then_some(claim))
}

/// Whether a resource is an extended one: its domain is not Kubernetes' own, or it names a class by
/// [`CLASS_RESOURCE_PREFIX`].
pub fn is_extended_resource(name: &str) -> bool {
    if name.starts_with(CLASS_RESOURCE_PREFIX) {
        return true;
    }
    let is_word = |text: &str, others: &[u8]| {
        let is_inner = |b: u8| b.is_ascii_alphanumeric() || others.contains(&b);
        let is_end = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(|&b| is_inner(b))
    };
    // Quotas count it as `requests.<name>`, which must be a valid name, too.
    let most = 253 - "requests.".len();
    name.split_once('/').is_some_and(|(domain, id)| {
        !name.contains("kubernetes.io/")
            && !name.starts_with("requests.")
            && domain.len() <= most
            && domain.split('.').all(|label| is_word(label, b"-"))
            && !domain.bytes().any(|b| b.is_ascii_uppercase())
            && id.len() <= 63
            && is_word(id, b"-_.")
    })
}

impl ExtendedClaim {
    /// Adds the containers' requests for one resource.
    fn add(&mut self, containers: &[Container], resource: &str, class: &str) {
        // A request for each container that outlives the init phase, at the container's index.
        let mut lasting: Vec<Option<SizedRequest>> = Vec::new();
        for (index, container) in containers.iter().enumerate() {
            let is_lasting = container.kind != ContainerKind::Init;
            let asked =
                is_lasting.then(|| ContainerRequest::of(container, index, resource)).flatten();
            lasting.push(asked.map(|asked| {
                self.map(container, resource, &asked.name);
                SizedRequest { name: asked.name, count: asked.count }
            }));
        }
        let mut most: Option<SizedRequest> = None;
        let mut brief = Vec::new();
        for (index, container) in containers.iter().enumerate() {
            if container.kind != ContainerKind::Init {
                continue;
            }
            let Some(asked) = ContainerRequest::of(container, index, resource) else { continue };
            let mut reused = 0;
            for later in lasting[index..].iter().flatten() {
                if reused >= asked.count {
                    break;
                }
                reused = later.count.saturating_add(reused);
                brief.push((container, later.name.clone(), false));
            }
            if reused >= asked.count {
                continue;
            }
            let own = SizedRequest { name: asked.name, count: asked.count - reused };
            brief.push((container, own.name.clone(), true));
            if most.as_ref().is_none_or(|most| most.count < own.count) {
                most = Some(own);
            }
        }
        for (container, name, is_own) in brief {
            let name = match &most {
                Some(most) if is_own => &most.name,
                _ => &name,
            };
            self.map(container, resource, name);
        }
        for SizedRequest { name, count } in most.into_iter().chain(lasting.into_iter().flatten()) {
            let count = Count::Exactly(count);
            let ask = DeviceRequest { class: class.to_owned(), count, ..DeviceRequest::default() };
            self.requests.push(Request { name, ask: Ask::Exactly(ask) });
        }
    }

    fn map(&mut self, container: &Container, resource: &str, request: &str) {
        self.mappings.push(RequestMapping {
            container: container.name.clone(),
            resource: resource.to_owned(),
            request: request.to_owned(),
        });
    }
}

/// A request of the claim in the making.
struct SizedRequest {
    name: String,
    count: u64,
}

/// A container's request for one resource.
struct ContainerRequest {
    /// Name of the request in the claim.
    name: String,
    count: u64,
}

impl ContainerRequest {
    /// `None` if the container requests nothing, or not a whole number.
    fn of(container: &Container, index: usize, resource: &str) -> Option<Self> {
        let amount = *container.requests.get(resource)?;
        let count = u64::try_from(amount.value()).ok().filter(|_| amount.is_whole())?;
        let place = container.requests.keys().position(|name| name == resource)?;
        (count > 0).then(|| Self { name: format!("container-{index}-request-{place}"), count })
    }
}
