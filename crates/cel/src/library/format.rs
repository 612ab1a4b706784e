//! `"…".format([…])` with `%s %d %f %b %x %X %o`. `%e` is omitted because Kubernetes prints it by
//! locale rules.

use super::convert;
use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::types::Type;
use crate::value::{Value, no_overload};

pub(super) const TABLE: &[Row] =
    &[("format", Price::Traverse, format, &[".(string, list<dyn>) string"])];

/// Default number of decimals.
const PRECISION: usize = 6;

/// Limit of decimals.
const MAX_PRECISION: usize = 300;

fn format<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::String(template), Value::List(list)] = args else {
        return Err(no_overload("format", args));
    };
    let mut out = String::new();
    let mut values = list.iter();
    let mut rest: &str = template;
    while let Some(at) = rest.find('%') {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let value = values.next().ok_or_else(|| Fault::error("format() has too few values"))?;
        let (precision, after) = precision(rest)?;
        let mut characters = after.chars();
        let verb =
            characters.next().ok_or_else(|| Fault::error("format() ends in a percent sign"))?;
        rest = characters.as_str();
        let formatted = clause(verb, precision, value, args, tools)?;
        tools.budget.work(formatted.len())?;
        out.push_str(&formatted);
    }
    out.push_str(rest);
    Ok(Value::text(out))
}

/// Parses a precision like `.3`, if present.
fn precision(text: &str) -> Result<(usize, &str), Fault> {
    let Some(text) = text.strip_prefix('.') else { return Ok((PRECISION, text)) };
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    match digits.parse() {
        Ok(precision) if precision <= MAX_PRECISION => Ok((precision, rest)),
        _ => Err(Fault::error("format() has a precision that cannot be read or is too large")),
    }
}

/// The verbs of a template, or what is wrong with it.
pub(crate) fn clauses(template: &str) -> Result<Vec<char>, String> {
    let mut verbs = Vec::new();
    let mut rest = template;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(after) = after.strip_prefix('%') {
            rest = after;
            continue;
        }
        let unreadable = |_| "format() has a precision that cannot be read or is too large";
        let (_, after) = precision(after).map_err(unreadable)?;
        let mut characters = after.chars();
        match characters.next() {
            Some(verb @ ('s' | 'd' | 'f' | 'b' | 'o' | 'x' | 'X')) => verbs.push(verb),
            Some(other) => return Err(format!("format() does not support %{other}")),
            None => return Err("format() ends in a percent sign".to_owned()),
        }
        rest = characters.as_str();
    }
    Ok(verbs)
}

/// Whether a verb accepts a type.
pub(crate) fn takes(verb: char, found: &Type) -> bool {
    let plain: &[&str] = match (verb, found) {
        (_, Type::Dyn) | ('s', Type::List(_) | Type::Map(..)) => return true,
        ('s', _) => &[
            "bool",
            "int",
            "uint",
            "double",
            "string",
            "bytes",
            "null_type",
            "type",
            "google.protobuf.Duration",
        ],
        ('d' | 'o', _) => &["int", "uint"],
        ('f', _) => &["double", "string"],
        ('b', _) => &["int", "uint", "bool"],
        _ => &["int", "uint", "string", "bytes"],
    };
    matches!(found, Type::Plain(name) if plain.contains(name))
}

fn clause<'a>(
    verb: char,
    precision: usize,
    value: &Value<'a>,
    args: &[Value<'a>],
    tools: &mut Tools<'_>,
) -> Result<String, Fault> {
    let text = match (verb, value) {
        ('s', value) => return plain(value, args, tools),
        ('d', Value::Int(number)) => number.to_string(),
        ('d', Value::Uint(number)) => number.to_string(),
        ('f', Value::Double(number)) => fixed(*number, precision),
        ('f', Value::String(text)) => match &**text {
            "NaN" => fixed(f64::NAN, precision),
            "Infinity" => fixed(f64::INFINITY, precision),
            "-Infinity" => fixed(f64::NEG_INFINITY, precision),
            _ => return Err(no_overload("format", args)),
        },
        ('b', Value::Int(number)) => signed(*number, |magnitude| format!("{magnitude:b}")),
        ('b', Value::Uint(number)) => format!("{number:b}"),
        ('b', Value::Bool(value)) => u8::from(*value).to_string(),
        ('o', Value::Int(number)) => signed(*number, |magnitude| format!("{magnitude:o}")),
        ('o', Value::Uint(number)) => format!("{number:o}"),
        ('x' | 'X', Value::Int(number)) => signed(*number, |magnitude| format!("{magnitude:x}")),
        ('x' | 'X', Value::Uint(number)) => format!("{number:x}"),
        ('x' | 'X', Value::String(text)) => hex(text.as_bytes(), tools)?,
        ('x' | 'X', Value::Bytes(bytes)) => hex(bytes, tools)?,
        ('d' | 'f' | 'b' | 'o' | 'x' | 'X', _) => return Err(no_overload("format", args)),
        _ => return Err(Fault::because(format!("format() does not support %{verb}"))),
    };
    Ok(if verb == 'X' { text.to_uppercase() } else { text })
}

fn signed(number: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", digits(number.unsigned_abs()))
}

fn hex(bytes: &[u8], tools: &mut Tools<'_>) -> Result<String, Fault> {
    tools.budget.work(bytes.len().saturating_mul(2))?;
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    Ok(bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect())
}

/// Prints a number with fixed decimals and thousands separators.
fn fixed(number: f64, precision: usize) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    let text = format!("{number:.precision$}");
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", &*text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut out = String::from(sign);
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// Prints a value for `%s`.
fn plain<'a>(
    value: &Value<'a>,
    args: &[Value<'a>],
    tools: &mut Tools<'_>,
) -> Result<String, Fault> {
    match value {
        Value::Null => Ok("null".to_owned()),
        Value::List(_) | Value::Map(_) | Value::Device(_) | Value::QualifiedNames(_) => {
            nested(value, args, tools)
        }
        Value::Ip(_) | Value::Cidr(..) => Err(no_overload("format", args)),
        _ => convert::text(value).ok_or_else(|| no_overload("format", args)),
    }
}

/// Prints a value inside a list or map, in the form of a literal.
fn nested<'a>(
    value: &Value<'a>,
    args: &[Value<'a>],
    tools: &mut Tools<'_>,
) -> Result<String, Fault> {
    tools.budget.work(8)?;
    let text = match value {
        Value::String(text) => format!("{:?}", &**text),
        Value::Bytes(_) => format!("b{:?}", plain(value, args, tools)?),
        Value::Double(number) => {
            if number.is_finite() {
                format!("{number:.PRECISION$}")
            } else {
                let text = convert::text(value).unwrap_or_default();
                format!("{text:?}")
            }
        }
        Value::Duration(_) => format!("duration({:?})", plain(value, args, tools)?),
        Value::List(list) => {
            let mut parts = Vec::with_capacity(list.len());
            for element in list.iter() {
                parts.push(nested(element, args, tools)?);
            }
            format!("[{}]", parts.join(", "))
        }
        other => match other.as_map() {
            Some(map) => {
                let mut parts = Vec::with_capacity(map.len());
                for (key, value) in map.iter() {
                    parts.push((nested(key, args, tools)?, nested(value, args, tools)?));
                }
                parts.sort_by(|(a, _), (b, _)| a.cmp(b));
                let parts: Vec<String> =
                    parts.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
                format!("{{{}}}", parts.join(", "))
            }
            None => plain(other, args, tools)?,
        },
    };
    tools.budget.work(text.len())?;
    Ok(text)
}
