//! Optionals. The evaluator implements `or` and `orValue` itself, because they evaluate their
//! argument only if needed.

use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::value::{Value, no_overload};

pub(super) const TABLE: &[Row] = &[
    ("optional.of", Price::One, of, &["(V) optional<V>"]),
    ("optional.ofNonZeroValue", Price::One, of_non_zero, &["(V) optional<V>"]),
    ("optional.none", Price::One, |_, _| Ok(Value::Optional(None)), &["() optional<V>"]),
    ("optional.unwrap", Price::One, unwrap, &["(list<optional<V>>) list<V>"]),
    ("unwrapOpt", Price::One, unwrap, &[".(list<optional<V>>) list<V>"]),
    ("value", Price::One, value, &[".(optional<V>) V"]),
    ("hasValue", Price::One, has_value, &[".(optional<V>) bool"]),
    ("or", Price::One, lazy, &[".(optional<V>, optional<V>) optional<V>"]),
    ("orValue", Price::One, lazy, &[".(optional<V>, V) V"]),
];

fn of<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value] => Ok(Value::some(value.clone())),
        _ => Err(no_overload("optional.of", args)),
    }
}

fn of_non_zero<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [value] = args else { return Err(no_overload("optional.ofNonZeroValue", args)) };
    let is_zero = match value {
        Value::Null | Value::Bool(false) | Value::Optional(None) => true,
        Value::Int(number) | Value::Duration(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::String(_)
        | Value::Bytes(_)
        | Value::List(_)
        | Value::Map(_)
        | Value::QualifiedNames(_) => value.size() == 0,
        _ => false,
    };
    Ok(if is_zero { Value::Optional(None) } else { Value::some(value.clone()) })
}

fn unwrap<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::List(list)] = args else { return Err(no_overload("unwrap", args)) };
    tools.budget.work(list.len())?;
    let mut values = Vec::new();
    for element in list.iter() {
        match element {
            Value::Optional(None) => {}
            Value::Optional(Some(value)) => values.push((**value).clone()),
            _ => return Err(no_overload("unwrap", args)),
        }
    }
    Ok(Value::list(values))
}

fn value<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(Fault::error("optional.none() has no value")),
        _ => Err(no_overload("value", args)),
    }
}

fn has_value<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(no_overload("hasValue", args)),
    }
}

fn lazy<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    Err(no_overload("or", args))
}
