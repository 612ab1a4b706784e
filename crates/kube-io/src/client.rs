//! The client of the Kubernetes API.
//!
//! It speaks HTTP/2 over one connection: parallel calls need no further TLS handshakes, and ten
//! thousand agents need no more connections than necessary. Pings detect a dead connection. The
//! client has no rate limit; the server's priority and fairness decides which requests wait.
//!
//! A port-forward is an upgrade to another protocol, which HTTP/1.1 alone has: see [`connect_http1`].

mod response_timeout;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

use response_timeout::ResponseTimeout;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of pings on a connection in use, and timeout for the reply.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Retries when the server reports overload (429, 503, 504).
const MAX_RETRIES: u32 = 4;

/// The cluster, and the credentials to use.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// The kubeconfig to read; `None` for `KUBECONFIG`, `~/.kube/config` or the pod's service
    /// account, in this order.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; `None` for its current one.
    pub context: Option<String>,
    /// The `User-Agent`, such as `octavo-agent/0.1.0`.
    pub user_agent: String,
}

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// No configuration names a cluster.
    #[error(
        "no cluster to speak to: neither KUBECONFIG, ~/.kube/config nor a pod's service account can \
         be used ({0}); name a kubeconfig with --kubeconfig"
    )]
    Nowhere(Box<dyn std::error::Error + Send + Sync>),
    /// The credentials or certificates cannot be used.
    #[error("cannot set up the connection to {server}: {source}")]
    Setup {
        /// The server's address.
        server: String,
        /// What is wrong.
        source: Box<kube::Error>,
    },
    /// The user agent is not a valid header value.
    #[error("the user agent {0:?} has characters that are not allowed in a header")]
    UserAgent(String),
}

/// Makes a client. It sends nothing yet, so an absent server is no error.
///
/// The program must have installed rustls' process-wide crypto provider before.
pub async fn connect(options: &ClientOptions) -> Result<Client, ClientError> {
    build(options, true, true).await
}

/// Makes a client that speaks HTTP/1.1, for commands that forward ports.
pub async fn connect_http1(options: &ClientOptions) -> Result<Client, ClientError> {
    build(options, true, false).await
}

/// Makes a client that reports overload (429, 503, 504) at once, where the client of [`connect`]
/// retries with backoff. It is for callers that pace their writes by these responses and must not
/// repeat a create with a lost response.
pub async fn connect_without_retries(options: &ClientOptions) -> Result<Client, ClientError> {
    build(options, false, true).await
}

async fn build(
    options: &ClientOptions,
    has_retries: bool,
    has_http2: bool,
) -> Result<Client, ClientError> {
    let mut config = read(options).await?;
    let server = config.cluster_url.to_string();
    let setup = |source| ClientError::Setup { server: server.clone(), source: Box::new(source) };
    let agent = options.user_agent.parse();
    let agent = agent.map_err(|_| ClientError::UserAgent(options.user_agent.clone()))?;
    config.headers.push((http::header::USER_AGENT, agent));
    if is_loopback(&config) {
        // A proxy from the environment cannot reach a cluster on this machine.
        config.proxy_url = None;
    }
    config.default_retry &= has_retries;
    if config.proxy_url.is_some() {
        return Ok(ClientBuilder::try_from(config).map_err(setup)?.build());
    }
    let tls = config.rustls_client_config().map_err(setup)?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let mut connector =
        hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = config.tls_server_name.clone().and_then(|name| name.try_into().ok()) {
        connector =
            connector.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
    }
    let connector = if has_http2 {
        connector.enable_all_versions().wrap_connector(tcp)
    } else {
        connector.enable_http1().wrap_connector(tcp)
    };
    let transport = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build::<_, Body>(connector);
    let retries =
        RetryPolicy::new(Duration::from_millis(100), Duration::from_secs(5), MAX_RETRIES, true);
    let retries = retries.ok().filter(|_| has_retries);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retries.map(RetryLayer::new))
        .layer_fn(ResponseTimeout)
        .option_layer(config.auth_layer().map_err(setup)?)
        .layer(config.extra_headers_layer().map_err(setup)?)
        .map_err(BoxError::from)
        .service(transport);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

async fn read(options: &ClientOptions) -> Result<Config, ClientError> {
    let choice =
        KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let Some(path) = &options.kubeconfig else {
        if options.context.is_none() {
            return Config::infer().await.map_err(|error| ClientError::Nowhere(Box::new(error)));
        }
        let config = Config::from_kubeconfig(&choice).await;
        return config.map_err(|error| ClientError::Nowhere(Box::new(error)));
    };
    let failed = |source| ClientError::Kubeconfig { path: path.clone(), source };
    let kubeconfig = read_kubeconfig(path).map_err(failed)?;
    Config::from_custom_kubeconfig(kubeconfig, &choice).await.map_err(failed)
}

/// Reads a kubeconfig. kube's reader resolves relative paths against the file's folder.
fn read_kubeconfig(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    Kubeconfig::read_from(path)
}

fn is_loopback(config: &Config) -> bool {
    let host = config.cluster_url.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests;
