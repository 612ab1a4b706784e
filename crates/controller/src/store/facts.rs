//! What matters of objects of the API.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ContainerState, Node, Pod, PodStatus, Secret, Taint};
use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim,
    ResourceClaimTemplate,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{NotUsed, PartialObjectMeta};
use octavo_api::names::{
    ANNOTATION_COMPUTE_DOMAIN, ANNOTATION_INDEX_CHANGES, DRIVER_COMPUTE_DOMAIN, LABEL_CLIQUE,
    LABEL_COMPUTE_DOMAIN, LABEL_COMPUTE_DOMAIN_CLIQUE, NVIDIA_GROUP,
};
use octavo_api::{ComputeDomain, ComputeDomainClique};
use octavo_kube_io::objects::WatchedObject;
use serde::Deserialize;

use super::{Fact, Key, Kind, Observed};
use crate::gangs::{self, GangName};
use crate::seen::Seen;
use crate::view::{
    CertificateSecret, ChannelClaim, ClaimPod, Clique, DaemonPod, Domain, OwnedKind, OwnedObject,
};
use crate::wanted::{ANNOTATION_EXPIRES, ANNOTATION_SPEC_HASH, daemon_name};

/// Taint of nodes that Kubernetes' controller of nodes does not hear from.
const TAINT_UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A domain.
pub fn domain(object: ComputeDomain) -> Observed {
    let ComputeDomain { metadata, spec, status } = object;
    let fact = Domain {
        uid: metadata.uid.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        generation: metadata.generation,
        created: metadata
            .creation_timestamp
            .as_ref()
            .map(|at| at.0.to_string())
            .unwrap_or_default(),
        is_deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers.clone().unwrap_or_default(),
        template: spec.channel.resource_claim_template.name,
        allocation_mode: spec.channel.allocation_mode,
        num_nodes: spec.num_nodes,
        status,
    };
    observed(Kind::Domain, &metadata, Some(Fact::Domain(fact)))
}

/// A claim. Only those with an allocated channel of a domain matter.
pub fn claim(object: &ResourceClaim) -> Observed {
    let metadata = &object.metadata;
    let fact = channel(object).map(|(node, domain)| {
        Fact::Claim(ChannelClaim {
            uid: metadata.uid.clone().unwrap_or_default(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            node,
            domain,
            is_annotated: annotation(metadata, ANNOTATION_COMPUTE_DOMAIN).is_some(),
            pods: pods_of(object),
        })
    });
    observed(Kind::Claim, metadata, fact)
}

/// The pods that use a claim. One that is made from a template is owned by its pod.
fn pods_of(claim: &ResourceClaim) -> Vec<ClaimPod> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let pod = |uid: &str, name: &str| ClaimPod {
        uid: uid.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let owners = claim.metadata.owner_references.iter().flatten();
    let owners = owners.filter(|owner| owner.kind == "Pod" && owner.api_version == "v1");
    let users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    let users = users.filter(|user| {
        user.resource == "pods" && user.api_group.as_deref().unwrap_or_default().is_empty()
    });
    let pods = owners.map(|owner| pod(&owner.uid, &owner.name));
    let pods: BTreeSet<_> = pods.chain(users.map(|user| pod(&user.uid, &user.name))).collect();
    pods.into_iter().collect()
}

/// An object that announces a gang.
pub fn gang(object: &WatchedObject) -> Option<Observed> {
    let (name, minimum) = gangs::announced(object)?;
    Some(Observed {
        key: gang_key(&name),
        uid: object.meta.uid.to_string(),
        resource_version: object.meta.version.to_string(),
        fact: Some(Fact::Gang(minimum)),
    })
}

/// Where a gang is. Objects of several kinds announce gangs.
pub(super) fn gang_key(gang: &GangName) -> Key {
    Key {
        kind: Kind::Gang,
        namespace: gang.namespace.clone(),
        name: format!("{:?}/{}", gang.kind, gang.name),
    }
}

/// A node without its status, which is long.
pub type SeenNode = Seen<Node, SeenNodeSpec, NotUsed>;

/// The taints of a node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SeenNodeSpec {
    /// The taints, of which Kubernetes' controller of nodes has some.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

/// A node.
pub fn node(object: &SeenNode) -> Observed {
    let metadata = &object.metadata;
    let fact = Fact::Node {
        clique: label(metadata, LABEL_CLIQUE).filter(|clique| !clique.is_empty()),
        label: label(metadata, LABEL_COMPUTE_DOMAIN),
        is_lost: object.spec.taints.iter().any(|taint| taint.key == TAINT_UNREACHABLE),
    };
    observed(Kind::Node, metadata, Some(fact))
}

/// A pod. Those that ended, or have no node yet, do not matter.
pub fn pod(object: &Pod) -> Observed {
    let metadata = &object.metadata;
    let node = object.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let status = object.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let fact = label(metadata, LABEL_COMPUTE_DOMAIN).zip(node).filter(|_| !has_ended);
    let fact = fact.map(|(domain, node)| {
        let secret = daemon_name(&domain);
        let volumes = object.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mut secrets = volumes.filter_map(|volume| volume.secret.as_ref()?.secret_name.as_ref());
        Fact::Pod(DaemonPod {
            secret: secrets.find(|name| **name == secret).cloned(),
            domain,
            node,
            ip: status.and_then(|status| status.pod_ip.clone()).unwrap_or_default(),
            is_ready: conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True"),
            is_lost: status.is_some_and(has_exited),
            is_deleting: metadata.deletion_timestamp.is_some(),
        })
    });
    observed(Kind::Pod, metadata, fact)
}

/// Whether a container has ended and not started again.
fn has_exited(status: &PodStatus) -> bool {
    let mut containers = status.container_statuses.iter().flatten();
    containers.any(|container| {
        let state = container.state.as_ref();
        let is_running = state.is_some_and(|state| state.running.is_some());
        let is_over = |state: &ContainerState| state.terminated.is_some();
        !is_running
            && (state.is_some_and(is_over) || container.last_state.as_ref().is_some_and(is_over))
    })
}

/// A clique.
pub fn clique(object: ComputeDomainClique) -> Observed {
    let ComputeDomainClique { metadata, daemons, .. } = object;
    let name = metadata.name.clone().unwrap_or_default();
    let fact = name.split_once('.').map(|(domain, id)| {
        let mut object = owned(OwnedKind::Clique, &metadata);
        let id_label =
            label(&metadata, LABEL_COMPUTE_DOMAIN_CLIQUE).filter(|_| object.is_of(domain));
        // Without its label it still belongs to the domain in its name.
        object.domain = Some(domain.to_owned());
        let index_changes = annotation(&metadata, ANNOTATION_INDEX_CHANGES);
        let index_changes = index_changes.and_then(|count| count.parse().ok());
        Fact::Clique(Clique { object, id: id.to_owned(), id_label, index_changes, daemons })
    });
    observed(Kind::Clique, &metadata, fact)
}

/// A template.
pub fn template(object: &PartialObjectMeta<ResourceClaimTemplate>) -> Observed {
    let fact = Fact::Template(owned(OwnedKind::Template, &object.metadata));
    observed(Kind::Template, &object.metadata, Some(fact))
}

/// A `DaemonSet`.
pub fn daemon_set(object: &PartialObjectMeta<DaemonSet>) -> Observed {
    let fact = Fact::DaemonSet(owned(OwnedKind::DaemonSet, &object.metadata));
    observed(Kind::DaemonSet, &object.metadata, Some(fact))
}

/// A Secret. Only those with the name of daemons matter.
pub fn secret(object: &PartialObjectMeta<Secret>) -> Observed {
    let metadata = &object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let fact = name.strip_prefix(&daemon_name("")).filter(|domain| !domain.is_empty());
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.kind == "DaemonSet").map(|owner| owner.uid.clone());
    let fact = fact.map(|domain| {
        Fact::Secret(CertificateSecret {
            object: owned(OwnedKind::Secret, metadata),
            domain: domain.to_owned(),
            owner,
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            expires: annotation(metadata, ANNOTATION_EXPIRES).and_then(|time| time.parse().ok()),
        })
    });
    observed(Kind::Secret, metadata, fact)
}

