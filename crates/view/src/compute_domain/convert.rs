//! Kubernetes objects of a domain as facts.

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::api::resource::v1::{OpaqueDeviceConfiguration, ResourceClaim};
use kube::ResourceExt;
use octavo_api::ComputeDomainClique;
use octavo_api::compute_domain::ComputeDomain;
use octavo_api::names::{
    ANNOTATION_READY_WHEN, DRIVER_COMPUTE_DOMAIN, LABEL_CLIQUE, LABEL_COMPUTE_DOMAIN, NVIDIA_GROUP,
};

use super::facts::{CliqueFacts, DomainClaim, DomainFacts, DomainPod, NodeFacts};
use crate::controller::Controller;
use crate::pod_trouble;
use crate::snapshot::{Condition, ObjectName};

/// Kind of the config of a claim on a channel.
const CHANNEL_CONFIG: &str = "ComputeDomainChannelConfig";
/// Variable of a daemon with the number of slots.
const ENV_SLOTS: &str = "MAX_NODES_PER_IMEX_DOMAIN";

/// A domain before anything else is read.
pub(super) fn domain(object: ComputeDomain, controller: Controller) -> DomainFacts {
    let name = ObjectName::new(object.namespace().unwrap_or_default(), object.name_any());
    let ComputeDomain { metadata, spec, status } = object;
    let status = status.unwrap_or_default();
    let ready_when = metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_READY_WHEN));
    DomainFacts {
        name,
        ready_when: ready_when.cloned(),
        uid: metadata.uid.unwrap_or_default(),
        created: metadata.creation_timestamp.map(|time| time.0),
        is_deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers.unwrap_or_default(),
        template: spec.channel.resource_claim_template.name,
        num_nodes: spec.num_nodes,
        services: status.services().unwrap_or_default(),
        status,
        template_state: None,
        controller,
        claims: Vec::new(),
        pods: None,
        nodes: None,
        daemon_set: None,
        daemons: None,
        cliques: None,
        gaps: Vec::new(),
    }
}

/// A claim, if it is one on a channel of the domain.
pub(super) fn claim(claim: &ResourceClaim, uid: &str) -> Option<DomainClaim> {
    let asked = claim.spec.devices.iter().flat_map(|devices| devices.config.iter().flatten());
    let asked = asked.filter_map(|config| config.opaque.as_ref());
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let given = devices.into_iter().flat_map(|devices| devices.config.iter().flatten());
    let given = given.filter_map(|config| config.opaque.as_ref());
    if !asked.chain(given).any(|config| is_channel_of(config, uid)) {
        return None;
    }
    let results = devices.into_iter().flat_map(|devices| devices.results.iter().flatten());
    let mut channels = results.filter(|result| result.driver == DRIVER_COMPUTE_DOMAIN);
    let users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    Some(DomainClaim {
        name: claim.name_any(),
        node: channels.next().map(|result| result.pool.clone()),
        reserved_for: users
            .filter(|user| user.resource == "pods")
            .map(|user| user.name.clone())
            .collect(),
    })
}

fn is_channel_of(config: &OpaqueDeviceConfiguration, uid: &str) -> bool {
    let parameters = &config.parameters.0;
    let group = parameters["apiVersion"].as_str().and_then(|text| text.split('/').next());
    config.driver == DRIVER_COMPUTE_DOMAIN
        && group == Some(NVIDIA_GROUP)
        && parameters["kind"] == CHANNEL_CONFIG
        && parameters["domainID"] == uid
}

/// A pod.
pub(super) fn pod(pod: &Pod) -> DomainPod {
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let is_ready = conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
    let scheduled = conditions.into_iter().find(|it| it.type_ == "PodScheduled");
    let spec = pod.spec.as_ref();
    let bound = spec.and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty());
    let named = spec.map(|spec| spec.resource_claims.clone().unwrap_or_default());
    let named = named.unwrap_or_default();
    let made = status.resource_claim_statuses.unwrap_or_default().into_iter();
    let made = made.filter_map(|made| made.resource_claim_name);
    DomainPod {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        is_bound: bound.is_some(),
        node: bound.or_else(|| wanted_node(pod)),
        phase: status.phase.unwrap_or_else(|| "Unknown".to_owned()),
        is_ready,
        is_deleting: pod.metadata.deletion_timestamp.is_some(),
        ip: status.pod_ip.unwrap_or_default(),
        gates: spec
            .and_then(|spec| spec.scheduling_gates.as_ref())
            .map(|gates| gates.iter().map(|gate| gate.name.clone()).collect())
            .unwrap_or_default(),
        scheduled: scheduled.map(|found| Condition {
            kind: found.type_,
            status: found.status,
            reason: found.reason.unwrap_or_default(),
            message: found.message.unwrap_or_default(),
        }),
        trouble: pod_trouble::trouble(pod),
        restarts: pod_trouble::restarts(pod),
        claims: named.iter().filter_map(|it| it.resource_claim_name.clone()).chain(made).collect(),
        templates: named.iter().filter_map(|it| it.resource_claim_template_name.clone()).collect(),
        slots: spec.and_then(|spec| spec.containers.iter().find_map(slots)),
        warning: None,
    }
}

/// The node for which a `DaemonSet` made the pod.
fn wanted_node(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut fields =
        required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let field = fields.find(|field| field.key == "metadata.name")?;
    field.values.as_ref()?.first().cloned()
}

fn slots(container: &Container) -> Option<usize> {
    let variable = container.env.iter().flatten().find(|variable| variable.name == ENV_SLOTS)?;
    variable.value.as_ref()?.parse().ok()
}

/// A node.
pub(super) fn node(node: &Node) -> (String, NodeFacts) {
    let label = |key: &str| node.labels().get(key).filter(|value| !value.is_empty()).cloned();
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
    let facts =
        NodeFacts { is_ready, clique: label(LABEL_CLIQUE), domain: label(LABEL_COMPUTE_DOMAIN) };
    (node.name_any(), facts)
}

/// A clique, if it is one of the daemons with this UID.
pub(super) fn clique(object: ComputeDomainClique, uid: &str) -> Option<CliqueFacts> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let (domain, id) = name.split_once('.')?;
    let is_ours = domain == uid;
    is_ours.then(|| CliqueFacts { id: id.to_owned(), daemons: object.daemons })
}
