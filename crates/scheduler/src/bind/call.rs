//! One request to the API server: sent only while this program leads, given up before the lease ends,
//! and told apart by what is known of it afterwards.
//!
//! A write is *refused* (the server said so and did nothing) or *unknown* (no answer, or one of a server in
//! trouble: it may have been done, or be done a moment later). What is unknown is read back before
//! anything is concluded. Each write tells the server by when it is of no use (`?timeout=`,
//! apiserver `pkg/endpoints/filters/request_deadline.go`), so that it cannot outlive the lease there either.

use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use octavo_kube_io::Backoff;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::leadership::Leadership;
use super::rights::{Rights, is_of_rights};
use super::sent::Sent;
use super::window::Window;
use crate::metrics::Metrics;

/// No write is begun with less of the lease than this: it could not be answered in time.
const LEAST_LEASE: Duration = Duration::from_millis(200);
/// What is left of the lease when the answer must be there.
const MARGIN: Duration = Duration::from_millis(100);
/// How long after its end a request may still take effect on the server.
const SETTLE: Duration = Duration::from_secs(1);
/// Waits between attempts.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const MOST_DELAY: Duration = Duration::from_secs(2);

/// What requests need.
pub(crate) struct Api {
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    pub(crate) metrics: Metrics,
    /// Longest time for one request.
    pub(crate) timeout: Duration,
}

/// Requests of one order: they share its patience and feed the window.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) api: &'a Api,
    pub(super) window: &'a Window,
    pub(super) rights: &'a Rights,
    pub(super) sent: &'a Sent,
    /// Until when attempts are repeated.
    pub(super) deadline: Instant,
}

/// A write.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) method: Method,
    /// Path without query.
    pub(crate) path: String,
    /// Resource and subresource, for metrics and errors: `resourceclaims/status`.
    pub(crate) resource: &'static str,
    pub(crate) form: Form,
    pub(crate) body: serde_json::Value,
}

/// What the body of a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An object, or options.
    Object,
    /// A strategic merge patch: for kinds of Kubernetes' own.
    StrategicPatch,
    /// A JSON merge patch: for kinds of CRDs.
    MergePatch,
}

/// Why a request has no good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not sent: the lease is over.
    NotLeader,
    /// The server refused it and did nothing.
    Refused(Refusal),
    /// It may have been done.
    Unknown {
        /// What is known.
        message: String,
        /// After this it is done or never will be.
        settled: Instant,
    },
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) message: String,
    /// Whether a disruption budget is the cause.
    pub(crate) is_budget: bool,
    /// Whether the server said who asks, or may not ask, and nothing about the request itself. While it
    /// starts it says so of everybody.
    pub(crate) is_of_rights: bool,
    /// `Retry-After`.
    pub(crate) wait: Option<Duration>,
}

/// `metav1.Status`, what is looked at.
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

/// Refusals for too many requests and servers that end are no answers to the request.
const TOO_MANY: u16 = 429;

impl Write {
    /// A create.
    pub(crate) fn post(path: String, resource: &'static str, body: serde_json::Value) -> Self {
        Self { method: Method::POST, path, resource, form: Form::Object, body }
    }

    pub(super) fn delete(path: String, resource: &'static str, body: serde_json::Value) -> Self {
        Self { method: Method::DELETE, path, resource, form: Form::Object, body }
    }

    /// A strategic merge patch.
    pub(crate) fn patch(path: String, resource: &'static str, body: serde_json::Value) -> Self {
        Self { method: Method::PATCH, path, resource, form: Form::StrategicPatch, body }
    }
}

impl Form {
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
    pub(crate) async fn write_once(&self, write: &Write) -> Result<Vec<u8>, Fault> {
        let lease = self.leadership.remaining().filter(|lease| *lease >= LEAST_LEASE);
        let Some(lease) = lease else { return Err(Fault::NotLeader) };
        let limit = self.timeout.min(lease.saturating_sub(MARGIN));
        let uri = format!("{}?timeout={}ms", write.path, limit.as_millis());
        let request = Request::builder()
            .method(write.method.clone())
            .uri(uri)
            .header(header::CONTENT_TYPE, write.form.content_type());
        self.send(
            request,
            write.body.to_string().into_bytes().into(),
            limit,
            &write.method,
            write.resource,
        )
        .await
    }

