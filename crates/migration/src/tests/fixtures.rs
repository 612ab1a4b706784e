//! Pods and options of the tests.

use serde_json::{Value, json};

use crate::{GpuModel, Models, Options, Origin, Refusal, Translation, translate};

pub(super) const H100: &str = "NVIDIA H100 80GB HBM3";
pub(super) const L4: &str = "NVIDIA L4";
pub(super) const T4: &str = "Tesla T4";

/// Options with three GPU models.
pub(super) fn options() -> Options {
    let model = |name: &str, memory_mib| GpuModel { product_name: name.to_owned(), memory_mib };
    let models = [model(T4, 15360), model(L4, 23034), model(H100, 81559)];
    Options { models: Models::new(models).unwrap(), ..Options::default() }
}

/// A pod with one container `main`.
pub(super) fn pod(limits: Value, annotations: Value) -> Value {
    json!({
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    })
}

/// A pod with annotations and no resources.
pub(super) fn annotated(annotations: Value) -> Value {
    json!({
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "main"}, {"name": "side"}], "initContainers": [{"name": "first"}]},
    })
}

pub(super) fn translated(pod: &Value) -> Translation {
    try_translate(pod).unwrap().unwrap()
}

pub(super) fn try_translate(pod: &Value) -> Result<Option<Translation>, Vec<Refusal>> {
    let origin = Origin { name: "train", ..Origin::default() };
    translate(pod, &origin, &options())
}

/// `spec.devices` of the only claim.
pub(super) fn devices(pod: &Value) -> Value {
    let translation = translated(pod);
    assert_eq!(translation.templates.len(), 1, "{translation:?}");
    translation.templates[0]["spec"]["spec"]["devices"].clone()
}

/// The only request of the only claim.
pub(super) fn exactly(pod: &Value) -> Value {
    let devices = devices(pod);
    let requests = devices["requests"].as_array().unwrap();
    assert_eq!((requests.len(), &requests[0]["name"]), (1, &json!("gpu")));
    requests[0]["exactly"].clone()
}

/// Reasons of all refusals.
pub(super) fn reasons(pod: &Value) -> Vec<&'static str> {
    let refusals = try_translate(pod).unwrap_err();
    refusals.iter().map(|refusal| refusal.reason.as_str()).collect()
}
