//! Removes objects that were made for a domain.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{DeleteParams, ListParams, Patch, Preconditions, PropagationPolicy};
use kube::core::Status;
use kube::core::metadata::PartialObjectMetaExt;
use kube::{Api, Resource, ResourceExt};
use octavo_api::ComputeDomainClique;
use octavo_api::names::LABEL_COMPUTE_DOMAIN;
use serde::de::DeserializeOwned;

use super::super::requests;
use super::{KubeWriter, left, manager};
use crate::store::{self, Change, Fact, Key, Kind, Observed};
use crate::view::{OwnedKind, OwnedObject};

impl KubeWriter {
    /// Removes entries, unless the daemon of one exists: on its node, with its address.
    pub(super) async fn remove_entries(
        &self,
        object: &OwnedObject,
        entries: &[(usize, String, String)],
    ) -> kube::Result<Change> {
        let pods: Api<Pod> = self.in_namespace(&object.namespace);
        let domain = object.domain.as_deref().unwrap_or_default();
        let of_domain = ListParams::default().labels(&format!("{LABEL_COMPUTE_DOMAIN}={domain}"));
        for pod in &pods.list(&of_domain).await? {
            if let Some(Fact::Pod(pod)) = store::pod(pod).fact
                && entries.iter().any(|(_, node, address)| *node == pod.node && *address == pod.ip)
            {
                return Err(conflict(&format!("the daemon of node {} runs", pod.node)));
            }
        }
        self.patch_clique(object, &requests::removal(entries)).await
    }

    pub(super) async fn drop_finalizer(&self, object: &OwnedObject) -> kube::Result<Change> {
        let rest = object.finalizers.iter().filter(|name| *name != LABEL_COMPUTE_DOMAIN);
        let rest: Vec<String> = rest.cloned().collect();
        let patch = Patch::Merge(requests::finalizers(&object.resource_version, &rest));
        let (name, params) = (&object.name, manager());
        let (namespace, ends) = (&object.namespace, rest.is_empty() && object.is_deleting);
        let observed = match object.kind {
            OwnedKind::Template => {
                let api: Api<ResourceClaimTemplate> = self.in_namespace(namespace);
                store::template(&api.patch_metadata(name, &params, &patch).await?)
            }
            OwnedKind::DaemonSet => {
                let api: Api<DaemonSet> = self.in_namespace(namespace);
                store::daemon_set(&api.patch_metadata(name, &params, &patch).await?)
            }
            OwnedKind::Secret => {
                let api: Api<Secret> = self.in_namespace(namespace);
                store::secret(&api.patch_metadata(name, &params, &patch).await?)
            }
            OwnedKind::Clique => {
                let api: Api<ComputeDomainClique> = self.in_namespace(namespace);
                store::clique(api.patch(name, &params, &patch).await?)
            }
        };
        Ok(left(observed, ends))
    }

    pub(super) async fn delete(&self, object: &OwnedObject) -> kube::Result<Change> {
        let (namespace, name) = (&object.namespace, &object.name);
        match object.kind {
            OwnedKind::Template => {
                let api: Api<ResourceClaimTemplate> = self.in_namespace(namespace);
                let kept = remove(&api, name, &object.uid).await?;
                let kept = kept.map(|it| store::template(&it.metadata.into_response_partial()));
                Ok(after_delete(Kind::Template, object, kept))
            }
            OwnedKind::DaemonSet => {
                let api: Api<DaemonSet> = self.in_namespace(namespace);
                let kept = remove(&api, name, &object.uid).await?;
                let kept = kept.map(|it| store::daemon_set(&it.metadata.into_response_partial()));
                Ok(after_delete(Kind::DaemonSet, object, kept))
            }
            OwnedKind::Secret => {
                let api: Api<Secret> = self.in_namespace(namespace);
                let kept = remove(&api, name, &object.uid).await?;
                let kept = kept.map(|it| store::secret(&it.metadata.into_response_partial()));
                Ok(after_delete(Kind::Secret, object, kept))
            }
            OwnedKind::Clique => {
                let api: Api<ComputeDomainClique> = self.in_namespace(namespace);
                let kept = remove(&api, name, &object.uid).await?;
                Ok(after_delete(Kind::Clique, object, kept.map(store::clique)))
            }
        }
    }
}

fn after_delete(kind: Kind, object: &OwnedObject, kept: Option<Observed>) -> Change {
    kept.map_or_else(
        || {
            let (namespace, name) = (object.namespace.clone(), object.name.clone());
            Change::Gone(Observed {
                key: Key { kind, namespace, name },
                uid: object.uid.clone(),
                resource_version: object.resource_version.clone(),
                fact: None,
            })
        },
        Change::Put,
    )
}

/// Deletes an object with a UID; returns it if finalizers keep it.
async fn remove<K>(api: &Api<K>, name: &str, uid: &str) -> kube::Result<Option<K>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    let deleted = api.delete(name, &params).await?.left();
    Ok(deleted.filter(|object| !object.finalizers().is_empty()))
}

/// What the server answers to a write that is based on an older version.
fn conflict(message: &str) -> kube::Error {
    let status = Status::failure(message, "Conflict").with_code(409);
    kube::Error::Api(Box::new(status))
}
