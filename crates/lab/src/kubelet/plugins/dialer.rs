//! Connects to a plugin's DRA socket and counts open connections.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

/// Number of open connections to a plugin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<AtomicUsize>);

/// Connector for one plugin.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    path: PathBuf,
    connections: Connections,
}

/// A connection that is counted while it is open.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    connections: Connections,
}

impl Connections {
    /// Whether a connection is open.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Dialer {
    /// A connector for the socket at `path`.
    pub(crate) fn new(path: PathBuf, connections: Connections) -> Self {
        Self { path, connections }
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Connection>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { path, connections } = self.clone();
        Box::pin(async move {
            let stream = UnixStream::connect(path).await?;
            connections.0.fetch_add(1, Ordering::SeqCst);
            Ok(TokioIo::new(Connection { stream, connections }))
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
