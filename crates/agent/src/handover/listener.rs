//! The active agent's side: accepts handover requests.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    ANSWER_TIMEOUT, DECLINE, FIRST_VERSION, HANDOVER_SOCKET, HANDOVER_TIMEOUT, VERSION, line, send,
};
use crate::checkpoint::Lock;
use crate::config::NodeConfig;
use crate::kubelet::socket::{SOCKET_CHECK_INTERVAL, Socket, stale};
use crate::node::DraDriver;

/// Delay before the sockets of an exited newcomer are cleaned up. The system closes them one by one.
const NEWCOMER_EXIT_DELAY: Duration = Duration::from_secs(1);
/// Pause after the socket could not be made.
const BIND_RETRY_DELAY: Duration = Duration::from_secs(5);

/// A newcomer that waits for the node. Dropping this rejects it.
#[derive(Debug)]
pub(crate) struct HandoverRequest {
    stream: UnixStream,
    /// How it names itself.
    pub(crate) instance: String,
}

impl HandoverRequest {
    /// Hands over the node. On error the lock is returned: the newcomer does not have it.
    pub(crate) async fn give(self, lock: Lock) -> Result<(), (Lock, io::Error)> {
        let give = self.stream.async_io(Interest::WRITABLE, || send(&self.stream, &lock));
        let given = timeout(ANSWER_TIMEOUT, give).await.unwrap_or_else(|late| Err(late.into()));
        match given {
            Ok(()) => {
                lock.handed_over();
                Ok(())
            }
            Err(error) => Err((lock, error)),
        }
    }
}

/// Accepts handover requests until `stop`, and sends them to `requests`. `has_driver` tells whether this agent has a
/// driver, or is about to have one.
pub(crate) async fn listen(
    config: Arc<NodeConfig>,
    has_driver: impl Fn() -> bool,
    requests: mpsc::Sender<HandoverRequest>,
    stop: CancellationToken,
) {
    let path = config.plugin_folder().join(HANDOVER_SOCKET);
    let mut socket = loop {
        match Socket::bind(&path) {
            Ok(socket) => break socket,
            Err(error) => {
                tracing::warn!(node = %config.node_name, %error, "no other agent can ask for the node");
            }
        }
        if stop.run_until_cancelled(sleep(BIND_RETRY_DELAY)).await.is_none() {
            return;
        }
    };
    let mut look = interval(SOCKET_CHECK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            _ = look.tick() => {
                socket.restore();
                continue;
            }
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok(stream) => {
                let (config, requests, stop) =
                    (Arc::clone(&config), requests.clone(), stop.clone());
                let has_driver = has_driver();
                tokio::spawn(async move {
                    let talk = converse(&config, stream, has_driver, &requests);
                    stop.run_until_cancelled(talk).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a new agent's connection was not accepted");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Serves one newcomer until it requests the node or disconnects.
async fn converse(
    config: &NodeConfig,
    mut stream: UnixStream,
    has_driver: bool,
    requests: &mpsc::Sender<HandoverRequest>,
) {
    let node = &config.node_name;
    match timeout(HANDOVER_TIMEOUT, hear(&mut stream, has_driver)).await {
        Ok(Ok((instance, true))) => {
            tracing::info!(%node, %instance, "another agent asks for the node");
            // The receiver is gone if another newcomer was first.
            let _ = requests.send(HandoverRequest { stream, instance }).await;
        }
        Ok(Ok((instance, false))) => {
            tracing::debug!(%node, %instance, "another agent is there and does not want the node");
        }
        outcome => {
            tracing::warn!(%node, ?outcome, "another agent was there and did not take the node");
            drop(stream);
            sleep(NEWCOMER_EXIT_DELAY).await;
            stale::remove(DraDriver::GPU, config).await;
        }
    }
}

/// Reads the request of a newcomer. Returns its instance id, and whether it wants the node.
async fn hear(stream: &mut UnixStream, has_driver: bool) -> io::Result<(String, bool)> {
    let hello = line(stream).await?;
    let unknown = || io::Error::other(format!("{hello:?} is no question for the node"));
    let asked = hello.strip_prefix("octavo handover ").ok_or_else(unknown)?;
    let (version, instance) = asked.split_once(' ').ok_or_else(unknown)?;
    // Newer versions also support this protocol version.
    let reply = match version.parse::<u32>().map_err(|_| unknown())? {
        0 => return Err(unknown()),
        FIRST_VERSION => format!("here {FIRST_VERSION}\n"),
        _ if has_driver => format!("here {VERSION} driver\n"),
        _ => format!("here {VERSION} no-driver\n"),
    };
    stream.write_all(reply.as_bytes()).await?;
    let answer = line(stream).await?;
    match answer.as_str() {
        "give" => Ok((instance.to_owned(), true)),
        _ if answer == DECLINE.trim_end() => Ok((instance.to_owned(), false)),
        _ => Err(io::Error::other(answer)),
    }
}
