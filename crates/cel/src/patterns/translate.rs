//! Translates Go's syntax of regular expressions to that of the `regex` crate.
//!
//! Both belong to RE2's family. Where they differ, Go's meaning is spelled out: classes like `\d`
//! are ASCII, a bracket in a class is a literal, and `\Q…\E` quotes. Syntax unknown to Go is
//! rejected, as Kubernetes does.

/// Go's limit of repetitions.
const MAX_REPEAT: u32 = 1000;

/// POSIX classes.
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Translates a pattern, or describes its error.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    // Number of repetition signs before this position: `+?` are two signs of one repetition.
    let mut repeats = 0;
    while let Some(c) = rest.chars().next() {
        let after = rest.get(c.len_utf8()..).unwrap_or_default();
        let is_repeat = matches!(c, '*' | '+' | '?') || (c == '{' && counts(after).is_some());
        repeats = if is_repeat { repeats + 1 } else { 0 };
        if repeats > 2 || (repeats == 2 && c != '?') {
            return Err("a repetition repeats another".to_owned());
        }
        rest = match c {
            '\\' => escape(after, false, &mut out)?,
            '[' => class(after, &mut out)?,
            '(' => group(after, &mut out)?,
            '{' => repetition(after, &mut out)?,
            // A literal in Go.
            '}' | ']' => {
                out.push('\\');
                out.push(c);
                after
            }
            _ => {
                out.push(c);
                after
            }
        };
    }
    Ok(out)
}

/// Flags and names of groups.
fn group<'a>(after: &'a str, out: &mut String) -> Result<&'a str, String> {
    out.push('(');
    let Some(special) = after.strip_prefix('?') else { return Ok(after) };
    if special.starts_with("P<") || special.starts_with('<') {
        return Ok(after);
    }
    let end = special.find([':', ')']).ok_or("a group has no end")?;
    let flags = special.get(..end).unwrap_or_default();
    if flags.chars().all(|c| matches!(c, 'i' | 'm' | 's' | 'U' | '-')) {
        Ok(after)
    } else {
        Err(format!("(?{flags} is unknown"))
    }
}

/// `{2}`, `{2,}`, `{2,3}`; any other brace is a literal in Go.
fn repetition<'a>(after: &'a str, out: &mut String) -> Result<&'a str, String> {
    let Some((counts, rest)) = counts(after) else {
        out.push_str("\\{");
        return Ok(after);
    };
    for count in counts.split(',') {
        if !count.is_empty() && !count.parse::<u32>().is_ok_and(|count| count <= MAX_REPEAT) {
            return Err(format!("a repetition exceeds {MAX_REPEAT}"));
        }
    }
    out.push('{');
    out.push_str(counts);
    out.push('}');
    Ok(rest)
}

/// The content of the braces and the rest, if it is a repetition.
fn counts(after: &str) -> Option<(&str, &str)> {
    let (counts, rest) = after.split_once('}')?;
    let (least, most) = counts.split_once(',').unwrap_or((counts, counts));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    (!least.is_empty() && is_number(least) && is_number(most)).then_some((counts, rest))
}

/// The escape after a backslash.
fn escape<'a>(after: &'a str, is_in_class: bool, out: &mut String) -> Result<&'a str, String> {
    let c = after.chars().next().ok_or("it ends in a backslash")?;
    let rest = after.get(c.len_utf8()..).unwrap_or_default();
    let ascii = |class: &str| if is_in_class { class.to_owned() } else { format!("[{class}]") };
    let inverse = |class: &str| format!("[^{class}]");
    match c {
        'd' => out.push_str(&ascii("0-9")),
        'w' => out.push_str(&ascii("0-9A-Za-z_")),
        's' => out.push_str(&ascii("\\t\\n\\x0C\\r ")),
        'D' => out.push_str(&inverse("0-9")),
        'W' => out.push_str(&inverse("0-9A-Za-z_")),
        'S' => out.push_str(&inverse("\\t\\n\\x0C\\r ")),
        'b' if !is_in_class => out.push_str("(?-u:\\b)"),
        'B' if !is_in_class => out.push_str("(?-u:\\B)"),
        'A' | 'z' if !is_in_class => {
            out.push('\\');
            out.push(c);
        }
        'a' | 'f' | 't' | 'n' | 'r' | 'v' => {
            out.push('\\');
            out.push(c);
        }
        'Q' if !is_in_class => {
            let (quoted, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
            out.push_str(&regex::escape(quoted));
            return Ok(rest);
        }
        'x' => return hexadecimal(rest, out),
        'p' | 'P' => return unicode_class(c, rest, out),
        '0'..='7' => return octal(after, out),
        _ if c.is_ascii_punctuation() && c != '_' => {
            out.push('\\');
            out.push(c);
        }
        _ => return Err(format!("\\{c} is unknown")),
    }
    Ok(rest)
}

