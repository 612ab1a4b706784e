//! The webhook in the process: its server, its certificates, the GPU models that it knows, and the templates that it makes.
//!
//! Every replica serves it. The leader alone renews certificates and collects templates.

mod certificates;
mod collector;
mod identity;
mod server;
mod slices;
mod templates;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use octavo_kube_io::admin::Readiness;
use octavo_kube_io::listener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::certificates::Keeper;
use self::collector::Collector;
use self::identity::Identity;
use self::server::Webhook;
use self::templates::Templates;
use super::leader::Leader;
use super::leadership::Leadership;
use super::spawn;
use crate::config::Config;
use crate::metrics::Metrics;

/// The webhook while it serves.
pub(super) struct Translation {
    server: JoinHandle<()>,
    stop: CancellationToken,
    drain: Duration,
}

/// What the webhook shares with the rest of the process.
pub(super) struct Parts<'a> {
    /// A client that reports overload at once: the API server waits for an answer.
    pub(super) client: Client,
    pub(super) leadership: Leadership,
    pub(super) metrics: Metrics,
    pub(super) readiness: &'a Arc<Readiness>,
    /// Ends all but the server.
    pub(super) stop: &'a CancellationToken,
}

/// Starts the webhook.
///
/// # Errors
///
/// Its settings are not valid, or its address is in use.
pub(super) async fn start(config: &Config, parts: Parts<'_>) -> anyhow::Result<Translation> {
    let Parts { client, leadership, metrics, readiness, stop } = parts;
    let settings = &config.translation;
    let is_read = readiness.check("gpu-models", "reading ResourceSlices for the first time");
    let models = slices::watch(&client, &settings.models()?, is_read, stop);
    let keep = Duration::from_secs(settings.collect_after_seconds);
    let leader = Leader { leadership, metrics: metrics.clone() };
    let collector = Collector { client: client.clone(), leader: leader.clone(), keep };
    spawn(stop, collector.run());

    let identity = Arc::new(Identity::default());
    let has_certificate = readiness.check("webhook", "waiting for a certificate");
    let keeper = Keeper::new(&client, config, leader, Arc::clone(&identity), has_certificate);
    spawn(stop, keeper.run());

    let address = settings.address()?;
    let listener = listener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address} for the webhook; choose another with `translation.listen`"
        )
    })?;
    tracing::info!(%address, "the webhook for pods of HAMi and KAI Scheduler listens");
    let webhook = Webhook {
        templates: Templates { client, keep },
        models,
        scheduler_name: Some(settings.scheduler_name.clone()).filter(|name| !name.is_empty()),
        metrics,
    };
    let (ends, stop) = (stop.clone().drop_guard(), CancellationToken::new());
    let serve = server::serve(listener, identity, Arc::new(webhook), stop.clone());
    let server = tokio::spawn(async move {
        let _ends = ends;
        serve.await;
    });
    Ok(Translation { server, stop, drain: Duration::from_secs(settings.drain_seconds) })
}

impl Translation {
    /// Serves until other programs know that this process ends, then answers what has been asked.
    pub(super) async fn end(self) {
        tokio::time::sleep(self.drain).await;
        self.stop.cancel();
        let _ = self.server.await;
    }
}
