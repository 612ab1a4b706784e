//! Definitions of Octavo's custom resources, as the API server accepts them.

#[cfg(test)]
mod tests;

use kube::CustomResourceExt;
use serde_json::Value;

use crate::{PlacementPolicy, PodGroup};

/// All `CustomResourceDefinition`s, sorted by name.
pub fn crds() -> Result<Vec<Value>, serde_json::Error> {
    let all = [PlacementPolicy::crd(), PodGroup::crd()];
    all.iter().map(|crd| serde_json::to_value(crd).map(tidied)).collect()
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
