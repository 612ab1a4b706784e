//! Maps with insertion order and lookup by key.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Value;

/// A map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    places: BTreeMap<Key, usize>,
}

/// A comparable key. Numbers with equal values are the same key, whatever their types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Bool(bool),
    Number(i128),
    /// The bits of a number that is not an integer.
    Fraction(u64),
    String(Arc<str>),
}

impl Key {
    fn of(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(number) => Some(Self::Number((*number).into())),
            Value::Uint(number) => Some(Self::Number((*number).into())),
            #[allow(clippy::cast_possible_truncation, reason = "whole numbers in range only")]
            Value::Double(number) if number.fract() == 0.0 && number.abs() < 1e19 => {
                Some(Self::Number(*number as i128))
            }
            Value::Double(number) => Some(Self::Fraction(number.to_bits())),
            Value::String(text) => Some(Self::String(Arc::from(&**text))),
            _ => None,
        }
    }
}

impl<'a> Map<'a> {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Value<'a>, Value<'a>)> {
        self.entries.iter()
    }

    /// The value at a key.
    pub(crate) fn get(&self, key: &Value<'_>) -> Option<&Value<'a>> {
        let place = self.places.get(&Key::of(key)?)?;
        self.entries.get(*place).map(|(_, value)| value)
    }

    /// Adds or replaces an entry; `false` if the key has an invalid type.
    pub(crate) fn insert(&mut self, key: Value<'a>, value: Value<'a>) -> bool {
        let Some(as_key) = Key::of(&key) else { return false };
        let known = self.places.get(&as_key).and_then(|place| self.entries.get_mut(*place));
        if let Some(entry) = known {
            *entry = (key, value);
        } else {
            self.places.insert(as_key, self.entries.len());
            self.entries.push((key, value));
        }
        true
    }
}

impl<'a> FromIterator<(Value<'a>, Value<'a>)> for Map<'a> {
    /// Of several entries with one key the last wins.
    fn from_iter<I: IntoIterator<Item = (Value<'a>, Value<'a>)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}
