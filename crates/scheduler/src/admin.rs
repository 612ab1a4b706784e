//! The scheduler's admin endpoints beside health and metrics: `/explain` and `/snapshot`.
//!
//! - `GET /explain?pod=NAMESPACE/NAME`, `GET /explain?podgroup=NAMESPACE/NAME`: why it is placed
//!   where it is, or not placed.
//! - `GET /snapshot`: the input of decisions, for replay.
//! - `GET /snapshot?podgroup=NAMESPACE/NAME`, `GET /snapshot?pod=NAMESPACE/NAME`: the last recorded
//!   decision with its input.
//!
//! Both answer JSON without authentication. **A client of this address learns names, namespaces,
//! priorities and requests of all pods, and names, labels and devices of all nodes** (no
//! environment, no secrets, no images). So the scheduler listens on loopback by default. Where
//! probes and Prometheus need the pod's address, leave `/explain` and `/snapshot` out there.
//!
//! The decision thread answers, one query at a time. The search for a preemption plan of an
//! unschedulable pod runs on other threads against a snapshot. Searches run one at a time with a
//! pause after each, so that a client in a loop takes little of the decision thread's time.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use octavo_kube_io::objects::ObjectName;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::state::{HintResult, HintSearch};

/// How long the decision thread may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Questions that may wait.
const MAX_QUEUED_QUESTIONS: usize = 8;
/// How long a query waits for the searches of others.
const SEARCH_TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two searches.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);

/// A query to the decision thread.
#[derive(Debug)]
pub enum AdminQuestion {
    /// Why is it placed where it is, or not placed?
    Explain {
        /// Whether it is a pod or a gang.
        subject: ExplainSubject,
        /// Its name.
        name: ObjectName,
        /// Takes the answer, and whether a search would add to it.
        answer: Reply<(Value, bool)>,
    },
    /// Starts a search for a preemption plan, unless the result is known.
    Search {
        /// Whether it is a pod or a gang.
        subject: ExplainSubject,
        /// Its name.
        name: ObjectName,
        /// Takes the search.
        answer: Reply<Option<HintSearch>>,
    },
    /// Delivers the result of a search.
    Found {
        /// The result.
        found: Box<HintResult>,
        /// Told once it is stored.
        answer: Reply<()>,
    },
    /// What is the input of decisions?
    Snapshot {
        /// Takes the answer.
        answer: Reply,
    },
    /// What was the last decision, and its input?
    Record {
        /// Whether it is a pod or a gang.
        subject: ExplainSubject,
        /// Its name.
        name: ObjectName,
        /// Takes the answer.
        answer: Reply,
    },
}

/// Takes the answer to a query. Dropped without one, it reports that none will come.
#[derive(Debug)]
pub struct Reply<T = Value>(oneshot::Sender<Result<T, NotFound>>);

/// The subject of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainSubject {
    /// A pod.
    Pod,
    /// A gang, by the object that announced it.
    PodGroup,
}

/// No such object is known here, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(pub String);

/// The right to search. Its successor gets it [`SEARCH_INTERVAL`] after it ends, however it ends.
#[derive(Debug)]
struct SearchPermit(Option<OwnedSemaphorePermit>);

impl Drop for SearchPermit {
    fn drop(&mut self) {
        let Some(permit) = self.0.take() else { return };
        // Without a runtime no query can follow.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(SEARCH_INTERVAL).await;
                drop(permit);
            });
        }
    }
}

/// Sends queries from the admin server to the decision thread.
#[derive(Clone, Debug)]
pub struct Questions {
    sender: mpsc::Sender<AdminQuestion>,
    /// Serializes searches.
    turn: Arc<Semaphore>,
}

/// Why a query has no answer.
#[derive(Debug)]
enum QueryError {
    /// Too many queries are waiting.
    Busy,
    /// No decision thread is running.
    Unavailable,
    /// It took too long.
    Timeout,
    /// There is no such thing.
    NotFound(NotFound),
}

/// Creates the query channel: one end for [`routes`], the other for the decision thread.
pub fn questions() -> (Questions, mpsc::Receiver<AdminQuestion>) {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_QUESTIONS);
    (Questions { sender, turn: Arc::new(Semaphore::new(1)) }, receiver)
}

/// The routes, for [`octavo_kube_io::admin::AdminServer::serve_with`].
pub fn routes(questions: Questions) -> Router {
    Router::new()
        .route("/explain", get(explain))
        .route("/snapshot", get(snapshot))
        .with_state(questions)
}

impl<T> Reply<T> {
    /// Sends the answer. A client that is gone is no error.
    pub fn send(self, answer: Result<T, NotFound>) {
        let _ = self.0.send(answer);
    }
}

impl Questions {
    /// Sends a query and waits for the answer.
    async fn ask<T>(
        &self,
        question: impl FnOnce(Reply<T>) -> AdminQuestion,
    ) -> Result<T, QueryError> {
        let (sender, receiver) = oneshot::channel();
        // More queued queries would only time out together.
        match self.sender.try_send(question(Reply(sender))) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(QueryError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(QueryError::Unavailable),
        }
        match tokio::time::timeout(ANSWER_TIMEOUT, receiver).await {
            Ok(Ok(answer)) => answer.map_err(QueryError::NotFound),
            Ok(Err(_)) => Err(QueryError::Unavailable),
            Err(_) => Err(QueryError::Timeout),
        }
    }

