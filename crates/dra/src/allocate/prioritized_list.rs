//! The score of prioritized lists, by which Kubernetes compares nodes (KEP-4816).

use crate::claim::{Ask, Claim};

/// Limit of the alternatives in a list (`FirstAvailableDeviceRequestMaxSize` of `resource.k8s.io`).
const MAX_ALTERNATIVES: usize = 8;

/// The sum over all lists of allocated claims: 8 for the first alternative, 7 for the second, and
/// so on. A node with a greater score suits the pod better. Within a node the first fit counts.
pub fn prioritized_list_score(claims: &[&Claim]) -> usize {
    let mut sum = 0;
    for claim in claims {
        let results = || claim.allocation.iter().flat_map(|allocation| &allocation.results);
        for request in &claim.requests {
            let Ask::FirstAvailable(alternatives) = &request.ask else { continue };
            for (index, (name, _)) in alternatives.iter().enumerate() {
                let full_name = format!("{}/{name}", request.name);
                if results().any(|result| result.request == full_name) {
                    sum += MAX_ALTERNATIVES.saturating_sub(index);
                }
            }
        }
    }
    sum
}
