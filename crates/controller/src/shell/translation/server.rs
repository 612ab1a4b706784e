//! Answers of the webhook.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use octavo_migration::{ModelSource, Models, Options};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::identity::Identity;
use super::listener::TlsListener;
use super::templates::{TemplateError, Templates};
use crate::metrics::Metrics;
use crate::translation::review::{
    Answer, Decision, Request, Review, decide, refusal_text, warnings,
};

/// Path of the webhook, as in the chart's `MutatingWebhookConfiguration`.
const PATH: &str = "/translate";
/// Bytes of a question at most. An API server takes objects of 3 MiB.
const MAX_BYTES: usize = 8 << 20;
/// Time for one answer. The chart lets API servers wait for 10 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// Time for answers in progress at the end.
const END_TIMEOUT: Duration = Duration::from_secs(9);

/// What answers need.
pub(super) struct Webhook {
    pub(super) templates: Templates,
    /// The GPU models; `None` until slices were read.
    pub(super) models: watch::Receiver<Option<Models>>,
    /// Scheduler of translated pods; `None`: Kubernetes' own.
    pub(super) scheduler_name: Option<String>,
    pub(super) metrics: Metrics,
}

/// Serves until `stop`, then finishes the answers in progress.
pub(super) async fn serve(
    listener: TcpListener,
    identity: Arc<Identity>,
    webhook: Arc<Webhook>,
    stop: CancellationToken,
) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        match ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions() {
            Ok(config) => config.with_no_client_auth().with_cert_resolver(identity),
            Err(error) => return tracing::error!(%error, "the webhook has no version of TLS"),
        };
    let routes = Router::new()
        .route(PATH, post(translate))
        .layer(DefaultBodyLimit::max(MAX_BYTES))
        .with_state(webhook);
    let server = axum::serve(TlsListener::new(listener, Arc::new(config)), routes)
        .with_graceful_shutdown(stop.clone().cancelled_owned())
        .into_future();
    let too_late = async {
        stop.cancelled().await;
        tokio::time::sleep(END_TIMEOUT).await;
    };
    tokio::select! {
        ended = server => if let Err(error) = ended {
            tracing::error!(%error, "the webhook ended");
        },
        () = too_late => {}
    }
}

async fn translate(State(webhook): State<Arc<Webhook>>, body: Bytes) -> Response {
    let review: Review = match serde_json::from_slice(&body) {
        Ok(review) => review,
        Err(error) => {
            let text = format!("this is no AdmissionReview with a request: {error}");
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
    };
    let begin = Instant::now();
    let answer = webhook.answer(&review.request).await;
    webhook.metrics.translated(result(&answer), begin.elapsed());
    if let Answer::Refused(message) | Answer::Failed(message) = &answer {
        tracing::info!(namespace = %review.request.namespace, %message, "a pod is refused");
    }
    let body = answer.review(&review.request.uid).to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn result(answer: &Answer) -> &'static str {
    match answer {
        Answer::Unchanged => "unchanged",
        Answer::Changed { .. } => "translated",
        Answer::Refused(_) => "refused",
        Answer::Failed(_) => "failed",
    }
}

impl Webhook {
    /// The answer about a pod. The templates that it names exist then, unless nothing may be written.
    pub(super) async fn answer(&self, request: &Request) -> Answer {
        let Some(models) = self.models.borrow().clone() else {
            let message = "octavo: the cluster's GPUs are being read for the first time; it is to be tried again";
            return Answer::Failed(message.to_owned());
        };
        let scheduler_name = self.scheduler_name.clone();
        let options = Options { models, models_from: ModelSource::Cluster, scheduler_name };
        let (templates, patch, changes) = match decide(request, &options) {
            Decision::Unchanged => return Answer::Unchanged,
            Decision::Refused(refusals) => {
                for refusal in &refusals {
                    self.metrics.refused(refusal.reason.as_str());
                }
                return Answer::Refused(refusal_text(&refusals));
            }
            Decision::Translated { templates, patch, changes } => (templates, patch, changes),
        };
        let made = async {
            for template in &templates {
                self.templates.ensure(template, request.dry_run).await?;
            }
            Ok::<_, TemplateError>(())
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, made).await {
            Ok(Ok(())) => Answer::Changed { patch, warnings: warnings(&changes) },
            Ok(Err(error @ TemplateError::Taken { .. })) => {
                self.metrics.refused("NameTaken");
                Answer::Refused(format!("octavo: {error} (NameTaken)"))
            }
            Ok(Err(error)) => Answer::Failed(format!("octavo: {error}; it is to be tried again")),
            Err(_) => Answer::Failed(format!(
                "octavo: the pod's ResourceClaimTemplate was not made within {} s; it is to be tried again",
                ANSWER_TIMEOUT.as_secs()
            )),
        }
    }
}
