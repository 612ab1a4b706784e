//! Converts the looser versions of drivers to semantic ones.
//!
//! `ResourceSlice` attributes of type version must be semantic, but NVIDIA's `580.95.05` and `13.0`
//! are not. The same tolerant parser as in NVIDIA's stack makes them `580.95.5` and `13.0.0`, so
//! selectors written for that stack match.

#[cfg(test)]
mod tests;

/// Why a text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The text is not one to three numbers with dots.
    #[error("version {0:?} does not consist of one to three numbers separated by dots")]
    Shape(String),
    /// A number does not fit in 64 bits.
    #[error("version {0:?} has a number beyond 64 bits")]
    Range(String),
    /// The part after `-` is not a pre-release, or the part after `+` is not build metadata.
    #[error("version {text:?} has {part:?}, which is neither a pre-release nor build metadata")]
    Suffix {
        /// The whole text.
        text: String,
        /// The invalid part.
        part: String,
    },
}

/// Writes a tolerant version as a semantic one. It drops a leading `v` and leading zeros, adds
/// missing numbers as 0, and keeps pre-release and build metadata.
pub fn normalize(text: &str) -> Result<String, VersionError> {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let (rest, build) = match bare.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (bare, None),
    };
    let (numbers, pre) = match rest.split_once('-') {
        Some((numbers, pre)) => (numbers, Some(pre)),
        None => (rest, None),
    };
    let mut parts = [0_u64; 3];
    for (count, part) in numbers.split('.').enumerate() {
        let shape = || VersionError::Shape(text.to_owned());
        let slot = parts.get_mut(count).ok_or_else(shape)?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return Err(shape());
        }
        *slot = part.parse().map_err(|_| VersionError::Range(text.to_owned()))?;
    }
    let [major, minor, patch] = parts;
    let mut version = format!("{major}.{minor}.{patch}");
    for (sign, part) in [('-', pre), ('+', build)] {
        let Some(part) = part else { continue };
        if !part.split('.').all(|segment| is_segment(segment, sign == '-')) {
            return Err(VersionError::Suffix { text: text.to_owned(), part: part.to_owned() });
        }
        version.push(sign);
        version.push_str(part);
    }
    Ok(version)
}

/// Whether text is a valid part between the dots of a pre-release or of build metadata.
fn is_segment(segment: &str, is_pre_release: bool) -> bool {
    let has_leading_zero = segment.len() > 1
        && segment.starts_with('0')
        && segment.bytes().all(|b| b.is_ascii_digit());
    !segment.is_empty()
        && segment.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !(is_pre_release && has_leading_zero)
}
