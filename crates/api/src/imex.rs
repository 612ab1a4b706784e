//! Who runs the IMEX services of `ComputeDomains`, what keeps domains apart, and whether services encrypt: the settings
//! `imex.mode` and `imex.isolation`, in the words of NVIDIA's driver, and `imex.encryption`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Who runs `nvidia-imex`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ImexMode {
    /// The controller makes daemons.
    #[default]
    DriverManaged,
    /// The node's administrator does, as a service of the host.
    HostManaged,
}

/// What keeps the memory of two domains apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ImexIsolation {
    /// Each domain has an IMEX domain of its own, and channel 0.
    #[default]
    Domain,
    /// Domains share the IMEX domain of an NVLink clique. Each has a channel of its own there.
    Channel,
}

/// The settings, as config files have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ImexSettings {
    /// Who runs the services.
    pub mode: ImexMode,
    /// What keeps domains apart.
    pub isolation: ImexIsolation,
    /// Whether the daemons of a domain encrypt what they send to each other. Agents have no such setting.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub encryption: bool,
}

impl ImexSettings {
    /// The services.
    pub fn services(self) -> Result<ImexServices, ImexConflict> {
        let services = ImexServices::new(self.mode, self.isolation)?;
        let is_of_host = services == ImexServices::OfHost;
        if self.encryption && is_of_host {
            Err(ImexConflict::EncryptionOfHost)
        } else {
            Ok(services)
        }
    }
}

/// The services that follow from mode and isolation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImexServices {
    /// One IMEX domain for each `ComputeDomain`, of daemons that the controller makes.
    #[default]
    PerDomain,
    /// One lasting IMEX domain for each NVLink clique, of daemons that the controller makes.
    PerClique,
    /// Those of the hosts.
    OfHost,
}

/// Why the services cannot be as set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImexConflict {
    /// Channels of services that hosts run.
    #[error(
        "`imex.isolation: channel` needs daemons of the controller, and `imex.mode` is hostManaged: set one of the two to its default"
    )]
    ChannelOfHost,
    /// Encryption of services that hosts run.
    #[error(
        "`imex.encryption` is of the controller's daemons, and `imex.mode` is hostManaged: turn it off, and set the keys in the \
         config of the host's service"
    )]
    EncryptionOfHost,
}

impl ImexServices {
    /// The services for a mode and an isolation.
    pub fn new(mode: ImexMode, isolation: ImexIsolation) -> Result<Self, ImexConflict> {
        match (mode, isolation) {
            (ImexMode::DriverManaged, ImexIsolation::Domain) => Ok(Self::PerDomain),
            (ImexMode::DriverManaged, ImexIsolation::Channel) => Ok(Self::PerClique),
            (ImexMode::HostManaged, ImexIsolation::Domain) => Ok(Self::OfHost),
            (ImexMode::HostManaged, ImexIsolation::Channel) => Err(ImexConflict::ChannelOfHost),
        }
    }
}

/// The settings that lead to the services.
impl fmt::Display for ImexServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PerDomain => "imex.mode: driverManaged, imex.isolation: domain",
            Self::PerClique => "imex.mode: driverManaged, imex.isolation: channel",
            Self::OfHost => "imex.mode: hostManaged",
        })
    }
}

impl FromStr for ImexMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "driverManaged" => Ok(Self::DriverManaged),
            "hostManaged" => Ok(Self::HostManaged),
            _ => Err(format!("{text:?} is not driverManaged or hostManaged")),
        }
    }
}

impl FromStr for ImexIsolation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "domain" => Ok(Self::Domain),
            "channel" => Ok(Self::Channel),
            _ => Err(format!("{text:?} is not domain or channel")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_and_files_have_the_same_words() {
        for mode in [ImexMode::DriverManaged, ImexMode::HostManaged] {
            let word = serde_json::to_value(mode).unwrap();
            assert_eq!(word.as_str().unwrap().parse(), Ok(mode));
        }
        for isolation in [ImexIsolation::Domain, ImexIsolation::Channel] {
            let word = serde_json::to_value(isolation).unwrap();
            assert_eq!(word.as_str().unwrap().parse(), Ok(isolation));
        }
        assert!("host".parse::<ImexMode>().unwrap_err().contains("hostManaged"));
        assert!("channels".parse::<ImexIsolation>().is_err());
        assert!(serde_json::from_value::<ImexMode>(json!("host")).is_err());
    }

    #[test]
    fn hosts_have_neither_channels_nor_encryption() {
        let error = ImexServices::new(ImexMode::HostManaged, ImexIsolation::Channel).unwrap_err();
        assert!(error.to_string().contains("imex.isolation"), "{error}");
        let encrypted = ImexSettings { encryption: true, ..ImexSettings::default() };
        assert_eq!(encrypted.services(), Ok(ImexServices::PerDomain));
        let of_host = ImexSettings { mode: ImexMode::HostManaged, ..encrypted };
        assert_eq!(of_host.services(), Err(ImexConflict::EncryptionOfHost));
        let shared = ImexServices::new(ImexMode::DriverManaged, ImexIsolation::Channel).unwrap();
        assert!(shared.to_string().contains("channel"), "{shared}");
    }
}
