//! Unix sockets that the kubelet finds by their path.

pub(crate) mod stale;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Interval of checks for the socket files. The kubelet's folders may be emptied, and this is the cheapest way to
/// detect it with hundreds of nodes per process.
pub(crate) const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum path length of a socket on Linux (`sun_path` without its final zero).
const MAX_PATH_BYTES: usize = 107;
/// Connections that wait for their server.
const MAX_WAITING_CONNECTIONS: usize = 16;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// The path is too long for a socket.
    #[error(
        "the socket path {path} has {length} bytes and Linux takes {MAX_PATH_BYTES}: use a shorter folder (kubeletRoot, runRoot)"
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        length: usize,
    },
    /// Another process serves the socket.
    #[error(
        "another process serves {0}: agents of one node need instance ids of their own (instanceId), those of several nodes folders of their own (kubeletRoot, runRoot)"
    )]
    Busy(PathBuf),
    /// Something that is no socket has the path.
    #[error("{0} is in the way: it is not a socket; look what it is and remove it")]
    InTheWay(PathBuf),
    /// The system refused.
    #[error("cannot listen on {path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// A listening socket. Dropping it removes its file, unless the file was replaced.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    file: Option<(u64, u64)>,
}

impl Socket {
    /// Listens at `path`. The file of a killed predecessor is removed; a served socket is not.
    pub(crate) fn bind(path: &Path) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        let length = path.as_os_str().len();
        if length > MAX_PATH_BYTES {
            return Err(SocketError::TooLong { path: path.to_owned(), length });
        }
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o750).create(folder).map_err(failed)?;
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::InTheWay(path.to_owned()));
            }
            Ok(_) => match BlockingStream::connect(path) {
                Ok(_) => return Err(SocketError::Busy(path.to_owned())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(SocketError::Busy(path.to_owned()));
                }
                Err(_) => remove(path).map_err(failed)?,
            },
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        // The kubelet and container runtimes run as root.
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), file: identity(path) })
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Which file it is: device and inode.
    pub(crate) fn file(&self) -> Option<(u64, u64)> {
        self.file
    }

    /// Whether the path still leads here.
    fn is_in_place(&self) -> bool {
        self.file.is_some() && identity(&self.path) == self.file
    }

    /// Listens again if the file is missing.
    pub(crate) fn restore(&mut self) {
        if self.is_in_place() {
            return;
        }
        match Self::bind(&self.path) {
            Ok(new) => {
                tracing::warn!(path = %self.path.display(), "our socket had been removed; it is back");
                *self = new;
            }
            Err(error) => tracing::warn!(%error, "our socket is gone and cannot be made again"),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_in_place() {
            // If it cannot be removed, the next agent will.
            drop(remove(&self.path));
        }
    }
}

/// Accepts connections of both sockets until `stop`, then removes their files. The registration goes first: the kubelet
/// must not find one without a DRA socket. Missing files are created again.
pub(crate) fn accept(
    mut plugin: Socket,
    mut registration: Socket,
    stop: CancellationToken,
) -> (mpsc::Receiver<io::Result<UnixStream>>, mpsc::Receiver<io::Result<UnixStream>>) {
    let (plugin_sender, plugin_receiver) = mpsc::channel(MAX_WAITING_CONNECTIONS);
    let (registration_sender, registration_receiver) = mpsc::channel(MAX_WAITING_CONNECTIONS);
    tokio::spawn(async move {
        let mut look = interval(SOCKET_CHECK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let (connection, sender) = tokio::select! {
                () = stop.cancelled() => break,
                _ = look.tick() => {
                    plugin.restore();
                    registration.restore();
                    continue;
                }
                accepted = plugin.listener.accept() => (accepted, &plugin_sender),
                accepted = registration.listener.accept() => (accepted, &registration_sender),
            };
            match connection {
                Ok((stream, _)) => {
                    if sender.send(Ok(stream)).await.is_err() {
                        break;
                    }
                }
                Err(error) => {
                    // Probably out of file descriptors, which other connections must free first.
                    tracing::warn!(%error, "a connection of the kubelet was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(registration);
        drop(plugin);
    });
    (plugin_receiver, registration_receiver)
}

/// Which file is at a path: device and inode.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
