//! Whether the installed definitions of `ComputeDomains` have the fields of this version.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use octavo_api::names::NVIDIA_VERSION;
use serde_json::Value;

/// A definition, compared with that of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Definition {
    /// It has all fields.
    Complete,
    /// It does not exist.
    Missing,
    /// It does not serve the version.
    NotServed,
    /// It lacks these fields.
    Without(Vec<String>),
}

/// The definitions of this version, by name.
pub(super) fn wanted() -> BTreeMap<String, Value> {
    // They are constants: encoding them fails in no cluster.
    let wanted = octavo_api::crds::compute_domain_crds().unwrap_or_default().into_iter();
    let named = wanted.filter_map(|crd| {
        let name = crd["metadata"]["name"].as_str()?.to_owned();
        Some((name, crd))
    });
    named.collect()
}

/// Compares an installed definition.
pub(super) fn compare(wanted: &Value, found: Option<&CustomResourceDefinition>) -> Definition {
    let Some(found) = found else { return Definition::Missing };
    let Ok(found) = serde_json::to_value(found) else { return Definition::NotServed };
    let (Some(wanted), Some(found)) = (schema(wanted), schema(&found)) else {
        return Definition::NotServed;
    };
    let found = fields(found);
    let missing: Vec<String> =
        fields(wanted).into_iter().filter(|field| !found.contains(field)).collect();
    // The fields inside of a missing one say nothing more.
    let is_inside = |field: &String| {
        missing.iter().any(|outer| {
            let rest = field.strip_prefix(outer.as_str()).unwrap_or_default();
            rest.starts_with(['.', '['])
        })
    };
    let outer: Vec<String> = missing.iter().filter(|field| !is_inside(field)).cloned().collect();
    if outer.is_empty() { Definition::Complete } else { Definition::Without(outer) }
}

/// The schema of the served version.
fn schema(crd: &Value) -> Option<&Value> {
    let versions = crd["spec"]["versions"].as_array()?;
    let version = versions
        .iter()
        .find(|version| version["name"] == NVIDIA_VERSION && version["served"] == true)?;
    Some(&version["schema"]["openAPIV3Schema"])
}

/// The paths of all fields.
fn fields(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    add_fields(schema, "", &mut found);
    found
}

fn add_fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        // The API server adds those of all kinds.
        if path.is_empty() && matches!(&**key, "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        add_fields(value, &path, found);
        found.insert(path);
    }
    if schema.get("items").is_some() {
        add_fields(&schema["items"], &format!("{path}[]"), found);
    }
}
