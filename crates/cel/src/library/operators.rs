//! Operators, `in`, `size`, and the helper functions of macros.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::value::{Map, Value, compare, equal, no_overload};

pub(super) const TABLE: &[Row] = &[
    ("_==_", Price::Equal, equals, &["(A, A) bool"]),
    ("_!=_", Price::Equal, differs, &["(A, A) bool"]),
    ("_<_", Price::Less, |args, _| order("_<_", args, Ordering::is_lt), ORDERED),
    ("_<=_", Price::Less, |args, _| order("_<=_", args, Ordering::is_le), ORDERED),
    ("_>_", Price::Less, |args, _| order("_>_", args, Ordering::is_gt), ORDERED),
    ("_>=_", Price::Less, |args, _| order("_>=_", args, Ordering::is_ge), ORDERED),
    ("!_", Price::One, not, &["(bool) bool"]),
    ("-_", Price::One, negate, &["(double) double", "(int) int"]),
    ("_+_", Price::Add, add, SUMS),
    ("_-_", Price::One, subtract, DIFFERENCES),
    ("_*_", Price::One, multiply, NUMBERS),
    ("_/_", Price::One, divide, NUMBERS),
    ("_%_", Price::One, modulo, &["(int, int) int", "(uint, uint) uint"]),
    ("@in", Price::In, contains, &["(A, list<A>) bool", "(A, map<A, B>) bool"]),
    ("size", Price::One, size, SIZES),
    // The evaluator implements this one, because it accepts errors.
    ("@not_strictly_false", Price::One, not, &["(bool) bool"]),
    (
        "@insert",
        Price::One,
        insert,
        &["(map<K, V>, K, V) map<K, V>", "(map<K, V>, map<K, V>) map<K, V>"],
    ),
];

const NUMBERS: &[&str] = &["(double, double) double", "(int, int) int", "(uint, uint) uint"];

const SUMS: &[&str] = &[
    "(bytes, bytes) bytes",
    "(double, double) double",
    "(duration, duration) duration",
    "(int, int) int",
    "(list<A>, list<A>) list<A>",
    "(string, string) string",
    "(uint, uint) uint",
];

const DIFFERENCES: &[&str] = &[
    "(double, double) double",
    "(duration, duration) duration",
    "(int, int) int",
    "(uint, uint) uint",
];

const SIZES: &[&str] = &[
    "(bytes) int",
    ".(bytes) int",
    "(list<A>) int",
    ".(list<A>) int",
    "(map<A, B>) int",
    ".(map<A, B>) int",
    "(string) int",
    ".(string) int",
];

const ORDERED: &[&str] = &[
    "(bool, bool) bool",
    "(int, int) bool",
    "(int, double) bool",
    "(int, uint) bool",
    "(uint, uint) bool",
    "(uint, double) bool",
    "(uint, int) bool",
    "(double, double) bool",
    "(double, int) bool",
    "(double, uint) bool",
    "(string, string) bool",
    "(bytes, bytes) bool",
    "(duration, duration) bool",
];

const OVERFLOW: Fault = Fault::Error(Cow::Borrowed("integer overflow"));

fn equals<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [a, b] => Ok(Value::Bool(equal(a, b, &mut tools.budget)?)),
        _ => Err(no_overload("_==_", args)),
    }
}

/// As in Kubernetes, values that cannot be compared differ; `==` is an error for them.
fn differs<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [a, b] => match equal(a, b, &mut tools.budget) {
            Ok(is_equal) => Ok(Value::Bool(!is_equal)),
            Err(Fault::Error(_)) => Ok(Value::Bool(true)),
            Err(fault) => Err(fault),
        },
        _ => Err(no_overload("_!=_", args)),
    }
}

fn order<'a>(
    name: &str,
    args: &[Value<'a>],
    fits: fn(Ordering) -> bool,
) -> Result<Value<'a>, Fault> {
    match args {
        [a, b] => Ok(Value::Bool(fits(compare(a, b)?))),
        _ => Err(no_overload(name, args)),
    }
}

fn not<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(no_overload("!_", args)),
    }
}

fn negate<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Int(number)] => Ok(Value::Int(number.checked_neg().ok_or(OVERFLOW)?)),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        [Value::Duration(nanos)] => Ok(Value::Duration(nanos.checked_neg().ok_or(OVERFLOW)?)),
        _ => Err(no_overload("-_", args)),
    }
}

