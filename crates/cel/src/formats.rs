//! Named formats of Kubernetes, which validate text. Those of URLs, dates and base64 are omitted.

/// A format: name, check, and the length of its pattern in Kubernetes.
pub(crate) type Format = (&'static str, fn(&str) -> bool, u64);

/// The formats; a value holds an index into this table.
pub(crate) const FORMATS: [Format; 9] = [
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

/// Length of the pattern in Kubernetes, which determines the price.
pub(crate) fn pattern_length(place: usize) -> u64 {
    FORMATS.get(place).map_or(0, |(_, _, length)| *length)
}

fn is_lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Whether text consists of letters, digits and hyphens, and neither starts nor ends with a hyphen.
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

/// Completes a prefix to a name: a hyphen at its end may be followed by a letter.
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
