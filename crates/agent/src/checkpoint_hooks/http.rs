//! A POST to a pod. Its status is the answer: the body is not read, and redirects are not followed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Time for connecting. A pod that is there answers at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a response's head.
const MAX_HEAD: usize = 16 << 10;

/// Where a POST goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    address: SocketAddr,
    /// Path and query.
    path: String,
}

/// Why a POST has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    /// The pod does not accept the connection.
    #[error("{0} does not accept a connection: {1}")]
    Connect(SocketAddr, std::io::Error),
    /// The connection ended, or what came is no HTTP.
    #[error("the POST to {0} has no answer: {1}")]
    NoAnswer(SocketAddr, hyper::Error),
    /// It cannot be written.
    #[error("the POST cannot be made: {0}")]
    Request(#[from] http::Error),
    /// The pod did not save its work.
    #[error("it answered the POST with {0}; 2xx is needed, and redirects are not followed")]
    Status(StatusCode),
}

impl Target {
    /// The target of a URL: an IP address, so that no name decides which pod is asked.
    pub(super) fn of(url: &Uri) -> Option<Self> {
        let host = url.host().filter(|_| url.scheme_str() == Some("http"))?;
        let host: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
        let address = SocketAddr::new(host, url.port_u16().unwrap_or(80));
        Some(Self { address, path: url.path_and_query()?.to_string() })
    }

    /// Sends the POST, and waits for its answer.
    pub(super) async fn post(&self) -> Result<(), HttpError> {
        let address = self.address;
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let stream = connected.map_err(std::io::Error::from).flatten();
        let stream = stream.map_err(|error| HttpError::Connect(address, error))?;
        let no_answer = |error| HttpError::NoAnswer(address, error);
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_HEAD);
        let (mut sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(no_answer)?;
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = Request::post(&self.path)
            .header(HOST, address.to_string())
            .header(USER_AGENT, concat!("octavo-agent/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Bytes>::new())?;
        let status = sender.send_request(request).await.map_err(no_answer)?.status();
        if status.is_success() { Ok(()) } else { Err(HttpError::Status(status)) }
    }
}
