//! Reasons why a pod waits, as data and as text with a remedy.

mod counts;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Event, PodExplanation, PodState};
use crate::snapshot::{ClaimSource, ClusterSnapshot, GapKind, ObjectName, Pod};

/// A reason with its words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The reason, with its data.
    #[serde(flatten)]
    pub reason: WaitReason,
    /// The reason as text.
    pub message: String,
}

/// Why a pod waits. The names are constants of the output's API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all_fields = "camelCase")]
pub enum WaitReason {
    /// Scheduling gates are set.
    SchedulingGated {
        /// Their names.
        gates: Vec<String>,
    },
    /// No scheduler has reported on the pod yet.
    NotYetConsidered {
        /// Scheduler that should.
        scheduler: String,
    },
    /// The template does not exist.
    TemplateNotFound {
        /// Template.
        template: String,
    },
    /// The claim does not exist.
    ClaimNotFound {
        /// Claim.
        claim: String,
    },
    /// The control plane has not made the claim from its template yet.
    ClaimNotMade {
        /// Template.
        template: String,
    },
    /// The class does not exist.
    ClassNotFound {
        /// Class.
        class: String,
        /// Classes that do.
        known: Vec<String>,
    },
    /// No class serves the extended resource.
    ResourceNotServed {
        /// Resource.
        resource: String,
    },
    /// A claim that others use fixes the node.
    NodeFixed {
        /// Claim.
        claim: String,
        /// Node.
        node: String,
    },
    /// No node publishes GPUs.
    NothingPublished,
    /// Nodes have an owner that is not the pod's scheduler, which leaves their GPUs alone.
    OwnedByScheduler {
        /// The nodes.
        nodes: Vec<String>,
        /// The scheduler that owns them.
        owner: String,
        /// The pod's.
        scheduler: String,
    },
    /// Slices of some pools are missing, so the counts are incomplete.
    PoolsIncomplete {
        /// The pools, with how many of their slices are there.
        pools: Vec<String>,
    },
    /// The pod requests more GPUs than any node has.
    LargerThanAnyNode {
        /// GPUs requested on one node, at least.
        asked: usize,
        /// GPUs of the largest node.
        most: usize,
        /// Largest node.
        node: String,
    },
    /// No node has enough free GPUs.
    NotEnoughFree {
        /// GPUs requested on one node, at least.
        asked: usize,
        /// Node that lacks the fewest.
        node: String,
        /// Its GPUs.
        gpus: usize,
        /// Of these, free.
        free: usize,
        /// Of these, neither held nor free: tainted, or the node takes no pods.
        out: usize,
        /// Holders of the other GPUs.
        held_by: Vec<String>,
        /// Whether selectors are written in the claims; they may rule the node out.
        selectors: bool,
    },
    /// Enough GPUs are free, so that something else narrows the choice.
    EnoughFree {
        /// GPUs requested on one node, at least.
        asked: usize,
        /// Nodes with that many free.
        nodes: Vec<String>,
        /// Whether selectors are written in the claims.
        selectors: bool,
    },
    /// Devices would serve the pod, so that something else narrows the choice.
    DevicesFit {
        /// Nodes with such devices.
        nodes: Vec<String>,
    },
    /// No node has devices that serve all of the pod's claims.
    DevicesDoNotFit {
        /// Node that comes nearest.
        node: String,
        /// The requests that it cannot serve, as `claim/request`.
        lacking: Vec<String>,
    },
    /// No node has devices that serve all of the pod's claims, and agents warned of a possible cause.
    NodesWarn {
        /// The nodes, the nearest to serving first.
        nodes: Vec<String>,
        /// Reasons of the warnings, each once.
        warnings: Vec<String>,
    },
    /// A claim or class is wrong in itself.
    ClaimDefect {
        /// The defect.
        defect: String,
    },
    /// A selector is not evaluated here, so that devices cannot be judged.
    NotEvaluated {
        /// The selector and why.
        what: String,
    },
    /// The node could not prepare the claims.
    PrepareFailed {
        /// Node.
        node: String,
        /// The words of the kubelet or the driver.
        words: String,
    },
    /// The pod is bound and its node is at work.
    Starting {
        /// Node.
        node: String,
    },
}

/// All reasons that hold, most certain first.
pub(super) fn wait_reasons(
    snapshot: &ClusterSnapshot,
    pod: &Pod,
    explanation: &PodExplanation,
) -> Vec<Advice> {
    let mut reasons = Vec::new();
    match explanation.state {
        PodState::Gated => {
            reasons.push(WaitReason::SchedulingGated { gates: pod.gates.clone() });
        }
        PodState::Starting => reasons.push(starting(explanation)),
        PodState::Unscheduled => {
            missing_objects(snapshot, explanation, &mut reasons);
            // While objects are missing, neither counts nor a missing report of the scheduler prove
            // anything.
            if reasons.is_empty() {
                counts::add_reasons(snapshot, explanation, &mut reasons);
                add_device_reasons(snapshot, explanation, &mut reasons);
                if explanation.scheduled.is_none() {
                    let scheduler = pod.scheduler.clone();
                    reasons.push(WaitReason::NotYetConsidered { scheduler });
                }
            }
        }
        PodState::Running | PodState::Finished | PodState::Deleting | PodState::Unknown => {}
    }
    reasons.into_iter().map(|reason| Advice { message: reason.to_string(), reason }).collect()
}

