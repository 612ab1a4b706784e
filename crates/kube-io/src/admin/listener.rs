//! A listener with a limit of open connections, and of the bytes of a request.
//!
//! Any pod of a cluster reaches an admin port, and each idle connection takes memory. Beyond the limit,
//! the oldest connection is closed for a new one. So a client that opens many cannot keep out a
//! kubelet's probe, which takes milliseconds.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Open connections at most.
const MAX_CONNECTIONS: usize = 128;
/// Bytes of requests without an answer. All requests are short; a client could otherwise send headers without end.
const MAX_REQUEST_BYTES: usize = 16 << 10;

/// Accepts connections and closes the oldest beyond the limit.
pub(super) struct LimitedListener {
    listener: TcpListener,
    /// Ends each open connection, the oldest first. Those that have ended stay until they are the oldest.
    open: VecDeque<CancellationToken>,
}

impl LimitedListener {
    /// Limits the connections of a listener.
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, open: VecDeque::new() }
    }
}

impl axum::serve::Listener for LimitedListener {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedStream, SocketAddr) {
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        if self.open.len() >= MAX_CONNECTIONS
            && let Some(oldest) = self.open.pop_front()
        {
            oldest.cancel();
        }
        let closing = CancellationToken::new();
        let closed = Box::pin(closing.clone().cancelled_owned());
        self.open.push_back(closing);
        (LimitedStream { stream, closed, unanswered: 0 }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that the listener may close.
pub(super) struct LimitedStream {
    stream: TcpStream,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Bytes read since the last answer.
    unanswered: usize,
}

impl LimitedStream {
    /// An error once the listener has closed the connection.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.closed.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::Error::other("too many connections: the oldest is closed")),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.unanswered += buffer.filled().len() - before;
        if self.unanswered > MAX_REQUEST_BYTES {
            return Poll::Ready(Err(io::Error::other("the request is too long")));
        }
        read
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        self.unanswered = 0;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
