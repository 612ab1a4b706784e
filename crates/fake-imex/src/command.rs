//! The command service, and questions to it.
//!
//! | request | answer |
//! |---|---|
//! | `status` | a [`Node`] |
//! | `subscribe` | a [`Node`] now and at each change |

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::Zoned;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::{CommandAddress, Config};
use crate::daemon::Shared;
use crate::names::{self, Names};
use crate::status::{Connection, ConnectionStatus, Domain, DomainStatus, Node, NodeStatus};
use crate::stream::{Stream, next_line};

/// Time for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Where commands are served.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Opens the command service. A socket that an earlier service has left is replaced.
pub(crate) async fn listen(address: &CommandAddress) -> anyhow::Result<Listener> {
    match address {
        CommandAddress::Tcp(address) => TcpListener::bind(address)
            .await
            .map(Listener::Tcp)
            .with_context(|| format!("listening on {address} for commands")),
        CommandAddress::Unix(path) => {
            if UnixStream::connect(path).await.is_ok() {
                bail!("another service listens on {}", path.display());
            }
            let is_socket =
                std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
            let removed = if is_socket { std::fs::remove_file(path) } else { Ok(()) };
            removed
                .and_then(|()| UnixListener::bind(path).map(Listener::Unix))
                .with_context(|| format!("listening on {} for commands", path.display()))
        }
    }
}

/// Answers commands.
pub(crate) async fn serve(shared: Arc<Shared>, listener: Listener) {
    loop {
        let accepted: io::Result<Box<dyn Stream>> = match &listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(it, _)| Box::new(it) as _),
            Listener::Unix(listener) => listener.accept().await.map(|(it, _)| Box::new(it) as _),
        };
        let Ok(stream) = accepted else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let asked = Arc::clone(&shared);
        shared.spawn(async move {
            // A client that goes away is answered no more.
            let _ = answer(&asked, stream).await;
        });
    }
}

async fn answer(shared: &Shared, stream: Box<dyn Stream>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let request = timeout(ANSWER_TIMEOUT, next_line(&mut stream)).await??;
    let mut changes = shared.changes();
    loop {
        changes.mark_unchanged();
        let mut line = serde_json::to_vec(&shared.report())?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        stream.flush().await?;
        if request != "subscribe" {
            return Ok(());
        }
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
            // A subscriber says nothing: what comes is its end.
            _ = stream.fill_buf() => return Ok(()),
        }
    }
}

/// A service that tells of its changes.
pub struct Subscription(BufReader<Box<dyn Stream>>);

impl Subscription {
    /// The next report.
    ///
    /// # Errors
    ///
    /// The service has ended.
    pub async fn next(&mut self) -> anyhow::Result<Node> {
        let line = next_line(&mut self.0).await.context("the service has ended")?;
        serde_json::from_str(&line).context("the service's answer cannot be read")
    }
}

/// Subscribes to a service.
///
/// # Errors
///
/// Nothing answers there within two seconds.
pub async fn subscribe(address: &CommandAddress) -> anyhow::Result<Subscription> {
    let asked = timeout(ANSWER_TIMEOUT, ask(address, "subscribe")).await;
    asked.context("the service does not answer")?.map(Subscription)
}

/// Asks one service for its state.
///
/// # Errors
///
/// Nothing answers there within two seconds.
pub async fn status(address: &CommandAddress) -> anyhow::Result<Node> {
    let answer = async { Subscription(ask(address, "status").await?).next().await };
    timeout(ANSWER_TIMEOUT, answer).await.context("the service does not answer")?
}

async fn ask(
    address: &CommandAddress,
    request: &str,
) -> anyhow::Result<BufReader<Box<dyn Stream>>> {
    let stream: Box<dyn Stream> = match address {
        CommandAddress::Tcp(address) => Box::new(
            TcpStream::connect(address)
                .await
                .with_context(|| format!("connecting to {address}"))?,
        ),
        CommandAddress::Unix(path) => Box::new(
            UnixStream::connect(path)
                .await
                .with_context(|| format!("connecting to {}", path.display()))?,
        ),
    };
    let mut stream = BufReader::new(stream);
    stream.write_all(format!("{request}\n").as_bytes()).await.context("asking the service")?;
    Ok(stream)
}

/// Asks every node of a domain.
///
/// # Errors
///
/// A list of nodes that cannot be read, or a service whose commands are not at a port.
pub async fn domain(config: &Config, hosts: &Path) -> anyhow::Result<Domain> {
    let port = config.commands.iter().find_map(|address| match address {
        CommandAddress::Tcp(address) => Some(address.port()),
        CommandAddress::Unix(_) => None,
    });
    let port = port.context("IMEX_CMD_ENABLED is needed to ask other nodes")?;
    let (list, names) = (names::read(&config.nodes_file)?, Names::new(hosts));
    let mut asked = JoinSet::new();
    for (index, host) in (0..).zip(list.iter().cloned()) {
        let address = names.address(&host).map(|address| SocketAddr::new(address, port));
        asked.spawn(async move {
            let node = match address {
                Some(address) => status(&CommandAddress::Tcp(address)).await.ok(),
                None => None,
            };
            (index, host, node)
        });
    }
    let mut nodes = BTreeMap::new();
    while let Some(answer) = asked.join_next().await {
        let (index, host, node) = answer.context("asking a node")?;
        nodes.insert(index, node.unwrap_or_else(|| unavailable(host, &list)));
    }
    let timestamp = Zoned::now().strftime("%-m/%-d/%Y %H:%M:%S%.3f").to_string();
    Ok(Domain { status: DomainStatus::of(&nodes), nodes, timestamp })
}

/// A node that does not answer.
fn unavailable(host: String, list: &[String]) -> Node {
    let connections = (0..).zip(list).map(|(index, host)| {
        let status = ConnectionStatus::Invalid;
        (index, Connection { host: host.clone(), status, changed: false })
    });
    Node {
        status: NodeStatus::Unavailable,
        host,
        connections: connections.collect(),
        changed: false,
        version: String::new(),
        host_name: String::new(),
    }
}