    /// Sends a read once; `None`: there is no such object.
    pub(crate) async fn read_once<T: DeserializeOwned>(
        &self,
        path: &str,
        resource: &'static str,
    ) -> Result<Option<T>, Fault> {
        let request = Request::builder().method(Method::GET).uri(path);
        let limit = self.timeout;
        let body = self.send(request, Vec::new().into(), limit, &Method::GET, resource).await;
        match body {
            Ok(body) => parse(&body).map(Some),
            Err(Fault::Refused(refusal)) if refusal.code == 404 => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    async fn send(
        &self,
        request: http::request::Builder,
        body: Body,
        limit: Duration,
        method: &Method,
        resource: &'static str,
    ) -> Result<Vec<u8>, Fault> {
        let end = Instant::now() + limit;
        let unknown = |message: String, ended: Instant| {
            self.metrics.request(resource, method, 0);
            Err(Fault::Unknown { message, settled: ended + SETTLE })
        };
        let request = match request.header(header::ACCEPT, "application/json").body(body) {
            Ok(request) => request,
            Err(error) => {
                let message = format!("the request cannot be made: {error}");
                return Err(Fault::Refused(Refusal { message, ..Refusal::of(400) }));
            }
        };
        let answer = async {
            let answer = self.client.send(request).await?;
            let (head, body) = answer.into_parts();
            Ok::<_, kube::Error>((head, body.collect_bytes().await?))
        };
        let (head, body) = match tokio::time::timeout_at(end, answer).await {
            Err(_) => return unknown(format!("no answer within {limit:?}"), end),
            // The server may not have noticed that nobody waits, and knows its own deadline only.
            Ok(Err(error)) => return unknown(error.to_string(), end),
            Ok(Ok(answer)) => answer,
        };
        self.metrics.request(resource, method, head.status.as_u16());
        if head.status.is_success() {
            return Ok(body.to_vec());
        }
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        let wait = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let refusal = Refusal {
            code: head.status.as_u16(),
            message: said(&status.message, head.status),
            // policy/v1 `DisruptionBudgetCause`; 500: more than one budget, which the API does not support
            // (registry/core/pod/storage/eviction.go).
            is_budget: causes.iter().any(|cause| cause.reason == "DisruptionBudget")
                || status.message.contains("more than one PodDisruptionBudget"),
            is_of_rights: is_of_rights(head.status, &status.message),
            wait: wait.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs),
        };
        if head.status.is_server_error() && !refusal.is_budget {
            return Err(Fault::Unknown {
                message: format!("{} ({})", refusal.message, refusal.code),
                settled: Instant::now() + SETTLE,
            });
        }
        Err(Fault::Refused(refusal))
    }
}

impl Call<'_> {
    /// Writes; while the server has too much to do, or does not know yet who may do what, again and again
    /// within the order's patience.
    pub(super) async fn write(&self, write: &Write) -> Result<Vec<u8>, Fault> {
        let mut backoff = Backoff::new(FIRST_DELAY, MOST_DELAY);
        let mut right = self.rights.of(&write.method, write.resource, &write.path);
        loop {
            let number = self.window.sent();
            let fault = match self.api.write_once(write).await {
                Ok(body) => {
                    self.window.answered();
                    right.is_had();
                    return Ok(body);
                }
                Err(fault) => fault,
            };
            let delay = match &fault {
                Fault::NotLeader => return Err(fault),
                Fault::Refused(refusal) if refusal.code == TOO_MANY && !refusal.is_budget => {
                    self.window.overloaded(number);
                    backoff.next_delay().max(refusal.wait.unwrap_or_default())
                }
                Fault::Refused(refusal) if refusal.is_of_rights => {
                    // It has time: it only does not know us.
                    self.window.answered();
                    if !right.may_come() {
                        return Err(fault);
                    }
                    backoff.next_delay()
                }
                Fault::Refused(refusal) => {
                    self.window.answered();
                    if refusal.code != TOO_MANY {
                        right.is_had();
                    }
                    return Err(fault);
                }
                Fault::Unknown { settled, .. } => {
                    self.sent.note(*settled);
                    self.window.overloaded(number);
                    return Err(fault);
                }
            };
            if Instant::now() + delay > self.deadline {
                return Err(fault);
            }
            tokio::time::sleep(delay).await;
        }
    }

    /// Writes, and reads the object that is answered.
    pub(super) async fn write_object<T: DeserializeOwned>(
        &self,
        write: &Write,
    ) -> Result<T, Fault> {
        let body = self.write(write).await?;
        parse(&body)
    }

    /// Reads an object as it is now (not from a cache); `None`: there is none. Repeated within the
    /// order's patience, and once in any case.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        resource: &'static str,
    ) -> Result<Option<T>, Fault> {
        let mut backoff = Backoff::new(FIRST_DELAY, MOST_DELAY);
        let mut right = self.rights.of(&Method::GET, resource, path);
        loop {
            let fault = match self.api.read_once(path, resource).await {
                Ok(object) => {
                    right.is_had();
                    return Ok(object);
                }
                Err(fault) => fault,
            };
            let delay = match &fault {
                Fault::Refused(refusal) if refusal.is_of_rights => {
                    if !right.may_come() {
                        return Err(fault);
                    }
                    backoff.next_delay()
                }
                Fault::Refused(refusal) if refusal.code != TOO_MANY => return Err(fault),
                Fault::Refused(refusal) => {
                    backoff.next_delay().max(refusal.wait.unwrap_or_default())
                }
                _ => backoff.next_delay(),
            };
            if Instant::now() + delay > self.deadline {
                return Err(fault);
            }
            tokio::time::sleep(delay).await;
        }
    }

    /// Waits before another attempt; `false`: patience is at its end.
    pub(super) async fn pause(&self, backoff: &mut Backoff) -> bool {
        let delay = backoff.next_delay();
        if Instant::now() + delay > self.deadline {
            return false;
        }
        tokio::time::sleep(delay).await;
        true
    }

    /// A backoff for attempts of several requests.
    pub(super) fn backoff() -> Backoff {
        Backoff::new(FIRST_DELAY, MOST_DELAY)
    }
}

impl Refusal {
    fn of(code: u16) -> Self {
        Self { code, message: String::new(), is_budget: false, is_of_rights: false, wait: None }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotLeader => f.write_str("this scheduler is no longer the leader"),
            Self::Refused(refusal) => write!(f, "{} ({})", refusal.message, refusal.code),
            Self::Unknown { message, .. } => {
                write!(f, "{message}; the API server may have done it or not")
            }
        }
    }
}

fn said(message: &str, status: StatusCode) -> String {
    if !message.is_empty() {
        return message.to_owned();
    }
    status.canonical_reason().unwrap_or("the API server refused it without a reason").to_owned()
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|error| Fault::Unknown {
        message: format!("the API server's answer cannot be read: {error}"),
        settled: Instant::now(),
    })
}
