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
//! The answers come from the thread that decides, one question at a time.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use octavo_kube_io::objects::ObjectName;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// How long the deciding thread may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Questions that may wait.
const QUESTIONS: usize = 8;

/// A question to the thread that decides.
#[derive(Debug)]
pub enum AdminQuestion {
    /// Why is this where it is, or nowhere?
    Explain {
        /// Whether a pod or a gang is meant.
        subject: Explained,
        /// Its name.
        name: ObjectName,
        /// Takes the answer.
        answer: Answer,
    },
    /// What are decisions made of?
    Snapshot {
        /// Takes the answer.
        answer: Answer,
    },
    /// What was the last decision made of, and what was it?
    Record {
        /// Whether one on a pod by itself or on a gang is meant.
        subject: Explained,
        /// Its name.
        name: ObjectName,
        /// Takes the answer.
        answer: Answer,
    },
}

/// Takes the answer to a question; dropped without one it says that there will be none.
#[derive(Debug)]
pub struct Answer(oneshot::Sender<Result<Value, Unknown>>);

/// What is to be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explained {
    /// A pod.
    Pod,
    /// A gang, by the object that announced it.
    PodGroup,
}

/// There is nothing of that name here, and why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unknown(pub String);

/// Questions, from the admin server to the thread that decides.
#[derive(Clone, Debug)]
pub struct Questions(mpsc::Sender<AdminQuestion>);

/// Makes the way of questions: one end for [`routes`], the other for who answers.
pub fn questions() -> (Questions, mpsc::Receiver<AdminQuestion>) {
    let (sender, receiver) = mpsc::channel(QUESTIONS);
    (Questions(sender), receiver)
}

/// The routes, for [`octavo_kube_io::admin::AdminServer::serve_with`].
pub fn routes(questions: Questions) -> Router {
    Router::new()
        .route("/explain", get(explain))
        .route("/snapshot", get(snapshot))
        .with_state(questions)
}

impl Answer {
    /// Answers. Who asked may be gone: that is nobody's error.
    pub fn give(self, answer: Result<Value, Unknown>) {
        let _ = self.0.send(answer);
    }
}

impl Questions {
    /// Asks and waits for the answer.
    async fn ask(&self, question: impl FnOnce(Answer) -> AdminQuestion) -> Response {
        let (sender, receiver) = oneshot::channel();
        // A queue of those who wait would only make all of them wait in vain.
        match self.0.try_send(question(Answer(sender))) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                let text = "too many questions at once: ask again in a moment\n";
                return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return nobody(),
        }
        match tokio::time::timeout(PATIENCE, receiver).await {
            Ok(Ok(Ok(value))) => {
                ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
            }
            Ok(Ok(Err(unknown))) => (StatusCode::NOT_FOUND, format!("{unknown}\n")).into_response(),
            Ok(Err(_)) => nobody(),
            Err(_) => {
                let text = format!("no answer within {PATIENCE:?}: the scheduler is deciding\n");
                (StatusCode::GATEWAY_TIMEOUT, text).into_response()
            }
        }
    }
}

async fn explain(State(questions): State<Questions>, uri: Uri) -> Response {
    match subject(uri.query().unwrap_or_default()) {
        Ok((subject, name)) => {
            questions.ask(|answer| AdminQuestion::Explain { subject, name, answer }).await
        }
        Err(text) => (StatusCode::BAD_REQUEST, text).into_response(),
    }
}

async fn snapshot(State(questions): State<Questions>, uri: Uri) -> Response {
    match uri.query().filter(|query| !query.is_empty()).map(subject) {
        None => questions.ask(|answer| AdminQuestion::Snapshot { answer }).await,
        Some(Ok((subject, name))) => {
            questions.ask(|answer| AdminQuestion::Record { subject, name, answer }).await
        }
        Some(Err(_)) => {
            let text = "ask for /snapshot, /snapshot?pod=NAMESPACE/NAME or \
                        /snapshot?podgroup=NAMESPACE/NAME\n";
            (StatusCode::BAD_REQUEST, text).into_response()
        }
    }
}

fn nobody() -> Response {
    let text = "nobody answers: the scheduler is starting or ending\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// What a query asks for.
fn subject(query: &str) -> Result<(Explained, ObjectName), &'static str> {
    const USAGE: &str = "ask for /explain?pod=NAMESPACE/NAME or /explain?podgroup=NAMESPACE/NAME\n";
    let (key, value) = query.split_once('=').ok_or(USAGE)?;
    let subject = match key {
        "pod" => Explained::Pod,
        "podgroup" => Explained::PodGroup,
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
