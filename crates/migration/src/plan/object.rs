//! Parts of Kubernetes objects as JSON.

use serde_json::Value;

use crate::json::{array, object, text};

/// Prefix of NVIDIA's resources and labels.
pub(super) const NVIDIA: &str = "nvidia.com/";

/// Name of an object.
pub(super) fn name(value: &Value) -> &str {
    value.get("metadata").and_then(|metadata| text(metadata, "name")).unwrap_or_default()
}

/// Namespace of an object; empty if it has none.
pub(super) fn namespace(value: &Value) -> &str {
    value.get("metadata").and_then(|metadata| text(metadata, "namespace")).unwrap_or_default()
}

/// `namespace/name`, or the name.
pub(super) fn full_name(value: &Value) -> String {
    match namespace(value) {
        "" => name(value).to_owned(),
        namespace => format!("{namespace}/{}", name(value)),
    }
}

/// A label of an object that is not empty.
pub(super) fn label<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    let labels = object(value.get("metadata")?, "labels")?;
    labels.get(key)?.as_str().filter(|value| !value.is_empty())
}

/// An annotation of an object.
pub(super) fn annotation<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    object(value.get("metadata")?, "annotations")?.get(key)?.as_str()
}

/// The owner that controls an object: kind and name.
pub(super) fn controller(value: &Value) -> Option<(&str, &str)> {
    let owners = array(value.get("metadata")?, "ownerReferences");
    let is_controller = |owner: &&Value| owner.get("controller") == Some(&Value::Bool(true));
    let owner = owners.iter().find(is_controller)?;
    Some((text(owner, "kind")?, text(owner, "name")?))
}

/// The pod's spec: of a pod, or of the template of a workload.
pub(super) fn pod_spec(value: &Value) -> Option<&Value> {
    let template = value.pointer("/spec/template/spec");
    let of_cron_job = || value.pointer("/spec/jobTemplate/spec/template/spec");
    template.or_else(of_cron_job).or_else(|| value.get("spec"))
}

/// The containers of a pod's spec, init containers too.
pub(super) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    array(spec, "containers").iter().chain(array(spec, "initContainers"))
}

/// The variables of a container that have their value in it.
pub(super) fn variables(container: &Value) -> impl Iterator<Item = (&str, &str)> {
    array(container, "env").iter().filter_map(|variable| {
        Some((text(variable, "name")?, text(variable, "value").filter(|value| !value.is_empty())?))
    })
}

/// Whether an amount is more than 0.
pub(super) fn is_some_amount(amount: &Value) -> bool {
    match amount {
        Value::String(text) => text != "0",
        Value::Number(number) => number.as_u64() != Some(0),
        _ => false,
    }
}

/// NVIDIA's resources that a container asks for.
pub(super) fn has_nvidia_resource(container: &Value) -> bool {
    let Some(resources) = container.get("resources") else { return false };
    ["limits", "requests"].iter().filter_map(|list| object(resources, list)).any(|list| {
        list.iter().any(|(name, amount)| name.starts_with(NVIDIA) && is_some_amount(amount))
    })
}

/// Whether a pod has ended.
pub(super) fn has_ended(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The node of a pod.
pub(super) fn node_of(pod: &Value) -> Option<&str> {
    pod.get("spec").and_then(|spec| text(spec, "nodeName"))
}
