//! Definitions of custom resources, as the API server accepts them.

#[cfg(test)]
mod tests;

use kube::CustomResourceExt;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::compute_domain::{ComputeDomain, ComputeDomainClique, ComputeDomainDaemon};
use crate::names::{NVIDIA_GROUP, NVIDIA_VERSION};
use crate::{HealthPolicy, Maintenance, NodeHealth, PlacementPolicy, PodGroup};

/// All `CustomResourceDefinition`s, sorted by name.
pub fn crds() -> Result<Vec<Value>, serde_json::Error> {
    let all = [
        HealthPolicy::crd(),
        Maintenance::crd(),
        NodeHealth::crd(),
        PlacementPolicy::crd(),
        PodGroup::crd(),
    ];
    all.iter().map(|crd| serde_json::to_value(crd).map(tidied)).collect()
}

/// The definitions of `ComputeDomains`, sorted by name. The group is NVIDIA's, whose driver may have installed them.
pub fn compute_domain_crds() -> Result<Vec<Value>, serde_json::Error> {
    Ok(vec![clique()?, tidied(serde_json::to_value(ComputeDomain::crd())?)])
}

/// The definition of `ComputeDomainClique`, whose list lies beside its metadata instead of in a spec.
fn clique() -> Result<Value, serde_json::Error> {
    let daemon = SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<ComputeDomainDaemon>();
    let mut daemon = serde_json::to_value(daemon)?;
    if let Some(schema) = daemon.as_object_mut() {
        schema.retain(|key, _| !matches!(key.as_str(), "$schema" | "title"));
    }
    let group = NVIDIA_GROUP;
    let plural = ComputeDomainClique::PLURAL;
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    Ok(tidied(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {
                "kind": ComputeDomainClique::KIND,
                "plural": plural,
                "singular": "computedomainclique",
            },
            "scope": "Namespaced",
            "versions": [{
                "name": NVIDIA_VERSION,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": [
                    column("Nodes", ".daemons[*].nodeName"),
                    column("Status", ".daemons[*].status"),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "The IMEX daemons of a ComputeDomain in one NVLink clique.",
                    "properties": {"daemons": {
                        "type": "array",
                        "description": "The daemons, one a node.",
                        "items": daemon,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["nodeName"],
                    }},
                }},
            }],
        },
    })))
}

/// Removes parts of the derived schema: nullable optional fields, formats unknown to the API server, floating-point
/// bounds of integers, and line breaks.
fn tidied(mut value: Value) -> Value {
    match &mut value {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().and_then(whole) {
                value = whole.into();
            }
        }
        Value::Object(map) => {
            // A structural schema has none: the API server drops unknown fields, or refuses them.
            if map.get("additionalProperties") == Some(&Value::Bool(false)) {
                map.remove("additionalProperties");
            }
            if map.get("nullable") == Some(&Value::Bool(true)) {
                map.remove("nullable");
            }
            let is_unsigned =
                |format: &Value| format.as_str().is_some_and(|name| name.starts_with("uint"));
            if map.get("format").is_some_and(is_unsigned) {
                map.insert("format".to_owned(), "int64".into());
            }
            for value in map.values_mut() {
                *value = tidied(value.take());
            }
            // Comment lines end where the code's do; `kubectl explain` wraps them itself.
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace('\n', " ");
            }
        }
        Value::Array(list) => {
            for value in list {
                *value = tidied(value.take());
            }
        }
        _ => {}
    }
    value
}

/// The number as an integer, if it is one.
fn whole(number: f64) -> Option<i64> {
    let text = number.to_string();
    text.parse().ok()
}
