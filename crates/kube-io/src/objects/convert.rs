//! Conversion from the API's JSON to values.
//!
//! Frequent and large kinds (pods, nodes) have trimmed structs here. Their unused fields, above all
//! `managedFields`, are skipped while reading and never allocated. Kinds with complex rules
//! (claims, classes, slices) use the types of `k8s-openapi` and the conversions that the other
//! programs use.
//!
//! No object prevents others from being read. A field without meaning in this version is treated as
//! the API treats it. Where the API has no rule, the reading is the one that cannot give the same
//! thing twice. A malformed amount counts as more than any node has in a request, and as nothing in
//! an offer. Each such reading is a [`Fault`].

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
    Budget, Claim, CsiCapacity, CsiDriver, CsiNode, DeviceClass, Kind, Meta, Node,
    PersistentVolume, Pod, PodSpec, ResourceSlice, StorageClass, VolumeClaim, WatchedObject,
};
use meta::WireMeta;
pub(crate) use meta::WireObject;

/// A field that has no meaning in this version, and the value used for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why JSON is not an object of a kind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The JSON has another structure.
    #[error("the JSON is not such an object: {0}")]
    Shape(#[from] serde_json::Error),
    /// The JSON has the structure, but no meaning in this version.
    #[error("the object has no meaning in this version: {0}")]
    Meaning(Fault),
}

/// A kind of object that watches deliver as a value.
pub(crate) trait WatchedType: Sized + Send + Sync + 'static {
    /// The part of its JSON that is read.
    type Wire: DeserializeOwned + Send + 'static;

    /// Makes the value; `None` if the object must count as absent.
    fn read(wire: Self::Wire, reader: &mut Reader) -> Option<Self>;

    /// The value for an object of which only the metadata can be read.
    fn from_meta(meta: Meta) -> Self;

    /// Metadata.
    fn meta(&self) -> &Meta;

    /// Sets the kind where only the path names it: items in lists of built-in kinds have no kind.
    fn set_kind(&mut self, _kind: &Kind) {}
}

/// Reads objects of one kind and stores values that many of them share only once.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    specs: Shared<PodSpec>,
    texts: Shared<str>,
    faults: Vec<Fault>,
}

impl Reader {
    /// The faults since the last call.
    pub(crate) fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(Fault(text.into()));
    }

    /// A text that many objects share.
    fn shared(&mut self, text: &str) -> Arc<str> {
        self.texts.of(text)
    }

    fn spec(&mut self, spec: PodSpec) -> Arc<PodSpec> {
        self.specs.of(spec)
    }

    /// Amounts that a node offers: malformed ones are absent.
    fn offered(&mut self, of: &str, amounts: Option<Amounts>) -> BTreeMap<String, Quantity> {
        self.amounts(of, amounts, None)
    }

    /// Requested amounts: malformed ones exceed all nodes.
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
                self.fault(format!("{of}: {name}: {text:?} is not a quantity; treated as {taken}"));
                instead
            });
            if let Some(amount) = amount {
                read.insert(name, amount);
            }
        }
        read
    }
}

/// Amounts by resource, as written.
type Amounts = BTreeMap<String, Amount>;

/// An amount as written; the API accepts plain numbers, too.
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

/// Values that many objects share, each stored once. Unused ones are dropped when the set has
/// doubled, so the cost per value read is constant.
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

/// Below this size the set is not cleaned.
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

/// Parses a time of the API to seconds since 1970.
fn seconds(text: &str, reader: &mut Reader) -> Option<i64> {
    let time = text.parse::<jiff::Timestamp>().ok();
    if time.is_none() {
        reader.fault(format!("{text:?} is not a time; treated as absent"));
    }
    time.map(jiff::Timestamp::as_second)
}

/// A text that is present and not empty.
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
            /// Reads an object from JSON as the API server sends it. Fails if it is no such object;
            /// fields without meaning are treated as in the watches.
            pub fn from_json(json: &[u8]) -> Result<Self, ReadError> {
                read_one(serde_json::from_slice(json)?)
            }

            /// Reads an object from a JSON value.
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
    CsiDriver,
    CsiCapacity,
    CsiNode,
    Budget,
    WatchedObject,
);