fn observed(kind: Kind, metadata: &ObjectMeta, fact: Option<Fact>) -> Observed {
    let namespace = metadata.namespace.clone().unwrap_or_default();
    Observed {
        key: Key { kind, namespace, name: metadata.name.clone().unwrap_or_default() },
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        fact,
    }
}

fn owned(kind: OwnedKind, metadata: &ObjectMeta) -> OwnedObject {
    OwnedObject {
        kind,
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        domain: label(metadata, LABEL_COMPUTE_DOMAIN),
        hash: annotation(metadata, ANNOTATION_SPEC_HASH).cloned(),
        finalizers: metadata.finalizers.clone().unwrap_or_default(),
        is_deleting: metadata.deletion_timestamp.is_some(),
    }
}

fn label(metadata: &ObjectMeta, key: &str) -> Option<String> {
    metadata.labels.as_ref()?.get(key).cloned()
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    metadata.annotations.as_ref()?.get(key)
}

/// Node and domain of a claim's allocated channel.
fn channel(claim: &ResourceClaim) -> Option<(String, String)> {
    let devices = claim.status.as_ref()?.allocation.as_ref()?.devices.as_ref()?;
    let configs = devices.config.as_deref().unwrap_or_default();
    let results = devices.results.as_deref().unwrap_or_default();
    // The other device of the driver is a daemon's place, which makes no member.
    let mut ours = results.iter().filter(|result| {
        result.driver == DRIVER_COMPUTE_DOMAIN
            && result.device.starts_with("channel-")
            && !result.admin_access.unwrap_or_default()
    });
    ours.find_map(|result| Some((result.pool.clone(), domain_of(result, configs)?)))
}

/// The domain in the config of a channel. That of the claim comes before that of its class, and a later one before an earlier
/// one. Fields that are not known here do not matter: the agent is strict.
fn domain_of(
    result: &DeviceRequestAllocationResult,
    configs: &[DeviceAllocationConfiguration],
) -> Option<String> {
    let parent = result.request.split('/').next().unwrap_or_default();
    let applies = |config: &&DeviceAllocationConfiguration| {
        let requests = config.requests.as_deref().unwrap_or_default();
        requests.is_empty() || requests.iter().any(|name| *name == result.request || name == parent)
    };
    let found = configs.iter().filter(applies).filter_map(|config| {
        let opaque = config.opaque.as_ref().filter(|it| it.driver == DRIVER_COMPUTE_DOMAIN)?;
        let parameters = &opaque.parameters.0;
        let group = parameters["apiVersion"].as_str()?.split('/').next()?;
        let is_channel =
            group == NVIDIA_GROUP && parameters["kind"] == "ComputeDomainChannelConfig";
        let domain = parameters["domainID"].as_str().filter(|_| is_channel)?;
        Some((config.source == "FromClaim", domain.to_owned()))
    });
    // The last of the greatest.
    found.max_by_key(|(is_from_claim, _)| *is_from_claim).map(|(_, domain)| domain)
}
