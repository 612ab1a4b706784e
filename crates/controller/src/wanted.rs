//! The objects that are made for a domain, as they should be.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use octavo_api::names::{
    ANNOTATION_COMPUTE_DOMAIN, CLASS_CHANNEL, CLASS_DAEMON, DRIVER_COMPUTE_DOMAIN,
    LABEL_COMPUTE_DOMAIN, LABEL_COMPUTE_DOMAIN_TARGET, NVIDIA_API_VERSION, TAINT_OWNER,
    TARGET_DAEMON, TARGET_WORKLOAD,
};
use octavo_api::{ComputeDomainClique, compute_domain::ComputeDomainAllocationMode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::view::{Clique, Domain};

/// Annotation with the hash of the wanted spec. What the API server adds by default does not count as a difference.
pub const ANNOTATION_SPEC_HASH: &str = "octavo.dev/spec-hash";

/// Folder of the daemon's own files.
const DAEMON_FOLDER: &str = "/imexd";

/// Name of a domain's `DaemonSet`, and of the template of its claims.
pub fn daemon_name(domain: &str) -> String {
    format!("computedomain-daemon-{domain}")
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
    let spec = claim_spec(domain, &request, &parameters);
    template(domain, &domain.namespace, &domain.template, TARGET_WORKLOAD, &spec)
}

/// The template of the claims of a domain's daemons. They are allocated on nodes of every scheduler.
pub fn daemon_template(domain: &Domain, config: &Config) -> Value {
    let parameters = json!({
        "apiVersion": NVIDIA_API_VERSION,
        "kind": "ComputeDomainDaemonConfig",
        "domainID": domain.uid,
    });
    let request = json!({
        "name": "daemon",
        "exactly": {
            "deviceClassName": CLASS_DAEMON,
            "tolerations": [{"key": TAINT_OWNER, "operator": "Exists"}],
        },
    });
    let spec = claim_spec(domain, &request, &parameters);
    template(domain, &config.namespace, &daemon_name(&domain.uid), TARGET_DAEMON, &spec)
}

/// The `DaemonSet` of a domain.
///
/// Its pods are replaced only when they are deleted (`OnDelete`): a restart of `nvidia-imex` ends the imports of a running
/// job, so a new image is for nodes that join later.
pub fn daemon_set(domain: &Domain, config: &Config) -> Value {
    let labels = json!({LABEL_COMPUTE_DOMAIN: domain.uid});
    let name = daemon_name(&domain.uid);
    let mut spec = json!({
        "selector": {"matchLabels": labels},
        "updateStrategy": {"type": "OnDelete"},
        "template": {
            "metadata": {"labels": labels},
            "spec": pod_spec(domain, config, &name),
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
        },
    })
}

/// The hash in an object's annotation.
pub(crate) fn hash_of(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION_SPEC_HASH].as_str()
}

fn claim_spec(domain: &Domain, request: &Value, parameters: &Value) -> Value {
    json!({
        "metadata": {
            "labels": {LABEL_COMPUTE_DOMAIN: domain.uid},
            "annotations": {ANNOTATION_COMPUTE_DOMAIN: domain.full_name()},
        },
        "spec": {"devices": {
            "requests": [request],
            "config": [{
                "requests": [request["name"]],
                "opaque": {"driver": DRIVER_COMPUTE_DOMAIN, "parameters": parameters},
            }],
        }},
    })
}

fn template(domain: &Domain, namespace: &str, name: &str, target: &str, spec: &Value) -> Value {
    let annotations = json!({ANNOTATION_SPEC_HASH: hash(spec)});
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {LABEL_COMPUTE_DOMAIN: domain.uid, LABEL_COMPUTE_DOMAIN_TARGET: target},
            "annotations": annotations,
        },
        "spec": spec,
    })
}

fn pod_spec(domain: &Domain, config: &Config, template: &str) -> Value {
    let daemon = &config.daemon;
    let mut container = json!({
        "name": "imex-daemon",
        "image": daemon.image,
        "command": daemon.command,
        "args": ["run"],
        "env": environment(config),
        "resources": {
            "requests": daemon.resources.requests,
            "limits": daemon.resources.limits,
            "claims": [{"name": "daemon"}],
        },
        "volumeMounts": [{"name": "imexd", "mountPath": DAEMON_FOLDER}],
        // Device nodes of root only, and `/etc/hosts`.
        "securityContext": {
            "runAsUser": 0,
            "runAsNonRoot": false,
            "allowPrivilegeEscalation": false,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        // A daemon may wait long for its peers; it must not be restarted for that.
        "startupProbe": probe(config, 1, 1200),
        "readinessProbe": probe(config, 2, 1),
        "livenessProbe": probe(config, 60, 20),
    });
    if !daemon.image_pull_policy.is_empty() {
        container["imagePullPolicy"] = daemon.image_pull_policy.clone().into();
    }
    let effects = ["NoSchedule", "NoExecute", "PreferNoSchedule"];
    let tolerations = effects.map(|effect| json!({"operator": "Exists", "effect": effect}));
    let mut spec = json!({
        "nodeSelector": {LABEL_COMPUTE_DOMAIN: domain.uid},
        "serviceAccountName": daemon.service_account_name,
        "automountServiceAccountToken": true,
        "priorityClassName": daemon.priority_class_name,
        "terminationGracePeriodSeconds": 10,
        "tolerations": tolerations,
        "resourceClaims": [{"name": "daemon", "resourceClaimTemplateName": template}],
        "volumes": [{"name": "imexd", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
        "containers": [container],
    });
    if daemon.priority_class_name.is_empty()
        && let Some(spec) = spec.as_object_mut()
    {
        spec.remove("priorityClassName");
    }
    if !daemon.image_pull_secrets.is_empty() {
        spec["imagePullSecrets"] = json!(daemon.image_pull_secrets);
    }
    spec
}

fn environment(config: &Config) -> Vec<Value> {
    let fields = [
        ("NODE_NAME", "spec.nodeName"),
        ("POD_IP", "status.podIP"),
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
    ];
    let slots = config.max_nodes_per_imex_domain.to_string();
    let values = [
        ("MAX_NODES_PER_IMEX_DOMAIN", slots.as_str()),
        ("RUST_LOG", &config.daemon.log_level),
        // A container runtime with NVIDIA's legacy hook would add all GPUs.
        ("NVIDIA_VISIBLE_DEVICES", "void"),
    ];
    let fields = fields
        .iter()
        .map(|(name, path)| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
    let values = values.iter().map(|(name, value)| json!({"name": name, "value": value}));
    fields.chain(values).collect()
}

fn probe(config: &Config, period_seconds: u32, failures: u32) -> Value {
    let command: Vec<&str> =
        config.daemon.command.iter().map(String::as_str).chain(["check"]).collect();
    json!({
        "exec": {"command": command},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 10,
        "failureThreshold": failures,
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
