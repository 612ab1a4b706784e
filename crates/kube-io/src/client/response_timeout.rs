//! The timeout for the start of a response: longer for writes than for reads.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request};
use tower::timeout::error::Elapsed;
use tower::{BoxError, Service};

/// Timeout for the start of the response to a read or a watch, per attempt.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// The same for a write. It exceeds the server's own timeout of a minute (`--request-timeout`). A
/// slow server has done most of the work by then, and a retry would make it do all of it again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(65);

/// Fails requests whose response does not start in time.
#[derive(Clone, Debug)]
pub(super) struct ResponseTimeout<S>(pub(super) S);

impl<S, B> Service<Request<B>> for ResponseTimeout<S>
where
    S: Service<Request<B>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let limit = if is_read { READ_TIMEOUT } else { WRITE_TIMEOUT };
        let answer = tokio::time::timeout(limit, self.0.call(request));
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(Elapsed::new().into())) })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_wait_longer_than_the_servers_own_timeout() {
        for (method, limit) in [(Method::GET, 20), (Method::POST, 65), (Method::PATCH, 65)] {
            let silent = tower::service_fn(|_: Request<()>| std::future::pending());
            let mut service = ResponseTimeout(silent);
            let request = Request::builder().method(method).body(()).unwrap();
            let begun = Instant::now();
            let answer: Result<Infallible, BoxError> = service.call(request).await;
            assert!(answer.unwrap_err().is::<Elapsed>());
            assert_eq!(begun.elapsed().as_secs(), limit);
        }
    }
}
