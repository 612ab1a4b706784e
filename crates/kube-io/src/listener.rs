//! A listener with a limit of open connections, and of the bytes of a request.
//!
//! Any pod of a cluster reaches a program's ports, and each idle connection takes memory. Beyond the limit,
//! the oldest connection is closed for a new one. So a client that opens many cannot keep out a
//! kubelet's probe, which takes milliseconds.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Open connections at most.
const MAX_CONNECTIONS: usize = 128;

/// Binds an address.
///
/// # Errors
///
/// It is in use, or not this machine's.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        // Without IPv6 in the kernel, "all addresses" means those of IPv4.
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Accepts connections and closes the oldest beyond the limit.
#[derive(Debug)]
pub struct LimitedListener {
    listener: TcpListener,
    /// Bytes of requests without an answer at most.
    max_request_bytes: usize,
    /// Ends each open connection, the oldest first. Those that have ended stay until they are the oldest.
    open: VecDeque<CancellationToken>,
}

impl LimitedListener {
    /// Limits the connections of a listener. A connection ends that sends more bytes than these without an answer.
    pub fn new(listener: TcpListener, max_request_bytes: usize) -> Self {
        Self { listener, max_request_bytes, open: VecDeque::new() }
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
        let max_request_bytes = self.max_request_bytes;
        (LimitedStream { stream, closed, unanswered: 0, max_request_bytes }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that the listener may close.
#[derive(Debug)]
pub struct LimitedStream {
    stream: TcpStream,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Bytes read since the last answer.
    unanswered: usize,
    max_request_bytes: usize,
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
        if self.unanswered > self.max_request_bytes {
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
