//! Reads a JSON object field by field, and rejects unread fields at the end.

use serde_json::{Map, Value};

use crate::config::ConfigError;

/// The fields of one object, with its path.
pub(crate) struct Fields<'a> {
    path: String,
    object: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The fields of the object at a path; the root has an empty path.
    pub(crate) fn of(value: &'a Value, path: &str) -> Result<Self, ConfigError> {
        match value {
            Value::Object(object) => Ok(Self { path: path.to_owned(), object, known: Vec::new() }),
            other => {
                Err(wrong_type(if path.is_empty() { "(root)" } else { path }, "object", other))
            }
        }
    }

    /// Path of a field.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field as it is. Null counts as absent, as everywhere in Kubernetes.
    pub(crate) fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// A text field.
    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<&'a str>, ConfigError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(&self.path(name), "text", other)),
        }
    }

    /// A required text field.
    pub(crate) fn required_text(&mut self, name: &'static str) -> Result<&'a str, ConfigError> {
        match self.text(name)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(self.error(name, "is required".to_owned())),
        }
    }

    /// A boolean field.
    pub(crate) fn bool(&mut self, name: &'static str) -> Result<Option<bool>, ConfigError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong_type(&self.path(name), "true or false", other)),
        }
    }

    /// A field with one of the given words.
    pub(crate) fn word<T: Copy>(
        &mut self,
        name: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, ConfigError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        found
            .map(Some)
            .ok_or_else(|| self.error(name, format!("{text:?} is not one of {}", known.join(", "))))
    }

    /// An object field.
    pub(crate) fn object(&mut self, name: &'static str) -> Result<Option<Fields<'a>>, ConfigError> {
        let path = self.path(name);
        self.value(name).map(|value| Fields::of(value, &path)).transpose()
    }

    /// An error about a field.
    pub(crate) fn error(&self, name: &str, problem: String) -> ConfigError {
        ConfigError { path: self.path(name), problem }
    }

    /// Ends the reading where unknown fields have no effect: a sentence for each.
    pub(crate) fn unknown(self) -> Vec<String> {
        let unknown = self.object.keys().filter(|key| !self.known.contains(&key.as_str()));
        unknown.map(|key| format!("{} is unknown and has no effect", self.path(key))).collect()
    }

    /// Ends the reading. A field that was never read is unknown.
    pub(crate) fn end(self) -> Result<(), ConfigError> {
        let unknown = self.object.keys().find(|key| !self.known.contains(&key.as_str()));
        match unknown {
            None => Ok(()),
            Some(key) => {
                let known = self.known.join(", ");
                Err(self.error(key, format!("is unknown; known here are {known}")))
            }
        }
    }
}

/// An error about a value of the wrong JSON type.
pub(crate) fn wrong_type(path: &str, wanted: &str, found: &Value) -> ConfigError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ConfigError {
        path: path.to_owned(),
        problem: format!("{wanted} is expected, but it is {found}"),
    }
}
