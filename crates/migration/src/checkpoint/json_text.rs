//! JSON as text: checksums are over the bytes that Go's encoder wrote, which a parsed value has lost.

use std::fmt::Write as _;

/// A field of an object: its name, and its value as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) name: String,
    pub(super) value: &'a str,
}

/// JSON text as `json.Compact` of Go's encoder leaves it: without white space outside of strings, and with the characters
/// escaped in them that HTML gives a meaning. Text that the encoder wrote stays as it is, and indented text becomes it again.
///
/// The text must be valid JSON.
pub(super) fn compact(text: &str) -> String {
    let mut compact = String::with_capacity(text.len());
    let (mut in_string, mut is_escaped) = (false, false);
    for character in text.chars() {
        if !in_string && character.is_ascii_whitespace() {
            continue;
        }
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if in_string => {
                // Writing to a string cannot fail.
                let _ = write!(compact, "\\u{:04x}", u32::from(character));
            }
            _ => compact.push(character),
        }
        if in_string && is_escaped {
            is_escaped = false;
        } else if in_string && character == '\\' {
            is_escaped = true;
        } else if character == '"' {
            in_string = !in_string;
        }
    }
    compact
}

/// The fields of an object in compact text, in order; `None` if it is no object.
pub(super) fn fields(text: &str) -> Option<Vec<Field<'_>>> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let members = split(inner, b',');
    let mut fields = Vec::with_capacity(members.len());
    for member in members.into_iter().filter(|member| !member.is_empty()) {
        let colon = split(member, b':').first()?.len();
        let name: String = serde_json::from_str(member.get(..colon)?).ok()?;
        fields.push(Field { name, value: member.get(colon + 1..)? });
    }
    Some(fields)
}

/// Divides text at a separator that is in no string, object or list.
fn split(text: &str, separator: u8) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        if in_string {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ if byte == separator && depth == 0 => {
                parts.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_text_becomes_that_of_the_encoder() {
        let text = "{ \"a\" : [1, 2],\n\t\"b c\": \"<x> \\\" & y\" }";
        assert_eq!(compact(text), r#"{"a":[1,2],"b c":"\u003cx\u003e \" \u0026 y"}"#);
        let text = r#"{"a":"\u003cx\u003e \\","b":{}}"#;
        assert_eq!(compact(text), text);
    }

    #[test]
    fn fields_keep_their_text() {
        let text = r#"{"checksum":7,"v1":{"a":[{"b":"},\""}]},"\u00e9":null}"#;
        let found = fields(text).unwrap();
        let found: Vec<_> = found.iter().map(|field| (field.name.as_str(), field.value)).collect();
        let expected = [("checksum", "7"), ("v1", r#"{"a":[{"b":"},\""}]}"#), ("\u{e9}", "null")];
        assert_eq!(found, expected);
        assert_eq!(fields("{}").unwrap(), []);
        assert_eq!(fields("[1]"), None);
    }
}
