//! The service's configuration file: lines of `KEY=VALUE`, `#` begins a comment.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

/// Path of the file if none is named.
pub const DEFAULT_PATH: &str = "/etc/nvidia-imex/config.cfg";

/// Keys of the log's rotation and of statistics, which the simulated service does not write.
const IGNORED: [&str; 7] = [
    "LOG_LEVEL",
    "LOG_APPEND_TO_LOG",
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
    pub tls: Option<TlsFiles>,
    /// Where commands are served; `None`: nowhere.
    pub command: Option<CommandAddress>,
    /// The log; `None`: standard error.
    pub log_file: Option<PathBuf>,
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

/// Text in PEM form: own key and certificate, and the authority of the peers.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// Private key.
    pub key: Vec<u8>,
    /// Certificate with its chain.
    pub certificate: Vec<u8>,
    /// Authority that has signed the certificates of peers.
    pub authority: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Identity")
    }
}

/// Keys of the two sides of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// As the side that is called.
    pub server: Identity,
    /// As the side that calls.
    pub client: Identity,
    /// Name that certificates of peers have, instead of their name in the list.
    pub target: Option<String>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// A file or key file that cannot be read, or a setting that this service does not have.
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
        ensure!(!keys.flag("DAEMONIZE")?, "DAEMONIZE=1 is not simulated: run it in the foreground");
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
            command: command(&mut keys)?,
            log_file: keys.take("LOG_FILE_NAME").map(Into::into),
        };
        if let Some(unknown) = keys.0.keys().find(|key| !key.starts_with("IMEX_GSS_")) {
            bail!("unknown key {unknown}");
        }
        Ok(config)
    }
}

/// Where commands are served.
fn command(keys: &mut Keys) -> anyhow::Result<Option<CommandAddress>> {
    let is_enabled = keys.flag("IMEX_CMD_ENABLED")?;
    let address: Option<IpAddr> = keys.parsed("IMEX_CMD_BIND_INTERFACE_IP")?;
    let port = keys.parsed("IMEX_CMD_PORT")?.unwrap_or(50_005);
    let socket = keys.take("IMEX_CMD_UNIX_DOMAIN_PATH");
    let address = SocketAddr::new(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port);
    let socket = socket.map(|path| CommandAddress::Unix(path.into()));
    Ok(is_enabled.then(|| socket.unwrap_or(CommandAddress::Tcp(address))))
}

/// Keys for TLS: from files, from files named in the environment, or from the environment.
fn tls(keys: &mut Keys) -> anyhow::Result<Option<TlsFiles>> {
    let is_enabled = keys.flag("IMEX_ENABLE_AUTH_ENCRYPTION")?;
    let mode = keys.take("IMEX_AUTH_ENCRYPTION_MODE");
    if let Some(mode) = mode.filter(|mode| is_enabled && mode != "SSL_TLS") {
        bail!("IMEX_AUTH_ENCRYPTION_MODE={mode} is not simulated: write SSL_TLS");
    }
    let source = keys.take("IMEX_AUTH_SOURCE");
    let target = keys.take("IMEX_SECURITY_TARGET_OVERRIDE");
    let mut identity = |side: &str| {
        let mut part = |name: &str| {
            let key = format!("IMEX_{side}_{name}");
            let value = keys.take(&key);
            if !is_enabled {
                return Ok(Vec::new());
            }
            let value = value.with_context(|| format!("{key} is missing"))?;
            let named = || std::env::var(&value).with_context(|| format!("{key}: {value}"));
            let text = match source.as_deref() {
                Some("FILE") => std::fs::read(&value),
                Some("ENV_PATH") => std::fs::read(named()?),
                Some("ENV_VAL") => Ok(named()?.into_bytes()),
                _ => bail!("IMEX_AUTH_SOURCE is none of FILE, ENV_PATH and ENV_VAL"),
            };
            text.with_context(|| format!("reading {key}"))
        };
        anyhow::Ok(Identity {
            key: part("KEY")?,
            certificate: part("CERT")?,
            authority: part("CERT_AUTH")?,
        })
    };
    let (server, client) = (identity("SERVER")?, identity("CLIENT")?);
    Ok(is_enabled.then_some(TlsFiles { server, client, target }))
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

    /// A switch, off by default.
    fn flag(&mut self, key: &str) -> anyhow::Result<bool> {
        match self.take(key).as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => bail!("{key}={other}: write 0 or 1"),
        }
    }
}

#[cfg(test)]
mod tests;
