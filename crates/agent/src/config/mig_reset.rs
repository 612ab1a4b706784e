//! The setting `migReset`: whether a GPU may be reset for its MIG layout.

use std::str::FromStr;

use serde::Deserialize;

/// Whether a GPU is reset that changes its MIG mode only so, as those before Hopper do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigReset {
    /// Never: people reset it.
    None,
    /// The agent resets the GPU, once nothing uses it.
    #[default]
    Gpu,
}

/// A text says not what is reset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is nothing that is reset: give none or gpu")]
pub struct MigResetError(String);

impl FromStr for MigReset {
    type Err = MigResetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "gpu" => Ok(Self::Gpu),
            other => Err(MigResetError(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_has_the_same_name_in_files_and_flags() {
        for (text, reset) in [("none", MigReset::None), ("gpu", MigReset::Gpu)] {
            assert_eq!(text.parse(), Ok(reset));
            assert_eq!(serde_json::from_value(text.into()).ok(), Some(reset));
        }
        let error = "node".parse::<MigReset>().unwrap_err().to_string();
        assert!(error.contains("none or gpu"), "{error}");
    }
}
