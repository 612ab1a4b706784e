//! Connections over TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use octavo_kube_io::listener::{LimitedListener, LimitedStream};
use rustls::ServerConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Handshakes at the same time at most. An API server keeps its connections.
const MAX_HANDSHAKES: usize = 64;
/// Time for one handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts connections. A slow handshake delays no other.
pub(super) struct TlsListener {
    address: io::Result<SocketAddr>,
    connections: mpsc::Receiver<(TlsStream<LimitedStream>, SocketAddr)>,
}

impl TlsListener {
    /// Accepts connections of a listener until this is dropped.
    pub(super) fn new(listener: LimitedListener, config: Arc<ServerConfig>) -> Self {
        let address = axum::serve::Listener::local_addr(&listener);
        let (sender, connections) = mpsc::channel(1);
        let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
        tokio::spawn(async move {
            let accept = accept(listener, TlsAcceptor::from(config), handshakes, sender.clone());
            tokio::select! {
                () = accept => {}
                () = sender.closed() => {}
            }
        });
        Self { address, connections }
    }
}

async fn accept(
    mut listener: LimitedListener,
    acceptor: TlsAcceptor,
    handshakes: Arc<Semaphore>,
    sender: mpsc::Sender<(TlsStream<LimitedStream>, SocketAddr)>,
) {
    while let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await {
        let (stream, address) = axum::serve::Listener::accept(&mut listener).await;
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        tokio::spawn(async move {
            let _permit: OwnedSemaphorePermit = permit;
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(sender.send((stream, address)).await),
                // Such as an API server that does not trust the authority yet.
                Ok(Err(error)) => tracing::debug!(%address, %error, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
            }
        });
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<LimitedStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            // The task that accepts ends with this.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.address {
            Ok(address) => Ok(*address),
            Err(error) => Err(error.kind().into()),
        }
    }
}
