//! The socket on which hooks ask for what needs the driver: the memory limit of their container's cgroup.
//!
//! Only root can connect. A hook sends one line of JSON and gets one.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_hook::memory_limits::{LimitResponse, MAX_LINE_BYTES, SOCKET};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::claims::Claims;
use crate::kubelet::socket::{SOCKET_CHECK_INTERVAL, Socket, SocketError};

/// Delay before the socket is bound again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Time in which a hook must send its line.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Hooks that are served at once; others wait.
const MAX_CONNECTIONS: usize = 16;

/// The socket's path.
pub(crate) fn path(run_root: &Path) -> PathBuf {
    run_root.join(SOCKET)
}

/// Answers hooks until it is dropped.
pub(crate) async fn serve(path: PathBuf, claims: Claims) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut hooks = JoinSet::new();
    let mut reported = None;
    loop {
        let mut socket = match bind(&path) {
            Ok(socket) => socket,
            Err(error) => {
                let error = error.to_string();
                if reported.as_ref() != Some(&error) {
                    tracing::warn!(%error, "hooks cannot ask for memory limits");
                    reported = Some(error);
                }
                sleep(RETRY_DELAY).await;
                continue;
            }
        };
        reported = None;
        let mut look = interval(SOCKET_CHECK_INTERVAL);
        loop {
            let stream = tokio::select! {
                accepted = socket.accept() => accepted,
                _ = look.tick() => {
                    socket.restore();
                    while hooks.try_join_next().is_some() {}
                    continue;
                }
            };
            let Ok(stream) = stream else { break sleep(RETRY_DELAY).await };
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            let claims = claims.clone();
            hooks.spawn(async move {
                answer(stream, &claims).await;
                drop(permit);
            });
        }
    }
}

/// Listens at the path. Containers of any user see files in its folder.
fn bind(path: &Path) -> Result<Socket, SocketError> {
    if let Some(folder) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
        made.map_err(|source| SocketError::Io { path: path.to_owned(), source })?;
    }
    Socket::bind(path)
}

/// Serves one hook. One that went away needs no answer.
async fn answer(stream: UnixStream, claims: &Claims) {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(MAX_LINE_BYTES));
    let Ok(Ok(_)) = timeout(READ_TIMEOUT, reader.read_line(&mut line)).await else { return };
    let result = match serde_json::from_str(&line) {
        Ok(request) => claims.limit_memory(request).await,
        Err(error) => Err(format!("the request is not one: {error}")),
    };
    let response = LimitResponse { error: result.err() };
    let Ok(mut text) = serde_json::to_vec(&response) else { return };
    text.push(b'\n');
    let _ = writer.write_all(&text).await;
}
