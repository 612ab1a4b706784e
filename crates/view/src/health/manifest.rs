//! Checks policies in a file as API server and controller will, without a cluster.

use octavo_api::HealthPolicySpec;
use serde_json::{Map, Value, json};

use super::words::api_name;

const API_VERSION: &str = "octavo.dev/v1alpha1";
const KIND: &str = "HealthPolicy";

/// What a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// A line for each object.
    pub lines: Vec<String>,
    /// Whether there is a policy, and all are valid.
    pub is_valid: bool,
}

/// Checks the policies of a text in YAML or JSON. A text that is neither is an error.
pub fn check(text: &str) -> Result<Checked, String> {
    // As kubectl reads it: octal numbers by a leading 0.
    let options = serde_saphyr::options! { budget: None, legacy_octal_numbers: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| error.to_string())?;
    let mut checked = Checked { is_valid: true, ..Checked::default() };
    let mut policies = 0;
    for object in documents.iter().flat_map(objects).filter(|object| !object.is_null()) {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if object["kind"] != KIND {
            let kind = object["kind"].as_str().unwrap_or("an object without a kind");
            checked.lines.push(format!("{kind} {name}: not looked at"));
            continue;
        }
        policies += 1;
        let problems = problems(object, name);
        checked.is_valid &= problems.is_empty();
        let problems =
            problems.into_iter().map(|problem| format!("{KIND} {name}: error: {problem}"));
        checked.lines.extend(problems);
        if let Ok(spec) = serde_json::from_value::<HealthPolicySpec>(object["spec"].clone())
            && spec.check().is_ok()
        {
            checked.lines.push(format!("{KIND} {name}: {}", effect(&spec)));
        }
    }
    if policies == 0 {
        checked.lines.push(format!("error: no object of kind {KIND}"));
        checked.is_valid = false;
    }
    Ok(checked)
}

/// The objects of a document, which may be a list.
fn objects(document: &Value) -> Vec<&Value> {
    match document["items"].as_array() {
        Some(items) => items.iter().collect(),
        None => vec![document],
    }
}

/// What is wrong with a policy, each with its field.
fn problems(object: &Value, name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if object["apiVersion"] != API_VERSION {
        problems
            .push(format!("apiVersion: it is {}, and must be {API_VERSION}", object["apiVersion"]));
    }
    if name.is_empty() {
        problems.push("metadata.name: it is missing".to_owned());
    }
    let Some(spec) = object["spec"].as_object() else {
        problems.push("spec: it is missing".to_owned());
        return problems;
    };
    if !spec.contains_key("nodeSelector") {
        problems.push(
            "nodeSelector: it is missing; name the labels of the nodes to which the policy applies"
                .to_owned(),
        );
    }
    for (field, value) in spec {
        match value.as_object() {
            // Each field is looked at alone, so that all problems are found, and each with its place. A template has required fields.
            Some(parts) if field != "nodeSelector" && field != "template" => {
                let alone = |(part, value): (&String, &Value)| {
                    problem(field, &json!({part: value}), &format!("{field}.{part}"))
                };
                problems.extend(parts.iter().filter_map(alone));
            }
            _ => problems.extend(problem(field, value, field)),
        }
    }
    problems
}

/// What is wrong with a field alone.
fn problem(field: &str, value: &Value, path: &str) -> Option<String> {
    let mut spec = Map::new();
    spec.insert("nodeSelector".to_owned(), json!({"any": "label"}));
    spec.insert(field.to_owned(), value.clone());
    match serde_json::from_value::<HealthPolicySpec>(Value::Object(spec)) {
        Ok(spec) => spec.check().err().map(|error| error.to_string()),
        Err(error) => Some(format!("{path}: {error}")),
    }
}

/// What a valid policy does.
fn effect(spec: &HealthPolicySpec) -> String {
    let labels = spec.node_selector.iter().map(|(name, value)| format!("{name}={value}"));
    let remedies = spec.remedies.iter().map(api_name).collect::<Vec<_>>();
    let remedies = if remedies.is_empty() { "none".to_owned() } else { remedies.join(", ") };
    let evicts = if spec.evict { "pods are evicted" } else { "no pod is evicted" };
    format!(
        "valid; mode {}, nodes with {}, remedies {remedies}, {evicts}",
        api_name(spec.mode),
        labels.collect::<Vec<_>>().join(", ")
    )
}
