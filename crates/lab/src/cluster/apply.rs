//! Applying manifests, as `kubectl apply --server-side` does.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use anyhow::Context as _;
use futures::future::try_join_all;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{ApiCapabilities, Scope, pinned_kind};

/// Field manager of server-side apply, as recorded in `metadata.managedFields`.
const FIELD_MANAGER: &str = "octavo-lab";

/// Parses the objects of a YAML text with one or many documents.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let documents: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(text).context("read the documents")?;
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .map(|document| serde_json::from_value(document).context("read an object"))
        .collect()
}

/// Applies objects in dependency order: namespaces first, bindings after the roles they bind. An
/// object without a namespace goes to `default`.
pub(crate) async fn apply(client: &kube::Client, objects: &[DynamicObject]) -> anyhow::Result<()> {
    let mut by_rank: BTreeMap<u8, Vec<&DynamicObject>> = BTreeMap::new();
    for object in objects {
        by_rank.entry(rank(kind(object))).or_default().push(object);
    }
    let mut resources = BTreeMap::new();
    for objects in by_rank.into_values() {
        for object in &objects {
            let gvk = gvk(object)?;
            if let Entry::Vacant(vacant) = resources.entry(key(&gvk)) {
                let found = pinned_kind(client, &gvk)
                    .await
                    .with_context(|| format!("find {} {}", gvk.api_version(), gvk.kind))?;
                vacant.insert(found);
            }
        }
        try_join_all(objects.iter().map(|object| apply_one(client, &resources, object))).await?;
    }
    Ok(())
}

/// The kind of an object; empty where it has none.
pub(crate) fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

async fn apply_one(
    client: &kube::Client,
    resources: &BTreeMap<String, (ApiResource, ApiCapabilities)>,
    object: &DynamicObject,
) -> anyhow::Result<()> {
    let gvk = gvk(object)?;
    let name = object.metadata.name.as_deref().context("an object has no name")?;
    let (resource, capabilities) =
        resources.get(&key(&gvk)).with_context(|| format!("find {}", gvk.kind))?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, resource)
        }
    };
    api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object))
        .await
        .with_context(|| format!("apply {} {name}", gvk.kind))?;
    Ok(())
}

/// Position in the order of creation: dependencies have a lower rank.
fn rank(kind: &str) -> u8 {
    match kind {
        "Namespace" | "CustomResourceDefinition" => 0,
        "ServiceAccount" | "ClusterRole" | "Role" => 1,
        "ClusterRoleBinding" | "RoleBinding" => 2,
        "ValidatingAdmissionPolicyBinding" => 4,
        _ => 3,
    }
}

fn gvk(object: &DynamicObject) -> anyhow::Result<GroupVersionKind> {
    let types = object.types.as_ref().context("an object has no kind")?;
    GroupVersionKind::try_from(types).context("an object has no API version")
}

fn key(gvk: &GroupVersionKind) -> String {
    format!("{}/{}", gvk.api_version(), gvk.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_documents_are_left_out_and_a_broken_one_is_an_error() {
        let objects =
            parse("---\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: b}\n").unwrap();
        assert_eq!(objects.iter().map(kind).collect::<Vec<_>>(), ["ServiceAccount"]);
        assert_eq!(key(&gvk(&objects[0]).unwrap()), "v1/ServiceAccount");
        assert!(parse("a: [").is_err());
    }

    #[test]
    fn bindings_follow_what_they_bind() {
        assert!(rank("Namespace") < rank("ServiceAccount"));
        assert!(rank("ClusterRole") < rank("ClusterRoleBinding"));
        let policy = rank("ValidatingAdmissionPolicy");
        assert!(policy < rank("ValidatingAdmissionPolicyBinding"));
    }
}
