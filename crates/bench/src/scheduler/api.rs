//! Requests to the API server that cost this process little. Bodies are sent as JSON, and responses
//! are decoded only if needed.

use std::fmt;
use std::path::PathBuf;

use anyhow::Context;
use http::{Method, Request};
use kube::Client;
use octavo_kube_io::client::{self, ClientOptions};
use octavo_lab::Lab;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Where the benchmark's pods, claims and groups are.
const NAMESPACE: &str = "default";

/// A connection to the lab's API server, as its administrator.
#[derive(Clone)]
pub(super) struct Api {
    client: Client,
}

/// Objects that the benchmark writes and lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nodes,
    Pods,
    Claims,
    Templates,
    Slices,
    Classes,
    Priorities,
    Groups,
    Events,
    /// Stands in for the controller that owns pods.
    Owners,
}

/// A list, with the resource version for a following watch.
#[derive(Deserialize)]
pub(super) struct List<T> {
    pub(super) metadata: ListMeta,
    #[serde(default = "Vec::new")]
    pub(super) items: Vec<T>,
}

/// Metadata of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    pub(super) resource_version: String,
}

impl Kind {
    /// Path of the collection.
    pub(super) fn path(self) -> String {
        let (group, resource, is_namespaced) = match self {
            Self::Nodes => ("api/v1", "nodes", false),
            Self::Pods => ("api/v1", "pods", true),
            Self::Claims => ("apis/resource.k8s.io/v1", "resourceclaims", true),
            Self::Templates => ("apis/resource.k8s.io/v1", "resourceclaimtemplates", true),
            Self::Slices => ("apis/resource.k8s.io/v1", "resourceslices", false),
            Self::Classes => ("apis/resource.k8s.io/v1", "deviceclasses", false),
            Self::Priorities => ("apis/scheduling.k8s.io/v1", "priorityclasses", false),
            Self::Owners => ("api/v1", "configmaps", true),
            Self::Events => ("apis/events.k8s.io/v1", "events", true),
            Self::Groups => ("apis/octavo.dev/v1alpha1", "podgroups", true),
        };
        if is_namespaced {
            format!("/{group}/namespaces/{NAMESPACE}/{resource}")
        } else {
            format!("/{group}/{resource}")
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path();
        f.write_str(path.rsplit('/').next().unwrap_or(&path))
    }
}

impl Api {
    /// A separate connection, so that waiting on one does not block another.
    pub(super) async fn connect(lab: &Lab) -> anyhow::Result<Self> {
        Self::connect_to(lab.kubeconfig()).await
    }

    /// A connection with this kubeconfig. Its runtime is the one that this is called in.
    pub(super) async fn connect_to(kubeconfig: PathBuf) -> anyhow::Result<Self> {
        let options = ClientOptions {
            kubeconfig: Some(kubeconfig),
            context: None,
            user_agent: "octavo-bench".into(),
        };
        Ok(Self { client: client::connect(&options).await? })
    }

    /// The connection itself.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Creates an object and returns the undecoded response.
    pub(super) async fn create(&self, kind: Kind, object: &Value) -> anyhow::Result<String> {
        self.send(Method::POST, &kind.path(), "application/json", object)
            .await
            .with_context(|| format!("create {kind} {}", object["metadata"]["name"]))
    }

    /// Creates a subresource such as `pods/NAME/binding`.
    pub(super) async fn post(&self, kind: Kind, below: &str, body: &Value) -> anyhow::Result<()> {
        let path = format!("{}/{below}", kind.path());
        let sent = self.send(Method::POST, &path, "application/json", body).await;
        sent.map(drop).with_context(|| format!("post {kind}/{below}"))
    }

    /// Merges a change into an object or a subresource. Returns the undecoded response.
    pub(super) async fn merge(
        &self,
        kind: Kind,
        below: &str,
        change: &Value,
    ) -> anyhow::Result<String> {
        let path = format!("{}/{below}", kind.path());
        self.send(Method::PATCH, &path, "application/merge-patch+json", change)
            .await
            .with_context(|| format!("patch {kind}/{below}"))
    }

    /// Replaces an object or a subresource.
    pub(super) async fn put(&self, kind: Kind, below: &str, object: &Value) -> anyhow::Result<()> {
        let path = format!("{}/{below}", kind.path());
        let sent = self.send(Method::PUT, &path, "application/json", object).await;
        sent.map(drop).with_context(|| format!("put {kind}/{below}"))
    }

    /// Deletes an object immediately. A missing object is no error.
    pub(super) async fn delete(&self, kind: Kind, name: &str) -> anyhow::Result<()> {
        let path = format!("{}/{name}", kind.path());
        let options = serde_json::json!({"gracePeriodSeconds": 0});
        match self.send(Method::DELETE, &path, "application/json", &options).await {
            Err(error) if status_of(&error) != Some(404) => {
                Err(error).with_context(|| format!("delete {kind}/{name}"))
            }
            _ => Ok(()),
        }
    }

    /// All objects of a kind.
    pub(super) async fn list<T: DeserializeOwned>(&self, kind: Kind) -> anyhow::Result<List<T>> {
        let request = Request::get(kind.path()).body(Vec::new()).context("make a request")?;
        let text = self.client.request_text(request).await;
        let text = text.with_context(|| format!("list {kind}"))?;
        serde_json::from_str(&text).with_context(|| format!("read the list of {kind}"))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: &Value,
    ) -> anyhow::Result<String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content)
            .body(serde_json::to_vec(body)?)
            .context("make a request")?;
        Ok(self.client.request_text(request).await?)
    }
}

/// The HTTP status by which the API server refused.
pub(super) fn status_of(error: &anyhow::Error) -> Option<u16> {
    error.chain().find_map(|cause| match cause.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    })
}
