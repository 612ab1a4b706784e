//! The error for a domain that does not exist: which ones do.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use octavo_api::compute_domain::ComputeDomain;

use crate::error::ViewError;
use crate::fetch::list;
use crate::snapshot::ObjectName;

/// Classifies a failed read of a domain: the cluster may have no such kind.
pub(super) fn classify(error: kube::Error) -> ViewError {
    kind_or(ViewError::api("computedomains", error))
}

/// The error for a domain that was not found.
pub(super) async fn error(client: &Client, name: &ObjectName) -> ViewError {
    let own: Api<ComputeDomain> = Api::namespaced(client.clone(), &name.namespace);
    let known = match list("computedomains", &own, ListParams::default()).await {
        Ok(domains) => domains.iter().map(ResourceExt::name_any).collect(),
        Err(error) => return kind_or(error),
    };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if let Ok(None) = namespaces.get_opt(&name.namespace).await {
        return ViewError::NoNamespace { namespace: name.namespace.clone() };
    }
    let params = ListParams::default().fields(&format!("metadata.name={}", name.name));
    let elsewhere = list::<ComputeDomain>("computedomains", &Api::all(client.clone()), params)
        .await
        .map(|domains| domains.iter().filter_map(ResourceExt::namespace).collect())
        .unwrap_or_default();
    ViewError::NoDomain { domain: name.clone(), known, elsewhere }
}

fn kind_or(error: ViewError) -> ViewError {
    match error {
        ViewError::Refused { code: 404, .. } => ViewError::NoDomainKind,
        error => error,
    }
}
