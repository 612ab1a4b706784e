//! Named formats of Kubernetes, by which text can be validated. Those of web addresses, dates and
//! base64 are left out: naming one is an error.

use super::{Row, Tools};
use crate::cel::cost::Price;
use crate::cel::fault::{Fault, no_overload};
use crate::cel::value::Value;

pub(super) const TABLE: &[Row] = &[
    ("format.named", Price::One, named, &["(string) optional<format>"]),
    ("format.dns1123Label", Price::One, |args, _| constant(args, 0), CONSTANT),
    ("format.dns1123Subdomain", Price::One, |args, _| constant(args, 1), CONSTANT),
    ("format.dns1035Label", Price::One, |args, _| constant(args, 2), CONSTANT),
    ("format.qualifiedName", Price::One, |args, _| constant(args, 3), CONSTANT),
    ("format.dns1123LabelPrefix", Price::One, |args, _| constant(args, 4), CONSTANT),
    ("format.dns1123SubdomainPrefix", Price::One, |args, _| constant(args, 5), CONSTANT),
    ("format.dns1035LabelPrefix", Price::One, |args, _| constant(args, 6), CONSTANT),
    ("format.labelValue", Price::One, |args, _| constant(args, 7), CONSTANT),
    ("format.uuid", Price::One, |args, _| constant(args, 8), CONSTANT),
    ("validate", Price::Format, validate, &[".(format, string) optional<list<string>>"]),
];

const CONSTANT: &[&str] = &["() format"];

/// A format: its name, what fits it, and the length at which Kubernetes takes its pattern.
type Format = (&'static str, fn(&str) -> bool, u64);

/// The formats; a value is a place here.
const FORMATS: [Format; 9] = [
    ("dns1123Label", |text| is_label(text, false), 30),
    ("dns1123Subdomain", is_subdomain, 60),
    ("dns1035Label", |text| is_label(text, true), 30),
    ("qualifiedName", is_qualified, 60),
    ("dns1123LabelPrefix", |text| is_label(&completed(text), false), 30),
    ("dns1123SubdomainPrefix", |text| is_subdomain(&completed(text)), 60),
    ("dns1035LabelPrefix", |text| is_label(&completed(text), true), 30),
    ("labelValue", |text| text.is_empty() || is_name(text), 40),
    ("uuid", is_uuid, 72),
];

/// Formats that Kubernetes has besides.
const OTHERS: [&str; 4] = ["uri", "byte", "date", "datetime"];

/// The length of a format's pattern, by which matching it is priced.
pub(in crate::cel) fn pattern_length(place: usize) -> u64 {
    FORMATS.get(place).map_or(0, |(_, _, length)| *length)
}

fn named<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::String(name)] = args else { return Err(no_overload("format.named", args)) };
    if OTHERS.contains(&&**name) {
        return Err(Fault::because(format!("format {:?} is not supported", &**name)));
    }
    let place = FORMATS.iter().position(|(known, ..)| *known == &**name);
    Ok(place.map_or(Value::Optional(None), |place| Value::some(Value::Format(place))))
}

fn constant<'a>(args: &[Value<'a>], place: usize) -> Result<Value<'a>, Fault> {
    if args.is_empty() { Ok(Value::Format(place)) } else { Err(no_overload("format", args)) }
}

fn validate<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::Format(place), Value::String(text)] = args else {
        return Err(no_overload("validate", args));
    };
    let (name, fits, _) = FORMATS.get(*place).ok_or_else(|| Fault::error("unknown format"))?;
    if fits(text) {
        return Ok(Value::Optional(None));
    }
    let why = Value::text(format!("{:?} does not have the format {name}", &**text));
    Ok(Value::some(Value::list(vec![why])))
}

fn is_lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Whether text is letters, digits and minus signs between letters or digits.
fn is_dns(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|b| is_lower(*b) || *b == b'-')
        && bytes.first().is_some_and(|b| is_lower(*b))
        && bytes.last().is_some_and(|b| is_lower(*b))
}

fn is_label(text: &str, begins_with_letter: bool) -> bool {
    let begins_well = !begins_with_letter || text.starts_with(|c: char| c.is_ascii_lowercase());
    text.len() <= 63 && is_dns(text) && begins_well
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns)
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

fn is_qualified(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// A prefix as the name that it could become: a minus sign at its end may be followed by a letter.
fn completed(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let kept = rest.char_indices().last().map_or(0, |(at, _)| at);
            format!("{}a", rest.get(..kept).unwrap_or_default())
        }
        _ => prefix.to_owned(),
    }
}

fn is_uuid(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|b| b.is_ascii_hexdigit());
    if text.len() == 32 {
        return is_hex(text);
    }
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.split('-').all(is_hex)
}
