//! One request to the API server. It is sent only while this process leads, and abandoned before
//! the lease ends.
//!
//! A failed write is *rejected* or *indeterminate*. A rejected write was not done: the server said
//! so. An indeterminate write has no response, or a 5xx one: it may have been done, or be done a
//! moment later. Its object is read back before anything is concluded. Each write sends its
//! deadline (`?timeout=`, apiserver `pkg/endpoints/filters/request_deadline.go`), so that it cannot
//! outlive the lease at the server either.

use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use octavo_kube_io::Backoff;
use serde::Deserialize;
use serde::de::DeserializeOwned;
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

/// A write.
#[derive(Clone, Debug)]
pub(crate) struct ApiWrite {
    pub(crate) method: Method,
    /// Path without query.
    pub(crate) path: String,
    /// Resource and subresource for metrics and errors, as in `resourceclaims/status`.
    pub(crate) resource: &'static str,
    pub(crate) format: BodyFormat,
    pub(crate) body: serde_json::Value,
}

/// Content type of a write's body.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// Not sent: this process does not hold the lease.
    NotLeader,
    /// The server rejected it and did nothing.
    Rejected(Rejection),
    /// It may have been done.
    Indeterminate {
        /// What went wrong.
        message: String,
        /// After this time it has taken effect or never will.
        settles_at: Instant,
    },
}

/// A rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// `metav1.Status`, as far as it is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
}

/// A 429 comes from overload or from a server that shuts down. It says nothing about the request.
const TOO_MANY_REQUESTS: u16 = 429;

impl ApiWrite {
    /// A create.
    pub(crate) fn post(path: String, resource: &'static str, body: serde_json::Value) -> Self {
        Self { method: Method::POST, path, resource, format: BodyFormat::Object, body }
    }

    pub(super) fn delete(path: String, resource: &'static str, body: serde_json::Value) -> Self {
        Self { method: Method::DELETE, path, resource, format: BodyFormat::Object, body }
    }

    /// A strategic merge patch.
    pub(crate) fn patch(path: String, resource: &'static str, body: serde_json::Value) -> Self {
        Self { method: Method::PATCH, path, resource, format: BodyFormat::StrategicPatch, body }
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
    /// Sends a write once.
    pub(crate) async fn write_once(&self, write: &ApiWrite) -> Result<Vec<u8>, ApiError> {
        let lease = self.leadership.remaining().filter(|lease| *lease >= MIN_LEASE);
        let Some(lease) = lease else { return Err(ApiError::NotLeader) };
        let limit = self.timeout.min(lease.saturating_sub(LEASE_MARGIN));
        let uri = format!("{}?timeout={}ms", write.path, limit.as_millis());
        let request = Request::builder()
            .method(write.method.clone())
            .uri(uri)
            .header(header::CONTENT_TYPE, write.format.content_type());
        self.send(
            request,
            write.body.to_string().into_bytes().into(),
            limit,
            &write.method,
            write.resource,
        )
        .await
    }

    /// Sends a read once. `None` if the object does not exist.
    pub(crate) async fn read_once<T: DeserializeOwned>(
        &self,
        path: &str,
        resource: &'static str,
    ) -> Result<Option<T>, ApiError> {
        let request = Request::builder().method(Method::GET).uri(path);
        let limit = self.timeout;
        let body = self.send(request, Vec::new().into(), limit, &Method::GET, resource).await;
        match body {
            Ok(body) => parse(&body).map(Some),
            Err(ApiError::Rejected(rejection)) if rejection.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        request: http::request::Builder,
        body: Body,
        limit: Duration,
        method: &Method,
        resource: &'static str,
    ) -> Result<Vec<u8>, ApiError> {
        let end = Instant::now() + limit;
        let unknown = |message: String, ended: Instant| {
            self.metrics.request(resource, method, 0);
            Err(ApiError::Indeterminate { message, settles_at: ended + SETTLE_TIME })
        };
        let request = match request.header(header::ACCEPT, "application/json").body(body) {
            Ok(request) => request,
            Err(error) => {
                let message = format!("the request cannot be built: {error}");
                return Err(ApiError::Rejected(Rejection { message, ..Rejection::of(400) }));
            }
        };
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
        self.metrics.request(resource, method, head.status.as_u16());
        if head.status.is_success() {
            return Ok(body.to_vec());
        }
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        let retry_after =
            head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let rejection = Rejection {
            code: head.status.as_u16(),
            message: message_or_status(&status.message, head.status),
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
                message: format!("{} ({})", rejection.message, rejection.code),
                settles_at: Instant::now() + SETTLE_TIME,
            });
        }
        Err(ApiError::Rejected(rejection))
    }
}

