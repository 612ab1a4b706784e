//! Carries out writes, while this process leads.

mod removal;

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Secret};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::core::metadata::PartialObjectMetaExt;
use kube::{Api, Client, Resource, ResourceExt};
use octavo_api::names::{CONTROLLER, NVIDIA_API_VERSION};
use octavo_api::{ComputeDomain, ComputeDomainClique};
use octavo_kube_io::events::{EventType, Events};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::leadership::Leadership;
use super::requests;
use crate::certificate::{self, CertificateRequest};
use crate::metrics::Metrics;
use crate::plan::{Regarding, Warning, Write};
use crate::store::{self, Change, Key, Kind, Observed, SeenNode};
use crate::view::{Domain, OwnedKind, OwnedObject};
use crate::wanted;

/// Most time of one event. Events are best effort.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Carries out writes and reports warnings.
pub(super) trait Writer: Send + Sync + 'static {
    /// Carries out a write, and returns what it left.
    fn write(&self, write: &Write) -> impl Future<Output = Result<Change, WriteError>> + Send;

    /// Reports a warning, at best effort.
    fn report(&self, domain: Option<&Domain>, warning: &Warning)
    -> impl Future<Output = ()> + Send;
}

/// Why a write was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// Another process leads, or the lease is about to end.
    #[error("this process does not lead")]
    NotLeader,
    /// It was decided on an older state.
    #[error("the object has changed: {0}")]
    Conflict(kube::Error),
    /// Its object does not exist.
    #[error("there is no {}", .0.name)]
    Absent(Key),
    /// The server refused it, or cannot be reached.
    #[error(transparent)]
    Failed(kube::Error),
    /// No answer came in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// Writes to the API server.
pub(super) struct KubeWriter {
    client: Client,
    events: Events,
    leadership: Leadership,
    metrics: Metrics,
}

impl KubeWriter {
    pub(super) fn new(
        client: Client,
        identity: &str,
        leadership: Leadership,
        metrics: Metrics,
    ) -> Self {
        let events = Events::new(client.clone(), CONTROLLER, identity);
        Self { client, events, leadership, metrics }
    }

    async fn send(&self, write: &Write) -> kube::Result<Change> {
        let params = manager();
        match write {
            Write::SetFinalizers { namespace, name, resource_version, finalizers } => {
                let patch = Patch::Merge(requests::finalizers(resource_version, finalizers));
                let written = self.in_namespace(namespace).patch(name, &params, &patch).await?;
                Ok(left(store::domain(written), finalizers.is_empty()))
            }
            Write::SetStatus { namespace, name, uid, resource_version, status } => {
                let version = resource_version.as_deref();
                let patch = Patch::Merge(requests::status(uid, version, status, &now()));
                let domains: Api<ComputeDomain> = self.in_namespace(namespace);
                let written = domains.patch_status(name, &params, &patch).await?;
                let kept = written.status.as_ref().is_some_and(|it| it.channels == status.channels);
                if !status.channels.is_empty() && !kept {
                    return Err(dropped_channels());
                }
                Ok(Change::Put(store::domain(written)))
            }
            Write::AnnotateClaim { namespace, name, uid, domain } => {
                let patch = Patch::Merge(requests::claim_annotation(uid, domain));
                let claims: Api<ResourceClaim> = self.in_namespace(namespace);
                Ok(Change::Put(store::claim(&claims.patch(name, &params, &patch).await?)))
            }
            Write::LabelNode { node, before, domain } => {
                let patch = requests::node_label(before.as_ref(), domain.as_ref());
                let written: SeenNode =
                    self.json_patch(&Node::url_path(&(), None), node, &patch).await?;
                Ok(Change::Put(store::node(&written)))
            }
            Write::Create(object) => self.create(object).await,
            Write::IssueCertificate(request) => self.issue(request).await,
            Write::ReplaceDaemonSet { resource_version, object } => {
                let mut object: DaemonSet = parsed(object)?;
                object.metadata.resource_version = Some(resource_version.clone());
                let sets: Api<DaemonSet> =
                    self.in_namespace(&object.namespace().unwrap_or_default());
                let written = sets.replace(&object.name_any(), &post(), &object).await?;
                Ok(Change::Put(store::daemon_set(&written.metadata.into_response_partial())))
            }
            Write::DropFinalizer(object) => self.drop_finalizer(object).await,
            Write::Delete(object) => self.delete(object).await,
            Write::LabelClique { object, labels, counts } => {
                let patch = Patch::Merge(requests::labels(object, labels, *counts));
                let cliques: Api<ComputeDomainClique> = self.in_namespace(&object.namespace);
                let written = cliques.patch(&object.name, &params, &patch).await?;
                Ok(Change::Put(store::clique(written)))
            }
            Write::AssignIndices { object, seen, changes } => {
                self.patch_clique(object, &requests::indices(object, *seen, changes)).await
            }
            Write::RemoveEntries { object, entries } => self.remove_entries(object, entries).await,
        }
    }

