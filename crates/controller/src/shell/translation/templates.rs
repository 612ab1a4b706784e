//! The claim templates of translated pods, before their pods are admitted.
//!
//! Every replica makes them, without the lease: a template's name has a digest of its content, so two replicas make the same one.

use std::time::Duration;

use http::{Method, header};
use jiff::Timestamp;
use kube::Client;
use octavo_api::names::{ANNOTATION_LAST_USED, CONTROLLER, LABEL_TRANSLATED};
use octavo_migration::is_as_written;
use serde_json::{Value, json};

use crate::translation::usage::{Due, due};

/// Templates of translated pods in a namespace at most. Any client that reaches the webhook's port can have it make one.
const MAX_TEMPLATES: usize = 200;
/// Tries, if a template changes between two requests.
const TRIES: usize = 3;

/// Makes templates.
pub(super) struct Templates {
    pub(super) client: Client,
    /// How long templates stay without a pod.
    pub(super) keep: Duration,
}

/// Why a pod cannot have its template.
#[derive(Debug, thiserror::Error)]
pub(super) enum TemplateError {
    /// The name is another owner's.
    #[error(
        "the pod's claim is made from the ResourceClaimTemplate {namespace}/{name}, and one of that name {why}; delete it"
    )]
    Taken {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There are too many.
    #[error(
        "the namespace {0} has {MAX_TEMPLATES} ResourceClaimTemplates of translated pods with other demands; end pods, or let pods          ask for the same amounts"
    )]
    TooMany(String),
    /// The API server leaves out a part.
    #[error(
        "the API server does not store the ResourceClaimTemplate {0} whole; shares of a GPU need Kubernetes 1.36, and other GPUs          an older one"
    )]
    NotWhole(String),
    /// It changes all the time, or is being deleted.
    #[error("the ResourceClaimTemplate {0} is being changed")]
    Changing(String),
    /// The API server refused a request, or cannot be reached.
    #[error("the ResourceClaimTemplate {name} cannot be made: {source}")]
    Failed {
        /// Its name.
        name: String,
        /// What the API server says.
        source: kube::Error,
    },
}

impl TemplateError {
    /// The reason of a refusal; `None`: it may be tried again.
    pub(super) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Taken { .. } => Some("NameTaken"),
            Self::TooMany(_) => Some("TooManyTemplates"),
            Self::NotWhole(_) => Some("NotStored"),
            // A policy, a quota, or the API server's rules: the same question gets the same answer.
            Self::Failed { source, .. } if matches!(code(source), Some(400 | 403 | 413 | 422)) => {
                Some("TemplateRefused")
            }
            Self::Changing(_) | Self::Failed { .. } => None,
        }
    }
}

impl Templates {
    /// Makes a template unless it is there, and renews the time of its use. A dry run writes nothing.
    pub(super) async fn ensure(
        &self,
        template: &Value,
        is_dry_run: bool,
    ) -> Result<(), TemplateError> {
        let text = |key: &str| template["metadata"][key].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let collection =
            format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates");
        let path = format!("{collection}/{name}");
        let failed = |source| TemplateError::Failed { name: name.clone(), source };
        for _ in 0..TRIES {
            let now = Timestamp::now();
            let found = match self.send(Method::GET, &path, None).await {
                Ok(found) => found,
                Err(error) if code(&error) == Some(404) => {
                    if is_dry_run {
                        return Ok(());
                    }
                    if !self.has_room(&collection).await.map_err(failed)? {
                        return Err(TemplateError::TooMany(namespace));
                    }
                    let mut made = template.clone();
                    made["metadata"]["annotations"] = used(now);
                    match self.send(Method::POST, &collection, Some(made)).await {
                        Ok(stored) if is_as_written(template, &stored) => return Ok(()),
                        Ok(_) => return Err(TemplateError::NotWhole(name)),
                        // Another replica was faster.
                        Err(error) if code(&error) == Some(409) => continue,
                        Err(error) => return Err(failed(error)),
                    }
                }
                Err(error) => return Err(failed(error)),
            };
            if let Some(why) = foreign(template, &found) {
                return Err(TemplateError::Taken { namespace, name, why });
            }
            let metadata = &found["metadata"];
            if metadata["deletionTimestamp"].is_string() {
                return Err(TemplateError::Changing(name));
            }
            let last_used = metadata["annotations"][ANNOTATION_LAST_USED].as_str();
            if is_dry_run || due(last_used, self.keep, now) == Due::Nothing {
                return Ok(());
            }
            // The version keeps it from a collector that has seen the older time.
            let version = &metadata["resourceVersion"];
            let patch = json!({"metadata": {"resourceVersion": version, "annotations": used(now)}});
            match self.send(Method::PATCH, &path, Some(patch)).await {
                Ok(_) => return Ok(()),
                Err(error) if matches!(code(&error), Some(404 | 409)) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(TemplateError::Changing(name))
    }

    /// Whether a namespace may have one more template.
    async fn has_room(&self, collection: &str) -> kube::Result<bool> {
        let query = format!("labelSelector={LABEL_TRANSLATED}%3Dtrue&limit={MAX_TEMPLATES}");
        let list = self.send(Method::GET, &format!("{collection}?{query}"), None).await?;
        Ok(list["items"].as_array().is_none_or(|items| items.len() < MAX_TEMPLATES))
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> kube::Result<Value> {
        let is_patch = method == Method::PATCH;
        let kind = if is_patch { "application/merge-patch+json" } else { "application/json" };
        let uri = match &body {
            Some(_) => format!("{path}?fieldManager={CONTROLLER}"),
            None => path.to_owned(),
        };
        let request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header(header::CONTENT_TYPE, kind)
            .header(header::ACCEPT, "application/json")
            .body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default());
        self.client.request(request.map_err(kube::Error::HttpError)?).await
    }
}

/// Why a template that is there is not the one that is wanted.
fn foreign(wanted: &Value, found: &Value) -> Option<&'static str> {
    if found["metadata"]["labels"][LABEL_TRANSLATED] != "true" {
        return Some("is another owner's");
    }
    (!is_as_written(wanted, found)).then_some("has another spec")
}

fn used(now: Timestamp) -> Value {
    json!({ANNOTATION_LAST_USED: now.to_string()})
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
