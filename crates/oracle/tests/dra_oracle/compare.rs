//! Compares two allocators on a case.

use k8s_openapi::api::resource::v1 as api;

use crate::case::{AllocationsByNode, Case, Verdict};
use crate::oracle::{Allocator, Answer};
use crate::ours;

/// Result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Differing verdicts or requests, one line each.
    pub(crate) differences: Vec<String>,
    /// Nodes on which both can serve the pod, but with different allocations. Both take the first
    /// solution in the same order, so this is a difference. One entry each.
    pub(crate) different_devices: Vec<String>,
    /// Violations of Kubernetes' rules in Octavo's allocations, one line each.
    pub(crate) complaints: Vec<String>,
    /// Verdicts of Kubernetes.
    pub(crate) verdicts: Vec<Verdict>,
    /// Number of nodes on which both allocate the same.
    pub(crate) identical: usize,
}

impl Comparison {
    /// All findings.
    pub(crate) fn all(&self) -> Vec<String> {
        let all = [&self.differences, &self.different_devices, &self.complaints];
        all.into_iter().flatten().cloned().collect()
    }

    /// Whether both decide the same, right or wrong.
    pub(crate) fn agrees(&self) -> bool {
        self.differences.is_empty() && self.different_devices.is_empty()
    }

    /// Whether there is no finding.
    pub(crate) fn is_clean(&self) -> bool {
        self.agrees() && self.complaints.is_empty()
    }
}

/// Queries the oracle about a case and compares its answer with `decided`. That may belong to a
/// changed case, such as one with a planted fault.
pub(crate) fn compare(
    oracle: &mut Allocator,
    seed: u64,
    case: &Case,
    decided: &[ours::NodeOutcome],
) -> Comparison {
    let feasible = decided.iter().filter(|node| node.verdict == Verdict::Feasible);
    let given: AllocationsByNode =
        feasible.map(|node| (node.node.clone(), node.allocations.clone())).collect();
    let answer = oracle.decide(seed, case, &given);
    differences(&answer, decided)
}

fn differences(answer: &Answer, decided: &[ours::NodeOutcome]) -> Comparison {
    let mut found = Comparison::default();
    assert_eq!(answer.nodes.len(), decided.len());
    for (theirs, ours) in answer.nodes.iter().zip(decided) {
        let node = &theirs.node;
        assert_eq!(*node, ours.node);
        found.verdicts.push(theirs.verdict);
        if theirs.verdict != ours.verdict {
            found.differences.push(format!(
                "{node}: {:?} ({}), ours says {:?} ({})",
                theirs.verdict, theirs.message, ours.verdict, ours.message
            ));
        }
        if !matches!(theirs.checked.as_str(), "" | "ok") {
            found.complaints.push(format!("{node}: ours gives what is wrong: {}", theirs.checked));
        }
        if theirs.extended_requests != ours.extended_requests {
            found.differences.push(format!(
                "{node}: extended resources ask for {:?}, ours for {:?}",
                theirs.extended_requests, ours.extended_requests
            ));
        }
        let mappings = theirs.extended_mappings.iter();
        let mappings: Vec<_> = mappings
            .map(|m| (m.container_name.clone(), m.resource_name.clone(), m.request_name.clone()))
            .collect();
        if mappings != ours.extended_mappings {
            found.differences.push(format!(
                "{node}: extended resources map {mappings:?}, ours {:?}",
                ours.extended_mappings
            ));
        }
        if theirs.verdict == Verdict::Feasible && ours.verdict == Verdict::Feasible {
            let (theirs, ours) = (plain(&theirs.allocations), plain(&ours.allocations));
            if theirs == ours {
                found.identical += 1;
            } else {
                let json = |of| serde_json::to_string(of).unwrap();
                let (theirs, ours) = (json(&theirs), json(&ours));
                found.different_devices.push(format!("{node}: {theirs}\n  ours {ours}"));
            }
        }
    }
    found
}

/// Allocations without share ids, which are arbitrary.
fn plain(allocations: &[api::AllocationResult]) -> Vec<api::AllocationResult> {
    let mut plain = allocations.to_vec();
    for devices in plain.iter_mut().filter_map(|allocation| allocation.devices.as_mut()) {
        for result in devices.results.iter_mut().flatten() {
            result.share_id = result.share_id.as_ref().map(|_| String::new());
        }
    }
    plain
}
