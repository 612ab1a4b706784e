//! The connections between the nodes of a domain.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::daemon::Shared;
use crate::status::ConnectionStatus;
use crate::stream::{Lines, next_line};

/// Time for a connection and for each answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval of the lines that show that a peer lives.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Time between attempts: at first, and at most.
const RETRY: Duration = Duration::from_millis(250);
const MAX_RETRY: Duration = Duration::from_secs(1);

/// What a calling node says first.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hello {
    /// Version of its driver.
    version: String,
    /// Its index in the list.
    index: u32,
    /// Its list.
    nodes: Vec<String>,
    /// Its place in the fabric, in hex digits; `None` without a driver.
    fabric_node: Option<String>,
}

/// What the called node answers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    status: ConnectionStatus,
    /// As of the calling node.
    fabric_node: Option<String>,
}

/// Keeps the connection to a peer. Its name is looked up at each reload; `address` is what it led to at the start. An address
/// that stays keeps its connection.
pub(crate) async fn keep(shared: Arc<Shared>, peer: u32, mut address: Option<IpAddr>) {
    let mut reload = shared.reloads();
    let (mut pause, mut problem) = (RETRY, String::new());
    // When a lost connection is given up.
    let mut deadline = None;
    loop {
        if let Some(known) = address {
            let ended = hold(&shared, peer, known, &mut reload).await;
            if shared.link(peer) == ConnectionStatus::Connected {
                shared.set_link(peer, ConnectionStatus::Recovering);
                deadline = shared.grace_time().map(|time| Instant::now() + time);
                pause = RETRY;
            }
            match ended {
                Ok(()) => {
                    address = shared.address(peer);
                    continue;
                }
                Err(error) if error.to_string() != problem => {
                    problem = error.to_string();
                    shared.log(&format!("node {peer} ({}): {problem}", shared.node(peer)));
                }
                Err(_) => {}
            }
        }
        if shared.link(peer) == ConnectionStatus::Recovering
            && deadline.is_some_and(|deadline| Instant::now() >= deadline)
        {
            shared.set_link(peer, ConnectionStatus::Disconnected);
        }
        tokio::select! {
            changed = reload.changed() => {
                if changed.is_err() {
                    return;
                }
                address = shared.address(peer);
            }
            () = sleep(pause) => pause = (pause * 2).min(MAX_RETRY),
        }
    }
}

/// Connects and stays connected. Ends well when the peer has another address after a reload.
async fn hold(
    shared: &Shared,
    peer: u32,
    address: IpAddr,
    reload: &mut watch::Receiver<u64>,
) -> io::Result<()> {
    if shared.is_cut(peer) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let mut stream = timeout(ANSWER_TIMEOUT, call(shared, peer, address)).await??;
    let hello = Hello {
        version: shared.version().to_owned(),
        index: shared.own(),
        nodes: shared.nodes().to_vec(),
        fabric_node: shared.fabric_node().map(|node| node.to_string()),
    };
    let mut line = serde_json::to_vec(&hello)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await?;
    let reply = timeout(ANSWER_TIMEOUT, next_line(&mut stream)).await??;
    let reply: Reply = serde_json::from_str(&reply)?;
    shared.set_peer(peer, reply.fabric_node.and_then(|node| node.parse().ok()));
    shared.set_link(peer, reply.status);
    if reply.status != ConnectionStatus::Connected {
        // The other side has closed it; the next attempt asks again.
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    loop {
        tokio::select! {
            changed = reload.changed() => {
                if changed.is_err() || shared.address(peer) != Some(address) {
                    return Ok(());
                }
            }
            () = sleep(HEARTBEAT) => {
                if shared.is_cut(peer) {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                stream.write_all(b"\n").await?;
                stream.flush().await?;
                timeout(ANSWER_TIMEOUT, next_line(&mut stream)).await??;
            }
            // A peer says nothing by itself: what comes is its end.
            _ = end_of(&mut stream) => {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
    }
}

/// Ends when the peer ends the connection.
async fn end_of(stream: &mut Lines) -> io::Result<()> {
    use tokio::io::AsyncBufReadExt as _;
    stream.fill_buf().await.map(drop)
}

async fn call(shared: &Shared, peer: u32, address: IpAddr) -> io::Result<Lines> {
    let tcp = TcpStream::connect((address, shared.port())).await?;
    tcp.set_nodelay(true)?;
    shared.transport().connect(tcp, shared.node(peer)).await
}

/// Answers the calls of peers.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((tcp, _)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        let called = Arc::clone(&shared);
        shared.spawn(async move {
            if let Err(error) = answer(&called, tcp).await {
                called.log(&format!("a call of a peer has ended: {error}"));
            }
        });
    }
}

async fn answer(shared: &Shared, tcp: TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let mut stream = timeout(ANSWER_TIMEOUT, shared.transport().accept(tcp)).await??;
    let hello = timeout(ANSWER_TIMEOUT, next_line(&mut stream)).await??;
    let hello: Hello = serde_json::from_str(&hello)?;
    if shared.is_cut(hello.index) {
        return Ok(());
    }
    let status = if hello.version != shared.version() {
        ConnectionStatus::VersionMismatch
    } else if hello.nodes != shared.nodes() {
        ConnectionStatus::NodeMapMismatch
    } else {
        ConnectionStatus::Connected
    };
    let fabric_node = shared.fabric_node().map(|node| node.to_string());
    let mut line = serde_json::to_vec(&Reply { status, fabric_node })?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await?;
    while status == ConnectionStatus::Connected && !shared.is_cut(hello.index) {
        timeout(HEARTBEAT * 4, next_line(&mut stream)).await??;
        stream.write_all(b"\n").await?;
        stream.flush().await?;
    }
    Ok(())
}
