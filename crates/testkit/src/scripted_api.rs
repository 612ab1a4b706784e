//! An API server whose answers are a function of the request.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::{Body, Bytes};
use http::Response;
use kube::Client;
use serde_json::{Value, json};

/// A request with its whole body.
pub type Request = http::Request<Bytes>;

/// The server. Clones are cheap and share it.
#[derive(Clone)]
pub struct ScriptedApi {
    client: Client,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl ScriptedApi {
    /// A server that answers each request with a status and a body. Needs a runtime.
    pub fn new<T: ToString>(answer: impl Fn(&Request) -> (u16, T) + Send + Sync + 'static) -> Self {
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let (log, answer) = (Arc::clone(&requests), Arc::new(answer));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let request = Request::from_parts(head, body);
                let (code, text) = answer(&request);
                log.lock().unwrap().push(request);
                let response = Response::builder().status(code).body(Body::from(text.to_string()));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        Self { client: Client::new(service, "default"), requests }
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Answered requests, in order.
    pub fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap()
    }

    /// The paths of [`requests`](Self::requests), with their queries.
    pub fn uris(&self) -> Vec<String> {
        self.requests().iter().map(|request| request.uri().to_string()).collect()
    }
}

/// The status and the body with which an API server reports a failure.
pub fn failure(code: u16, message: &str) -> (u16, Value) {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        _ => "InternalError",
    };
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": message, "reason": reason, "code": code});
    (code, status)
}