    /// Explains an object, with the result of a search where one is needed.
    async fn explain(
        &self,
        subject: ExplainSubject,
        name: ObjectName,
    ) -> Result<Value, QueryError> {
        let ask = |name| self.ask(move |answer| AdminQuestion::Explain { subject, name, answer });
        let (mut report, is_open) = ask(name.clone()).await?;
        if !is_open {
            return Ok(report);
        }
        let found =
            match tokio::time::timeout(SEARCH_TURN_TIMEOUT, Arc::clone(&self.turn).acquire_owned())
                .await
            {
                Ok(Ok(permit)) => self.search(subject, &name, SearchPermit(Some(permit))).await,
                Ok(Err(_)) | Err(_) => Err(QueryError::Busy),
            };
        let updated = match found {
            Ok(()) => Some(ask(name).await),
            Err(_) => None,
        };
        let note = match updated {
            Some(Ok((updated, false))) => return Ok(updated),
            Some(Err(gone @ QueryError::NotFound(_))) => return Err(gone),
            Some(Ok((updated, true))) => {
                report = updated;
                "no search for victims was possible, or the cluster changed during it: try again in a moment"
            }
            // The first answer is better than none.
            Some(Err(_)) => {
                "the search for victims is done, but the decision thread had no time to report it: try again in a \
                 moment"
            }
            None => {
                "no search for victims was started, because others are running: try again in a moment"
            }
        };
        report["disturbanceNote"] = note.into();
        Ok(report)
    }

    /// Runs a search on another thread and delivers its result to the decision thread.
    async fn search(
        &self,
        subject: ExplainSubject,
        name: &ObjectName,
        turn: SearchPermit,
    ) -> Result<(), QueryError> {
        let name = name.clone();
        let search = self.ask(|answer| AdminQuestion::Search { subject, name, answer }).await?;
        let Some(search) = search else { return Ok(()) };
        // A client that disconnects does not end the search, so the permit moves with it.
        let run = tokio::task::spawn_blocking(move || (Box::new(search.run()), turn));
        let (found, turn) = run.await.map_err(|_| QueryError::Unavailable)?;
        self.ask(|answer| AdminQuestion::Found { found, answer }).await?;
        drop(turn);
        Ok(())
    }
}

impl IntoResponse for QueryError {
    fn into_response(self) -> Response {
        match self {
            Self::Busy => {
                let text = "too many queries at once: try again in a moment\n";
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
            Self::Unavailable => {
                let text = "no answer: the scheduler is starting or shutting down\n";
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
            Self::Timeout => {
                let text = format!(
                    "no answer within {ANSWER_TIMEOUT:?}: the decision thread is busy; try again\n"
                );
                (StatusCode::GATEWAY_TIMEOUT, text).into_response()
            }
            Self::NotFound(unknown) => {
                (StatusCode::NOT_FOUND, format!("{unknown}\n")).into_response()
            }
        }
    }
}

/// The answer to a client.
fn response(answer: Result<Value, QueryError>) -> Response {
    match answer {
        Ok(value) => {
            ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
        }
        Err(none) => none.into_response(),
    }
}

async fn explain(State(questions): State<Questions>, uri: Uri) -> Response {
    match subject(uri.query().unwrap_or_default()) {
        Ok((subject, name)) => response(questions.explain(subject, name).await),
        Err(text) => (StatusCode::BAD_REQUEST, text).into_response(),
    }
}

async fn snapshot(State(questions): State<Questions>, uri: Uri) -> Response {
    match uri.query().filter(|query| !query.is_empty()).map(subject) {
        None => response(questions.ask(|answer| AdminQuestion::Snapshot { answer }).await),
        Some(Ok((subject, name))) => {
            let record = |answer| AdminQuestion::Record { subject, name, answer };
            response(questions.ask(record).await)
        }
        Some(Err(_)) => {
            let text = "ask for /snapshot, /snapshot?pod=NAMESPACE/NAME or \
                        /snapshot?podgroup=NAMESPACE/NAME\n";
            (StatusCode::BAD_REQUEST, text).into_response()
        }
    }
}

/// The subject of a query.
fn subject(query: &str) -> Result<(ExplainSubject, ObjectName), &'static str> {
    const USAGE: &str = "ask for /explain?pod=NAMESPACE/NAME or /explain?podgroup=NAMESPACE/NAME\n";
    let (key, value) = query.split_once('=').ok_or(USAGE)?;
    let subject = match key {
        "pod" => ExplainSubject::Pod,
        "podgroup" => ExplainSubject::PodGroup,
        _ => return Err(USAGE),
    };
    // Names contain no other characters that a client would encode.
    let value = value.replace("%2F", "/").replace("%2f", "/");
    match value.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && is_name(name) => {
            Ok((subject, ObjectName::new(namespace, name)))
        }
        _ => Err(USAGE),
    }
}

fn is_name(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !text.is_empty() && text.chars().all(is_letter)
}

#[cfg(test)]
mod tests;
