//! The service's configuration file: lines of `KEY=VALUE`, `#` begins a comment.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

/// Path of the file if none is named.
pub const DEFAULT_PATH: &str = "/etc/nvidia-imex/config.cfg";

/// Keys of the log's rotation and of statistics, which the simulated service does not write.
const IGNORED: [&str; 6] = [
    "LOG_LEVEL",
    "LOG_FILE_MAX_SIZE",
    "LOG_MAX_ROTATE_COUNT",
    "LOG_USE_SYSLOG",
    "STATS_FILE_NAME",
    "NETWORK_INTERFACE",
];

/// The settings of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address on which peers are served, and by which the node knows itself in the list; `None`: every address.
    pub address: Option<IpAddr>,
    /// Port for peers.
    pub port: u16,
    /// File with the nodes of the domain.
    pub nodes_file: PathBuf,
    /// What the service waits for before it is ready.
    pub quorum: Quorum,
    /// Time after which a lost connection is cleaned up; `None`: never.
    pub grace_time: Option<Duration>,
    /// Keys for TLS; `None`: connections are plain.
    pub tls: Option<TlsKeys>,
    /// Where commands are served: at a port, at a socket, or both.
    pub commands: Vec<CommandAddress>,
    /// The log; `None`: standard error.
    pub log_file: Option<PathBuf>,
    /// Whether the log is kept at a start.
    pub is_log_kept: bool,
}

/// What a service waits for before it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// Nothing.
    None,
    /// Peers that hold memory of an earlier session. There are none here.
    Recovery,
    /// All nodes of the list.
    Full,
}

/// Where commands are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandAddress {
    /// At an address and port.
    Tcp(SocketAddr),
    /// At a socket in the file system.
    Unix(PathBuf),
}

/// Where a text in PEM form is. It is read when the service starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pem {
    /// In a file.
    File(PathBuf),
    /// In a file that a variable of the environment names.
    FileOf(String),
    /// In a variable of the environment.
    Variable(String),
}

/// Own key and certificate, and the authority of the peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Private key.
    pub key: Pem,
    /// Certificate with its chain.
    pub certificate: Pem,
    /// Authority that has signed the certificates of peers.
    pub authority: Pem,
}

/// Keys of the two sides of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsKeys {
    /// As the side that is called.
    pub server: Identity,
    /// As the side that calls.
    pub client: Identity,
    /// Name that certificates of peers have, instead of their name in the list.
    pub target: Option<String>,
}

impl Pem {
    /// Reads the text.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<u8>> {
        let variable = |name| std::env::var(name).with_context(|| format!("reading ${name}"));
        let path = match self {
            Self::File(path) => path.clone(),
            Self::FileOf(name) => variable(name)?.into(),
            Self::Variable(name) => return Ok(variable(name)?.into_bytes()),
        };
        std::fs::read(&path).with_context(|| format!("reading {}", path.display()))
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or a setting that this service does not have.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading the config file {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in the config file {}", path.display()))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// As for [`Config::read`].
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut keys = Keys::parse(text)?;
        for key in IGNORED {
            keys.take(key);
        }
        ensure!(
            !keys.flag("DAEMONIZE", false)?,
            "DAEMONIZE=1 is not simulated: run it in the foreground"
        );
        let config = Self {
            address: keys.parsed("BIND_INTERFACE_IP")?,
            port: keys.parsed("SERVER_PORT")?.unwrap_or(50_000),
            nodes_file: keys
                .take("IMEX_NODE_CONFIG_FILE")
                .unwrap_or_else(|| "/etc/nvidia-imex/nodes_config.cfg".to_owned())
                .into(),
            quorum: match keys.take("IMEX_WAIT_FOR_QUORUM").as_deref() {
                None | Some("RECOVERY") => Quorum::Recovery,
                Some("NONE") => Quorum::None,
                Some("FULL") => Quorum::Full,
                Some(other) => bail!("IMEX_WAIT_FOR_QUORUM={other}: write NONE, RECOVERY or FULL"),
            },
            grace_time: match keys.parsed::<i64>("IMEX_NODE_DISCONNECTED_GRACE_TIME")? {
                None | Some(..0) => None,
                Some(seconds) => Some(Duration::from_secs(seconds.unsigned_abs())),
            },
            tls: tls(&mut keys)?,
            commands: commands(&mut keys)?,
            log_file: keys.take("LOG_FILE_NAME").map(Into::into),
            is_log_kept: keys.flag("LOG_APPEND_TO_LOG", true)?,
        };
        if let Some(unknown) = keys.0.keys().find(|key| !key.starts_with("IMEX_GSS_")) {
            bail!("unknown key {unknown}");
        }
        Ok(config)
    }
}

