//! Octavo's decision on a case.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use octavo_dra::{
    AllocateError, Allocation, AllocationResult, Allocator, Claim, Classes, Container,
    ContainerKind, Device, ExtendedClaim, Features, Node, NodeScope, Slice, extended_claim,
};
use octavo_kube_io::claims::{
    allocation_to_api, claim_from_api, class_from_api, node_from_api, request_to_api,
};
use octavo_kube_io::slices;

use crate::case::{Case, Verdict, allocation};

/// Result for the pod's claims on one node.
#[derive(Debug, PartialEq)]
pub(crate) struct NodeOutcome {
    pub(crate) node: String,
    pub(crate) verdict: Verdict,
    /// The reason if the node is not feasible.
    pub(crate) message: String,
    /// One per claim to allocate.
    pub(crate) allocations: Vec<api::AllocationResult>,
    /// Requests of the special claim for extended resources.
    pub(crate) extended_requests: Vec<api::DeviceRequest>,
    /// Container, resource and request.
    pub(crate) extended_mappings: Vec<(String, String, String)>,
}

/// Decides a case for all its nodes.
pub(crate) fn decide(case: &Case, features: Features) -> Vec<NodeOutcome> {
    let read_slices: Vec<Slice> =
        case.slices.iter().map(|slice| slices::from_api(slice).unwrap()).collect();
    let mut classes = Classes::default();
    for class in &case.device_classes {
        let created = class.metadata.creation_timestamp.as_ref();
        let created = created.map_or(0, |time| time.0.as_second());
        classes.insert(class_from_api(class).unwrap(), created);
    }
    let claims: Vec<Claim> =
        case.claims.iter().map(|claim| claim_from_api(claim).unwrap()).collect();
    let others: Vec<Claim> =
        case.other_claims.iter().map(|claim| claim_from_api(claim).unwrap()).collect();
    let allocator = Allocator::new(&classes, &read_slices, others.iter().chain(&claims), features);
    let (slices, claims) = (&read_slices[..], &claims[..]);
    let context = CaseContext { case, slices, claims, classes: &classes, allocator };
    case.nodes.iter().map(|node| context.on_node(node)).collect()
}

/// Whether every object of a case can be parsed; shrunk cases may not.
pub(crate) fn is_readable(case: &Case) -> bool {
    let mut claims = case.claims.iter().chain(&case.other_claims);
    case.slices.iter().all(|slice| slices::from_api(slice).is_ok())
        && case.device_classes.iter().all(|class| class_from_api(class).is_ok())
        && claims.all(|claim| claim_from_api(claim).is_ok())
        && case.pod.as_ref().is_none_or(|pod| pod.spec.is_some())
}

struct CaseContext<'a> {
    case: &'a Case,
    slices: &'a [Slice],
    claims: &'a [Claim],
    classes: &'a Classes,
    allocator: Allocator<'a>,
}

