//! Answers of the webhook.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use octavo_kube_io::listener::LimitedListener;
use octavo_migration::{ModelSource, Models, Options};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::identity::Identity;
use super::templates::{TemplateError, Templates};
use super::tls::TlsListener;
use crate::metrics::Metrics;
use crate::translation::review::{
    Answer, Decision, Request, Review, decide, refusal_text, values, warnings,
};

/// Path of the webhook, as in the chart's `MutatingWebhookConfiguration`.
const PATH: &str = "/translate";
/// Bytes of a question at most: a pod of 1 MiB, and the few more things that an API server says.
const MAX_BYTES: usize = (1 << 20) + (256 << 10);
/// The same with the headers, encrypted.
const MAX_REQUEST_BYTES: usize = MAX_BYTES + (256 << 10);
/// JSON values of a question at most. One takes up to 400 bytes, which is much more than its text.
const MAX_VALUES: usize = 16 << 10;
/// Questions that are read or wait for their turn at the same time at most. With [`MAX_ANSWERS`] they bound the memory
/// (docs/design/translation.md).
const MAX_QUESTIONS: usize = 8;
/// Questions that are answered at the same time at most.
const MAX_ANSWERS: usize = 2;
/// Time for a question to arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
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
    let turns = Arc::new(Turns {
        questions: Semaphore::new(MAX_QUESTIONS),
        answers: Semaphore::new(MAX_ANSWERS),
    });
    let routes = Router::new().route(PATH, post(translate)).with_state((webhook, turns));
    let listener = LimitedListener::new(listener, MAX_REQUEST_BYTES);
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

/// What bounds the memory of questions. Neither is ever closed.
struct Turns {
    questions: Semaphore,
    answers: Semaphore,
}

async fn translate(
    State((webhook, turns)): State<(Arc<Webhook>, Arc<Turns>)>,
    body: Body,
) -> Response {
    let question = turns.questions.acquire().await;
    let body = match tokio::time::timeout(READ_TIMEOUT, to_bytes(body, MAX_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return bad_request(&format!("the question cannot be read: {error}")),
        Err(_) => return bad_request("the question takes too long"),
    };
    if values(&body) > MAX_VALUES {
        return bad_request(&format!("the question has more than {MAX_VALUES} JSON values"));
    }
    let _answer = turns.answers.acquire().await;
    let review: Review = match serde_json::from_slice(&body) {
        Ok(review) => review,
        Err(error) => {
            return bad_request(&format!("this is no AdmissionReview with a request: {error}"));
        }
    };
    drop(body);
    drop(question);
    if !is_dns_label(&review.request.namespace) {
        return bad_request("the request has no namespace");
    }
    let begin = Instant::now();
    let answer = webhook.answer(&review.request).await;
    webhook.metrics.translated(result(&answer), begin.elapsed());
    if let Answer::Refused(message) | Answer::Failed(message) = &answer {
        let Request { namespace, object, .. } = &review.request;
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().or(metadata["generateName"].as_str());
        let pod = format!("{namespace}/{}", name.unwrap_or_default());
        tracing::info!(%pod, %message, "a pod is refused");
    }
    let body = answer.review(&review.request.uid).to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Whether a text can be a namespace. It becomes a part of a path.
fn is_dns_label(text: &str) -> bool {
    let is_letter = |letter: u8| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=63).contains(&text.len()) && text.bytes().all(is_letter)
}

fn bad_request(text: &str) -> Response {
    (StatusCode::BAD_REQUEST, text.to_owned()).into_response()
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
        let options = Options {
            models,
            models_from: ModelSource::Cluster,
            scheduler_name,
            is_admission: true,
        };
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
            Ok(Err(error)) if let Some(reason) = error.reason() => {
                self.metrics.refused(reason);
                Answer::Refused(format!("octavo: {error} ({reason})"))
            }
            Ok(Err(error)) => Answer::Failed(format!("octavo: {error}; it is to be tried again")),
            Err(_) => Answer::Failed(format!(
                "octavo: the pod's ResourceClaimTemplate was not made within {} s; it is to be tried again",
                ANSWER_TIMEOUT.as_secs()
            )),
        }
    }
}