/// `7F` or `{10FFFF}`.
fn hexadecimal<'a>(rest: &'a str, out: &mut String) -> Result<&'a str, String> {
    const WRONG: &str = "\\x needs a hexadecimal number";
    let (digits, rest) = match rest.strip_prefix('{') {
        Some(rest) => rest.split_once('}').ok_or(WRONG)?,
        None => rest.split_at_checked(2).ok_or(WRONG)?,
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(WRONG.to_owned());
    }
    out.push_str("\\x{");
    out.push_str(digits);
    out.push('}');
    Ok(rest)
}

/// `12`, `123`, `0`. A single digit other than 0 would be a backreference, which Go does not have.
fn octal<'a>(digits: &'a str, out: &mut String) -> Result<&'a str, String> {
    let count = digits.bytes().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
    let (number, rest) = digits.split_at_checked(count).unwrap_or((digits, ""));
    if count == 1 && number != "0" {
        return Err("references to groups are unknown".to_owned());
    }
    let value = u32::from_str_radix(number, 8).map_err(|error| error.to_string())?;
    hexadecimal(&format!("{{{value:x}}}"), out)?;
    Ok(rest)
}

/// `N` or `{Greek}` after `\p`.
fn unicode_class<'a>(c: char, rest: &'a str, out: &mut String) -> Result<&'a str, String> {
    const WRONG: &str = "\\p needs a character class";
    let (name, rest) = match rest.strip_prefix('{') {
        Some(rest) => rest.split_once('}').ok_or(WRONG)?,
        None => rest.split_at_checked(1).ok_or(WRONG)?,
    };
    let bare = name.strip_prefix('^').unwrap_or(name);
    let is_name = bare.starts_with(|c: char| c.is_ascii_uppercase())
        && bare.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    if !is_name {
        return Err(WRONG.to_owned());
    }
    // Two negations cancel out.
    let is_negated = (c == 'P') != (bare.len() != name.len());
    out.push_str(if is_negated { "\\P{" } else { "\\p{" });
    out.push_str(bare);
    out.push('}');
    Ok(rest)
}

/// A class in brackets.
fn class<'a>(after: &'a str, out: &mut String) -> Result<&'a str, String> {
    out.push('[');
    let mut rest = after;
    if let Some(negated) = rest.strip_prefix('^') {
        out.push('^');
        rest = negated;
    }
    let mut is_first = true;
    // Whether the next character ends a range.
    let mut is_range = false;
    loop {
        let c = rest.chars().next().ok_or("a class has no end")?;
        let next = rest.get(c.len_utf8()..).unwrap_or_default();
        let ends_range = std::mem::take(&mut is_range);
        rest = match c {
            ']' if !is_first => {
                out.push(']');
                return Ok(next);
            }
            '\\' => escape(next, true, out)?,
            '[' if next.starts_with(':') && next.contains(":]") => {
                let (name, rest) = next.split_once(":]").unwrap_or((next, ""));
                let bare = name.trim_start_matches([':', '^']);
                if !POSIX.contains(&bare) {
                    return Err(format!("[:{bare}:] is unknown"));
                }
                out.push('[');
                out.push_str(name);
                out.push_str(":]");
                rest
            }
            // A minus sign is a range between two characters, else a literal.
            '-' if !is_first && !ends_range && !next.starts_with(']') => {
                is_range = true;
                out.push('-');
                next
            }
            '[' | ']' | '&' | '~' | '-' | '^' => {
                out.push('\\');
                out.push(c);
                next
            }
            _ => {
                out.push(c);
                next
            }
        };
        is_first = false;
    }
}
