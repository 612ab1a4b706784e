//! Quantities. Sums are limited to 128 bits and overflow is an error; Kubernetes has no limit.

use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::quantity::ParseQuantityError;
use crate::value::{Amount, Value, no_overload};

pub(super) const TABLE: &[Row] = &[
    ("quantity", Price::Traverse, quantity, &["(string) quantity"]),
    ("isQuantity", Price::Traverse, is_quantity, &["(string) bool"]),
    ("sign", Price::One, sign, &["(quantity) int"]),
    ("asApproximateFloat", Price::One, as_float, &[".(quantity) double"]),
    ("asInteger", Price::One, as_integer, &[".(quantity) int"]),
    ("isInteger", Price::One, is_integer, &[".(quantity) bool"]),
    ("add", Price::One, |args, _| sum(args, Amount::add), SUM),
    ("sub", Price::One, |args, _| sum(args, Amount::sub), SUM),
];

const SUM: &[&str] = &[".(quantity, quantity) quantity", ".(quantity, int) quantity"];

fn quantity<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text)] => match Amount::parse(text) {
            Ok(amount) => Ok(Value::Quantity(amount)),
            Err(error) => Err(Fault::because(error.to_string())),
        },
        _ => Err(no_overload("quantity", args)),
    }
}

/// A text beyond 128 bits is still a quantity, because Kubernetes has no limit.
fn is_quantity<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text)] => Ok(Value::Bool(matches!(
            Amount::parse(text),
            Ok(_) | Err(ParseQuantityError::Range(_))
        ))),
        _ => Err(no_overload("isQuantity", args)),
    }
}

fn sign<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Quantity(amount)] => {
            let sign = amount.quantity().nanos().signum();
            Ok(Value::Int(i64::try_from(sign).unwrap_or_default()))
        }
        _ => Err(no_overload("sign", args)),
    }
}

fn as_float<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Quantity(amount)] => Ok(Value::Double(amount.float())),
        _ => Err(no_overload("asApproximateFloat", args)),
    }
}

fn as_integer<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Quantity(amount)] => match amount.integer() {
            Some(number) => Ok(Value::Int(number)),
            None => Err(Fault::error("cannot convert the quantity to an integer")),
        },
        _ => Err(no_overload("asInteger", args)),
    }
}

fn is_integer<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Quantity(amount)] => Ok(Value::Bool(amount.integer().is_some())),
        _ => Err(no_overload("isInteger", args)),
    }
}

fn sum<'a>(
    args: &[Value<'a>],
    of: fn(Amount, Amount) -> Option<Amount>,
) -> Result<Value<'a>, Fault> {
    let result = match args {
        [Value::Quantity(a), Value::Quantity(b)] => of(*a, *b),
        [Value::Quantity(a), Value::Int(b)] => of(*a, Amount::whole(*b)),
        _ => return Err(no_overload("the sum", args)),
    };
    result.map(Value::Quantity).ok_or_else(|| Fault::error("the sum of quantities is out of range"))
}
