//! What an allocator makes of the pod's claims on each node: which devices could serve each request,
//! and what rules out the others.

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

use crate::usage::natural;

pub(super) use text::{Options, render};
pub use verdict::{ClashVerdict, DeviceView, NodeVerdict, PlacedDevice, RequestVerdict};

/// Nodes that are kept with their devices, the nearest to serving first; the others are counted.
const MOST_NODES: usize = 64;
/// Steps that a search may take on a node: a large cluster has an answer in seconds. kube-scheduler
/// takes more before it gives up, so what was given up here says nothing.
const STEPS: u64 = 2_000;

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
    /// Nodes that may serve them or not: the search was given up, or a selector is not evaluated here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undecided: Vec<String>,
    /// How many nodes have device plugins for all that the pod asks for. Whether they have any left
    /// is not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub by_plugins: usize,
    /// The other nodes that have devices, the nearest to serving first.
    pub nodes: Vec<NodeVerdict>,
    /// How many such nodes there are beyond those.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
    /// What is wrong with the claims or classes themselves, on whatever node.
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
    /// Those that have: they say on which nodes the pod can be.
    pub(super) allocated: Vec<String>,
    /// Whether a claim for extended resources is still to be made.
    pub(super) has_extended: bool,
}

/// Asks the allocator about the pod's claims that have no devices yet; `None` if there are none, or
/// one of them is not there.
pub(super) fn report(input: &AllocatorInput, pod: &PodClaims<'_>) -> Option<DeviceReport> {
    let mut classes = Classes::default();
    for (class, created) in &input.classes {
        classes.insert(class.clone(), *created);
    }
    let own = |name: &String| {
        let is_it = |claim: &&Claim| claim.namespace == pod.namespace && claim.name == *name;
        input.claims.iter().find(is_it)
    };
    let open: Vec<&Claim> = pod.open.iter().map(own).collect::<Option<_>>()?;
    if open.is_empty() && !pod.has_extended {
        return None;
    }
    let allocated = pod.allocated.iter().filter_map(own);
    let ties: Vec<_> =
        allocated.filter_map(|claim| claim.allocation.as_ref()?.nodes.as_ref()).collect();
    // What kube-scheduler will do is told, also where it is at fault.
    let features = Features::default().with(Feature::UpstreamBugs);
    let slices = slices_for(pod.scheduler, &input.slices);
    let allocator =
        Allocator::new(&classes, &*slices, &input.claims, features).with_max_steps(STEPS);
    let mut report = DeviceReport::default();
    for (node, allocatable) in &input.nodes {
        if !ties.iter().all(|nodes| nodes.matches(node) == Ok(true)) {
            continue;
        }
        let special = if pod.has_extended {
            match octavo_dra::extended_claim(&input.containers, &classes, allocatable) {
                Ok(special) => special,
                // Neither a class nor this node's device plugins serve it: advice says so.
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
    report.fits.sort_by_cached_key(|node| natural(node));
    report.undecided.sort_by_cached_key(|node| natural(node));
    Some(report)
}

/// The slices as a scheduler takes them: it ignores the taint of what it owns.
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
    /// Adds what was found on a node.
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
        // A node without devices is no answer to anybody's question.
        let is_bare = explanation.requests.iter().all(|request| request.devices.is_empty());
        if matches!(refusal, AllocateError::NoFit) && is_bare {
            return;
        }
        let verdict = NodeVerdict::new(&node.name, refusal.to_string(), explanation);
        // What lacks devices by itself needs no search.
        if matches!(refusal, AllocateError::Steps { .. }) && verdict.lacking().is_empty() {
            self.undecided.push(node.name.clone());
            return;
        }
        self.nodes.push(verdict);
        // Verdicts name every device: those of a large cluster are not held all at once.
        if self.nodes.len() >= 2 * MOST_NODES {
            self.keep_nearest();
        }
    }

    /// Counts the nodes that are furthest from serving instead of keeping them.
    fn keep_nearest(&mut self) {
        self.nodes.sort_by_cached_key(|verdict| (verdict.distance(), natural(&verdict.node)));
        self.more += self.nodes.len().saturating_sub(MOST_NODES);
        self.nodes.truncate(MOST_NODES);
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
