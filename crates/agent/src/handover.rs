//! Passes a node from one agent to the next, so that it always has exactly one.
//!
//! ```text
//! newcomer                                      the node's active agent, on handover.sock
//!   "octavo handover 2 <instance>"  ------->
//!                                   <-------    "here 2 driver", or "here 2 no-driver"
//!   creates and registers its own
//!   sockets, on which calls wait
//!   "give", or "decline"            ------->
//!                                               refuses new calls, ends running ones,
//!                                               closes its sockets, stops publishing
//!                                   <-------    the lock of the checkpoint folder
//!   reads the checkpoints, answers              waits for the lock
//! ```
//!
//! The lock travels as the file descriptor that holds it, so no third agent can acquire it in between. If either agent
//! dies at any step, the node stays with the other. A newcomer without the lock changes nothing; if it dies with the
//! lock, the kernel frees the lock for the waiting agent. Lines end with a line feed. The newcomer names the newest
//! protocol version that it knows, and the active agent selects the version in use. Version 1 has `here 1` alone, which
//! tells nothing about the driver.

mod listener;
#[cfg(test)]
mod tests;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use octavo_node::files::StorageError;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::checkpoint::Lock;

pub(crate) use listener::{HandoverRequest, listen};

/// File name of the socket of the node's active agent for handover requests.
pub(crate) const HANDOVER_SOCKET: &str = "handover.sock";
/// The form of the conversation.
const VERSION: u32 = 2;
/// The form without the state of the driver.
const FIRST_VERSION: u32 = 1;
/// Line of a newcomer that leaves the node where it is.
const DECLINE: &str = "decline\n";
/// Longest line.
const MAX_LINE_BYTES: usize = 256;
/// Timeout for answers that need no work.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the active agent to finish its work. Longer than the kubelet's call timeout.
const HANDOVER_TIMEOUT: Duration = Duration::from_mins(1);

/// Why a node was not handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandoverError {
    /// No agent listens: it predates handover, hangs, or is ending.
    #[error("no agent answers on {path}: {source}")]
    NotListening {
        /// The socket.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The conversation broke off.
    #[error("the node's active agent closed the connection while it should {0}")]
    Ended(&'static str),
    /// Nothing came.
    #[error("the node's active agent did not {step} within {seconds} s")]
    TimedOut {
        /// The expected step.
        step: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The answer is not understood.
    #[error("the node's active agent answered {0:?}, which this version does not understand")]
    UnknownReply(String),
    /// The received file is not the lock.
    #[error(transparent)]
    Lock(#[from] StorageError),
}

/// Whether a process listens on the socket at `path`, even if it does not answer.
pub(crate) async fn is_listening(path: &Path) -> bool {
    UnixStream::connect(path).await.is_ok()
}

/// An active agent that is ready to hand over its node.
#[derive(Debug)]
pub(crate) struct HandoverOffer {
    stream: UnixStream,
    /// Whether the active agent has a driver; `None` if it does not tell.
    pub(crate) has_driver: Option<bool>,
}

impl HandoverOffer {
    /// Connects to the active agent at `path` and introduces this instance.
    pub(crate) async fn find(path: &Path, instance: &str) -> Result<Self, HandoverError> {
        const STEP: &str = "confirm its presence";
        let found = within(ANSWER_TIMEOUT, STEP, UnixStream::connect(path)).await?;
        let not_listening = |source| HandoverError::NotListening { path: path.to_owned(), source };
        let mut stream = found.map_err(not_listening)?;
        let hello = format!("octavo handover {VERSION} {instance}\n");
        stream.write_all(hello.as_bytes()).await.map_err(|_| HandoverError::Ended(STEP))?;
        let line = within(ANSWER_TIMEOUT, STEP, line(&mut stream)).await?;
        let line = line.map_err(|_| HandoverError::Ended(STEP))?;
        let has_driver = match line.strip_prefix("here ") {
            Some("1") => None,
            Some("2 driver") => Some(true),
            Some("2 no-driver") => Some(false),
            _ => return Err(HandoverError::UnknownReply(line)),
        };
        Ok(Self { stream, has_driver })
    }

    /// Leaves the node with the active agent.
    pub(crate) async fn decline(mut self) {
        // It sees a closed connection otherwise, which is the same to it but for a warning.
        let _ = self.stream.write_all(DECLINE.as_bytes()).await;
    }

    /// Receives the lock of the checkpoint folder. On success the other agent no longer uses the node. On failure the
    /// node remains with the other agent, or will return to it.
    pub(crate) async fn accept(mut self, folder: &Path) -> Result<Lock, HandoverError> {
        const STEP: &str = "hand the node over";
        let ended = |_| HandoverError::Ended(STEP);
        self.stream.write_all(b"give\n").await.map_err(ended)?;
        let receive = self.stream.async_io(Interest::READABLE, || receive(&self.stream));
        let file = within(HANDOVER_TIMEOUT, STEP, receive).await?.map_err(ended)?;
        Ok(Lock::adopt(folder, file)?)
    }
}

/// Reads exactly one line: the following bytes may carry a file descriptor, which a plain read would lose.
async fn line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    while line.len() < MAX_LINE_BYTES {
        match stream.read_u8().await? {
            b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
            byte => line.push(byte),
        }
    }
    Err(io::Error::other("the line is too long"))
}

/// Sends a file descriptor with one byte, since an empty message cannot carry one.
fn send(stream: impl AsFd, file: &impl AsFd) -> io::Result<()> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no room for a file descriptor"));
    }
    sendmsg(stream, &[IoSlice::new(b"L")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a file descriptor. A message without one is an error.
fn receive(stream: impl AsFd) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    files.flatten().next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

async fn within<T>(
    limit: Duration,
    step: &'static str,
    work: impl Future<Output = T>,
) -> Result<T, HandoverError> {
    let silent = |_| HandoverError::TimedOut { step, seconds: limit.as_secs() };
    timeout(limit, work).await.map_err(silent)
}
