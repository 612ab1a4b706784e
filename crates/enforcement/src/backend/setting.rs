//! The setting `memoryEnforcement`: the backend that limits containers to their shares.

use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// Memory enforcement of shares prepared from now on. Prepared shares keep theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryEnforcement {
    /// The driver where it can, else the guard.
    #[default]
    Auto,
    /// The guard in the containers.
    Guard,
    /// The driver; where it cannot, shares are refused.
    Driver,
    /// Nothing.
    Off,
}

/// A setting that is none of the words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one of auto, guard, driver, off")]
pub struct MemoryEnforcementError(String);

impl FromStr for MemoryEnforcement {
    type Err = MemoryEnforcementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "guard" => Ok(Self::Guard),
            "driver" => Ok(Self::Driver),
            "off" => Ok(Self::Off),
            _ => Err(MemoryEnforcementError(text.to_owned())),
        }
    }
}

impl<'de> Deserialize<'de> for MemoryEnforcement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
