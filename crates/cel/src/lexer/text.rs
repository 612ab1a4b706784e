//! Literals of text and bytes: quotes, prefixes and escapes.

use crate::ast::Literal;

/// The prefix of a literal.
#[derive(Clone, Copy)]
pub(super) struct Prefix {
    /// Its length in bytes.
    len: usize,
    /// `b`: a bytes literal.
    is_bytes: bool,
    /// `r`: no escapes.
    is_raw: bool,
}

/// The prefix and the opening quotes of a literal, if one starts here.
pub(super) fn opening(rest: &str) -> Option<(Prefix, &'static str)> {
    let (is_bytes, unprefixed) = match rest.strip_prefix(['b', 'B']) {
        Some(unprefixed) => (true, unprefixed),
        None => (false, rest),
    };
    let (is_raw, quoted) = match unprefixed.strip_prefix(['r', 'R']) {
        Some(quoted) => (true, quoted),
        None => (false, unprefixed),
    };
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| quoted.starts_with(quote))?;
    Some((Prefix { len: rest.len() - quoted.len(), is_bytes, is_raw }, quote))
}

/// Parses a literal and returns its length in bytes.
pub(super) fn literal(
    rest: &str,
    prefix: Prefix,
    quote: &str,
) -> Result<(Literal, usize), &'static str> {
    let start = prefix.len + quote.len();
    let body = rest.get(start..).unwrap_or_default();
    let mut out = Vec::new();
    let mut characters = body.char_indices();
    while let Some((at, c)) = characters.next() {
        if body.get(at..).unwrap_or_default().starts_with(quote) {
            let len = start + at + quote.len();
            if prefix.is_bytes {
                return Ok((Literal::Bytes(out), len));
            }
            let text = String::from_utf8(out).map_err(|_| "text is not valid UTF-8")?;
            return Ok((Literal::String(text), len));
        }
        match c {
            '\n' | '\r' if quote.len() == 1 => return Err("text has no closing quote on its line"),
            '\\' if !prefix.is_raw => escape(&mut characters, prefix.is_bytes, &mut out)?,
            _ => push(c, &mut out),
        }
    }
    Err("text has no closing quote")
}

/// Parses an escape after the backslash.
fn escape(
    characters: &mut std::str::CharIndices<'_>,
    is_bytes: bool,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    const UNKNOWN: &str = "text has an unknown escape";
    let (_, c) = characters.next().ok_or("text ends in a backslash")?;
    let mut number = |first: u32, digits: usize, radix: u32| -> Result<u32, &'static str> {
        let mut value = first;
        for _ in 0..digits {
            let digit = characters.next().and_then(|(_, c)| c.to_digit(radix)).ok_or(UNKNOWN)?;
            value = value * radix + digit;
        }
        Ok(value)
    };
    let (value, is_byte) = match c {
        'a' => (0x07, true),
        'b' => (0x08, true),
        'f' => (0x0c, true),
        'n' => (0x0a, true),
        'r' => (0x0d, true),
        't' => (0x09, true),
        'v' => (0x0b, true),
        '\\' | '\'' | '"' | '`' | '?' => (u32::from(c), true),
        'x' | 'X' => (number(0, 2, 16)?, true),
        '0'..='3' => (number(u32::from(c) - u32::from('0'), 2, 8)?, true),
        'u' => (number(0, 4, 16)?, false),
        'U' => (number(0, 8, 16)?, false),
        _ => return Err(UNKNOWN),
    };
    match (is_bytes, is_byte) {
        (true, true) => out.push(u8::try_from(value).map_err(|_| UNKNOWN)?),
        (true, false) => return Err("bytes have no Unicode escapes"),
        (false, _) => push(char::from_u32(value).ok_or("escape names no character")?, out),
    }
    Ok(())
}

/// Appends a character as UTF-8.
fn push(c: char, out: &mut Vec<u8>) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}