pub(super) fn add<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Int(a), Value::Int(b)] => Ok(Value::Int(a.checked_add(*b).ok_or(OVERFLOW)?)),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a.checked_add(*b).ok_or(OVERFLOW)?)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::Duration(a), Value::Duration(b)] => {
            Ok(Value::Duration(a.checked_add(*b).ok_or(OVERFLOW)?))
        }
        [Value::String(a), Value::String(b)] => {
            tools.budget.work(a.len() + b.len())?;
            Ok(Value::text(format!("{}{}", &**a, &**b)))
        }
        [Value::Bytes(a), Value::Bytes(b)] => {
            tools.budget.work(a.len() + b.len())?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        [Value::List(a), Value::List(b)] => {
            tools.budget.work(a.len() + b.len())?;
            Ok(Value::list(a.iter().chain(b.iter()).cloned().collect()))
        }
        _ => Err(no_overload("_+_", args)),
    }
}

fn subtract<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Int(a), Value::Int(b)] => Ok(Value::Int(a.checked_sub(*b).ok_or(OVERFLOW)?)),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a.checked_sub(*b).ok_or(OVERFLOW)?)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => {
            Ok(Value::Duration(a.checked_sub(*b).ok_or(OVERFLOW)?))
        }
        _ => Err(no_overload("_-_", args)),
    }
}

fn multiply<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Int(a), Value::Int(b)] => Ok(Value::Int(a.checked_mul(*b).ok_or(OVERFLOW)?)),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a.checked_mul(*b).ok_or(OVERFLOW)?)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => Err(no_overload("_*_", args)),
    }
}

fn divide<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(Fault::error("division by zero"))
        }
        [Value::Int(a), Value::Int(b)] => Ok(Value::Int(a.checked_div(*b).ok_or(OVERFLOW)?)),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a.checked_div(*b).ok_or(OVERFLOW)?)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => Err(no_overload("_/_", args)),
    }
}

fn modulo<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(Fault::error("modulus by zero"))
        }
        [Value::Int(a), Value::Int(b)] => Ok(Value::Int(a.checked_rem(*b).ok_or(OVERFLOW)?)),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a.checked_rem(*b).ok_or(OVERFLOW)?)),
        _ => Err(no_overload("_%_", args)),
    }
}

fn contains<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [element, Value::List(list)] => list_contains(list, element, tools).map(Value::Bool),
        [key, Value::Map(map)] if map.len() > 0 && !key.can_be_looked_up() => {
            Err(no_overload("in", args))
        }
        [key, map] => match map.contains_key(key) {
            Ok(is_there) => Ok(Value::Bool(is_there)),
            Err(_) => Err(no_overload("in", args)),
        },
        _ => Err(no_overload("in", args)),
    }
}

/// Whether a list contains a value. Elements that cannot be compared are not equal.
pub(super) fn list_contains<'a>(
    list: &[Value<'a>],
    wanted: &Value<'a>,
    tools: &mut Tools<'_>,
) -> Result<bool, Fault> {
    for element in list {
        match equal(wanted, element, &mut tools.budget) {
            Ok(true) => return Ok(true),
            Err(Fault::TooCostly) => return Err(Fault::TooCostly),
            Ok(false) | Err(Fault::Error(_)) => {}
        }
    }
    Ok(false)
}

fn size<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    use Value::{Bytes, Device, List, Map, QualifiedNames, String};
    match args {
        [sized @ (String(_) | Bytes(_) | List(_) | Map(_) | Device(_) | QualifiedNames(_))] => {
            Ok(Value::Int(i64::try_from(sized.size()).unwrap_or(i64::MAX)))
        }
        _ => Err(no_overload("size", args)),
    }
}

fn insert<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (target, added): (_, Vec<(Value<'a>, Value<'a>)>) = match args {
        [Value::Map(target), key, value] => (target, vec![(key.clone(), value.clone())]),
        [Value::Map(target), entries] => match entries.as_map() {
            Some(entries) => (target, entries.iter().cloned().collect()),
            None => return Err(no_overload("insert", args)),
        },
        _ => return Err(no_overload("insert", args)),
    };
    tools.budget.work(target.len() + added.len())?;
    let mut map: Map<'a> = (**target).clone();
    for (key, value) in added {
        if map.get(&key).is_some() || !map.insert(key, value) {
            return Err(Fault::error(
                "insert failed: the key exists already or has an invalid type",
            ));
        }
    }
    Ok(Value::Map(Arc::new(map)))
}
