//! The registry from which real nodes pull the lab's images: the OCI layout in the state folder, read
//! only (OCI Distribution Specification, the category *pull*).
//!
//! Its own server and not a registry's: nothing is pushed, no user is known, and one file is one answer.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::io::ReaderStream;

use super::images::{IMAGE_NAME, MANIFEST_TYPE};
use crate::cluster::layout::Layout;
use crate::cluster::settings::Settings;

/// The registry's host in the names of images.
pub(super) const HOST: &str = "octavo.dev";

/// Where the registry of a lab with real nodes listens; `None` without such nodes.
pub(crate) fn address(settings: &Settings) -> Option<SocketAddr> {
    let gateway = settings.real.as_ref()?.gateway();
    Some(SocketAddr::from((gateway, settings.ports.registry)))
}

/// Serves the lab's images until the process is ended.
pub(crate) async fn run(layout: &Layout) -> anyhow::Result<()> {
    let settings = Settings::read(layout)?.context("there is no lab in this folder")?;
    let address = address(&settings).context("a lab without real nodes has no registry")?;
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
    axum::serve(listener, routes(layout.images())).await.context("serve the images")
}

fn routes(images: PathBuf) -> Router {
    Router::new().fallback(answer).with_state(Arc::from(images))
}

async fn answer(State(images): State<Arc<Path>>, request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let path = request.uri().path();
    if matches!(path, "/v2" | "/v2/") {
        return StatusCode::OK.into_response();
    }
    let Some(wanted) = Wanted::parse(path) else { return StatusCode::NOT_FOUND.into_response() };
    let Some(digest) = wanted.digest(&images).await else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let media_type = match wanted {
        Wanted::Manifest { .. } => MANIFEST_TYPE,
        Wanted::Blob { .. } => "application/octet-stream",
    };
    let Some(blob) = blob(&images, &digest) else { return StatusCode::NOT_FOUND.into_response() };
    let opened = async {
        let file = tokio::fs::File::open(blob).await?;
        let length = file.metadata().await?.len();
        Ok::<_, std::io::Error>((file, length))
    };
    let Ok((file, length)) = opened.await else { return StatusCode::NOT_FOUND.into_response() };
    let headers = [
        (header::CONTENT_TYPE, media_type.to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        (header::HeaderName::from_static("docker-content-digest"), digest),
    ];
    if *request.method() == Method::HEAD {
        return (headers, Body::empty()).into_response();
    }
    (headers, Body::from_stream(ReaderStream::new(file))).into_response()
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    /// A manifest of an image: by tag or by digest.
    Manifest { name: &'a str, reference: &'a str },
    /// A part of an image.
    Blob { digest: &'a str },
}

impl<'a> Wanted<'a> {
    /// Parses `/v2/<name>/manifests/<reference>` and `/v2/<name>/blobs/<digest>`.
    fn parse(path: &'a str) -> Option<Self> {
        let (path, reference) = path.strip_prefix("/v2/")?.rsplit_once('/')?;
        if let Some(name) = path.strip_suffix("/manifests") {
            return Some(Self::Manifest { name, reference });
        }
        path.strip_suffix("/blobs").map(|_| Self::Blob { digest: reference })
    }

    /// The digest of what it asks for; `None` for an unknown image.
    async fn digest(&self, images: &Path) -> Option<String> {
        let (name, tag) = match *self {
            Self::Blob { digest } => return Some(digest.to_owned()),
            Self::Manifest { reference, .. } if reference.contains(':') => {
                return Some(reference.to_owned());
            }
            Self::Manifest { name, reference } => (name, reference),
        };
        let index = tokio::fs::read(images.join("index.json")).await.ok()?;
        let index: Value = serde_json::from_slice(&index).ok()?;
        let wanted = format!("{HOST}/{name}:{tag}");
        let manifests = index["manifests"].as_array()?;
        let found = manifests.iter().find(|one| one["annotations"][IMAGE_NAME] == wanted)?;
        found["digest"].as_str().map(str::to_owned)
    }
}

/// The file of a part; `None` if the digest is none.
fn blob(images: &Path, digest: &str) -> Option<PathBuf> {
    let hex = digest.strip_prefix("sha256:")?;
    let is_digest = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then(|| images.join("blobs/sha256").join(hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_asks_for_is_read_from_its_end() {
        let manifest = Wanted::parse("/v2/lab/tools/manifests/1");
        assert_eq!(manifest, Some(Wanted::Manifest { name: "lab/tools", reference: "1" }));
        let blob = Wanted::parse("/v2/lab/tools/blobs/sha256:ab");
        assert_eq!(blob, Some(Wanted::Blob { digest: "sha256:ab" }));
        for path in ["/v2/", "/v2/lab", "/lab/manifests/1", "/v2/lab/tools/tags/list"] {
            assert_eq!(Wanted::parse(path), None, "{path}");
        }
    }

    #[test]
    fn a_digest_leads_to_no_other_file() {
        let images = Path::new("/images");
        let digest = "0123456789abcdef".repeat(4);
        let file = blob(images, &format!("sha256:{digest}")).unwrap();
        assert_eq!(file, images.join("blobs/sha256").join(&digest));
        for digest in ["", "sha256:", "sha256:../../index.json", "sha512:ab", &digest] {
            assert_eq!(blob(images, digest), None, "{digest}");
        }
    }
}
