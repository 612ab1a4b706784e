//! What an allocator makes of the pod's claims on each node: which devices could serve each request,
//! and what rules out the others.

#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;

use octavo_dra::{
    Allocator, Claim, Classes, Count, DeviceVerdict, Explanation, ExtendedClaim, Feature, Features,
    Node, RequestExplanation, Slice,
};
use serde::Serialize;

use crate::snapshot::ObjectName;
use crate::usage::natural;

pub(super) use text::render;

/// Nodes that are kept with their devices, the nearest to serving first; the others are counted.
const MOST_NODES: usize = 64;

/// The objects of a cluster as an allocator takes them.
#[derive(Clone, Debug, Default)]
pub struct AllocatorInput {
    /// Slices of all drivers.
    pub slices: Vec<Slice>,
    /// Claims that may be read.
    pub claims: Vec<Claim>,
    /// Classes with their times of creation in seconds.
    pub classes: Vec<(octavo_dra::Class, i64)>,
    /// Nodes, each with what device plugins serve there.
    pub nodes: Vec<(Node, BTreeMap<String, i64>)>,
    /// The pod's containers, init containers first.
    pub containers: Vec<octavo_dra::Container>,
}

/// What the cluster's devices are to a pod that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceReport {
    /// Nodes on which devices serve all of the pod's open claims.
    pub fits: Vec<String>,
    /// The other nodes that have devices, the nearest to serving first.
    pub nodes: Vec<NodeVerdict>,
    /// How many such nodes there are beyond those.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
    /// What is wrong with the claims or classes themselves, on whatever node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defect: Option<String>,
}

/// Why a node's devices do not serve the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeVerdict {
    /// Node.
    pub node: String,
    /// The reason in a line.
    pub refusal: String,
    /// Each request as if it were alone.
    pub requests: Vec<RequestVerdict>,
    /// Where each request could be served but not all together: how far a search came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clash: Option<ClashVerdict>,
}

/// What a node's devices are to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestVerdict {
    /// Claim, as `namespace/name`.
    pub claim: String,
    /// Request, with a sub-request after a slash.
    pub request: String,
    /// How many devices it wants; absent for all that match.
    pub wanted: Option<u64>,
    /// Whether there are enough.
    pub enough: bool,
    /// The devices, in the allocator's order.
    pub devices: Vec<DeviceView>,
}

/// A device and what rules it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceView {
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// What rules it out; absent for one that could be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruled_out: Option<String>,
}

/// How far a search for all requests together came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClashVerdict {
    /// Requests that were served, with their devices.
    pub placed: Vec<(String, String)>,
    /// The request that was not, beside them.
    pub request: RequestVerdict,
}

/// Asks the allocator about the pod's claims that have no devices yet; `None` if there are none, or
/// one of them is not there.
pub(super) fn report(
    input: &AllocatorInput,
    namespace: &str,
    open: &[&str],
    has_extended: bool,
) -> Option<DeviceReport> {
    let mut classes = Classes::default();
    for (class, created) in &input.classes {
        classes.insert(class.clone(), *created);
    }
    let own: Vec<&Claim> = open
        .iter()
        .map(|name| {
            input.claims.iter().find(|claim| claim.namespace == namespace && claim.name == **name)
        })
        .collect::<Option<_>>()?;
    // What kube-scheduler will do is told, also where it is at fault.
    let features = Features::default().with(Feature::KubernetesFaults);
    let allocator = Allocator::new(&classes, &input.slices, &input.claims, features);
    let mut report = DeviceReport::default();
    let mut refused = Vec::new();
    for (node, allocatable) in &input.nodes {
        let special = if has_extended {
            match octavo_dra::extended_claim(&input.containers, &classes, allocatable) {
                Ok(special) => special,
                // Neither a class nor this node's device plugins serve it: advice says so.
                Err(_) => continue,
            }
        } else {
            None
        };
        let special = special.as_ref().map(|special: &ExtendedClaim| special.claim(namespace));
        let claims: Vec<&Claim> = own.iter().copied().chain(&special).collect();
        if claims.is_empty() {
            return None;
        }
        let explanation = allocator.explain(node, &claims);
        match &explanation.refusal {
            None => report.fits.push(node.name.clone()),
            Some(refusal) if !refusal.is_of_node() => {
                report.defect = Some(refusal.to_string());
                return Some(report);
            }
            Some(refusal) => {
                let refusal = refusal.to_string();
                // A node without devices is no answer to anybody's question.
                if explanation.requests.iter().any(|request| !request.devices.is_empty()) {
                    refused.push(NodeVerdict::new(&node.name, refusal, &explanation));
                }
            }
        }
    }
    refused.sort_by_cached_key(|verdict| (verdict.distance(), natural(&verdict.node)));
    report.more = refused.len().saturating_sub(MOST_NODES);
    refused.truncate(MOST_NODES);
    report.nodes = refused;
    report.fits.sort_by_cached_key(|node| natural(node));
    Some(report)
}

impl NodeVerdict {
    fn new(node: &str, refusal: String, explanation: &Explanation) -> Self {
        let clash = explanation.clash.as_ref().map(|clash| ClashVerdict {
            placed: clash
                .placed
                .iter()
                .map(|(request, device)| (request.clone(), device.device.clone()))
                .collect(),
            request: RequestVerdict::new(&clash.request),
        });
        let requests = explanation.requests.iter().map(RequestVerdict::new).collect();
        Self { node: node.to_owned(), refusal, requests, clash }
    }

    /// How far the node is from serving: requests that it cannot serve, and fewest devices first
    /// where that is equal.
    fn distance(&self) -> (usize, usize) {
        let lacking = self.requests.iter().filter(|request| !request.enough).count();
        let usable = self.requests.iter().flat_map(|request| &request.devices);
        (lacking, usize::MAX - usable.filter(|device| device.ruled_out.is_none()).count())
    }
}

impl RequestVerdict {
    fn new(request: &RequestExplanation) -> Self {
        let wanted = match request.wanted {
            Count::Exactly(count) => Some(count),
            Count::All => None,
        };
        let device = |verdict: &DeviceVerdict| DeviceView {
            driver: verdict.device.driver.clone(),
            pool: verdict.device.pool.clone(),
            device: verdict.device.device.clone(),
            ruled_out: verdict.reason.as_ref().map(ToString::to_string),
        };
        Self {
            claim: ObjectName::new(&*request.claim.namespace, &*request.claim.name).to_string(),
            request: request.request.clone(),
            wanted,
            enough: request.is_enough(),
            devices: request.devices.iter().map(device).collect(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
