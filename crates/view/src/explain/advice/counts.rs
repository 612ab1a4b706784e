//! Reasons from counting GPUs, without evaluating selectors.
//!
//! The driver's devices are local to their node, so all open requests of a pod must be served by
//! one node. Only requests for the class of whole GPUs are counted, each by its smallest
//! alternative. "Too few" is therefore certain.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::names::CLASS_GPU;

use super::super::PodExplanation;
use super::WaitReason;
use crate::snapshot::{ClusterSnapshot, GapKind, Request, RequestAlternative};
use crate::usage::{GpuState, GpuUse, incomplete_pools, natural_sort_key};

/// One node's GPUs as the pod may count them.
struct NodeCount<'a> {
    node: &'a str,
    gpus: usize,
    free: usize,
    held_by: BTreeSet<String>,
    held: usize,
}

/// Adds the reasons that the counts prove.
pub(super) fn add_reasons(
    snapshot: &ClusterSnapshot,
    explanation: &PodExplanation,
    reasons: &mut Vec<WaitReason>,
) {
    let open: Vec<&Request> = explanation
        .claims
        .iter()
        .filter(|claim| !claim.allocated)
        .flat_map(|claim| &claim.requests)
        .collect();
    let fixed = fixed_node(explanation, reasons);
    if open.is_empty() || snapshot.lacks(GapKind::Slices) {
        return;
    }
    let asked: usize = open.iter().map(|request| min_gpus(request)).sum();
    if asked == 0 {
        return;
    }
    let incomplete = incomplete_pools(snapshot);
    let is_complete = incomplete.is_empty();
    if !is_complete {
        reasons.push(WaitReason::PoolsIncomplete { pools: incomplete });
    }
    if explanation.candidates.is_empty() {
        if is_complete {
            reasons.push(WaitReason::NothingPublished);
        }
        return;
    }
    let asks = || open.iter().flat_map(|request| &request.alternatives);
    let tolerates = asks().any(|ask| ask.tolerates);
    let nodes = count(explanation, fixed.as_deref(), tolerates);
    // Only the scheduler knows which taints are tolerated; the owner's taint may be among them.
    let others =
        if tolerates { Vec::new() } else { owned_by_others(explanation, fixed.as_deref()) };
    let is_complete = is_complete && others.is_empty();
    reasons.extend(others);
    // Of equals, `max_by_key` takes the last: reversed, the first by name.
    let Some(largest) = nodes.iter().rev().max_by_key(|node| node.gpus) else { return };
    if largest.gpus < asked && fixed.is_none() {
        // Proof only where every pool shows all that it has.
        if is_complete {
            reasons.push(WaitReason::LargerThanAnyNode {
                asked,
                most: largest.gpus,
                node: largest.node.to_owned(),
            });
        }
        return;
    }
    let selectors = asks().any(|ask| !ask.selectors.is_empty());
    let enough: Vec<String> =
        nodes.iter().filter(|node| node.free >= asked).map(|node| node.node.to_owned()).collect();
    if !enough.is_empty() {
        // Without the claims of other namespaces, a device that looks free may be held.
        if !snapshot.lacks(GapKind::ClaimsElsewhere) {
            reasons.push(WaitReason::EnoughFree { asked, nodes: enough, selectors });
        }
        return;
    }
    // The node that needs the fewest more GPUs, preferring nodes that can serve at all.
    let nearest = nodes.iter().min_by_key(|node| {
        let lacking = asked.saturating_sub(node.free);
        (lacking > node.held, lacking)
    });
    if let Some(node) = nearest {
        reasons.push(WaitReason::NotEnoughFree {
            asked,
            node: node.node.to_owned(),
            gpus: node.gpus,
            free: node.free,
            out: node.gpus.saturating_sub(node.free + node.held),
            held_by: node.held_by.iter().cloned().collect(),
            selectors,
        });
    }
}

/// Reasons for nodes that belong to other schedulers.
fn owned_by_others(explanation: &PodExplanation, fixed: Option<&str>) -> Vec<WaitReason> {
    let mut nodes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for gpu in explanation.candidates.iter().filter(|gpu| is_wanted(gpu, fixed)) {
        let Some(owner) = &gpu.scheduler else { continue };
        let owned = nodes.entry(owner).or_default();
        if !gpu.is_for(&explanation.scheduler) && owned.last() != Some(&gpu.node) {
            owned.push(gpu.node.clone());
        }
    }
    nodes.retain(|_, owned| !owned.is_empty());
    let reason = |(owner, nodes): (&str, _)| WaitReason::OwnedByScheduler {
        nodes,
        owner: owner.to_owned(),
        scheduler: explanation.scheduler.clone(),
    };
    nodes.into_iter().map(reason).collect()
}

fn is_wanted(gpu: &GpuUse, fixed: Option<&str>) -> bool {
    gpu.whole && fixed.is_none_or(|node| node == gpu.node)
}

/// The node that a claim of the pod already sits on.
fn fixed_node(explanation: &PodExplanation, reasons: &mut Vec<WaitReason>) -> Option<String> {
    for claim in &explanation.claims {
        let node = claim.devices.iter().find_map(|device| device.node.clone());
        if let (Some(name), Some(node)) = (&claim.claim, node) {
            reasons.push(WaitReason::NodeFixed { claim: name.clone(), node: node.clone() });
            return Some(node);
        }
    }
    None
}

/// The fewest whole GPUs that serve a request; 0 if unknown.
fn min_gpus(request: &Request) -> usize {
    request.alternatives.iter().map(whole_gpus).min().unwrap_or_default()
}

fn whole_gpus(ask: &RequestAlternative) -> usize {
    if ask.class != CLASS_GPU || ask.admin_access || !ask.capacity.is_empty() {
        return 0;
    }
    ask.count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
}

fn count<'a>(
    explanation: &'a PodExplanation,
    fixed: Option<&str>,
    tolerates: bool,
) -> Vec<NodeCount<'a>> {
    let mut nodes: Vec<NodeCount<'a>> = Vec::new();
    let scheduler = &explanation.scheduler;
    let wanted = |gpu: &&GpuUse| is_wanted(gpu, fixed) && (tolerates || gpu.is_for(scheduler));
    for gpu in explanation.candidates.iter().filter(wanted) {
        if nodes.last().is_none_or(|node| node.node != gpu.node) {
            nodes.push(NodeCount {
                node: &gpu.node,
                gpus: 0,
                free: 0,
                held_by: BTreeSet::new(),
                held: 0,
            });
        }
        let Some(node) = nodes.last_mut() else { continue };
        node.gpus += 1;
        match gpu.state {
            GpuState::Used | GpuState::Shared | GpuState::Partitioned => {
                node.held += 1;
                node.held_by.extend(gpu.holders.iter().flat_map(crate::snapshot::Holder::names));
            }
            GpuState::Free => node.free += 1,
            // Only the scheduler knows which taints are tolerated; all of them may be.
            GpuState::Tainted if tolerates => node.free += 1,
            GpuState::Tainted | GpuState::NodeUnavailable => {}
        }
    }
    nodes.sort_by_key(|node| natural_sort_key(node.node));
    nodes
}
