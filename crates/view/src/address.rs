//! Addresses of programs' admin servers, and asking them.

use http::{Request, StatusCode};
use kube::client::Body;
use kube::{Client, Config};

/// Parses `HOST:PORT` or a plain HTTP URL with a port. Returns `None` for any other text.
pub(crate) fn parse(text: &str) -> Option<http::Uri> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: http::Uri = url.parse().ok()?;
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    (uri.scheme_str() == Some("http") && has_host && uri.port_u16().is_some()).then_some(uri)
}

/// A client for such an address. It sends no credentials.
pub(crate) fn client(uri: &http::Uri) -> Result<Client, kube::Error> {
    Client::try_from(Config::new(uri.clone()))
}

/// The text at a path of the client's server.
pub(crate) async fn get_text(client: &Client, path: &str) -> Result<String, kube::Error> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await
}

/// Status and text at a path, for any status.
pub(crate) async fn get_with_status(
    client: &Client,
    path: &str,
) -> Result<(StatusCode, String), kube::Error> {
    let request = Request::get(path).body(Body::empty()).map_err(kube::Error::HttpError)?;
    let answer = client.send(request).await?;
    let status = answer.status();
    let bytes = answer.into_body().collect_bytes().await?;
    Ok((status, String::from_utf8(bytes.to_vec()).map_err(kube::Error::FromUtf8)?))
}
