//! Options that select a cluster, and the client for it. They follow kubectl.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::Client;
use octavo_kube_io::client::ClientOptions;

use crate::error::ViewError;

/// Which cluster to ask.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ConnectArgs {
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's own service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// How long reading the cluster may take, such as 5s, 2m or 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_timeout)]
    pub request_timeout: Timeout,
}

/// A limit of time; absent means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeout(pub Option<Duration>);

/// A connection to a cluster.
#[derive(Clone)]
pub struct Connection {
    /// Client.
    pub client: Client,
    /// Namespace of the context.
    pub namespace: String,
    timeout: Timeout,
}

impl ConnectArgs {
    /// Reads the kubeconfig and makes a client. No request is sent yet.
    pub async fn connect(&self) -> Result<Connection, ViewError> {
        let options = ClientOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            user_agent: concat!("octavo-cli/", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let client = octavo_kube_io::client::connect_http1(&options).await?;
        let namespace = client.default_namespace().to_owned();
        Ok(Connection { client, namespace, timeout: self.request_timeout })
    }
}

impl Connection {
    /// A connection by a client that is there.
    #[cfg(test)]
    pub(crate) fn new(client: Client, timeout: Timeout) -> Self {
        Self { client, namespace: "default".to_owned(), timeout }
    }

    /// Awaits an answer no longer than the limit.
    pub async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, ViewError>>,
    ) -> Result<T, ViewError> {
        let Timeout(Some(limit)) = self.timeout else { return answer.await };
        tokio::time::timeout(limit, answer).await.unwrap_or(Err(ViewError::Timeout { limit }))
    }
}

/// Reads a time as kubectl does: a number with `ms`, `s`, `m` or `h`, or plain seconds.
pub fn parse_timeout(text: &str) -> Result<Timeout, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a time: write a number and a unit, such as 5s"))?;
    let limit = match unit {
        "ms" => Duration::from_millis(number),
        "" | "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        "h" => Duration::from_secs(number.saturating_mul(3600)),
        _ => return Err(format!("{unit:?} is not a unit of time: use ms, s, m or h")),
    };
    Ok(Timeout((!limit.is_zero()).then_some(limit)))
}

#[cfg(test)]
mod tests;