/// Where commands are served.
fn commands(keys: &mut Keys) -> anyhow::Result<Vec<CommandAddress>> {
    let is_enabled = keys.flag("IMEX_CMD_ENABLED", false)?;
    let address: Option<IpAddr> = keys.parsed("IMEX_CMD_BIND_INTERFACE_IP")?;
    let port = keys.parsed("IMEX_CMD_PORT")?.unwrap_or(50_005);
    let address = SocketAddr::new(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port);
    let socket = keys.take("IMEX_CMD_UNIX_DOMAIN_PATH");
    let socket = socket.map(|path| CommandAddress::Unix(path.into()));
    let all = socket.into_iter().chain([CommandAddress::Tcp(address)]);
    Ok(all.filter(|_| is_enabled).collect())
}

/// Keys for TLS: in files, in files named in the environment, or in the environment.
fn tls(keys: &mut Keys) -> anyhow::Result<Option<TlsKeys>> {
    let is_enabled = keys.flag("IMEX_ENABLE_AUTH_ENCRYPTION", false)?;
    let mode = keys.take("IMEX_AUTH_ENCRYPTION_MODE");
    let source = keys.take("IMEX_AUTH_SOURCE");
    let target = keys.take("IMEX_SECURITY_TARGET_OVERRIDE");
    let names = ["KEY", "CERT", "CERT_AUTH"];
    let mut values = |side: &str| {
        names.map(|name| {
            let key = format!("IMEX_{side}_{name}");
            keys.take(&key).with_context(|| format!("{key} is missing"))
        })
    };
    let (server, client) = (values("SERVER"), values("CLIENT"));
    if !is_enabled {
        return Ok(None);
    }
    if let Some(mode) = mode.filter(|mode| mode != "SSL_TLS") {
        bail!("IMEX_AUTH_ENCRYPTION_MODE={mode} is not simulated: write SSL_TLS");
    }
    let pem = |value: String| match source.as_deref() {
        Some("FILE") => Ok(Pem::File(value.into())),
        Some("ENV_PATH") => Ok(Pem::FileOf(value)),
        Some("ENV_VAL") => Ok(Pem::Variable(value)),
        _ => bail!("IMEX_AUTH_SOURCE is none of FILE, ENV_PATH and ENV_VAL"),
    };
    let identity = |[key, certificate, authority]: [anyhow::Result<String>; 3]| {
        anyhow::Ok(Identity {
            key: pem(key?)?,
            certificate: pem(certificate?)?,
            authority: pem(authority?)?,
        })
    };
    Ok(Some(TlsKeys { server: identity(server)?, client: identity(client)?, target }))
}

/// Keys that were not looked at yet.
struct Keys(BTreeMap<String, String>);

impl Keys {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pair = |line: &str| {
            let (key, value) =
                line.split_once('=').with_context(|| format!("`{line}` is not KEY=VALUE"))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        };
        lines.map(pair).collect::<anyhow::Result<_>>().map(Self)
    }

    /// The value of a key; `None` if it is missing or empty.
    fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key).filter(|value| !value.is_empty())
    }

    fn parsed<T: std::str::FromStr>(&mut self, key: &str) -> anyhow::Result<Option<T>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| anyhow::anyhow!("{key}={value} is no valid value"))
    }

    /// A switch.
    fn flag(&mut self, key: &str, default: bool) -> anyhow::Result<bool> {
        match self.take(key).as_deref() {
            None => Ok(default),
            Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => bail!("{key}={other}: write 0 or 1"),
        }
    }
}

#[cfg(test)]
mod tests;
