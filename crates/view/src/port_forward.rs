//! Asks a pod that serves its own loopback only, through the API server's port-forward.
//!
//! The kubelet connects from within the pod's network namespace, so the pod sees a client on its loopback. It takes the right to
//! `create` `pods/portforward`.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use kube::{Api, Client};

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a pod could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortForwardError {
    /// The API server refused, or the kubelet could not connect.
    #[error("port-forward: {0}")]
    Kube(#[from] kube::Error),
    /// The connection has no such port.
    #[error("port-forward: the connection to port {0} is missing")]
    NoStream(u16),
    /// The pod does not speak HTTP there, or ended the connection.
    #[error("port-forward: {0}")]
    Http(#[from] hyper::Error),
    /// The pod does not answer.
    #[error("port-forward: no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    /// The answer is not UTF-8.
    #[error("port-forward: the answer is no text")]
    NoText,
}

/// The status and the text at a path of a pod's port.
pub(crate) async fn get(
    client: &Client,
    namespace: &str,
    pod: &str,
    port: u16,
    path: &str,
) -> Result<(StatusCode, String), PortForwardError> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let mut forwarder = pods.portforward(pod, &[port]).await?;
    let stream = forwarder.take_stream(port).ok_or(PortForwardError::NoStream(port))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path)
        .header(header::HOST, pod)
        .header(header::CONNECTION, "close")
        .body(Body::empty())
        .map_err(kube::Error::HttpError)?;
    let answer = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await?.to_bytes();
        let text = String::from_utf8(bytes.to_vec()).map_err(|_| PortForwardError::NoText)?;
        Ok((status, text))
    };
    // The connection has to be driven while the answer is read. A pod that hangs must not hold up the others.
    let driven = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    let text = tokio::select! {
        text = answer => text,
        never = driven => match never {},
        () = tokio::time::sleep(TIMEOUT) => Err(PortForwardError::Timeout),
    };
    forwarder.abort();
    text
}
