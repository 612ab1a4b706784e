//! The active agent's side: accepts handover requests.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{ANSWER_TIMEOUT, HANDOVER_SOCKET, HANDOVER_TIMEOUT, VERSION, line, send};
use crate::checkpoint::Lock;
use crate::config::NodeConfig;
use crate::kubelet::socket::{SOCKET_CHECK_INTERVAL, Socket, stale};

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

/// Accepts handover requests until `stop`, and sends them to `requests`.
pub(crate) async fn listen(
    config: Arc<NodeConfig>,
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
                tokio::spawn(async move {
                    stop.run_until_cancelled(converse(&config, stream, &requests)).await;
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
    requests: &mpsc::Sender<HandoverRequest>,
) {
    let node = &config.node_name;
    match timeout(HANDOVER_TIMEOUT, hear(&mut stream)).await {
        Ok(Ok(instance)) => {
            tracing::info!(%node, %instance, "another agent asks for the node");
            // The receiver is gone if another newcomer was first.
            let _ = requests.send(HandoverRequest { stream, instance }).await;
        }
        outcome => {
            tracing::warn!(%node, ?outcome, "another agent was there and did not take the node");
            drop(stream);
            sleep(NEWCOMER_EXIT_DELAY).await;
            stale::remove(config).await;
        }
    }
}

/// Reads the request of a newcomer; returns its instance id.
async fn hear(stream: &mut UnixStream) -> io::Result<String> {
    let hello = line(stream).await?;
    let unknown = || io::Error::other(format!("{hello:?} is no question for the node"));
    let asked = hello.strip_prefix("octavo handover ").ok_or_else(unknown)?;
    let (version, instance) = asked.split_once(' ').ok_or_else(unknown)?;
    // Newer versions also support this protocol version.
    if version.parse::<u32>().map_err(|_| unknown())? < VERSION {
        return Err(unknown());
    }
    stream.write_all(format!("here {VERSION}\n").as_bytes()).await?;
    let options = line(stream).await?;
    if options == "give" { Ok(instance.to_owned()) } else { Err(io::Error::other(options)) }
}
