//! Extended resources that a pod requests.

use std::collections::BTreeSet;

use octavo_dra::{ContainerKind, Quantity, is_extended_resource};
use octavo_kube_io::objects::Pod;

/// Names of the extended resources that a pod requests.
pub(super) fn asked(pod: &Pod) -> BTreeSet<&str> {
    let all = pod.spec.containers.iter().flat_map(|container| &container.requests);
    all.filter(|(name, amount)| **amount != Quantity::ZERO && is_extended_resource(name))
        .map(|(name, _)| name.as_str())
        .collect()
}

/// How many of a resource the pod needs at once: all its containers together, or the largest init
/// container with the sidecars before it.
pub(super) fn total(pod: &Pod, resource: &str) -> u64 {
    let (mut sidecars, mut main, mut init) = (0_u64, 0_u64, 0_u64);
    for container in &pod.spec.containers {
        let amount = container.requests.get(resource).map_or(0, |amount| amount.value());
        let amount = u64::try_from(amount).unwrap_or(0);
        match container.kind {
            ContainerKind::Init => init = init.max(amount.saturating_add(sidecars)),
            ContainerKind::Sidecar => sidecars = sidecars.saturating_add(amount),
            ContainerKind::Main => main = main.saturating_add(amount),
        }
    }
    init.max(main.saturating_add(sidecars))
}
