//! One request to the API server. It is sent only while this process leads, and abandoned before
//! the lease ends.
//!
//! A failed write is *rejected* or *indeterminate*. A rejected write was not done: the server said
//! so. An indeterminate write has no response, or a 5xx one: it may have been done, or be done a
//! moment later. Its object is read back before anything is concluded. Each write sends its
//! deadline (`?timeout=`, apiserver `pkg/endpoints/filters/request_deadline.go`), so that it cannot
//! outlive the lease at the server either.

use std::time::Duration;

use http::{Method, Request, header};
use kube::Client;
use kube::core::Status;
use octavo_kube_io::Backoff;
use octavo_kube_io::objects::ReadError;
use tokio::time::Instant;

use super::aimd_limit::AimdLimit;
use super::leadership::Leadership;
use super::rbac_denials::{RbacDenials, is_access_denial};
use super::settle::SettleBarrier;
use crate::metrics::Metrics;

/// Least remaining lease to start a write. With less, a response in time is unlikely.
const MIN_LEASE: Duration = Duration::from_millis(200);
/// Remaining lease at which the response must have arrived.
const LEASE_MARGIN: Duration = Duration::from_millis(100);
/// How long after its end a request may still take effect at the server.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Delays between attempts.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// What requests share.
pub(crate) struct Api {
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    pub(crate) metrics: Metrics,
    /// Timeout of one request.
    pub(crate) timeout: Duration,
}

/// Requests of one operation. They share its deadline and feed the concurrency limit.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) api: &'a Api,
    pub(super) aimd: &'a AimdLimit,
    pub(super) rbac_denials: &'a RbacDenials,
    pub(super) barrier: &'a SettleBarrier,
    /// End of the retries.
    pub(super) deadline: Instant,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// Path without query.
    pub(crate) path: String,
    /// Resource and subresource for metrics and errors, as in `resourceclaims/status`.
    pub(crate) resource: &'static str,
    pub(crate) format: BodyFormat,
    pub(crate) body: serde_json::Value,
}

/// Content type of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    /// An object, or options.
    Object,
    /// A strategic merge patch, for Kubernetes' own kinds.
    StrategicPatch,
    /// A JSON merge patch, for custom resources.
    MergePatch,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiError {
    /// Not sent: this process does not hold the lease.
    #[error("this scheduler is no longer the leader")]
    NotLeader,
    /// The server rejected it and did nothing.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// It may have been done.
    #[error("{message}; the outcome is unknown")]
    Indeterminate {
        /// What went wrong.
        message: String,
        /// After this time it has taken effect or never will.
        settles_at: Instant,
    },
}

/// A rejection.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub(crate) struct Rejection {
    pub(crate) code: u16,
    pub(crate) message: String,
    /// Whether a disruption budget is the cause.
    pub(crate) is_budget: bool,
    /// Whether the authenticator or the authorizer denied it, and not the request itself. A
    /// starting server denies every client.
    pub(crate) is_access_denial: bool,
    /// `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
}

/// A 429 comes from overload or from a server that shuts down. It says nothing about the request.
const TOO_MANY_REQUESTS: u16 = 429;

impl ApiRequest {
    /// A create.
    pub(crate) fn post(path: String, resource: &'static str, body: serde_json::Value) -> Self {
        Self { method: Method::POST, path, resource, format: BodyFormat::Object, body }
    }

    pub(super) fn delete(path: String, resource: &'static str, body: serde_json::Value) -> Self {
        Self { method: Method::DELETE, ..Self::post(path, resource, body) }
    }

    /// A strategic merge patch.
    pub(crate) fn patch(path: String, resource: &'static str, body: serde_json::Value) -> Self {
        let format = BodyFormat::StrategicPatch;
        Self { method: Method::PATCH, format, ..Self::post(path, resource, body) }
    }

    /// A read.
    pub(crate) fn get(path: String, resource: &'static str) -> Self {
        Self { method: Method::GET, ..Self::post(path, resource, serde_json::Value::Null) }
    }

    fn is_read(&self) -> bool {
        self.method == Method::GET
    }
}

impl BodyFormat {
    const fn content_type(self) -> &'static str {
        match self {
            Self::Object => "application/json",
            Self::StrategicPatch => "application/strategic-merge-patch+json",
            Self::MergePatch => "application/merge-patch+json",
        }
    }
}

