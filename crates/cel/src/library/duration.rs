//! Durations in nanoseconds. Timestamps are omitted because devices have none.

use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::value::{Value, no_overload};

pub(super) const TABLE: &[Row] = &[
    (
        "duration",
        Price::One,
        duration,
        &["(duration) duration", "(int) duration", "(string) duration"],
    ),
    ("getHours", Price::One, |args, _| whole(args, 3_600 * SECOND), GET),
    ("getMinutes", Price::One, |args, _| whole(args, 60 * SECOND), GET),
    ("getSeconds", Price::One, |args, _| whole(args, SECOND), GET),
    ("getMilliseconds", Price::One, |args, _| whole(args, SECOND / 1000), GET),
];

const GET: &[&str] = &[".(duration) int"];
const SECOND: i64 = 1_000_000_000;

/// Units of Go's durations.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
];

fn duration<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value @ Value::Duration(_)] => Ok(value.clone()),
        [Value::Int(nanos)] => Ok(Value::Duration(*nanos)),
        [Value::String(text)] => match parse(text) {
            Some(nanos) => Ok(Value::Duration(nanos)),
            None => Err(Fault::because(format!("{:?} is not a duration", &**text))),
        },
        _ => Err(no_overload("duration", args)),
    }
}

fn whole<'a>(args: &[Value<'a>], unit: i64) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        _ => Err(no_overload("a duration's part", args)),
    }
}

/// Parses a duration like `1h2.5m`.
fn parse(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let unit = i128::from(UNITS.iter().find(|(name, _)| *name == unit)?.1);
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        nanos = nanos.checked_add(whole.checked_mul(unit)?)?;
        // Further digits are less than a nanosecond.
        let fraction = fraction.get(..fraction.len().min(18))?;
        if !fraction.is_empty() {
            let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            nanos = nanos.checked_add(fraction.parse::<i128>().ok()?.checked_mul(unit)? / scale)?;
        }
        rest = next;
    }
    i64::try_from(nanos.checked_mul(sign)?).ok()
}

/// Prints a duration as CEL does, in seconds.
pub(super) fn text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let (seconds, rest) = (magnitude / 1_000_000_000, magnitude % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}
