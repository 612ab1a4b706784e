//! The setting `owner`: the scheduler of a node.

use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// Maximum length of a label value, and of a taint value.
const MAX_LENGTH: usize = 63;

/// The only scheduler that allocates a node's devices, by its name in `spec.schedulerName`.
///
/// The text is a label value, which also becomes the value of the devices' taint. An empty value means that no
/// scheduler owns the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner(Option<String>);

/// Why a text names no owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot be the name of a node's scheduler: give {MAX_LENGTH} letters, digits, dashes, dots and \
     underscores at most, with a letter or digit at both ends, or nothing where no scheduler owns the node"
)]
pub struct OwnerError(String);

impl Owner {
    /// The scheduler's name; `None`: any scheduler may allocate the devices.
    pub fn scheduler(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl FromStr for Owner {
    type Err = OwnerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let (first, last) = (text.bytes().next(), text.bytes().next_back());
        let is_value =
            text.len() <= MAX_LENGTH && is_end(first) && is_end(last) && text.bytes().all(is_inner);
        if is_value { Ok(Self(Some(text.to_owned()))) } else { Err(OwnerError(text.to_owned())) }
    }
}

impl<'de> Deserialize<'de> for Owner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeFile;

    #[test]
    fn owner_is_a_label_value_and_empty_means_none() {
        let owner = |text: &str| text.parse::<Owner>();
        assert_eq!(owner("octavo").unwrap().scheduler(), Some("octavo"));
        assert_eq!(owner("team-a.gpu_1").unwrap().scheduler(), Some("team-a.gpu_1"));
        assert_eq!(owner("").unwrap(), Owner::default());
        assert_eq!(owner(&"a".repeat(63)).unwrap().scheduler(), Some(&*"a".repeat(63)));
        for text in ["-a", "a-", "a b", "a/b", "ä", &"a".repeat(64)] {
            assert!(owner(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_config_file_names_the_owner_or_none() {
        let file = |text: &str| serde_saphyr::from_str::<NodeFile>(text).map(|file| file.owner);
        assert_eq!(file("owner: octavo").unwrap(), Some("octavo".parse().unwrap()));
        assert_eq!(file("owner: \"\"").unwrap(), Some(Owner::default()));
        assert!(file("owner: [octavo]").is_err());
        let error = file("owner: two words").unwrap_err().to_string();
        assert!(error.contains("two words") && error.contains("letters"), "{error}");
    }
}