impl Call<'_> {
    /// Writes. While the server is overloaded or still denies every client, it retries until the
    /// operation's deadline.
    pub(super) async fn write(&self, write: &ApiWrite) -> Result<Vec<u8>, ApiError> {
        let mut backoff = Backoff::new(FIRST_RETRY_DELAY, MAX_RETRY_DELAY);
        let mut access = self.rbac_denials.of(&write.method, write.resource, &write.path);
        loop {
            let number = self.aimd.next_request();
            let error = match self.api.write_once(write).await {
                Ok(body) => {
                    self.aimd.answered();
                    access.record_allowed();
                    return Ok(body);
                }
                Err(error) => error,
            };
            let delay = match &error {
                ApiError::NotLeader => return Err(error),
                ApiError::Rejected(rejection)
                    if rejection.code == TOO_MANY_REQUESTS && !rejection.is_budget =>
                {
                    self.aimd.overloaded(number);
                    backoff.next_delay().max(rejection.retry_after.unwrap_or_default())
                }
                ApiError::Rejected(rejection) if rejection.is_access_denial => {
                    // The server is not overloaded: it only lacks its RBAC data.
                    self.aimd.answered();
                    if !access.should_retry() {
                        return Err(error);
                    }
                    backoff.next_delay()
                }
                ApiError::Rejected(rejection) => {
                    self.aimd.answered();
                    if rejection.code != TOO_MANY_REQUESTS {
                        access.record_allowed();
                    }
                    return Err(error);
                }
                ApiError::Indeterminate { settles_at, .. } => {
                    self.barrier.record(*settles_at);
                    self.aimd.overloaded(number);
                    return Err(error);
                }
            };
            if Instant::now() + delay > self.deadline {
                return Err(error);
            }
            tokio::time::sleep(delay).await;
        }
    }

    /// Writes, and parses the object in the response.
    pub(super) async fn write_object<T: DeserializeOwned>(
        &self,
        write: &ApiWrite,
    ) -> Result<T, ApiError> {
        let body = self.write(write).await?;
        parse(&body)
    }

    /// Reads an object from the API server, not from a cache. `None` if it does not exist. Retried
    /// until the operation's deadline, and sent at least once.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        resource: &'static str,
    ) -> Result<Option<T>, ApiError> {
        let mut backoff = Backoff::new(FIRST_RETRY_DELAY, MAX_RETRY_DELAY);
        let mut access = self.rbac_denials.of(&Method::GET, resource, path);
        loop {
            let error = match self.api.read_once(path, resource).await {
                Ok(object) => {
                    access.record_allowed();
                    return Ok(object);
                }
                Err(error) => error,
            };
            let delay = match &error {
                ApiError::Rejected(rejection) if rejection.is_access_denial => {
                    if !access.should_retry() {
                        return Err(error);
                    }
                    backoff.next_delay()
                }
                ApiError::Rejected(rejection) if rejection.code != TOO_MANY_REQUESTS => {
                    return Err(error);
                }
                ApiError::Rejected(rejection) => {
                    backoff.next_delay().max(rejection.retry_after.unwrap_or_default())
                }
                _ => backoff.next_delay(),
            };
            if Instant::now() + delay > self.deadline {
                return Err(error);
            }
            tokio::time::sleep(delay).await;
        }
    }

    /// Waits before another attempt. `false` if the deadline would pass.
    pub(super) async fn pause(&self, backoff: &mut Backoff) -> bool {
        let delay = backoff.next_delay();
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

impl Rejection {
    fn of(code: u16) -> Self {
        Self {
            code,
            message: String::new(),
            is_budget: false,
            is_access_denial: false,
            retry_after: None,
        }
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotLeader => f.write_str("this scheduler is no longer the leader"),
            Self::Rejected(rejection) => write!(f, "{} ({})", rejection.message, rejection.code),
            Self::Indeterminate { message, .. } => {
                write!(f, "{message}; the outcome is unknown")
            }
        }
    }
}

fn message_or_status(message: &str, status: StatusCode) -> String {
    if !message.is_empty() {
        return message.to_owned();
    }
    status.canonical_reason().unwrap_or("the API server gave no reason").to_owned()
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::Indeterminate {
        message: format!("the API server's response cannot be parsed: {error}"),
        settles_at: Instant::now(),
    })
}
