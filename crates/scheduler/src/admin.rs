//! What the admin server of the scheduler has beside health and metrics: `/explain` and `/snapshot`.
//!
//! - `GET /explain?pod=NAMESPACE/NAME`, `GET /explain?podgroup=NAMESPACE/NAME`: why it is where it is, or is nowhere.
//! - `GET /snapshot`: what decisions are made of, to be replayed.
//! - `GET /snapshot?podgroup=NAMESPACE/NAME`, `GET /snapshot?pod=NAMESPACE/NAME`: the last recorded decision,
//!   with what it was made of.
//!
//! Both answer JSON, and nobody has to log in. **Who reaches the address learns names, namespaces,
//! priorities and requests of all pods, and names, labels and devices of all nodes** (no environment, no
//! secrets, no images). So a scheduler listens on loopback unless it is told otherwise; where probes and
//! Prometheus need the pod's address, `/explain` and `/snapshot` are to be left out there.
//!
//! The answers come from the thread that decides, one question at a time. Who would have to go so that
//! something refused would have its place is looked for on other threads, in a copy of the picture: one search
//! at a time, and a pause after each, so that whoever asks without end takes little of the deciding thread.

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

/// How long the deciding thread may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Questions that may wait.
const MAX_QUEUED_QUESTIONS: usize = 8;
/// How long somebody waits for the searches of others.
const SEARCH_TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two searches.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);

/// A question to the thread that decides.
#[derive(Debug)]
pub enum AdminQuestion {
    /// Why is this where it is, or nowhere?
    Explain {
        /// Whether a pod or a gang is meant.
        subject: ExplainSubject,
        /// Its name.
        name: ObjectName,
        /// Takes the answer, and whether a search would say more.
        answer: Reply<(Value, bool)>,
    },
    /// A search for who would have to go is wanted, if it is not known.
    Search {
        /// Whether a pod or a gang is meant.
        subject: ExplainSubject,
        /// Its name.
        name: ObjectName,
        /// Takes the search.
        answer: Reply<Option<HintSearch>>,
    },
    /// This was found.
    Found {
        /// What.
        found: Box<HintResult>,
        /// Takes the next search, if it takes another one.
        answer: Reply<Option<HintSearch>>,
    },
    /// What are decisions made of?
    Snapshot {
        /// Takes the answer.
        answer: Reply,
    },
    /// What was the last decision made of, and what was it?
    Record {
        /// Whether one on a pod by itself or on a gang is meant.
        subject: ExplainSubject,
        /// Its name.
        name: ObjectName,
        /// Takes the answer.
        answer: Reply,
    },
}

/// Takes the answer to a question; dropped without one it says that there will be none.
#[derive(Debug)]
pub struct Reply<T = Value>(oneshot::Sender<Result<T, NotFound>>);

/// What is to be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainSubject {
    /// A pod.
    Pod,
    /// A gang, by the object that announced it.
    PodGroup,
}

/// There is nothing of that name here, and why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(pub String);

/// One's turn to search: the next one's comes a while after it ends, however it does.
#[derive(Debug)]
struct SearchPermit(Option<OwnedSemaphorePermit>);

impl Drop for SearchPermit {
    fn drop(&mut self) {
        let Some(permit) = self.0.take() else { return };
        // Without a runtime nobody asks any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(SEARCH_INTERVAL).await;
                drop(permit);
            });
        }
    }
}

/// Questions, from the admin server to the thread that decides.
#[derive(Clone, Debug)]
pub struct Questions {
    sender: mpsc::Sender<AdminQuestion>,
    /// Whose turn it is to search.
    turn: Arc<Semaphore>,
}

/// Why a question has no answer.
#[derive(Debug)]
enum QueryError {
    /// Others have asked too much.
    Busy,
    /// Nobody is there to answer.
    Unavailable,
    /// It takes too long.
    Timeout,
    /// There is no such thing.
    NotFound(NotFound),
}

/// Makes the way of questions: one end for [`routes`], the other for who answers.
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
    /// Answers. Who asked may be gone: that is nobody's error.
    pub fn send(self, answer: Result<T, NotFound>) {
        let _ = self.0.send(answer);
    }
}

impl Questions {
    /// Asks and waits for the answer.
    async fn ask<T>(
        &self,
        question: impl FnOnce(Reply<T>) -> AdminQuestion,
    ) -> Result<T, QueryError> {
        let (sender, receiver) = oneshot::channel();
        // A queue of those who wait would only make all of them wait in vain.
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

    /// Why something is where it is, or nowhere, with what a search says where one is needed.
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
                "who would have to go could not be looked for, or all has changed since: ask again in a \
                 moment"
            }
            // What is known is better than nothing.
            Some(Err(_)) => {
                "who would have to go was looked for, and those who decide had no time to say it: ask \
                 again in a moment"
            }
            None => {
                "who would have to go was not looked for, since others ask as well: ask again in a moment"
            }
        };
        report["disturbanceNote"] = note.into();
        Ok(report)
    }

    /// Searches, away from the thread that decides, and tells it what was found.
    async fn search(
        &self,
        subject: ExplainSubject,
        name: &ObjectName,
        mut turn: SearchPermit,
    ) -> Result<(), QueryError> {
        let name = name.clone();
        let mut next = self.ask(|answer| AdminQuestion::Search { subject, name, answer }).await?;
        while let Some(search) = next {
            // Whoever gives up meanwhile does not end it: so its turn goes with it.
            let run = tokio::task::spawn_blocking(move || (Box::new(search.run()), turn));
            let found;
            (found, turn) = run.await.map_err(|_| QueryError::Unavailable)?;
            next = self.ask(|answer| AdminQuestion::Found { found, answer }).await?;
        }
        drop(turn);
        Ok(())
    }
}

impl IntoResponse for QueryError {
    fn into_response(self) -> Response {
        match self {
            Self::Busy => {
                let text = "too many questions at once: ask again in a moment\n";
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
            Self::Unavailable => {
                let text = "nobody answers: the scheduler is starting or ending\n";
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
            Self::Timeout => {
                let text =
                    format!("no answer within {ANSWER_TIMEOUT:?}: the scheduler is deciding\n");
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

/// What a query asks for.
fn subject(query: &str) -> Result<(ExplainSubject, ObjectName), &'static str> {
    const USAGE: &str = "ask for /explain?pod=NAMESPACE/NAME or /explain?podgroup=NAMESPACE/NAME\n";
    let (key, value) = query.split_once('=').ok_or(USAGE)?;
    let subject = match key {
        "pod" => ExplainSubject::Pod,
        "podgroup" => ExplainSubject::PodGroup,
        _ => return Err(USAGE),
    };
    // Names have nothing else that a client would encode.
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
