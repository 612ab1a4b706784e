//! Reads fields of objects that no schema has validated.

use serde_json::Value;

use super::error::GroupError;

/// A field of a spec, with its path and group for error messages.
#[derive(Clone, Debug)]
pub(super) struct SpecField<'a> {
    value: &'a Value,
    path: String,
    group: &'a str,
}

impl<'a> SpecField<'a> {
    /// The root of a spec.
    pub(super) fn spec(value: &'a Value, group: &'a str) -> Self {
        Self { value, path: "spec".to_owned(), group }
    }

    /// A nested field; null if it is missing.
    pub(super) fn at(&self, key: &str) -> Self {
        let path = format!("{}.{key}", self.path);
        Self { value: &self.value[key], path, group: self.group }
    }

    /// The group.
    pub(super) fn group(&self) -> &'a str {
        self.group
    }

    /// Its value.
    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    /// Whether it is missing or null.
    pub(super) fn is_null(&self) -> bool {
        self.value.is_null()
    }

    /// A number that is not negative.
    pub(super) fn count(&self) -> Result<Option<u32>, GroupError> {
        if self.is_null() {
            return Ok(None);
        }
        let count = self.value.as_u64().and_then(|count| u32::try_from(count).ok());
        count.map(Some).ok_or_else(|| self.wrong("a whole number from 0 to 4294967295"))
    }

    /// A signed number.
    pub(super) fn number(&self) -> Result<Option<i32>, GroupError> {
        if self.is_null() {
            return Ok(None);
        }
        let number = self.value.as_i64().and_then(|number| i32::try_from(number).ok());
        number.map(Some).ok_or_else(|| self.wrong("a whole number of 32 bits"))
    }

    /// A text; an empty one counts as missing.
    pub(super) fn text(&self) -> Result<Option<&'a str>, GroupError> {
        if self.is_null() {
            return Ok(None);
        }
        let text = self.value.as_str().ok_or_else(|| self.wrong("a text"))?;
        Ok((!text.is_empty()).then_some(text))
    }

    /// A boolean; false if missing.
    pub(super) fn flag(&self) -> Result<bool, GroupError> {
        if self.is_null() {
            return Ok(false);
        }
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    /// The entries of a list; empty if missing.
    pub(super) fn list(&self) -> Result<Vec<Self>, GroupError> {
        if self.is_null() {
            return Ok(Vec::new());
        }
        let list = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let entry = |(number, value): (usize, &'a Value)| {
            let path = format!("{}[{number}]", self.path);
            Self { value, path, group: self.group }
        };
        Ok(list.iter().enumerate().map(entry).collect())
    }

    /// The entries of a map by key; empty if missing.
    pub(super) fn map(&self) -> Result<Vec<(&'a str, Self)>, GroupError> {
        if self.is_null() {
            return Ok(Vec::new());
        }
        let map = self.value.as_object().ok_or_else(|| self.wrong("a map"))?;
        Ok(map.keys().map(|key| (key.as_str(), self.at(key))).collect())
    }

    /// A required name.
    pub(super) fn name(&self) -> Result<&'a str, GroupError> {
        self.text()?.ok_or_else(|| self.wrong("a name"))
    }

    /// The error that the value is not what it must be.
    pub(super) fn wrong(&self, wanted: &str) -> GroupError {
        let mut found = self.value.to_string();
        if let Some((end, _)) = found.char_indices().nth(60) {
            found.truncate(end);
            found.push('…');
        }
        let (group, field) = (self.group, &self.path);
        GroupError::invalid(format!(
            "{group}: {field} is {found}, but it must be {wanted}; correct it"
        ))
    }
}
