//! The admin server of each program: `/healthz`, `/readyz`, `/metrics`.

mod readiness;

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::IncomingStream;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::listener::{self, LimitedListener};

pub use readiness::{Check, Readiness};

/// Media type of the `OpenMetrics` text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bytes of requests without an answer. All requests are short; a client could otherwise send headers without end.
const MAX_REQUEST_BYTES: usize = 16 << 10;

/// How long responses in flight may take at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Where the admin server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// No admin server.
    None,
    /// This address; port 0 takes a free port.
    Listen(SocketAddr),
}

/// The text is not an admin address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an address to listen on: give ADDRESS:PORT, :PORT for all addresses, port 0 for a free \
     port, or none"
)]
pub struct ParseAdminAddressError(String);

/// Why the admin server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for health checks and metrics: {source}; choose another with \
         --admin-address, or none"
)]
pub struct AdminError {
    /// The address.
    pub address: SocketAddr,
    /// The error of the operating system.
    pub source: std::io::Error,
}

/// Answer to who may not read more than health.
pub const LOOPBACK_ONLY: &str =
    "metrics are for clients on the loopback: use a port-forward, or set --metrics-access everyone";

/// Who may read metrics, and what a program serves besides. Health is for everyone: kubelets ask from outside of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// Everyone who reaches the port.
    #[default]
    Everyone,
    /// Clients on the loopback: within the pod, or through a port-forward, which the API server authorises.
    Loopback,
}

/// The text is no [`MetricsAccess`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither everyone nor loopback")]
pub struct ParseMetricsAccessError(String);

impl FromStr for MetricsAccess {
    type Err = ParseMetricsAccessError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "everyone" => Ok(Self::Everyone),
            "loopback" => Ok(Self::Loopback),
            other => Err(ParseMetricsAccessError(other.to_owned())),
        }
    }
}

impl fmt::Display for MetricsAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Everyone => "everyone",
            Self::Loopback => "loopback",
        })
    }
}

/// The address of a client.
#[derive(Clone, Copy)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, LimitedListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// Answers only health to clients elsewhere than on the loopback.
async fn loopback_only(
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let is_health = matches!(request.uri().path(), "/healthz" | "/readyz");
    // On a socket for both versions, addresses of IPv4 are mapped.
    if is_health || peer.ip().to_canonical().is_loopback() {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, LOOPBACK_ONLY).into_response()
}

/// An admin server that is bound but not yet serving.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    address: SocketAddr,
    access: MetricsAccess,
}

impl AdminServer {
    /// Binds the address, so that a program fails early if it is in use.
    pub async fn bind(address: SocketAddr) -> Result<Self, AdminError> {
        let failed = |source| AdminError { address, source };
        let listener = listener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, access: MetricsAccess::default() })
    }

    /// Limits who may read metrics.
    #[must_use]
    pub fn with_access(self, access: MetricsAccess) -> Self {
        Self { access, ..self }
    }

    /// The address that it listens on, with the real port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then waits at most half a second for responses in flight.
    pub async fn serve(
        self,
        readiness: Arc<Readiness>,
        registry: Arc<Registry>,
        stop: CancellationToken,
    ) {
        self.serve_with(readiness, registry, Router::new(), stop).await;
    }

    /// Serves until `stop`, with the routes `more` beside those of each program.
    pub async fn serve_with(
        self,
        readiness: Arc<Readiness>,
        registry: Arc<Registry>,
        more: Router,
        stop: CancellationToken,
    ) {
        let mut routes = routes(readiness, registry).merge(more);
        if self.access == MetricsAccess::Loopback {
            routes = routes.layer(middleware::from_fn(loopback_only));
        }
        let service = routes.into_make_service_with_connect_info::<Peer>();
        let server = axum::serve(LimitedListener::new(self.listener, MAX_REQUEST_BYTES), service)
            .with_graceful_shutdown(stop.clone().cancelled_owned())
            .into_future();
        // A client that connects and sends nothing must not delay the program's end.
        let too_late = async {
            stop.cancelled().await;
            tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
        };
        tokio::select! {
            ended = server => if let Err(error) = ended {
                tracing::error!(%error, address = %self.address, "the admin server ended");
            },
            () = too_late => {}
        }
    }
}

fn routes(readiness: Arc<Readiness>, registry: Arc<Registry>) -> Router {
    let ready = get(|State(readiness): State<Arc<Readiness>>| async move {
        let (is_ready, report) = readiness.report();
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, report)
    })
    .with_state(readiness);
    let metrics = get(|State(registry): State<Arc<Registry>>| async move {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &registry) {
            Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
            Err(fmt::Error) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    })
    .with_state(registry);
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", ready)
        .route("/metrics", metrics)
}

impl FromStr for AdminAddress {
    type Err = ParseAdminAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseAdminAddressError(text.to_owned());
        if text == "none" {
            return Ok(Self::None);
        }
        if let Some(port) = text.strip_prefix(':') {
            let port = port.parse().map_err(|_| error())?;
            // On Linux this serves IPv4, too. Clusters have either, and probes use what the cluster
            // has.
            return Ok(Self::Listen((Ipv6Addr::UNSPECIFIED, port).into()));
        }
        text.parse().map(Self::Listen).map_err(|_| error())
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Listen(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
