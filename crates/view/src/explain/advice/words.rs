//! The text of each reason: the fact, the cause and a remedy.

use std::fmt;

use super::WaitReason;

/// Maximum number of names in a sentence; further names are counted.
const NAMES_SHOWN: usize = 8;

impl fmt::Display for WaitReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SchedulingGated { gates } => write!(
                out,
                "The scheduler does not look at the pod while it has scheduling gates: {}. \
                 The component that set them must remove them.",
                gates.join(", ")
            ),
            Self::NotYetConsidered { scheduler } => write!(
                out,
                "The scheduler {scheduler:?} has not reported on the pod yet. If this lasts, \
                 check that a scheduler of this name is running."
            ),
            Self::TemplateNotFound { template } => write!(
                out,
                "The ResourceClaimTemplate {template:?} does not exist in the pod's namespace. \
                 Create it, or correct the name in the pod."
            ),
            Self::ClaimNotFound { claim } => write!(
                out,
                "The ResourceClaim {claim:?} does not exist in the pod's namespace. Create it, or \
                 correct the name in the pod."
            ),
            Self::ClaimNotMade { template } => write!(
                out,
                "The claim from template {template:?} has not been made yet. If this lasts, \
                 kube-controller-manager is not running, or the pod's events show what is missing."
            ),
            Self::ClassNotFound { class, known } if known.is_empty() => write!(
                out,
                "The DeviceClass {class:?} does not exist, and no other does. Install the chart \
                 that brings the classes."
            ),
            Self::ClassNotFound { class, known } => write!(
                out,
                "The DeviceClass {class:?} does not exist. There are: {}.",
                listed(known)
            ),
            Self::ResourceNotServed { resource } => write!(
                out,
                "No DeviceClass has extendedResourceName {resource:?}. Only a device plugin could \
                 serve it; ask for a class that exists, or name the resource in a class."
            ),
            Self::NodeFixed { claim, node } => write!(
                out,
                "Claim {claim:?} is already allocated on node {node}, so the pod can only run \
                 there."
            ),
            Self::NothingPublished => write!(
                out,
                "No node publishes GPUs of driver {}. Check that the agent runs on the GPU nodes.",
                crate::usage::driver()
            ),
            Self::OwnedByScheduler { nodes, owner, scheduler } => write!(
                out,
                "Only the scheduler {owner:?} allocates the GPUs of {}, and the pod is for {scheduler:?}. \
                 To use them, set the pod's spec.schedulerName to {owner:?}, or remove the node's \
                 label {}.",
                listed(nodes),
                octavo_api::names::LABEL_OWNER
            ),
            Self::PoolsIncomplete { pools } => write!(
                out,
                "Slices are missing in {}: nothing is allocated there until all are \
                 published. If this lasts, check the agent of that node.",
                listed(pools)
            ),
            Self::LargerThanAnyNode { asked, most, node } => write!(
                out,
                "The pod asks for {asked} GPUs on one node; the largest node has {most} \
                 ({node}). Waiting does not help: ask for at most {most}, or spread the work over \
                 several pods."
            ),
            Self::NotEnoughFree { asked, node, gpus, free, out: lost, held_by, selectors } => {
                let held = gpus.saturating_sub(free + lost);
                write!(out, "The pod asks for {}", gpu_count(*asked))?;
                write!(out, ", and no node has that many free. The nearest is {node}: {held} of ")?;
                write!(out, "{gpus} held")?;
                if !held_by.is_empty() {
                    write!(out, " by {}", listed(held_by))?;
                }
                if *free > 0 {
                    write!(out, ", {free} free")?;
                }
                if *lost > 0 {
                    write!(out, ", {lost} out of use")?;
                }
                let lacking = asked.saturating_sub(*free);
                if lacking > held {
                    write!(out, ". GPUs that are out of use must come back first.")?;
                } else if lacking == 1 {
                    write!(out, ". It needs 1 more there: wait until one is released, or delete ")?;
                    write!(out, "a pod that holds one.")?;
                } else {
                    write!(out, ". It needs {lacking} more there: wait until they are released, ")?;
                    write!(out, "or delete pods that hold them.")?;
                }
                if *selectors {
                    write!(out, " The selectors above may exclude this node.")?;
                }
                Ok(())
            }
            Self::EnoughFree { asked, nodes, selectors } => {
                write!(out, "{} would be free on {}", gpu_count(*asked), listed(nodes))?;
                write!(out, ", so the number of GPUs is not the problem. ")?;
                if *selectors {
                    write!(out, "The selectors above narrow the choice: compare ")?;
                    write!(out, "them with `kubectl get resourceslices -o yaml`. ")?;
                }
                write!(out, "The pod's node selector, affinity, ")?;
                write!(
                    out,
                    "tolerations, CPU and memory narrow it too: see the scheduler's message."
                )
            }
            Self::DevicesFit { nodes } => write!(
                out,
                "Devices would serve the pod on {}, so devices are not the problem. The pod's node \
                 selector, affinity, tolerations, CPU and memory narrow the choice: see the \
                 scheduler's message.",
                listed(nodes)
            ),
            Self::DevicesDoNotFit { node, lacking } => write!(
                out,
                "No node has devices that serve all claims of the pod. The nearest is {node}, which \
                 lacks devices for {}; the reasons for each device are listed above.",
                listed(lacking)
            ),
            Self::NodesWarn { nodes, warnings } => write!(
                out,
                "No node has devices that serve all claims of the pod. The agent warns of {} on {}: \
                 the messages above say what to do.",
                listed(warnings),
                listed(nodes)
            ),
            Self::ClaimDefect { defect } => write!(
                out,
                "No node can serve the claims as they are written: {defect}. Correct the claim, its \
                 template or its class."
            ),
            Self::NotEvaluated { what } => write!(
                out,
                "The devices for the pod are unknown here, because Kubernetes may evaluate what \
                 Octavo does not: {what}. See the scheduler's message."
            ),
            Self::PrepareFailed { node, words } => write!(
                out,
                "Node {node} could not prepare the pod's claims and keeps trying. Its message: {words}"
            ),
            Self::Starting { node } => write!(
                out,
                "The pod is bound to {node}, which prepares its claims and starts its containers."
            ),
        }
    }
}

fn gpu_count(count: usize) -> String {
    if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") }
}

/// Names in a sentence, cut where they become too many to read.
fn listed(names: &[String]) -> String {
    match names.get(NAMES_SHOWN..) {
        Some(rest) if !rest.is_empty() => {
            let shown: Vec<&str> = names.iter().take(NAMES_SHOWN).map(String::as_str).collect();
            format!("{} and {} more", shown.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}
