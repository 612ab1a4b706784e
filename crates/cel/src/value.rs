//! Values of an evaluation. Values of the device are borrowed; computed ones are shared.

mod amount;
mod device;
mod equality;
mod map;
mod semver;

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

pub(crate) use amount::Amount;
pub(crate) use device::QualifiedNames;
pub(crate) use equality::{compare, equal};
pub(crate) use map::Map;
pub(crate) use semver::Semver;

use crate::DeviceView;
use crate::fault::Fault;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Value<'a> {
    /// `null`.
    Null,
    /// A bool.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// Text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    #[allow(clippy::rc_buffer, reason = "loops append in place to a list that is not shared")]
    List(Arc<Vec<Value<'a>>>),
    /// A map.
    Map(Arc<Map<'a>>),
    /// An optional, which may be empty.
    Optional(Option<Arc<Value<'a>>>),
    /// A type, by name.
    Type(&'static str),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A quantity.
    Quantity(Amount),
    /// A version.
    Semver(Arc<Semver>),
    /// An address.
    Ip(IpAddr),
    /// A network: an address and its prefix length.
    Cidr(IpAddr, u8),
    /// A named format, by its index in the table.
    Format(usize),
    /// The device.
    Device(DeviceView<'a>),
    /// Attributes or capacities of the device.
    QualifiedNames(QualifiedNames<'a>),
}

/// Text, borrowed from the device or the expression if it comes from there.
#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    /// Borrowed.
    Borrowed(&'a str),
    /// Computed.
    Owned(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

impl<'a> Value<'a> {
    /// Computed text.
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Owned(text.into()))
    }

    /// Borrowed text.
    pub(crate) fn borrowed(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    /// A list.
    pub(crate) fn list(elements: Vec<Self>) -> Self {
        Self::List(Arc::new(elements))
    }

    /// An optional with a value.
    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// CEL's name of the value's type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) | Self::Device(_) | Self::QualifiedNames(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// The size by which calls are priced: characters, bytes or elements; 1 for other values.
    pub(crate) fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::QualifiedNames(names) => names.len(),
            Self::Optional(Some(value)) => return value.size(),
            // Fields, and bytes.
            Self::Device(_) | Self::Ip(IpAddr::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) => 16,
            Self::Cidr(_, bits) => usize::from(bits.div_ceil(8)),
            _ => 1,
        };
        u64::try_from(size).unwrap_or(u64::MAX)
    }

    /// The value as a map, if it is one. Maps of the device are materialised.
    pub(crate) fn as_map(&self) -> Option<Arc<Map<'a>>> {
        match self {
            Self::Map(map) => Some(Arc::clone(map)),
            Self::Device(view) => Some(Arc::new(device::gather(*view))),
            Self::QualifiedNames(names) => Some(Arc::new(names.gather())),
            _ => None,
        }
    }

    /// Whether it may be a key of a map, or of a list of constants, which Kubernetes treats as one.
    pub(crate) fn can_be_looked_up(&self) -> bool {
        !matches!(self, Self::Semver(_) | Self::Bytes(_))
    }

    /// The value at a key, if present.
    pub(crate) fn find(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, NoElements> {
        match self {
            Self::Map(map) => Ok(map.get(key).cloned()),
            Self::Device(view) => Ok(device::field(*view, key)),
            Self::QualifiedNames(names) => Ok(names.get(key)),
            _ => Err(NoElements),
        }
    }

    /// Whether a map contains a key.
    pub(crate) fn contains_key(&self, key: &Value<'a>) -> Result<bool, NoElements> {
        match self {
            // An unknown domain can be looked up, but the map does not contain it.
            Self::QualifiedNames(names) => Ok(names.contains(key)),
            _ => Ok(self.find(key)?.is_some()),
        }
    }
}

/// The value has no elements with such keys.
#[derive(Debug)]
pub(crate) struct NoElements;

/// The error of a function that does not accept values of these types.
pub(crate) fn no_overload(function: &str, args: &[Value<'_>]) -> Fault {
    let types: Vec<&str> = args.iter().map(Value::type_name).collect();
    Fault::because(format!("no such overload: {function} of {}", types.join(", ")))
}
