//! The cluster's objects as an allocator takes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::{Container as KubeContainer, Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use octavo_dra::{Container, ContainerKind, NodeScope, Quantity};
use octavo_kube_io::claims;

use crate::explain::AllocatorInput;
use crate::snapshot::{ClusterSnapshot, Gap, GapKind};

/// The containers of a pod with all that they ask for, init containers first.
pub(super) fn containers(pod: &Pod) -> Vec<Container> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let init = spec.init_containers.iter().flatten().map(|container| {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        container_from_api(
            container,
            if is_sidecar { ContainerKind::Sidecar } else { ContainerKind::Init },
        )
    });
    init.chain(
        spec.containers.iter().map(|container| container_from_api(container, ContainerKind::Main)),
    )
    .collect()
}

fn container_from_api(container: &KubeContainer, kind: ContainerKind) -> Container {
    let resources = container.resources.as_ref();
    let amounts = |amounts: Option<&BTreeMap<_, _>>| -> BTreeMap<String, Quantity> {
        let amounts = amounts.into_iter().flatten();
        // The API server accepts only valid quantities.
        amounts
            .filter_map(|(name, amount): (&String, &ApiQuantity)| {
                Some((name.clone(), amount.0.parse().ok()?))
            })
            .collect()
    };
    // Without a request its limit is one.
    let mut requests = amounts(resources.and_then(|resources| resources.limits.as_ref()));
    requests.extend(amounts(resources.and_then(|resources| resources.requests.as_ref())));
    Container { name: container.name.clone(), kind, requests }
}

/// Adds claims; those that have no meaning for this version are noted.
pub(super) fn add_claims(into: &mut ClusterSnapshot, found: &[ResourceClaim]) {
    let Some(input) = &mut into.allocator else { return };
    let mut unread = UnreadableObjects::default();
    for claim in found {
        match claims::claim_from_api(claim) {
            Ok(claim) => input.claims.push(claim),
            Err(error) => unread.add(&claim.metadata, &error),
        }
    }
    unread.record("ResourceClaim", into);
}

/// Adds classes; those that have no meaning for this version are noted.
pub(super) fn add_classes(into: &mut ClusterSnapshot, found: &[DeviceClass]) {
    let Some(input) = &mut into.allocator else { return };
    let mut unread = UnreadableObjects::default();
    for class in found {
        let created = class.metadata.creation_timestamp.as_ref();
        let created = created.map_or(0, |time| time.0.as_second());
        match claims::class_from_api(class) {
            Ok(class) => input.classes.push((class, created)),
            Err(error) => unread.add(&class.metadata, &error),
        }
    }
    unread.record("DeviceClass", into);
}

/// Objects of a kind that were read and not understood: the first of them, and how many.
#[derive(Default)]
pub(super) struct UnreadableObjects {
    first: Option<String>,
    more: usize,
}

impl UnreadableObjects {
    /// Adds an object.
    pub(super) fn add(&mut self, metadata: &ObjectMeta, error: &dyn fmt::Display) {
        if self.first.is_some() {
            self.more += 1;
            return;
        }
        let name = metadata.name.as_deref().unwrap_or_default();
        let namespace = metadata.namespace.as_ref();
        let namespace = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        self.first = Some(format!("{namespace}{name}: {error}"));
    }

    /// Records them as a gap, if there are any.
    pub(super) fn record(self, kind: &str, into: &mut ClusterSnapshot) {
        let Some(first) = self.first else { return };
        let more = match self.more {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let message = format!("{kind} {first}{more}");
        into.gaps.push(Gap { kind: GapKind::Unreadable, message });
    }
}

/// Adds nodes with their resources of device plugins.
pub(super) fn add_nodes(input: &mut AllocatorInput, found: &[Node]) {
    for node in found {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = allocatable.into_iter().flatten();
        let allocatable = allocatable
            .filter_map(|(name, amount)| {
                let amount: Quantity = amount.0.parse().ok()?;
                Some((name.clone(), i64::try_from(amount.value()).ok()?))
            })
            .collect();
        input.nodes.push((claims::node_from_api(node), allocatable));
    }
}

/// Adds the nodes that slices name, where nodes themselves may not be read.
pub(super) fn nodes_of_slices(into: &mut ClusterSnapshot) {
    let Some(input) = &mut into.allocator else { return };
    let names: BTreeSet<&String> = input
        .slices
        .iter()
        .filter_map(|slice| match &slice.nodes {
            NodeScope::Node(name) => Some(name),
            _ => None,
        })
        .collect();
    let node = |name: &&String| octavo_dra::Node {
        name: (*name).clone(),
        labels: [("kubernetes.io/hostname".to_owned(), (*name).clone())].into(),
    };
    input.nodes = names.iter().map(|name| (node(name), BTreeMap::new())).collect();
}
