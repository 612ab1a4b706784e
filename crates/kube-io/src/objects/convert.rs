//! From the API's JSON to values.
//!
//! Frequent and large kinds (pods, nodes) have trimmed structs of their own here: what nobody decides
//! by, `managedFields` above all, is skipped while it is read and never allocated. Kinds with deep
//! rules (claims, classes, slices) go through the types of `k8s-openapi` and the conversions that
//! the other programs use.
//!
//! Nothing that an object says stops the reading of others. What has no meaning for this version is
//! treated as the API would treat it, or, where the API has no rule, in the way that cannot give the
//! same thing twice: an amount that is no quantity is more than any node has where it is asked for,
//! and nothing where it is offered. Each such place is a [`Fault`].

mod affinity;
mod meta;
mod node;
mod object;
mod pod;
mod resource;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use octavo_dra::Quantity;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{
    Budget, Claim, CsiNode, DeviceClass, Kind, Meta, Node, PersistentVolume, Pod, PodSpec,
    ResourceSlice, StorageClass, VolumeClaim, WatchedObject,
};
use meta::WireMeta;
pub(crate) use meta::WireObject;

/// What of an object has no meaning for this version, in words: which field, and what it is taken for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why JSON is no object of a kind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It has not the shape.
    #[error("the JSON is no such object: {0}")]
    Shape(#[from] serde_json::Error),
    /// It has the shape and no meaning for this version.
    #[error("the object has no meaning for this version: {0}")]
    Meaning(Fault),
}

/// A kind of object that is kept as a value.
pub(crate) trait WatchedType: Sized + Send + Sync + 'static {
    /// What is read of its JSON.
    type Wire: DeserializeOwned + Send + 'static;

    /// Makes the value; `None` where it must be as if the object were not there.
    fn read(wire: Self::Wire, reader: &mut Reader) -> Option<Self>;

    /// As much as is known of an object that cannot be read.
    fn from_meta(meta: Meta) -> Self;

    /// Metadata.
    fn meta(&self) -> &Meta;

    /// Says of which kind it is, where that is known by the path only: items of lists of built-in
    /// kinds do not say it.
    fn set_kind(&mut self, _kind: &Kind) {}
}

/// Reads objects of one kind and keeps what many of them share once.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    specs: Shared<PodSpec>,
    texts: Shared<str>,
    faults: Vec<Fault>,
}

impl Reader {
    /// What was found wrong since the last call.
    pub(crate) fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(Fault(text.into()));
    }

    /// A text that many objects have.
    fn shared(&mut self, text: &str) -> Arc<str> {
        self.texts.of(text)
    }

    fn spec(&mut self, spec: PodSpec) -> Arc<PodSpec> {
        self.specs.of(spec)
    }

    /// What is offered: what cannot be read is not there.
    fn offered(&mut self, of: &str, amounts: Option<Amounts>) -> BTreeMap<String, Quantity> {
        self.amounts(of, amounts, None)
    }

    /// What is asked for: what cannot be read is more than anybody has.
    fn asked(&mut self, of: &str, amounts: Option<Amounts>) -> BTreeMap<String, Quantity> {
        self.amounts(of, amounts, Some(Quantity::decimal(i64::MAX)))
    }

    fn amounts(
        &mut self,
        of: &str,
        amounts: Option<Amounts>,
        instead: Option<Quantity>,
    ) -> BTreeMap<String, Quantity> {
        let mut read = BTreeMap::new();
        for (name, Amount(text)) in amounts.into_iter().flatten() {
            let amount = text.parse().ok().or_else(|| {
                let taken = if instead.is_some() { "more than any node has" } else { "none" };
                self.fault(format!("{of}: {name}: {text:?} is no quantity; taken for {taken}"));
                instead
            });
            if let Some(amount) = amount {
                read.insert(name, amount);
            }
        }
        read
    }
}

/// Amounts by resource as they are written.
type Amounts = BTreeMap<String, Amount>;

/// An amount as it is written: the API takes bare numbers too.
#[derive(Debug)]
struct Amount(String);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }

            fn visit_str<E>(self, text: &str) -> Result<Amount, E> {
                Ok(Amount(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Amount, E> {
                Ok(Amount(text))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Values that many objects have, each kept once. What nobody else holds any more is let go when the
/// set has doubled, so that it costs a constant for each value that is read.
#[derive(Debug)]
struct Shared<T: ?Sized> {
    known: HashSet<Arc<T>>,
    most: usize,
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), most: FEW }
    }
}

/// Fewer shared values than these are not looked through.
const FEW: usize = 1024;

impl<T: Eq + Hash + ?Sized> Shared<T> {
    fn of<V>(&mut self, value: V) -> Arc<T>
    where
        V: std::borrow::Borrow<T> + Into<Arc<T>>,
    {
        if let Some(known) = self.known.get(value.borrow()) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.most {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.most = (self.known.len() * 2).max(FEW);
        }
        let value: Arc<T> = value.into();
        self.known.insert(Arc::clone(&value));
        value
    }
}

/// Seconds since 1970 of a time as the API writes it.
fn seconds(text: &str, reader: &mut Reader) -> Option<i64> {
    let time = text.parse::<jiff::Timestamp>().ok();
    if time.is_none() {
        reader.fault(format!("{text:?} is no time; taken for none"));
    }
    time.map(jiff::Timestamp::as_second)
}

/// A text that is there and not empty.
fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn read_one<T: WatchedType>(wire: T::Wire) -> Result<T, ReadError> {
    let mut reader = Reader::default();
    T::read(wire, &mut reader).ok_or_else(|| {
        let last = reader.take_faults().pop();
        ReadError::Meaning(last.unwrap_or_else(|| Fault("it cannot be read".to_owned())))
    })
}

macro_rules! from_json {
    ($($kind:ty),* $(,)?) => {$(
        impl $kind {
            /// Reads one from JSON as the API server sends it. Fails on what is no such object at
            /// all; a field without meaning is treated as the watches do.
            pub fn from_json(json: &[u8]) -> Result<Self, ReadError> {
                read_one(serde_json::from_slice(json)?)
            }

            /// The same of a JSON value.
            pub fn from_value(json: serde_json::Value) -> Result<Self, ReadError> {
                read_one(serde_json::from_value(json)?)
            }
        }
    )*};
}

from_json!(
    Pod,
    Node,
    Meta,
    Claim,
    DeviceClass,
    ResourceSlice,
    VolumeClaim,
    PersistentVolume,
    StorageClass,
    CsiNode,
    Budget,
    WatchedObject,
);
