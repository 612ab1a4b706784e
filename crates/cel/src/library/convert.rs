//! Conversions between types.

use std::borrow::Cow;

use super::duration;
use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::value::{Value, no_overload};

pub(super) const TABLE: &[Row] = &[
    ("bool", Price::One, to_bool, &["(bool) bool", "(string) bool"]),
    ("bytes", Price::Convert, to_bytes, &["(bytes) bytes", "(string) bytes"]),
    (
        "double",
        Price::One,
        to_double,
        &["(double) double", "(int) double", "(string) double", "(uint) double"],
    ),
    (
        "int",
        Price::One,
        to_int,
        &["(int) int", "(double) int", "(duration) int", "(string) int", "(uint) int"],
    ),
    ("uint", Price::One, to_uint, &["(uint) uint", "(double) uint", "(int) uint", "(string) uint"]),
    ("string", Price::Convert, to_string, STRINGS),
    ("dyn", Price::One, same, &["(A) dyn"]),
    ("type", Price::One, type_of, &["(A) type"]),
];

const STRINGS: &[&str] = &[
    "(string) string",
    "(bool) string",
    "(bytes) string",
    "(double) string",
    "(duration) string",
    "(int) string",
    "(uint) string",
    "(ip) string",
    "(cidr) string",
];

const RANGE: Fault = Fault::Error(Cow::Borrowed("number is out of range"));

fn conversion(text: &str, to: &str) -> Fault {
    Fault::because(format!("{text:?} is not of type {to}"))
}

fn same<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value] => Ok(value.clone()),
        _ => Err(no_overload("dyn", args)),
    }
}

fn type_of<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value] => Ok(Value::Type(value.type_name())),
        _ => Err(no_overload("type", args)),
    }
}

fn to_bool<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value @ Value::Bool(_)] => Ok(value.clone()),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(conversion(text, "bool")),
        },
        _ => Err(no_overload("bool", args)),
    }
}

fn to_bytes<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value @ Value::Bytes(_)] => Ok(value.clone()),
        [Value::String(text)] => {
            tools.budget.work(text.len())?;
            Ok(Value::Bytes(text.as_bytes().into()))
        }
        _ => Err(no_overload("bytes", args)),
    }
}

#[allow(clippy::cast_precision_loss, reason = "CEL does the same")]
fn to_double<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value @ Value::Double(_)] => Ok(value.clone()),
        [Value::Int(number)] => Ok(Value::Double(*number as f64)),
        [Value::Uint(number)] => Ok(Value::Double(*number as f64)),
        [Value::String(text)] => match text.parse::<f64>() {
            // A number out of range is an error; infinity by name is not.
            Ok(number) if number.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) => {
                Err(RANGE)
            }
            Ok(number) => Ok(Value::Double(number)),
            Err(_) => Err(conversion(text, "double")),
        },
        _ => Err(no_overload("double", args)),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the range is checked, fractions go as in CEL")]
fn to_int<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value @ Value::Int(_)] => Ok(value.clone()),
        [Value::Uint(number)] => i64::try_from(*number).map(Value::Int).map_err(|_| RANGE),
        [Value::Double(number)] if number.abs() < 9_223_372_036_854_775_807.0 => {
            Ok(Value::Int(*number as i64))
        }
        [Value::Double(_)] => Err(RANGE),
        [Value::String(text)] => text.parse().map(Value::Int).map_err(|_| conversion(text, "int")),
        [Value::Duration(nanos)] => Ok(Value::Int(*nanos)),
        _ => Err(no_overload("int", args)),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked, fractions go as in CEL"
)]
fn to_uint<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value @ Value::Uint(_)] => Ok(value.clone()),
        [Value::Int(number)] => u64::try_from(*number).map(Value::Uint).map_err(|_| RANGE),
        [Value::Double(number)] if (0.0..18_446_744_073_709_551_615.0).contains(number) => {
            Ok(Value::Uint(*number as u64))
        }
        [Value::Double(_)] => Err(RANGE),
        [Value::String(text)] if text.starts_with('+') => Err(conversion(text, "uint")),
        [Value::String(text)] => {
            text.parse().map(Value::Uint).map_err(|_| conversion(text, "uint"))
        }
        _ => Err(no_overload("uint", args)),
    }
}

fn to_string<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value @ Value::String(_)] => Ok(value.clone()),
        [Value::Type(_)] => Err(no_overload("string", args)),
        [value] => {
            if let Value::Bytes(bytes) = value {
                tools.budget.work(bytes.len())?;
            }
            text(value).map(Value::text).ok_or_else(|| no_overload("string", args))
        }
        _ => Err(no_overload("string", args)),
    }
}

/// The text of a value, if it has one.
pub(super) fn text(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::String(text) => text.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => double(*number),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.to_owned(),
        Value::Duration(nanos) => duration::text(*nanos),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(address, bits) => format!("{address}/{bits}"),
        Value::Type(name) => (*name).to_owned(),
        _ => return None,
    })
}

/// Prints a number like Go's `g` format: with an exponent if it is small or has more than six
/// digits before the point.
fn double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if number == 0.0 || (1e-4..1e6).contains(&number.abs()) {
        return number.to_string();
    }
    let scientific = format!("{number:e}");
    match scientific.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => scientific,
    }
}