    async fn create(&self, object: &Value) -> kube::Result<Change> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        match object["kind"].as_str() {
            Some("ResourceClaimTemplate") => {
                let api: Api<ResourceClaimTemplate> = self.in_namespace(namespace);
                let written = api.create(&post(), &parsed(object)?).await?;
                Ok(Change::Put(store::template(&written.metadata.into_response_partial())))
            }
            Some("DaemonSet") => {
                let api: Api<DaemonSet> = self.in_namespace(namespace);
                let written = api.create(&post(), &parsed(object)?).await?;
                Ok(Change::Put(store::daemon_set(&written.metadata.into_response_partial())))
            }
            _ => {
                let api: Api<ComputeDomainClique> = self.in_namespace(namespace);
                Ok(Change::Put(store::clique(api.create(&post(), &parsed(object)?).await?)))
            }
        }
    }

    /// A new certificate. Its key is nowhere but in the Secret.
    async fn issue(&self, request: &CertificateRequest) -> kube::Result<Change> {
        let issued = certificate::issue(request, Timestamp::now()).map_err(not_issued)?;
        let secret = parsed(&wanted::certificate_secret(request, &issued))?;
        let secrets: Api<Secret> = self.in_namespace(&request.namespace);
        let written = secrets.create(&post(), &secret).await?;
        Ok(Change::Put(store::secret(&written.metadata.into_response_partial())))
    }

    async fn patch_clique(&self, object: &OwnedObject, patch: &Value) -> kube::Result<Change> {
        let path = ComputeDomainClique::url_path(&(), Some(&object.namespace));
        let written = self.json_patch(&path, &object.name, patch).await?;
        Ok(Change::Put(store::clique(written)))
    }

    async fn json_patch<K: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        patch: &Value,
    ) -> kube::Result<K> {
        let request = requests::json_patch(&format!("{path}/{name}"), patch);
        self.client.request(request.map_err(kube::Error::HttpError)?).await
    }

    fn in_namespace<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}

impl Writer for KubeWriter {
    async fn write(&self, write: &Write) -> Result<Change, WriteError> {
        let written = match self.leadership.time_for_write() {
            None => Err(WriteError::NotLeader),
            Some(time) => match tokio::time::timeout(time, self.send(write)).await {
                Ok(Ok(change)) => Ok(change),
                Ok(Err(error)) if let Some(key) = absent(write, &error) => {
                    Err(WriteError::Absent(key))
                }
                Ok(Err(error)) if is_conflict(write, &error) => Err(WriteError::Conflict(error)),
                Ok(Err(error)) => Err(WriteError::Failed(error)),
                Err(_) => Err(WriteError::Timeout(time)),
            },
        };
        let result = match &written {
            Ok(_) => "done",
            Err(WriteError::NotLeader) => "not-leader",
            Err(WriteError::Conflict(_) | WriteError::Absent(_)) => "conflict",
            Err(WriteError::Failed(_) | WriteError::Timeout(_)) => "failed",
        };
        self.metrics.write(kind(write), result);
        written
    }

