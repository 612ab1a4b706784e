//! The allocator's verdict on a pod's claims for each node: usable devices, and reasons against the
//! others.

#[cfg(test)]
mod tests;
mod text;
mod verdict;

use std::borrow::Cow;
use std::collections::BTreeMap;

use octavo_api::names::TAINT_OWNER;
use octavo_dra::{
    AllocateError, Allocator, Claim, Classes, DeviceTaint, Explanation, ExtendedClaim, Feature,
    Features, Node, Slice,
};
use serde::Serialize;

use crate::usage::natural_sort_key;

pub(super) use text::{Options, render};
pub use verdict::{ClashVerdict, DeviceView, NodeVerdict, PlacedDevice, RequestVerdict};

/// Nodes that are kept with their devices, the nearest to serving first; the others are counted.
const MAX_NODES_KEPT: usize = 64;
/// Maximum search steps per node, so that a large cluster gets an answer within seconds.
/// kube-scheduler searches longer, so a search that was cut short proves nothing.
const MAX_SEARCH_STEPS: u64 = 2_000;

/// The objects of a cluster as an allocator takes them.
#[derive(Clone, Debug, Default)]
pub struct AllocatorInput {
    /// Slices of all drivers.
    pub slices: Vec<Slice>,
    /// Claims that may be read.
    pub claims: Vec<Claim>,
    /// Classes with their times of creation in seconds.
    pub classes: Vec<(octavo_dra::Class, i64)>,
    /// Nodes, each with its resources of device plugins.
    pub nodes: Vec<(Node, BTreeMap<String, i64>)>,
    /// The pod's containers, init containers first.
    pub containers: Vec<octavo_dra::Container>,
}

/// The verdict on the cluster's devices for a waiting pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceReport {
    /// Nodes on which devices serve all of the pod's open claims.
    pub fits: Vec<String>,
    /// Nodes that may serve them or not: the search was given up, or a selector is not evaluated here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undecided: Vec<String>,
    /// Number of nodes with device plugins for all requests of the pod. Their free resources are
    /// unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub by_plugins: usize,
    /// The other nodes that have devices, the nearest to serving first.
    pub nodes: Vec<NodeVerdict>,
    /// Number of further nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
    /// A defect of the claims or classes, for every node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defect: Option<String>,
    /// A selector that is not evaluated here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_evaluated: Option<String>,
}

/// The claims of a pod, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct PodClaims<'a> {
    /// Their namespace.
    pub(super) namespace: &'a str,
    /// The pod's scheduler, which may own nodes.
    pub(super) scheduler: &'a str,
    /// Those that have no devices yet.
    pub(super) open: Vec<String>,
    /// Claims that are allocated: they restrict the nodes for the pod.
    pub(super) allocated: Vec<String>,
    /// Whether a claim for extended resources is still to be made.
    pub(super) has_extended: bool,
}

/// Asks the allocator about the pod's unallocated claims. Returns `None` if there are none or if
/// one of them does not exist.
pub(super) fn report(input: &AllocatorInput, pod: &PodClaims<'_>) -> Option<DeviceReport> {
    let mut classes = Classes::default();
    for (class, created) in &input.classes {
        classes.insert(class.clone(), *created);
    }
    let find_claim = |name: &String| {
        let is_it = |claim: &&Claim| claim.namespace == pod.namespace && claim.name == *name;
        input.claims.iter().find(is_it)
    };
    let open: Vec<&Claim> = pod.open.iter().map(find_claim).collect::<Option<_>>()?;
    if open.is_empty() && !pod.has_extended {
        return None;
    }
    let allocated = pod.allocated.iter().filter_map(find_claim);
    let node_selectors: Vec<_> =
        allocated.filter_map(|claim| claim.allocation.as_ref()?.nodes.as_ref()).collect();
    // The report predicts kube-scheduler's behaviour, including its faults.
    let features = Features::default().with(Feature::UpstreamBugs);
    let slices = slices_for(pod.scheduler, &input.slices);
    let allocator = Allocator::new(&classes, &*slices, &input.claims, features)
        .with_max_steps(MAX_SEARCH_STEPS);
    let mut report = DeviceReport::default();
    for (node, allocatable) in &input.nodes {
        if !node_selectors.iter().all(|nodes| nodes.matches(node) == Ok(true)) {
            continue;
        }
        let special = if pod.has_extended {
            match octavo_dra::extended_claim(&input.containers, &classes, allocatable) {
                Ok(special) => special,
                // Neither a class nor this node's device plugins serve it; the advice reports that.
                Err(_) => continue,
            }
        } else {
            None
        };
        let special = special.as_ref().map(|special: &ExtendedClaim| special.claim(pod.namespace));
        let claims: Vec<&Claim> = open.iter().copied().chain(&special).collect();
        if claims.is_empty() {
            report.by_plugins += 1;
            continue;
        }
        let explanation = allocator.explain(node, &claims);
        let is_claim_specific =
            explanation.error.as_ref().is_some_and(AllocateError::is_claim_specific);
        report.add(node, &explanation);
        if is_claim_specific {
            break;
        }
    }
    report.keep_nearest();
    report.fits.sort_by_cached_key(|node| natural_sort_key(node));
    report.undecided.sort_by_cached_key(|node| natural_sort_key(node));
    Some(report)
}

/// The slices as the scheduler sees them: it ignores its own owner taint.
fn slices_for<'a>(scheduler: &str, slices: &'a [Slice]) -> Cow<'a, [Slice]> {
    let is_own = |taint: &DeviceTaint| taint.key == TAINT_OWNER && taint.value == scheduler;
    let has_own =
        |slice: &Slice| slice.devices.iter().any(|device| device.taints.iter().any(is_own));
    if !slices.iter().any(has_own) {
        return Cow::Borrowed(slices);
    }
    let mut slices = slices.to_vec();
    for device in slices.iter_mut().flat_map(|slice| &mut slice.devices) {
        device.taints.retain(|taint| !is_own(taint));
    }
    Cow::Owned(slices)
}

impl DeviceReport {
    /// Adds the result for a node.
    fn add(&mut self, node: &Node, explanation: &Explanation) {
        let Some(refusal) = &explanation.error else {
            self.fits.push(node.name.clone());
            return;
        };
        if refusal.is_claim_specific() {
            self.defect = Some(refusal.to_string());
            return;
        }
        if refusal.is_unsupported_selector() {
            self.not_evaluated.get_or_insert_with(|| refusal.to_string());
            self.undecided.push(node.name.clone());
            return;
        }
        // A node without devices is not worth a report.
        let is_bare = explanation.requests.iter().all(|request| request.devices.is_empty());
        if matches!(refusal, AllocateError::NoFit) && is_bare {
            return;
        }
        let verdict = NodeVerdict::new(&node.name, refusal.to_string(), explanation);
        // A request with too few devices needs no search.
        if matches!(refusal, AllocateError::Steps { .. }) && verdict.lacking().is_empty() {
            self.undecided.push(node.name.clone());
            return;
        }
        self.nodes.push(verdict);
        // Verdicts name every device: those of a large cluster are not held all at once.
        if self.nodes.len() >= 2 * MAX_NODES_KEPT {
            self.keep_nearest();
        }
    }

    /// Counts the nodes that are furthest from serving instead of keeping them.
    fn keep_nearest(&mut self) {
        self.nodes
            .sort_by_cached_key(|verdict| (verdict.distance(), natural_sort_key(&verdict.node)));
        self.more += self.nodes.len().saturating_sub(MAX_NODES_KEPT);
        self.nodes.truncate(MAX_NODES_KEPT);
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
