//! The objects that are made for a domain, as they should be.

mod pod;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use octavo_api::names::{
    ANNOTATION_COMPUTE_DOMAIN, ANNOTATION_INDEX_CHANGES, CLASS_CHANNEL, CLASS_DAEMON,
    DRIVER_COMPUTE_DOMAIN, LABEL_COMPUTE_DOMAIN, LABEL_COMPUTE_DOMAIN_TARGET, NVIDIA_API_VERSION,
    SHARED_IMEX_DOMAIN, TAINT_OWNER, TARGET_DAEMON, TARGET_WORKLOAD,
};
use octavo_api::{ComputeDomainClique, compute_domain::ComputeDomainAllocationMode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::certificate::{CertificateRequest, Issued, slot_names};
use crate::config::Config;
use crate::view::{Clique, Domain};
use pod::pod_spec;

/// Annotation with the hash of the wanted spec. What the API server adds by default does not count as a difference.
pub const ANNOTATION_SPEC_HASH: &str = "octavo.dev/spec-hash";

/// Name of a domain's `DaemonSet`, and of the template of its claims. A policy of the chart knows daemons by it.
pub fn daemon_name(domain: &str) -> String {
    format!("computedomain-daemon-{domain}")
}

/// Annotation of a Secret with the time at which its certificate ends.
pub const ANNOTATION_EXPIRES: &str = "octavo.dev/certificate-expires";

/// Whose daemons are made.
#[derive(Clone, Copy, Debug)]
pub enum DaemonsOf<'a> {
    /// Those of a domain, on the nodes with its label.
    Domain(&'a Domain),
    /// Those that domains share, on all nodes with an NVLink clique.
    Cliques,
}

impl DaemonsOf<'_> {
    /// What a certificate calls them.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Domain(domain) => format!("ComputeDomain {}", domain.uid),
            Self::Cliques => "ComputeDomains".to_owned(),
        }
    }

    /// UID of the domain, or what stands for it.
    fn uid(&self) -> &str {
        match self {
            Self::Domain(domain) => &domain.uid,
            Self::Cliques => SHARED_IMEX_DOMAIN,
        }
    }
}

/// The template of the claims of a domain's pods.
pub fn workload_template(domain: &Domain) -> Value {
    let allocation_mode = match domain.allocation_mode {
        ComputeDomainAllocationMode::Single => "Single",
        ComputeDomainAllocationMode::All => "All",
    };
    let parameters = json!({
        "apiVersion": NVIDIA_API_VERSION,
        "kind": "ComputeDomainChannelConfig",
        "domainID": domain.uid,
        "allocationMode": allocation_mode,
    });
    let request = json!({
        "name": "channel",
        "exactly": {"deviceClassName": CLASS_CHANNEL},
    });
    let spec = claim_spec(&domain.uid, Some(domain), &request, &parameters);
    template(&domain.uid, &domain.namespace, &domain.template, TARGET_WORKLOAD, &spec)
}

/// The template of the claims of daemons. They are allocated on nodes of every scheduler.
pub fn daemon_template(daemons: DaemonsOf<'_>, config: &Config) -> Value {
    let uid = daemons.uid();
    let parameters = json!({
        "apiVersion": NVIDIA_API_VERSION,
        "kind": "ComputeDomainDaemonConfig",
        "domainID": uid,
    });
    let request = json!({
        "name": "daemon",
        "exactly": {
            "deviceClassName": CLASS_DAEMON,
            "tolerations": [{"key": TAINT_OWNER, "operator": "Exists"}],
        },
    });
    let domain = match daemons {
        DaemonsOf::Domain(domain) => Some(domain),
        DaemonsOf::Cliques => None,
    };
    let spec = claim_spec(uid, domain, &request, &parameters);
    template(uid, &config.namespace, &daemon_name(uid), TARGET_DAEMON, &spec)
}

/// The `DaemonSet` of daemons.
///
/// Its pods are replaced only when they are deleted (`OnDelete`): a restart of `nvidia-imex` ends the imports of a running
/// job, so a new image is for nodes that join later.
pub fn daemon_set(daemons: DaemonsOf<'_>, config: &Config) -> Value {
    let labels = json!({LABEL_COMPUTE_DOMAIN: daemons.uid()});
    let name = daemon_name(daemons.uid());
    let mut spec = json!({
        "selector": {"matchLabels": labels},
        "updateStrategy": {"type": "OnDelete"},
        "template": {
            "metadata": {"labels": labels},
            "spec": pod_spec(daemons, config, &name),
        },
    });
    let annotations = json!({ANNOTATION_SPEC_HASH: hash(&spec)});
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "namespace": config.namespace,
            "name": name,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec.take(),
    })
}

/// The Secret with the certificate of daemons, owned by their `DaemonSet`. It cannot change: nodes keep what they have read.
pub fn certificate_secret(request: &CertificateRequest, issued: &Issued) -> Value {
    let (namespace, name, uid) = (&request.namespace, daemon_name(&request.domain), &request.owner);
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {LABEL_COMPUTE_DOMAIN: request.domain},
            "annotations": {
                ANNOTATION_SPEC_HASH: names_hash(request.slots),
                ANNOTATION_EXPIRES: issued.expires.to_string(),
            },
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": uid},
            ],
        },
        "type": "kubernetes.io/tls",
        "immutable": true,
        "stringData": {
            "tls.key": issued.key,
            "tls.crt": issued.certificate,
            "ca.crt": issued.authority,
        },
    })
}

/// The hash of the names in a certificate for so many slots.
pub(crate) fn names_hash(slots: u32) -> String {
    hash(&json!(slot_names(slots)))
}

/// A clique without entries.
pub fn clique(domain: &str, id: &str, config: &Config) -> Value {
    let labels = Clique::labels(domain, id).map(|(key, value)| (key.to_owned(), value.into()));
    let labels: serde_json::Map<String, Value> = labels.into_iter().collect();
    json!({
        "apiVersion": NVIDIA_API_VERSION,
        "kind": ComputeDomainClique::KIND,
        "metadata": {
            "namespace": config.namespace,
            "name": format!("{domain}.{id}"),
            "labels": labels,
            "annotations": {ANNOTATION_INDEX_CHANGES: "0"},
        },
    })
}

/// The hash in an object's annotation.
pub(crate) fn hash_of(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION_SPEC_HASH].as_str()
}

fn claim_spec(uid: &str, domain: Option<&Domain>, request: &Value, parameters: &Value) -> Value {
    let mut metadata = json!({"labels": {LABEL_COMPUTE_DOMAIN: uid}});
    if let Some(domain) = domain {
        metadata["annotations"] = json!({ANNOTATION_COMPUTE_DOMAIN: domain.full_name()});
    }
    json!({
        "metadata": metadata,
        "spec": {"devices": {
            "requests": [request],
            "config": [{
                "requests": [request["name"]],
                "opaque": {"driver": DRIVER_COMPUTE_DOMAIN, "parameters": parameters},
            }],
        }},
    })
}

fn template(uid: &str, namespace: &str, name: &str, target: &str, spec: &Value) -> Value {
    let annotations = json!({ANNOTATION_SPEC_HASH: hash(spec)});
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {LABEL_COMPUTE_DOMAIN: uid, LABEL_COMPUTE_DOMAIN_TARGET: target},
            "annotations": annotations,
        },
        "spec": spec,
    })
}

/// A hash of a spec: its JSON has sorted keys.
fn hash(spec: &Value) -> String {
    let digest = Sha256::digest(spec.to_string().as_bytes());
    digest.iter().take(16).fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