    async fn report(&self, domain: Option<&Domain>, warning: &Warning) {
        let regarding = match (&warning.regarding, domain) {
            (Regarding::Domain, None) => return,
            (Regarding::Domain, Some(domain)) => {
                let kind = ("ComputeDomain", NVIDIA_API_VERSION);
                reference(kind, &domain.namespace, &domain.name, &domain.uid)
            }
            (Regarding::Claim { namespace, name, uid }, _) => {
                reference(("ResourceClaim", "resource.k8s.io/v1"), namespace, name, uid)
            }
        };
        if self.leadership.is_leading() {
            let (reason, note) = (warning.reason.as_str(), &warning.note);
            let action = "Plan";
            let event = self.events.record(&regarding, EventType::Warning, reason, action, note);
            let _ = tokio::time::timeout(EVENT_TIMEOUT, event).await;
        }
    }
}

/// The name of a write in metrics and logs.
pub(super) fn kind(write: &Write) -> &'static str {
    match write {
        Write::SetFinalizers { .. } => "finalizers",
        Write::SetStatus { .. } => "status",
        Write::AnnotateClaim { .. } => "claim-annotation",
        Write::LabelNode { .. } => "node-label",
        Write::Create(_) => "create",
        Write::IssueCertificate(_) => "certificate",
        Write::ReplaceDaemonSet { .. } => "daemonset",
        Write::DropFinalizer(_) => "drop-finalizer",
        Write::Delete(_) => "delete",
        Write::LabelClique { .. } => "clique-labels",
        Write::AssignIndices { .. } => "indices",
        Write::RemoveEntries { .. } => "remove-entries",
    }
}

/// The object of a write, if the server says that it does not exist.
fn absent(write: &Write, error: &kube::Error) -> Option<Key> {
    let kube::Error::Api(status) = error else { return None };
    let (kind, namespace, name) = match write {
        _ if status.code != 404 => return None,
        Write::LabelNode { node, .. } => (Kind::Node, "", node.as_str()),
        Write::Delete(object)
        | Write::DropFinalizer(object)
        | Write::LabelClique { object, .. } => {
            let kind = match object.kind {
                OwnedKind::Template => Kind::Template,
                OwnedKind::DaemonSet => Kind::DaemonSet,
                OwnedKind::Clique => Kind::Clique,
                OwnedKind::Secret => Kind::Secret,
            };
            (kind, object.namespace.as_str(), object.name.as_str())
        }
        _ => return None,
    };
    Some(Key { kind, namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Whether the object has changed, appeared or gone, which a watch will show. The failed `test` of a JSON patch is answered with
/// 422.
fn is_conflict(write: &Write, error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    match write {
        Write::LabelNode { .. } | Write::AssignIndices { .. } | Write::RemoveEntries { .. } => {
            matches!(status.code, 404 | 409 | 422)
        }
        Write::Create(_) | Write::IssueCertificate(_) => status.code == 409,
        _ => matches!(status.code, 404 | 409),
    }
}

/// The status has no channels after its write: the definition of the resource lacks them.
fn dropped_channels() -> kube::Error {
    let message = "the API server drops status.channels: its CustomResourceDefinition of ComputeDomain is not Octavo's; install \
                   Octavo's, or set `imex.isolation: domain`";
    kube::Error::Api(Box::new(Status::failure(message, "Invalid").with_code(422)))
}

fn not_issued(error: rcgen::Error) -> kube::Error {
    kube::Error::Service(Box::new(error))
}

/// What a write left: an object whose last finalizer it removed may be gone.
fn left(observed: Observed, is_last: bool) -> Change {
    let is_deleted = match &observed.fact {
        Some(store::Fact::Domain(domain)) => domain.is_deleting,
        _ => true,
    };
    if is_last && is_deleted { Change::Gone(observed) } else { Change::Put(observed) }
}

fn parsed<K: DeserializeOwned>(object: &Value) -> kube::Result<K> {
    serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)
}

fn manager() -> PatchParams {
    PatchParams { field_manager: Some(CONTROLLER.to_owned()), ..PatchParams::default() }
}

fn post() -> PostParams {
    PostParams { field_manager: Some(CONTROLLER.to_owned()), ..PostParams::default() }
}

/// The time in whole seconds, as in all conditions.
fn now() -> String {
    let seconds = Timestamp::now().as_second();
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

fn reference(
    (kind, api_version): (&str, &str),
    namespace: &str,
    name: &str,
    uid: &str,
) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
