//! Semantic versions (semver.org 2.0.0), with the parsing and order of Kubernetes' CEL library.

use std::cmp::Ordering;

/// A semantic version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Semver {
    /// Major, minor and patch.
    pub(crate) numbers: [u64; 3],
    pre_release: Vec<Part>,
}

/// A part of a pre-release. Numbers sort before names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Name(String),
}

impl Semver {
    /// Parses a version; `None` if it is malformed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // The build goes first, because it may contain a hyphen.
        let mut parts = text.splitn(3, '.');
        let (major, minor, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre_release) = match rest.split_once('-') {
            Some((patch, pre_release)) => (patch, Some(pre_release)),
            None => (rest, None),
        };
        let pre_release = match pre_release {
            Some(text) => text.split('.').map(Part::parse).collect::<Option<Vec<_>>>()?,
            None => Vec::new(),
        };
        if build.is_some_and(|build| !build.split('.').all(is_word)) {
            return None;
        }
        Some(Self { numbers: [number(major)?, number(minor)?, number(patch)?], pre_release })
    }

    /// Parses a version of one to three numbers, with an optional leading `v` and leading zeros.
    pub(crate) fn parse_tolerant(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return None;
        }
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }

    /// Compares by precedence, which ignores builds.
    pub(crate) fn cmp_precedence(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.pre_release.cmp(&other.pre_release),
            }
        })
    }
}

impl Part {
    fn parse(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return Some(Self::Number(number(text)?));
        }
        is_word(text).then(|| Self::Name(text.to_owned()))
    }
}

/// A number without leading zeros.
fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    let has_zero = text.len() > 1 && text.starts_with('0');
    if is_number && !has_zero { text.parse().ok() } else { None }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// The text without the leading zeros of its number.
fn without_zeros(text: &str) -> String {
    if text.len() < 2 {
        return text.to_owned();
    }
    let bare = text.trim_start_matches('0');
    if bare.starts_with(|c: char| c.is_ascii_digit()) {
        bare.to_owned()
    } else {
        format!("0{bare}")
    }
}
