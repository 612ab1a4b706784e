//! The former name of the setting `memoryEnforcement`.

use serde::{Deserialize as _, Deserializer};

/// The former name of the setting, `wall`. It has no values: reading it is an error that names the new setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenamedSetting {}

impl RenamedSetting {
    /// Refuses the former flag.
    pub(crate) fn flag(_: &str) -> Result<Self, &'static str> {
        Err("--wall is now --memory-enforcement: give that flag instead")
    }

    /// Refuses the former key of a config file, whatever its value.
    pub(crate) fn in_file<'de, D: Deserializer<'de>>(file: D) -> Result<Option<Self>, D::Error> {
        serde::de::IgnoredAny::deserialize(file)?;
        Err(serde::de::Error::custom("`wall` is now `memoryEnforcement`: rename it in this file"))
    }
}
