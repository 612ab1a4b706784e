//! The layouts that need no file: what NVIDIA's MIG manager generates from a node's GPUs.
//!
//! Its 81 ready-made layouts have the same names and devices, each for its GPU models.

use std::str::FromStr;

/// A layout that is computed from a GPU's own profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuiltinLayout {
    /// `all-disabled`: MIG mode is off.
    Disabled,
    /// `all-enabled`: MIG mode is on, without devices.
    Enabled,
    /// `all-balanced`: two devices with one slice, one with two, and one with three on GPUs with seven slices.
    Balanced,
    /// `all-<profile>`: as many devices of the profile as fit. `+` in its name may be written `.`.
    Profile(String),
}

/// A text names no such layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no layout that needs no file: those are all-disabled, all-enabled, all-balanced and all-<profile>"
)]
pub struct BuiltinLayoutError(String);

impl FromStr for BuiltinLayout {
    type Err = BuiltinLayoutError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("all-") {
            Some("disabled") => Ok(Self::Disabled),
            Some("enabled") => Ok(Self::Enabled),
            Some("balanced") => Ok(Self::Balanced),
            Some(profile) if profile.contains("g.") => Ok(Self::Profile(profile.to_owned())),
            _ => Err(BuiltinLayoutError(text.to_owned())),
        }
    }
}
