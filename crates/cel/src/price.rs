//! The prices of functions, in the units of Kubernetes.

use crate::budget::COST_LIMIT;
use crate::formats;
use crate::value::Value;

/// Price of making a list.
pub(crate) const LIST_PRICE: u64 = 10;

/// Price of making a map.
pub(crate) const MAP_PRICE: u64 = 30;

/// How a call is priced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Price {
    /// One unit.
    One,
    /// A tenth of the size of the first argument.
    Traverse,
    /// A fifth of the size of the first argument.
    TraverseTwice,
    /// A tenth of the size of the first argument, unless it is a network.
    Address,
    /// A fifth of the size of the result.
    Result,
    /// A tenth of the text times a quarter of the pattern.
    Regex,
    /// A tenth of the text times a tenth of the searched text.
    Contains,
    /// A tenth of the smaller size.
    Equal,
    /// A tenth of the smaller size for text and bytes, else one unit.
    Less,
    /// A tenth of both sizes for text and bytes, else one unit.
    Add,
    /// The size of a list, one unit for a map.
    In,
    /// All elements of a list, text by a tenth of its size.
    Elements,
    /// A tenth for conversions between text and bytes, else one unit.
    Convert,
    /// The product of the sizes times this factor.
    Product(u64),
    /// The price of a list with the result's size.
    NewList,
    /// The price of flattening lists.
    Flatten,
    /// Comparing each pair of elements of the argument at this index.
    Pairs(usize),
    /// Comparing addresses.
    ContainsIp,
    /// Comparing networks.
    ContainsCidr,
    /// Matching a named format.
    Format,
}

impl Price {
    /// Whether the price depends on the result.
    pub(crate) fn needs_result(self) -> bool {
        matches!(self, Self::Result | Self::Convert | Self::NewList)
    }

    /// The price of a call.
    pub(crate) fn of(self, args: &[Value<'_>], result: Option<&Value<'_>>) -> u64 {
        let size = |place: usize| args.get(place).map_or(1, Value::size);
        let first = args.first();
        let is_text = matches!(first, Some(Value::String(_) | Value::Bytes(_)));
        let is_network = matches!(first, Some(Value::Cidr(..)));
        match self {
            Self::Traverse => tenths(size(0)),
            Self::Address if !is_network => tenths(size(0)),
            Self::TraverseTwice => tenths(size(0).saturating_mul(2)),
            Self::Result => tenths(result.map_or(1, Value::size).saturating_mul(2)),
            Self::Regex => tenths(size(0) + 1).saturating_mul(size(1).div_ceil(4)),
            Self::Contains => tenths(size(0)).saturating_mul(tenths(size(1))),
            Self::Equal => match first {
                Some(
                    Value::Quantity(_)
                    | Value::Ip(_)
                    | Value::Cidr(..)
                    | Value::Format(_)
                    | Value::Semver(_),
                ) => 1,
                _ => tenths(size(0).min(size(1))),
            },
            Self::Less if is_text => tenths(size(0).min(size(1))),
            Self::Add if is_text => tenths(size(0).saturating_add(size(1))),
            Self::Convert if is_text => match (first, result) {
                (Some(Value::String(_)), Some(Value::Bytes(_)))
                | (Some(Value::Bytes(_)), Some(Value::String(_))) => tenths(size(0)),
                _ => 1,
            },
            Self::One | Self::Address | Self::Less | Self::Add | Self::Convert => 1,
            Self::In => match args.get(1) {
                Some(list @ Value::List(_)) => list.size(),
                _ => 1,
            },
            Self::Elements => {
                let mut count = ElementPrice::default();
                if let Some(value) = first {
                    count.elements(value);
                }
                count.price
            }
            Self::Product(times) => size(0).saturating_mul(size(1)).saturating_mul(times) + 1,
            Self::NewList => result.map_or(0, Value::size).saturating_add(1 + LIST_PRICE),
            Self::Flatten => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(0),
                    _ => 1,
                };
                size(0).saturating_mul(depth).saturating_add(1 + LIST_PRICE)
            }
            Self::Pairs(place) => {
                let pairs = size(place).saturating_mul(size(place));
                let has_text = match args.get(place) {
                    Some(Value::List(list)) => {
                        matches!(list.first(), Some(Value::String(_) | Value::Bytes(_)))
                    }
                    _ => false,
                };
                let tenths_each = if has_text { 21 } else { 20 };
                (pairs.saturating_mul(tenths_each) / 10).saturating_add(1 + LIST_PRICE)
            }
            Self::ContainsIp => tenths(size(0) * 2) + parse_price(args),
            Self::ContainsCidr => tenths(size(0) * 2) + tenths(size(0)) + 1 + parse_price(args),
            Self::Format => {
                let pattern = match first {
                    Some(Value::Format(place)) => formats::pattern_length(*place),
                    _ => 0,
                };
                tenths(size(1) + 1).saturating_mul(pattern.div_ceil(4))
            }
        }
    }
}

/// The price of parsing the second argument, if it is text.
fn parse_price(args: &[Value<'_>]) -> u64 {
    match args.get(1) {
        Some(text @ Value::String(_)) => tenths(text.size()),
        _ => 0,
    }
}

/// A tenth, rounded up.
fn tenths(size: u64) -> u64 {
    size.div_ceil(10)
}

/// The price of traversing a list with all its elements. Counting stops above the limit, because a
/// list may contain another many times over.
#[derive(Default)]
struct ElementPrice {
    price: u64,
    steps: u64,
}

impl ElementPrice {
    fn elements(&mut self, value: &Value<'_>) {
        self.steps += 1;
        if self.steps > COST_LIMIT {
            self.price = COST_LIMIT + 1;
            return;
        }
        let tenth = |len: usize| u64::try_from(len / 10).unwrap_or(u64::MAX);
        let price = match value {
            Value::String(text) => tenth(text.len()),
            Value::Bytes(bytes) => tenth(bytes.len()),
            Value::List(list) => {
                for element in list.iter() {
                    if self.steps > COST_LIMIT {
                        break;
                    }
                    self.elements(element);
                }
                return;
            }
            _ => 1,
        };
        self.price = self.price.saturating_add(price);
    }
}
