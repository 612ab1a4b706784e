//! The difference of two JSON values as a JSON patch (RFC 6902).

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

/// Operations that make `after` of `before`. Lists of another length are replaced as a whole.
pub(super) fn difference(before: &Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare(before, after, "", &mut operations);
    operations
}

fn compare(before: &Value, after: &Value, path: &str, operations: &mut Vec<Value>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                operations.push(json!({"op": "remove", "path": member(path, key)}));
            }
            for (key, value) in after {
                let path = member(path, key);
                match before.get(key) {
                    Some(before) => compare(before, value, &path, operations),
                    None => operations.push(json!({"op": "add", "path": path, "value": value})),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(before, after, &format!("{path}/{index}"), operations);
            }
        }
        (before, after) if before == after => {}
        (_, after) => operations.push(json!({"op": "replace", "path": path, "value": after})),
    }
}

/// Path of an object's member (RFC 6901).
fn member(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}