/// Adds the allocator's reasons and removes counts that they make irrelevant.
fn add_device_reasons(
    snapshot: &ClusterSnapshot,
    explanation: &PodExplanation,
    reasons: &mut Vec<WaitReason>,
) {
    let Some(report) = &explanation.devices else { return };
    // An allocator without all claims, classes and slices proves nothing.
    if snapshot.lacks(GapKind::Unreadable) {
        return;
    }
    let is_by_count = |reason: &WaitReason| {
        matches!(reason, WaitReason::NotEnoughFree { .. } | WaitReason::LargerThanAnyNode { .. })
    };
    if report.by_plugins > 0 {
        // The counts are of devices in slices alone.
        reasons.retain(|reason| {
            !is_by_count(reason) && !matches!(reason, WaitReason::NothingPublished)
        });
    }
    if !report.fits.is_empty() {
        reasons.retain(|reason| {
            !matches!(reason, WaitReason::EnoughFree { .. } | WaitReason::NotEnoughFree { .. })
        });
        // A device that looks free may be held by an unreadable claim.
        if !snapshot.lacks(GapKind::ClaimsElsewhere) {
            reasons.push(WaitReason::DevicesFit { nodes: report.fits.clone() });
        }
        return;
    }
    if let Some(what) = &report.not_evaluated {
        reasons.push(WaitReason::NotEvaluated { what: what.clone() });
        return;
    }
    // Unknown nodes may serve what the nodes of the slices cannot.
    if snapshot.lacks(GapKind::Nodes) {
        return;
    }
    let is_enough_free = |reason: &WaitReason| matches!(reason, WaitReason::EnoughFree { .. });
    if let Some(defect) = &report.defect {
        reasons.retain(|reason| !is_enough_free(reason));
        reasons.push(WaitReason::ClaimDefect { defect: defect.clone() });
        return;
    }
    let Some(nearest) = report.nodes.first() else { return };
    let lacking = nearest.lacking();
    if lacking.is_empty() || !report.undecided.is_empty() || report.by_plugins > 0 {
        return;
    }
    // It has evaluated the selectors that the counts could only show.
    reasons.retain(|reason| {
        !is_enough_free(reason)
            && !matches!(reason, WaitReason::NotEnoughFree { selectors: true, .. })
    });
    if reasons.iter().any(is_by_count) {
        return;
    }
    // An agent knows why it offers a GPU in another form; the allocator sees only the form.
    let (mut nodes, mut warnings) = (Vec::new(), Vec::new());
    for warning in &explanation.node_warnings {
        push_new(&mut nodes, &warning.node);
        push_new(&mut warnings, &warning.event.reason);
    }
    let is_explained = nodes.contains(&nearest.node);
    if !nodes.is_empty() {
        reasons.push(WaitReason::NodesWarn { nodes, warnings });
    }
    if !is_explained {
        reasons.push(WaitReason::DevicesDoNotFit { node: nearest.node.clone(), lacking });
    }
}

/// Adds a text that is not there yet.
fn push_new(texts: &mut Vec<String>, text: &String) {
    if !texts.contains(text) {
        texts.push(text.clone());
    }
}

/// Objects that the pod needs and that are not there.
fn missing_objects(
    snapshot: &ClusterSnapshot,
    explanation: &PodExplanation,
    reasons: &mut Vec<WaitReason>,
) {
    let mut classes = BTreeSet::new();
    for claim in &explanation.claims {
        match &claim.source {
            ClaimSource::ResourceClaimTemplate(template) if !claim.exists => {
                let name = ObjectName::new(&*explanation.namespace, template);
                let known = snapshot.templates.contains(&name);
                reasons.push(if known || snapshot.lacks(GapKind::Templates) {
                    WaitReason::ClaimNotMade { template: template.clone() }
                } else {
                    WaitReason::TemplateNotFound { template: template.clone() }
                });
            }
            ClaimSource::ResourceClaim(name) if !claim.exists => {
                reasons.push(WaitReason::ClaimNotFound { claim: name.clone() });
            }
            _ => {}
        }
        if !snapshot.lacks(GapKind::Classes) {
            // Only the nodes show the resources of device plugins.
            let unserved = claim.unserved.iter().filter(|_| !snapshot.lacks(GapKind::Nodes));
            reasons.extend(
                unserved.cloned().map(|resource| WaitReason::ResourceNotServed { resource }),
            );
            for request in &claim.requests {
                // A missing class matters only if no other alternative remains.
                if request.alternatives.iter().all(|ask| !snapshot.classes.contains_key(&ask.class))
                {
                    classes.extend(request.alternatives.iter().map(|ask| ask.class.clone()));
                }
            }
        }
    }
    let known: Vec<String> = snapshot.classes.keys().cloned().collect();
    let missing = classes.into_iter();
    reasons.extend(missing.map(|class| WaitReason::ClassNotFound { class, known: known.clone() }));
}

/// A bound pod: the last error of the driver or the kubelet, if any.
fn starting(explanation: &PodExplanation) -> WaitReason {
    let node = explanation.node.clone().unwrap_or_default();
    let refused = explanation
        .claims
        .iter()
        .flat_map(|claim| &claim.devices)
        .flat_map(|device| &device.conditions)
        .find(|condition| condition.status == "False" && !condition.message.is_empty());
    if let Some(condition) = refused {
        return WaitReason::PrepareFailed { node, words: condition.message.clone() };
    }
    let about_claims =
        |event: &&Event| event.kind == "Warning" && event.reason == "FailedPrepareDynamicResources";
    // Images are pulled and containers made when all claims are prepared: earlier failures are over.
    let is_later = |event: &&Event| matches!(&*event.reason, "Pulling" | "Pulled" | "Created");
    let since = explanation.events.iter().rev().take_while(|event| !is_later(event));
    match since.into_iter().find(about_claims) {
        Some(event) => WaitReason::PrepareFailed { node, words: event.message.clone() },
        None => WaitReason::Starting { node },
    }
}
