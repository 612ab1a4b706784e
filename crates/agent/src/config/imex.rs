//! The settings `imex`: who runs the IMEX services, and what keeps domains apart.

use std::path::{Path, PathBuf};

use octavo_api::imex::{ImexConflict, ImexIsolation, ImexMode, ImexServices};
use serde::Deserialize;

/// The socket of a host's service, as NVIDIA's driver expects it.
const HOST_SOCKET: &str = "/etc/nvidia-imex/imex_ctrl.sock";

/// The block `imex` of a config file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImexFile {
    /// Who runs the services. Default `driverManaged`.
    pub mode: Option<ImexMode>,
    /// What keeps domains apart. Default `domain`.
    pub isolation: Option<ImexIsolation>,
    /// Socket for commands to the host's service, as it is called there. Default `/etc/nvidia-imex/imex_ctrl.sock`.
    pub host_socket_path: Option<PathBuf>,
}

/// The IMEX services, as the agent uses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Imex {
    /// Each domain has daemons of its own.
    #[default]
    PerDomain,
    /// Domains share the daemons of a clique; each has a channel of its own.
    PerClique,
    /// The host runs the service.
    OfHost {
        /// Its socket for commands.
        socket: PathBuf,
    },
}

/// Why the IMEX settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImexError {
    /// Mode and isolation exclude each other.
    #[error(transparent)]
    Conflict(#[from] ImexConflict),
    /// The socket of a service that is not asked.
    #[error(
        "`imex.hostSocketPath` is set and `imex.mode` is driverManaged: the host's service is not asked then; remove one of the two"
    )]
    UnusedSocket,
    /// The socket must be absolute.
    #[error("`imex.hostSocketPath` is {0}, which is not an absolute path")]
    RelativeSocket(PathBuf),
    /// The agent is no driver of domains.
    #[error("`imex` is set and `computeDomains` is not true: set it, or remove `imex`")]
    NoComputeDomains,
}

impl ImexFile {
    /// These settings, completed by those of `other`.
    pub(super) fn or(first: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(first), Some(other)) = (&first, &other) else { return first.or(other) };
        Some(Self {
            mode: first.mode.or(other.mode),
            isolation: first.isolation.or(other.isolation),
            host_socket_path: first.host_socket_path.clone().or(other.host_socket_path.clone()),
        })
    }

    /// Applies the defaults and validates the settings.
    pub(super) fn complete(self) -> Result<Imex, ImexError> {
        let Self { mode, isolation, host_socket_path } = self;
        let services = ImexServices::new(mode.unwrap_or_default(), isolation.unwrap_or_default())?;
        if host_socket_path.is_some() && services != ImexServices::OfHost {
            return Err(ImexError::UnusedSocket);
        }
        let socket = host_socket_path.unwrap_or_else(|| Path::new(HOST_SOCKET).to_owned());
        if !socket.is_absolute() {
            return Err(ImexError::RelativeSocket(socket));
        }
        Ok(match services {
            ImexServices::PerDomain => Imex::PerDomain,
            ImexServices::PerClique => Imex::PerClique,
            ImexServices::OfHost => Imex::OfHost { socket },
        })
    }
}

impl Imex {
    /// The services.
    pub(crate) fn services(&self) -> ImexServices {
        match self {
            Self::PerDomain => ImexServices::PerDomain,
            Self::PerClique => ImexServices::PerClique,
            Self::OfHost { .. } => ImexServices::OfHost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigError, NodeFile};

    fn imex(text: &str) -> Result<Imex, ConfigError> {
        let text = format!("nodeName: a\ncomputeDomains: true\n{text}");
        let config = serde_saphyr::from_str::<NodeFile>(&text).unwrap().complete()?;
        Ok(config.compute_domains.unwrap().imex)
    }

    #[test]
    fn defaults_are_daemons_and_an_imex_domain_for_each() {
        assert_eq!(imex("").unwrap(), Imex::PerDomain);
        assert_eq!(imex("imex: {}").unwrap(), Imex::PerDomain);
        assert_eq!(imex("imex: {isolation: channel}").unwrap(), Imex::PerClique);
        let socket = PathBuf::from(HOST_SOCKET);
        assert_eq!(imex("imex: {mode: hostManaged}").unwrap(), Imex::OfHost { socket });
        let socket = PathBuf::from("/s");
        let host = imex("imex: {mode: hostManaged, isolation: domain, hostSocketPath: /s}");
        assert_eq!(host.unwrap(), Imex::OfHost { socket });
    }

    #[test]
    fn a_setting_without_effect_is_an_error() {
        for (text, wanted) in [
            ("imex: {hostSocketPath: /s}", "hostSocketPath"),
            ("imex: {mode: hostManaged, hostSocketPath: s}", "absolute"),
            ("imex: {mode: hostManaged, isolation: channel}", "imex.isolation"),
        ] {
            let error = imex(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        let unused: NodeFile =
            serde_saphyr::from_str("{nodeName: a, imex: {mode: hostManaged}}").unwrap();
        let error = unused.complete().unwrap_err().to_string();
        assert!(error.contains("computeDomains"), "{error}");
        assert!(serde_saphyr::from_str::<NodeFile>("imex: {mod: hostManaged}").is_err());
    }

    #[test]
    fn flags_go_before_the_file_key_by_key() {
        let flags = ImexFile { mode: Some(ImexMode::HostManaged), ..ImexFile::default() };
        let file = ImexFile {
            mode: Some(ImexMode::DriverManaged),
            isolation: None,
            host_socket_path: Some("/s".into()),
        };
        let both = ImexFile::or(Some(flags.clone()), Some(file.clone())).unwrap();
        assert_eq!(both.complete().unwrap(), Imex::OfHost { socket: "/s".into() });
        assert_eq!(ImexFile::or(None, Some(file.clone())), Some(file));
        assert_eq!(ImexFile::or(Some(flags.clone()), None), Some(flags));
    }
}
