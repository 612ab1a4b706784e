//! A pod's claims: their origin, requests and allocated devices.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::device;
use crate::snapshot::{
    Allocation, Claim, ClaimSource, ClusterSnapshot, Condition, ExtendedResource, ObjectName, Pod,
    Request, RequestAlternative, Share,
};

/// Prefix of the extended resource that every class has without being asked (KEP-5004).
const IMPLICIT_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// One claim as its pod sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimView {
    /// Name inside the pod; empty for extended resources.
    pub name: String,
    /// Its origin.
    pub source: ClaimSource,
    /// Name of the `ResourceClaim`, if it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Whether the `ResourceClaim` exists.
    pub exists: bool,
    /// Whether it is allocated.
    pub allocated: bool,
    /// Its requests.
    pub requests: Vec<Request>,
    /// Its allocated devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<GivenDevice>,
    /// Pods that may use it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<String>,
    /// Extended resources that no class serves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unserved: Vec<String>,
}

/// A device that a claim was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GivenDevice {
    /// Request that it serves.
    pub request: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Node, if the device is published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Driver's UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// The part of the device that it has, where it has not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Taints that keep new pods away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// Conditions that the driver reported for this claim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The pod's claims in the order of its spec, extended resources last.
pub(super) fn of_pod(snapshot: &ClusterSnapshot, name: &ObjectName, pod: &Pod) -> Vec<ClaimView> {
    let mut views: Vec<ClaimView> =
        pod.claims
            .iter()
            .map(|named| {
                let found = named.claim.as_ref().and_then(|claim| {
                    snapshot.claims.get(&ObjectName::new(&*name.namespace, claim))
                });
                view(snapshot, named.name.clone(), named.source.clone(), named.claim.clone(), found)
            })
            .collect();
    views.extend(extended(snapshot, name, pod));
    views
}

fn view(
    snapshot: &ClusterSnapshot,
    name: String,
    source: ClaimSource,
    claim: Option<String>,
    found: Option<&Claim>,
) -> ClaimView {
    let allocation = found.and_then(|found| found.allocation.as_ref());
    ClaimView {
        name,
        source,
        claim,
        exists: found.is_some(),
        allocated: allocation.is_some(),
        requests: found.map(|found| found.requests.clone()).unwrap_or_default(),
        devices: found
            .zip(allocation)
            .map(|(found, allocation)| given(snapshot, found, allocation))
            .unwrap_or_default(),
        reserved_for: found.map(|found| found.reserved_for.clone()).unwrap_or_default(),
        unserved: Vec::new(),
    }
}

/// The claim for limits such as `nvidia.com/gpu: 1`. The scheduler creates it when it binds the
/// pod; until then the requests come from the limits.
fn extended(snapshot: &ClusterSnapshot, name: &ObjectName, pod: &Pod) -> Option<ClaimView> {
    let limits = claimed_limits(snapshot, pod);
    if limits.is_empty() {
        return None;
    }
    let resources: BTreeSet<&str> = limits.iter().map(|limit| &*limit.resource).collect();
    let source =
        ClaimSource::ExtendedResource(resources.iter().copied().collect::<Vec<_>>().join(", "));
    let found = pod
        .extended_claim
        .as_ref()
        .and_then(|claim| snapshot.claims.get(&ObjectName::new(&*name.namespace, claim)));
    let mut view = view(snapshot, String::new(), source, pod.extended_claim.clone(), found);
    if found.is_some() {
        return Some(view);
    }
    for limit in counted(&limits) {
        match class_for(snapshot, &limit.resource) {
            Some(class) => view.requests.push(Request {
                name: limit.container.clone(),
                alternatives: vec![RequestAlternative {
                    class,
                    count: Some(limit.count),
                    ..RequestAlternative::default()
                }],
            }),
            None if !view.unserved.contains(&limit.resource) => {
                view.unserved.push(limit.resource.clone());
            }
            None => {}
        }
    }
    Some(view)
}

/// The limits that a claim has to serve. Others are for device plugins, which share the notation.
fn claimed_limits<'a>(snapshot: &ClusterSnapshot, pod: &'a Pod) -> Vec<&'a ExtendedResource> {
    let is_served = |limit: &ExtendedResource| class_for(snapshot, &limit.resource).is_some();
    let is_plugins = |limit: &ExtendedResource| {
        snapshot.nodes.values().any(|node| node.plugin_resources.contains(&limit.resource))
    };
    let limits = pod.extended.iter();
    match (&pod.extended_claim, &pod.node) {
        // Made before the pod is bound: a bound pod without one has all from device plugins.
        (None, Some(_)) => Vec::new(),
        (None, None) => limits.filter(|limit| is_served(limit) || !is_plugins(limit)).collect(),
        (Some(_), _) if pod.extended.iter().any(is_served) => {
            limits.filter(|limit| is_served(limit)).collect()
        }
        (Some(_), _) => limits.collect(),
    }
}

/// The limits that add up. Init containers run first, and the other containers reuse their devices.
/// The largest limit of an init container counts only if no other container has one.
fn counted<'a>(limits: &[&'a ExtendedResource]) -> Vec<&'a ExtendedResource> {
    let lasting: Vec<_> = limits.iter().copied().filter(|limit| !limit.init).collect();
    if lasting.is_empty() {
        return limits.iter().copied().max_by_key(|limit| limit.count).into_iter().collect();
    }
    lasting
}

/// The class of an extended resource. Among several classes with the same resource name, the API
/// uses the newest. A snapshot has no creation times, so the first class by name is shown.
fn class_for(snapshot: &ClusterSnapshot, resource: &str) -> Option<String> {
    if let Some(class) = resource.strip_prefix(IMPLICIT_CLASS_PREFIX) {
        return Some(class.to_owned());
    }
    snapshot
        .classes
        .iter()
        .find(|(_, class)| class.extended_resource.as_deref() == Some(resource))
        .map(|(name, _)| name.clone())
}

fn given(snapshot: &ClusterSnapshot, claim: &Claim, allocation: &Allocation) -> Vec<GivenDevice> {
    allocation
        .devices
        .iter()
        .map(|given| {
            // Pools of other drivers are not read and may have the same names.
            let ours = given.driver == crate::usage::driver();
            let pool = snapshot.pools.get(&given.pool).filter(|_| ours);
            let published = snapshot.device(&given.pool, &given.device).filter(|_| ours);
            let attribute = |name: &str| {
                published.and_then(|found| device::text(found, name)).map(str::to_owned)
            };
            let statuses: Vec<_> = claim
                .devices
                .iter()
                .filter(|status| {
                    status.driver == given.driver
                        && status.pool == given.pool
                        && status.device == given.device
                        && status.share_id == given.share_id
                })
                .collect();
            let made = || statuses.iter().find_map(|status| status.uuid.clone());
            GivenDevice {
                request: given.request.clone(),
                driver: given.driver.clone(),
                pool: given.pool.clone(),
                device: given.device.clone(),
                node: pool.map(|pool| pool.node.clone()),
                uuid: attribute("uuid").or_else(made),
                product: attribute("productName"),
                taints: published.map(device::blocking_taints).unwrap_or_default(),
                share: published.and_then(|device| Share::of(device, given)),
                conditions: statuses
                    .iter()
                    .flat_map(|status| status.conditions.iter().cloned())
                    .collect(),
            }
        })
        .collect()
}
