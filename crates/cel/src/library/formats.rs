//! Named formats of Kubernetes, which validate text. Those of URLs, dates and base64 are errors.

use crate::fault::Fault;
use crate::formats::FORMATS;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::value::{Value, no_overload};

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

/// Formats of Kubernetes that are omitted.
const OTHERS: [&str; 4] = ["uri", "byte", "date", "datetime"];

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
