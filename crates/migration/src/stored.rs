//! A template as the API server stores it.

#[cfg(test)]
mod tests;

use octavo_dra::Quantity;
use serde_json::Value;

/// Whether a stored `ResourceClaimTemplate` has the spec that was written. The API server adds defaults, and writes quantities in
/// their canonical form: `20480Mi` becomes `20Gi`.
pub fn is_as_written(written: &Value, stored: &Value) -> bool {
    is_same(&written["spec"], &stored["spec"])
}

fn is_same(written: &Value, stored: &Value) -> bool {
    match (written, stored) {
        (Value::Object(written), Value::Object(stored)) => {
            let keys = written.keys().chain(stored.keys());
            keys.into_iter().all(|key| match (written.get(key), stored.get(key)) {
                (Some(written), Some(stored)) => is_same(written, stored),
                (Some(_), None) => false,
                (None, stored) => stored.is_none_or(|stored| is_absent(key, stored)),
            })
        }
        (Value::Array(written), Value::Array(stored)) => {
            written.len() == stored.len()
                && written.iter().zip(stored).all(|(written, stored)| is_same(written, stored))
        }
        (Value::String(written), Value::String(stored)) => {
            let amount = |text: &str| text.parse::<Quantity>().ok();
            written == stored
                || amount(written).is_some_and(|written| amount(stored) == Some(written))
        }
        (written, stored) => written == stored,
    }
}

/// Whether a value says no more than its absence: a default of a request, or nothing.
fn is_absent(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.iter().all(|(key, value)| is_absent(key, value)),
        Value::String(text) => key == "allocationMode" && text == "ExactCount",
        Value::Number(number) => key == "count" && number.as_u64() == Some(1),
        Value::Bool(_) | Value::Array(_) => false,
    }
}
