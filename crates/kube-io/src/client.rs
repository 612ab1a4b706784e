//! The client of the Kubernetes API.
//!
//! It speaks HTTP/2 over one connection, so that calls side by side cost no further TLS handshakes
//! and ten thousand agents no more connections than needed; a dead connection is noticed by pings.
//! It has no rate limit of its own: the server's priority and fairness decides who waits.

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

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection in use is pinged, and how long the answer may take.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Attempts after the first when the server says that it is overloaded (429, 503, 504).
const MAX_RETRIES: u32 = 4;

/// Which cluster to speak to, and as whom.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// The kubeconfig to read; `None`: `KUBECONFIG`, `~/.kube/config` or the service account of
    /// the pod, in this order.
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context; `None`: its current one.
    pub context: Option<String>,
    /// How the program names itself to the server: `octavo-agent/0.1.0`.
    pub user_agent: String,
}

/// Why there is no client.
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
    /// Nothing says which cluster to speak to.
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
    /// The user agent is no header value.
    #[error("the user agent {0:?} has characters that a header may not have")]
    UserAgent(String),
}

/// Makes a client. Nothing is sent yet, so an absent server is no error here.
///
/// The program must have installed rustls' process-wide crypto provider before.
pub async fn connect(options: &ClientOptions) -> Result<Client, ClientError> {
    build(options, true).await
}

/// Makes a client that tells the caller at once when the server is overloaded (429, 503, 504), where
/// that of [`connect`] tries again, a few times and ever later. For whoever paces writes by what the
/// server says, and must not repeat a create whose answer was lost.
pub async fn connect_without_retries(options: &ClientOptions) -> Result<Client, ClientError> {
    build(options, false).await
}

async fn build(options: &ClientOptions, has_retries: bool) -> Result<Client, ClientError> {
    let mut config = read(options).await?;
    let server = config.cluster_url.to_string();
    let setup = |source| ClientError::Setup { server: server.clone(), source: Box::new(source) };
    let agent = options.user_agent.parse();
    let agent = agent.map_err(|_| ClientError::UserAgent(options.user_agent.clone()))?;
    config.headers.push((http::header::USER_AGENT, agent));
    if is_loopback(&config) {
        // The environment's proxy cannot reach a cluster on this machine.
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
    let connector = connector.enable_all_versions().wrap_connector(tcp);
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

/// Relative paths within a kubeconfig start at its folder; kube's reader sees to that.
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