impl CaseContext<'_> {
    fn on_node(&self, api_node: &core::Node) -> NodeOutcome {
        let node = node_from_api(api_node);
        let mut outcome = NodeOutcome {
            node: node.name.clone(),
            verdict: Verdict::Infeasible,
            message: String::new(),
            allocations: Vec::new(),
            extended_requests: Vec::new(),
            extended_mappings: Vec::new(),
        };
        let mut open: Vec<&Claim> = Vec::new();
        for claim in self.claims {
            let Some(given) = &claim.allocation else {
                open.push(claim);
                continue;
            };
            let reachable =
                given.nodes.as_ref().is_none_or(|nodes| nodes.matches(&node) == Ok(true));
            if !reachable {
                "allocated elsewhere".clone_into(&mut outcome.message);
                return outcome;
            }
        }
        let special = match self.special(api_node) {
            Ok(special) => special,
            Err(message) => {
                outcome.message = message;
                return outcome;
            }
        };
        if let Some(special) = &special {
            outcome.extended_requests = special.requests.iter().map(request_to_api).collect();
            let mappings = special.mappings.iter();
            outcome.extended_mappings = mappings
                .map(|m| (m.container.clone(), m.resource.clone(), m.request.clone()))
                .collect();
        }
        let special = special.map(|special| special.claim("default"));
        open.extend(&special);
        let mut shares = 0;
        let mut share_ids = || {
            shares += 1;
            format!("00000000-0000-4000-8000-{shares:012}")
        };
        match self.allocator.allocate(&node, &open, &mut share_ids) {
            Ok(allocations) => {
                outcome.verdict = Verdict::Feasible;
                outcome.allocations = self.to_api(&node, &allocations, &outcome.extended_requests);
            }
            Err(refusal) => {
                outcome.verdict = match &refusal {
                    AllocateError::Steps { .. } => Verdict::Timeout,
                    refusal if refusal.is_node_specific() => Verdict::Infeasible,
                    _ => Verdict::Error,
                };
                outcome.message = refusal.to_string();
            }
        }
        outcome
    }

    /// The claim for the pod's extended resources, or the reason why it does not fit.
    fn special(&self, node: &core::Node) -> Result<Option<ExtendedClaim>, String> {
        let Some(pod) = &self.case.pod else { return Ok(None) };
        let allocatable = node.status.iter().flat_map(|status| status.allocatable.iter().flatten());
        let allocatable: BTreeMap<String, i64> = allocatable
            .filter(|(name, _)| name.contains('/'))
            .map(|(name, amount)| (name.clone(), amount.0.parse().unwrap()))
            .collect();
        let spec = pod.spec.as_ref().unwrap();
        let inits = spec.init_containers.iter().flatten().map(|container| {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            (container, if is_sidecar { ContainerKind::Sidecar } else { ContainerKind::Init })
        });
        let mains = spec.containers.iter().map(|container| (container, ContainerKind::Main));
        let containers: Vec<Container> = inits
            .chain(mains)
            .map(|(container, kind)| {
                let requests = container.resources.iter().flat_map(|r| r.requests.iter().flatten());
                let requests =
                    requests.map(|(name, amount)| (name.clone(), amount.0.parse().unwrap()));
                Container { name: container.name.clone(), kind, requests: requests.collect() }
            })
            .collect();
        extended_claim(&containers, self.classes, &allocatable).map_err(|e| e.to_string())
    }

    /// The allocations as API objects: first those of the pod's open claims, then that of the
    /// special claim.
    fn to_api(
        &self,
        node: &Node,
        allocations: &[Allocation],
        extended: &[api::DeviceRequest],
    ) -> Vec<api::AllocationResult> {
        let special = api::ResourceClaim {
            spec: api::ResourceClaimSpec {
                devices: Some(api::DeviceClaim {
                    requests: Some(extended.to_vec()),
                    ..Default::default()
                }),
            },
            ..Default::default()
        };
        let open = self.case.claims.iter().filter(|claim| allocation(claim).is_none());
        open.chain([&special])
            .zip(allocations)
            .map(|(claim, allocation)| {
                let device = |result: &AllocationResult| published(self.slices, node, result);
                allocation_to_api(allocation, claim, &self.case.device_classes, device)
            })
            .collect()
    }
}

/// The device of a result, in the newest slice that the node reaches.
fn published<'a>(
    slices: &'a [Slice],
    node: &Node,
    result: &AllocationResult,
) -> Option<&'a Device> {
    let of_pool = slices.iter().filter(|slice| {
        slice.driver == result.driver && slice.pool == result.pool && reaches(slice, node)
    });
    let newest = of_pool.clone().map(|slice| slice.generation).max()?;
    of_pool
        .filter(|slice| slice.generation == newest)
        .find_map(|slice| slice.devices.iter().find(|device| device.name == result.device))
}

fn reaches(slice: &Slice, node: &Node) -> bool {
    let scope = |scope: &NodeScope| match scope {
        NodeScope::Node(name) => *name == node.name,
        NodeScope::Selector(selector) => selector.matches(node) == Ok(true),
        NodeScope::All => true,
        NodeScope::PerDevice => false,
    };
    let own = slice.devices.iter().any(|device| device.nodes.as_ref().is_some_and(scope));
    scope(&slice.nodes) || (slice.nodes == NodeScope::PerDevice && own)
}
