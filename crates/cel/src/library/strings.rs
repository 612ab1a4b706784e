//! Text: CEL's own functions and the strings extension, version 2. Indexes count characters.

use super::lists;
use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::value::{Text, Value, no_overload};

pub(super) const TABLE: &[Row] = &[
    ("contains", Price::Contains, |args, tools| holds(args, tools, |a, b| a.contains(b)), TEST),
    (
        "startsWith",
        Price::Traverse,
        |args, tools| holds(args, tools, |a, b| a.starts_with(b)),
        TEST,
    ),
    ("endsWith", Price::Traverse, |args, tools| holds(args, tools, |a, b| a.ends_with(b)), TEST),
    ("charAt", Price::One, char_at, &[".(string, int) string"]),
    ("indexOf", Price::Elements, index_of, PLACES),
    ("lastIndexOf", Price::Elements, last_index_of, PLACES),
    ("lowerAscii", Price::Traverse, |args, tools| map(args, tools, str::to_ascii_lowercase), SAME),
    ("upperAscii", Price::Traverse, |args, tools| map(args, tools, str::to_ascii_uppercase), SAME),
    ("trim", Price::Traverse, |args, tools| map(args, tools, |text| text.trim().to_owned()), SAME),
    (
        "replace",
        Price::TraverseTwice,
        replace,
        &[".(string, string, string) string", ".(string, string, string, int) string"],
    ),
    (
        "split",
        Price::TraverseTwice,
        split,
        &[".(string, string) list<string>", ".(string, string, int) list<string>"],
    ),
    (
        "substring",
        Price::Traverse,
        substring,
        &[".(string, int) string", ".(string, int, int) string"],
    ),
    ("join", Price::Result, join, &[".(list<string>) string", ".(list<string>, string) string"]),
    ("strings.quote", Price::Traverse, quote, &["(string) string"]),
];

const TEST: &[&str] = &[".(string, string) bool"];
const SAME: &[&str] = &[".(string) string"];
const PLACES: &[&str] =
    &[".(string, string) int", ".(string, string, int) int", ".(list<A>, A) int"];

fn holds<'a>(
    args: &[Value<'a>],
    tools: &mut Tools<'_>,
    test: fn(&str, &str) -> bool,
) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text), Value::String(part)] => {
            tools.budget.work(text.len())?;
            Ok(Value::Bool(test(text, part)))
        }
        _ => Err(no_overload("a test of text", args)),
    }
}

fn map<'a>(
    args: &[Value<'a>],
    tools: &mut Tools<'_>,
    change: fn(&str) -> String,
) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text)] => {
            tools.budget.work(text.len())?;
            Ok(Value::text(change(text)))
        }
        _ => Err(no_overload("a change of text", args)),
    }
}

fn out_of_range(place: i64) -> Fault {
    Fault::because(format!("index out of range: {place}"))
}

/// An index into text of `len` characters; the end is a valid index.
fn place(at: i64, len: usize) -> Result<usize, Fault> {
    usize::try_from(at).ok().filter(|at| *at <= len).ok_or_else(|| out_of_range(at))
}

/// A substring, by characters.
fn part(text: &str, start: usize, end: usize) -> String {
    text.chars().skip(start).take(end.saturating_sub(start)).collect()
}

fn char_at<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text), Value::Int(at)] => {
            tools.budget.work(text.len())?;
            let at = place(*at, text.chars().count())?;
            Ok(Value::text(part(text, at, at + 1)))
        }
        _ => Err(no_overload("charAt", args)),
    }
}

