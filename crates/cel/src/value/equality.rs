//! Equality and order of values.

use std::cmp::Ordering;

use super::{Value, no_overload};
use crate::budget::Budget;
use crate::fault::Fault;

/// Whether two values are equal. Values of different types are not, except numbers. Comparing
/// Kubernetes' own types (quantities, versions, addresses) with other types is an error.
pub(crate) fn equal<'a>(a: &Value<'a>, b: &Value<'a>, budget: &mut Budget) -> Result<bool, Fault> {
    use Value::{
        Bool, Bytes, Cidr, Double, Duration, Format, Int, Ip, List, Null, Optional, Quantity,
        Semver, String, Type, Uint,
    };
    budget.work(1)?;
    Ok(match (a, b) {
        (Null, other) | (other, Null) => matches!(other, Null),
        (Int(_) | Uint(_) | Double(_), Int(_) | Uint(_) | Double(_)) => {
            numbers(a, b) == Some(Ordering::Equal)
        }
        (Bool(a), Bool(b)) => a == b,
        (String(a), String(b)) => {
            budget.work(a.len().min(b.len()))?;
            **a == **b
        }
        (Bytes(a), Bytes(b)) => {
            budget.work(a.len().min(b.len()))?;
            a == b
        }
        (Type(a), Type(b)) => a == b,
        (Duration(a), Duration(b)) => a == b,
        (Quantity(a), Quantity(b)) if !b.is_sum() => a.quantity() == b.quantity(),
        (Semver(a), Semver(b)) => a.cmp_precedence(b) == Ordering::Equal,
        (Ip(a), Ip(b)) => a == b,
        (Cidr(a, bits), Cidr(b, other_bits)) => a == b && bits == other_bits,
        (Format(a), Format(b)) => a == b,
        (Optional(a), Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b, budget)?,
            (None, None) => true,
            _ => false,
        },
        (List(a), List(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(a, b, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Quantity(_) | Semver(_) | Ip(_) | Cidr(..) | Format(_), _) => {
            return Err(no_overload("_==_", &[a.clone(), b.clone()]));
        }
        _ => match (a.as_map(), b.as_map()) {
            (Some(a), Some(b)) => {
                budget.work((a.len() + b.len()).saturating_mul(4))?;
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (key, value) in a.iter() {
                    match b.get(key) {
                        Some(other) if equal(value, other, budget)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            _ => false,
        },
    })
}

/// Compares two values; an error if they are unordered.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, Fault> {
    use Value::{Bool, Bytes, Double, Duration, Int, String, Uint};
    match (a, b) {
        (Int(_) | Uint(_) | Double(_), Int(_) | Uint(_) | Double(_)) => {
            numbers(a, b).ok_or_else(|| Fault::error("NaN values cannot be ordered"))
        }
        (Bool(a), Bool(b)) => Ok(a.cmp(b)),
        (String(a), String(b)) => Ok(a.as_bytes().cmp(b.as_bytes())),
        (Bytes(a), Bytes(b)) => Ok(a.cmp(b)),
        (Duration(a), Duration(b)) => Ok(a.cmp(b)),
        _ => Err(no_overload("comparison", &[a.clone(), b.clone()])),
    }
}

/// Compares two numbers by value; `None` for NaN.
fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let whole = |value: &Value<'_>| match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::Uint(number) => Some(i128::from(*number)),
        _ => None,
    };
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), b) => whole_with_double(whole(b)?, *a).map(Ordering::reverse),
        (a, Value::Double(b)) => whole_with_double(whole(a)?, *b),
        (a, b) => Some(whole(a)?.cmp(&whole(b)?)),
    }
}

/// Compares an integer and a floating-point number.
fn whole_with_double(a: i128, b: f64) -> Option<Ordering> {
    if b.is_nan() {
        return None;
    }
    // Beyond the range of both 64-bit types.
    if b >= 1.9e19 {
        return Some(Ordering::Less);
    }
    if b <= -1.9e19 {
        return Some(Ordering::Greater);
    }
    #[allow(clippy::cast_possible_truncation, reason = "the range is checked above")]
    let floor = b.floor() as i128;
    Some(match a.cmp(&floor) {
        Ordering::Equal if b.fract() != 0.0 => Ordering::Less,
        order => order,
    })
}
