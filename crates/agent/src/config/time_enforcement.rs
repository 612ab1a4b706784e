//! The setting `timeEnforcement`: whether shares are held to their part of a GPU's time.

use std::str::FromStr;

use serde::Deserialize;

/// How shares are held to their part of a GPU's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeEnforcement {
    /// Not at all: the driver divides the time among contexts.
    #[default]
    Off,
    /// Processes with a guard need leases of the agent. Processes that began before the setting get them, too.
    Leases,
}

/// A text names no enforcement of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no enforcement of time: give off or leases")]
pub struct TimeEnforcementError(String);

impl FromStr for TimeEnforcement {
    type Err = TimeEnforcementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "leases" => Ok(Self::Leases),
            other => Err(TimeEnforcementError(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enforcement_has_the_same_name_in_files_and_flags() {
        for (text, enforcement) in
            [("off", TimeEnforcement::Off), ("leases", TimeEnforcement::Leases)]
        {
            assert_eq!(text.parse(), Ok(enforcement));
            assert_eq!(serde_json::from_value(text.into()).ok(), Some(enforcement));
        }
        let error = "quota".parse::<TimeEnforcement>().unwrap_err().to_string();
        assert!(error.contains("off or leases"), "{error}");
    }
}