/// Byte offset of a character; the end of the text if it has fewer characters.
fn byte_of(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

/// Character index of a byte offset.
fn character_of(text: &str, byte: usize) -> i64 {
    let count = text.get(..byte).map_or(0, |before| before.chars().count());
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn index_of<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (text, wanted, offset) = match args {
        [Value::List(list), wanted] => return lists::index_of(list, wanted, false, tools),
        [Value::String(text), Value::String(wanted)] => (text, wanted, 0),
        [Value::String(text), Value::String(wanted), Value::Int(offset)] => (text, wanted, *offset),
        _ => return Err(no_overload("indexOf", args)),
    };
    if wanted.is_empty() {
        return Ok(Value::Int(offset));
    }
    let from = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    tools.budget.work(text.len() + wanted.len())?;
    let start = byte_of(text, from);
    let found = text.get(start..).and_then(|rest| rest.find(&**wanted));
    Ok(Value::Int(found.map_or(-1, |at| character_of(text, start + at))))
}

fn last_index_of<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (text, wanted, offset) = match args {
        [Value::List(list), wanted] => return lists::index_of(list, wanted, true, tools),
        [Value::String(text), Value::String(wanted)] => (text, wanted, None),
        [Value::String(text), Value::String(wanted), Value::Int(offset)] => {
            (text, wanted, Some(*offset))
        }
        _ => return Err(no_overload("lastIndexOf", args)),
    };
    let len = text.chars().count();
    if wanted.is_empty() {
        return Ok(Value::Int(offset.unwrap_or_else(|| i64::try_from(len).unwrap_or(i64::MAX))));
    }
    let to = match offset {
        Some(offset) => usize::try_from(offset).map_err(|_| out_of_range(offset))?,
        None => len.saturating_sub(1),
    };
    if to >= len {
        return Ok(Value::Int(-1));
    }
    tools.budget.work(text.len() + wanted.len())?;
    // The last match that starts at `to` ends here. No match ends within a character.
    let mut end = byte_of(text, to).saturating_add(wanted.len()).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let found = text.get(..end).and_then(|before| before.rfind(&**wanted));
    Ok(Value::Int(found.map_or(-1, |at| character_of(text, at))))
}

fn replace<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (text, old, new, times) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => {
            (text, old, new, usize::MAX)
        }
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(times)] => {
            (text, old, new, usize::try_from(*times).unwrap_or(usize::MAX))
        }
        _ => return Err(no_overload("replace", args)),
    };
    tools.budget.work(text.len())?;
    let count = text.matches(&**old).take(times).count();
    tools.budget.work(count.saturating_mul(new.len()))?;
    Ok(Value::text(text.replacen(&**old, new, count)))
}

/// Splits text at a separator into at most `most` parts; the empty separator splits between
/// characters.
fn cut(text: &str, separator: &str, most: usize) -> Vec<String> {
    if most == 0 {
        return Vec::new();
    }
    if !separator.is_empty() {
        return text.splitn(most, separator).map(str::to_owned).collect();
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == most {
            parts.push(rest.to_owned());
            break;
        }
        parts.push(first.to_string());
        rest = rest.get(first.len_utf8()..).unwrap_or_default();
    }
    parts
}

fn split<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (text, separator, most) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, usize::MAX),
        [Value::String(text), Value::String(separator), Value::Int(most)] => {
            (text, separator, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return Err(no_overload("split", args)),
    };
    tools.budget.work(text.len())?;
    Ok(Value::list(cut(text, separator, most).into_iter().map(Value::text).collect()))
}

fn substring<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (text, start, end): (&Text<'a>, _, _) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(no_overload("substring", args)),
    };
    tools.budget.work(text.len())?;
    let len = text.chars().count();
    if end.is_some_and(|end| start > end) {
        return Err(Fault::error("substring ends before it starts"));
    }
    let start = place(start, len)?;
    let end = end.map_or(Ok(len), |end| place(end, len))?;
    Ok(Value::text(part(text, start, end)))
}

fn join<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(no_overload("join", args)),
    };
    let mut joined = String::new();
    for (count, element) in list.iter().enumerate() {
        let Value::String(text) = element else { return Err(no_overload("join", args)) };
        tools.budget.work(text.len() + separator.len())?;
        if count > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
    }
    Ok(Value::text(joined))
}

fn quote<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text)] => {
            tools.budget.work(text.len())?;
            let mut quoted = String::from("\"");
            for c in text.chars() {
                match c {
                    '\x07' => quoted.push_str("\\a"),
                    '\x08' => quoted.push_str("\\b"),
                    '\x0c' => quoted.push_str("\\f"),
                    '\n' => quoted.push_str("\\n"),
                    '\r' => quoted.push_str("\\r"),
                    '\t' => quoted.push_str("\\t"),
                    '\x0b' => quoted.push_str("\\v"),
                    '\\' => quoted.push_str("\\\\"),
                    '"' => quoted.push_str("\\\""),
                    c => quoted.push(c),
                }
            }
            quoted.push('"');
            Ok(Value::text(quoted))
        }
        _ => Err(no_overload("strings.quote", args)),
    }
}