impl Api {
    /// Sends a request once. Writes are sent only while this process leads.
    pub(crate) async fn send_once(&self, sent: &ApiRequest) -> Result<Vec<u8>, ApiError> {
        let mut limit = self.timeout;
        let mut request = Request::builder()
            .method(sent.method.clone())
            .uri(&sent.path)
            .header(header::ACCEPT, "application/json");
        let mut body = Vec::new();
        if !sent.is_read() {
            let lease = self.leadership.remaining().filter(|lease| *lease >= MIN_LEASE);
            let Some(lease) = lease else { return Err(ApiError::NotLeader) };
            limit = limit.min(lease.saturating_sub(LEASE_MARGIN));
            request = request
                .uri(format!("{}?timeout={}ms", sent.path, limit.as_millis()))
                .header(header::CONTENT_TYPE, sent.format.content_type());
            body = sent.body.to_string().into_bytes();
        }
        let end = Instant::now() + limit;
        let unknown = |message: String, ended: Instant| {
            self.metrics.request(sent.resource, &sent.method, 0);
            Err(ApiError::Indeterminate { message, settles_at: ended + SETTLE_TIME })
        };
        let request = request.body(body.into()).map_err(|error| {
            let message = format!("the request cannot be built: {error}");
            Rejection { code: 400, message, ..Rejection::default() }
        })?;
        let answer = async {
            let answer = self.client.send(request).await?;
            let (head, body) = answer.into_parts();
            Ok::<_, kube::Error>((head, body.collect_bytes().await?))
        };
        let (head, body) = match tokio::time::timeout_at(end, answer).await {
            Err(_) => return unknown(format!("no response within {limit:?}"), end),
            // The server may not have noticed the disconnect: it knows only its own deadline.
            Ok(Err(error)) => return unknown(error.to_string(), end),
            Ok(Ok(answer)) => answer,
        };
        self.metrics.request(sent.resource, &sent.method, head.status.as_u16());
        if head.status.is_success() {
            return Ok(body.to_vec());
        }
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        let retry_after =
            head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let rejection = Rejection {
            code: head.status.as_u16(),
            message: match &*status.message {
                "" => head.status.canonical_reason().unwrap_or("the API server gave no reason"),
                message => message,
            }
            .to_owned(),
            // policy/v1 `DisruptionBudgetCause`. A pod with more than one budget gets a 500, which
            // the API does not support (registry/core/pod/storage/eviction.go).
            is_budget: causes.iter().any(|cause| cause.reason == "DisruptionBudget")
                || status.message.contains("more than one PodDisruptionBudget"),
            is_access_denial: is_access_denial(head.status, &status.message),
            retry_after: retry_after
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
        };
        if head.status.is_server_error() && !rejection.is_budget {
            return Err(ApiError::Indeterminate {
                message: rejection.to_string(),
                settles_at: Instant::now() + SETTLE_TIME,
            });
        }
        Err(ApiError::Rejected(rejection))
    }
}

impl Call<'_> {
    /// Sends a request. While the server is overloaded or still denies every client, it is sent
    /// again until the operation's deadline. So is a read without a response.
    pub(super) async fn send(&self, request: &ApiRequest) -> Result<Vec<u8>, ApiError> {
        let mut backoff = Self::backoff();
        let mut access = self.rbac_denials.of(&request.method, request.resource, &request.path);
        // Reads do not count.
        let aimd = (!request.is_read()).then_some(self.aimd);
        loop {
            let number = aimd.map_or(0, AimdLimit::next_request);
            let error = match self.api.send_once(request).await {
                Ok(body) => {
                    aimd.inspect(|aimd| aimd.answered());
                    access.record_allowed();
                    return Ok(body);
                }
                Err(error) => error,
            };
            let mut least_delay = Duration::ZERO;
            match (&error, aimd) {
                (ApiError::NotLeader, _) => return Err(error),
                (ApiError::Rejected(rejection), _)
                    if rejection.code == TOO_MANY_REQUESTS && !rejection.is_budget =>
                {
                    aimd.inspect(|aimd| aimd.overloaded(number));
                    least_delay = rejection.retry_after.unwrap_or_default();
                }
                (ApiError::Rejected(rejection), _) => {
                    // With a denial the server is not overloaded: it only lacks its RBAC data.
                    aimd.inspect(|aimd| aimd.answered());
                    if !rejection.is_access_denial && rejection.code != TOO_MANY_REQUESTS {
                        access.record_allowed();
                    }
                    if !rejection.is_access_denial || !access.should_retry() {
                        return Err(error);
                    }
                }
                (ApiError::Indeterminate { settles_at, .. }, Some(aimd)) => {
                    self.barrier.record(*settles_at);
                    aimd.overloaded(number);
                    return Err(error);
                }
                (ApiError::Indeterminate { .. }, None) => {}
            }
            if !self.pause_at_least(least_delay, &mut backoff).await {
                return Err(error);
            }
        }
    }

    /// Writes, and reads the object in the response.
    pub(super) async fn write_object<T>(
        &self,
        write: &ApiRequest,
        from_json: fn(&[u8]) -> Result<T, ReadError>,
    ) -> Result<T, ApiError> {
        let body = self.send(write).await?;
        from_json(&body).map_err(|error| unreadable(&error))
    }

    /// Reads an object from the API server, not from a cache. `None` if it does not exist. Retried
    /// until the operation's deadline, and sent at least once.
    pub(super) async fn read<T>(
        &self,
        path: String,
        resource: &'static str,
        from_json: fn(&[u8]) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ApiError> {
        match self.send(&ApiRequest::get(path, resource)).await {
            Ok(body) => from_json(&body).map(Some).map_err(|error| unreadable(&error)),
            Err(error) => error.if_gone(None),
        }
    }

    /// Waits before another attempt. `false` if the deadline would pass.
    pub(super) async fn pause(&self, backoff: &mut Backoff) -> bool {
        self.pause_at_least(Duration::ZERO, backoff).await
    }

    async fn pause_at_least(&self, least: Duration, backoff: &mut Backoff) -> bool {
        let delay = backoff.next_delay().max(least);
        if Instant::now() + delay > self.deadline {
            return false;
        }
        tokio::time::sleep(delay).await;
        true
    }

    /// A backoff across several requests.
    pub(super) fn backoff() -> Backoff {
        Backoff::new(FIRST_RETRY_DELAY, MAX_RETRY_DELAY)
    }
}

impl ApiError {
    /// This result if the object does not exist, else the error.
    pub(crate) fn if_gone<T>(self, gone: T) -> Result<T, Self> {
        match self {
            Self::Rejected(Rejection { code: 404, .. }) => Ok(gone),
            error => Err(error),
        }
    }
}

/// The error of a response that is not the expected object.
pub(crate) fn unreadable(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::Indeterminate {
        message: format!("the API server's response cannot be parsed: {error}"),
        settles_at: Instant::now(),
    }
}
