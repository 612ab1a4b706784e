//! Reading and changing JSON objects whose form is not known.

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

/// The object under a key, empty if there is none.
pub(crate) fn object<'a>(value: &'a Value, key: &str) -> Option<&'a Object> {
    value.get(key).and_then(Value::as_object)
}

/// The elements under a key, none if there is no array.
pub(crate) fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The text under a key.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// A scalar as text. YAML without quotes makes numbers of values that are texts in the API.
pub(crate) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The object under a key, made if there is none. `None` if something else is there.
pub(crate) fn object_at<'a>(parent: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let found = entry(parent, key, Value::Object(Object::new()))?;
    found.is_object().then_some(found)
}

/// The array under a key, made if there is none. `None` if something else is there.
pub(crate) fn array_at<'a>(parent: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    entry(parent, key, Value::Array(Vec::new()))?.as_array_mut()
}

/// The value under a key of an object. Absent and null are made the given one.
fn entry<'a>(parent: &'a mut Value, key: &str, new: Value) -> Option<&'a mut Value> {
    let parent = parent.as_object_mut()?;
    let found = parent.entry(key).or_insert(Value::Null);
    if found.is_null() {
        *found = new;
    }
    Some(found)
}

/// Removes the value under a key if it is an empty object.
pub(crate) fn remove_if_empty(parent: &mut Value, key: &str) {
    if let Some(parent) = parent.as_object_mut()
        && parent.get(key).and_then(Value::as_object).is_some_and(Map::is_empty)
    {
        parent.remove(key);
    }
}
