//! The pod of a daemon.

use octavo_api::names::{LABEL_CLIQUE, LABEL_COMPUTE_DOMAIN};
use serde_json::{Value, json};

use super::DaemonsOf;
use crate::config::Config;

/// Folder of the daemon's own files.
const DAEMON_FOLDER: &str = "/imexd";
/// Folder of its certificate.
const TLS_FOLDER: &str = "/imexd-tls";

/// The spec of a daemon's pod. Template and Secret have the same name.
pub(super) fn pod_spec(daemons: DaemonsOf<'_>, config: &Config, name: &str) -> Value {
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
        "readinessProbe": probe(config, 10, 1),
        "livenessProbe": probe(config, 60, 20),
    });
    if !daemon.image_pull_policy.is_empty() {
        container["imagePullPolicy"] = daemon.image_pull_policy.clone().into();
    }
    let effects = ["NoSchedule", "NoExecute", "PreferNoSchedule"];
    let tolerations = effects.map(|effect| json!({"operator": "Exists", "effect": effect}));
    let mut spec = json!({
        "serviceAccountName": daemon.service_account_name,
        "automountServiceAccountToken": true,
        "priorityClassName": daemon.priority_class_name,
        "terminationGracePeriodSeconds": 10,
        "tolerations": tolerations,
        "resourceClaims": [{"name": "daemon", "resourceClaimTemplateName": name}],
        "volumes": [{"name": "imexd", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
        "containers": [container],
    });
    match daemons {
        DaemonsOf::Domain(domain) => {
            spec["nodeSelector"] = json!({LABEL_COMPUTE_DOMAIN: domain.uid});
        }
        DaemonsOf::Cliques => {
            let has_clique = json!({"key": LABEL_CLIQUE, "operator": "Exists"});
            let terms = json!([{"matchExpressions": [has_clique]}]);
            spec["affinity"] = json!({"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
            }});
        }
    }
    if config.imex.encryption {
        encrypt(&mut spec, name);
    }
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

/// Mounts the certificate. The variable is for the probes, too.
fn encrypt(spec: &mut Value, secret: &str) {
    // 256 is 0400: the daemon is root.
    let volume = json!({"name": "tls", "secret": {"secretName": secret, "defaultMode": 256}});
    let mount = json!({"name": "tls", "mountPath": TLS_FOLDER, "readOnly": true});
    let variable = json!({"name": "OCTAVO_TLS_FOLDER", "value": TLS_FOLDER});
    let parts = [
        ("/volumes", volume),
        ("/containers/0/volumeMounts", mount),
        ("/containers/0/env", variable),
    ];
    for (list, item) in parts {
        if let Some(Value::Array(list)) = spec.pointer_mut(list) {
            list.push(item);
        }
    }
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
