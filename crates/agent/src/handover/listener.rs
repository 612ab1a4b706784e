//! The active agent's side: hears who wants the node.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{ANSWER, GIVING, HANDOVER_SOCKET, VERSION, line, send};
use crate::checkpoint::Lock;
use crate::config::NodeConfig;
use crate::socket::{LOOK_INTERVAL, Socket, leftovers};

/// How long after a newcomer's end its sockets are looked for: the system closes them one by one.
const AFTER_ITS_END: Duration = Duration::from_secs(1);
/// Pause after the socket could not be made.
const AGAIN: Duration = Duration::from_secs(5);

/// A newcomer that waits for the node; dropping this sends it away.
#[derive(Debug)]
pub(crate) struct Asker {
    stream: UnixStream,
    /// How it names itself.
    pub(crate) instance: String,
}

impl Asker {
    /// Gives the node. An error gives the lock back: the newcomer does not have it.
    pub(crate) async fn give(self, lock: Lock) -> Result<(), (Lock, io::Error)> {
        let give = self.stream.async_io(Interest::WRITABLE, || send(&self.stream, &lock));
        let given = timeout(ANSWER, give).await.unwrap_or_else(|late| Err(late.into()));
        match given {
            Ok(()) => {
                lock.given();
                Ok(())
            }
            Err(error) => Err((lock, error)),
        }
    }
}

/// Lets newcomers ask until `stop`; those that want the node come out of `askers`.
pub(crate) async fn listen(
    config: Arc<NodeConfig>,
    askers: mpsc::Sender<Asker>,
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
        if stop.run_until_cancelled(sleep(AGAIN)).await.is_none() {
            return;
        }
    };
    let mut look = interval(LOOK_INTERVAL);
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
                let (config, askers, stop) = (Arc::clone(&config), askers.clone(), stop.clone());
                tokio::spawn(async move {
                    stop.run_until_cancelled(converse(&config, stream, &askers)).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a new agent's connection was not accepted");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Speaks to one newcomer until it wants the node or goes.
async fn converse(config: &NodeConfig, mut stream: UnixStream, askers: &mpsc::Sender<Asker>) {
    let node = &config.node_name;
    match timeout(GIVING, hear(&mut stream)).await {
        Ok(Ok(instance)) => {
            tracing::info!(%node, %instance, "another agent asks for the node");
            // Nobody receives any more where another newcomer was first.
            let _ = askers.send(Asker { stream, instance }).await;
        }
        outcome => {
            tracing::warn!(%node, ?outcome, "another agent was there and did not take the node");
            drop(stream);
            sleep(AFTER_ITS_END).await;
            leftovers::remove(config).await;
        }
    }
}

/// Hears a newcomer out; returns how it names itself.
async fn hear(stream: &mut UnixStream) -> io::Result<String> {
    let hello = line(stream).await?;
    let unknown = || io::Error::other(format!("{hello:?} is no question for the node"));
    let asked = hello.strip_prefix("octavo handover ").ok_or_else(unknown)?;
    let (version, instance) = asked.split_once(' ').ok_or_else(unknown)?;
    // A newer one speaks the older form, too.
    if version.parse::<u32>().map_err(|_| unknown())? < VERSION {
        return Err(unknown());
    }
    stream.write_all(format!("here {VERSION}\n").as_bytes()).await?;
    let wish = line(stream).await?;
    if wish == "give" { Ok(instance.to_owned()) } else { Err(io::Error::other(wish)) }
}
