//! What the API server says of a cluster before a release is written.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Node as KubeNode, Pod, Secret};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use octavo_migration::plan::{Component, Owner, component, owner};
use octavo_view::ViewError;
use serde_json::Value;

use crate::node_match::Node;
use crate::objects::{name, text};
use crate::owner::Release;

/// Label of the Secrets in which helm keeps its releases.
const OF_HELM: &str = "owner=helm";

/// The cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Whether the API server serves `resource.k8s.io/v1`.
    pub(crate) serves_dra: bool,
    /// All nodes.
    pub(crate) nodes: Vec<Node>,
    /// Pods that are parts of other stacks and have not ended.
    pub(crate) parts: Vec<Part>,
    /// CRDs and `DeviceClasses` of the chart that are there.
    pub(crate) existing: Vec<Value>,
    /// The helm releases; `None`: they could not be read.
    pub(crate) releases: Option<BTreeSet<Release>>,
}

/// A pod that is a part of another stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// What it is.
    pub(crate) component: Component,
    /// `namespace/name`.
    pub(crate) pod: String,
    /// Its node; empty if it has none yet.
    pub(crate) node: String,
    /// Who installed it.
    pub(crate) owner: Owner,
}

/// The API server's version: its text, and major and minor number.
pub(crate) async fn version(client: &Client) -> Result<(String, (u32, u32)), ViewError> {
    let info = client.apiserver_version().await.map_err(|e| ViewError::api("version", e))?;
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_default()
    };
    Ok((info.git_version, (number(&info.major), number(&info.minor))))
}

/// Reads the cluster, and of the chart's objects those with fixed names.
pub(crate) async fn read(client: &Client, chart: &[Value]) -> Result<Facts, ViewError> {
    let groups = client.list_api_groups().await.map_err(|e| ViewError::api("API groups", e))?;
    let serves = |version: &str| {
        groups.groups.iter().flat_map(|group| &group.versions).any(|it| it.group_version == version)
    };
    let nodes = list::<KubeNode>(client, "nodes", ListParams::default()).await?;
    let nodes = nodes.into_iter().map(|node| Node {
        name: node.metadata.name.unwrap_or_default(),
        labels: node.metadata.labels.unwrap_or_default(),
    });
    let pods = list::<Pod>(client, "pods", ListParams::default()).await?;
    let parts =
        pods.iter().filter_map(|pod| serde_json::to_value(pod).ok()).filter_map(|pod| part(&pod));
    Ok(Facts {
        serves_dra: serves("resource.k8s.io/v1"),
        nodes: nodes.collect(),
        parts: parts.collect(),
        existing: existing(client, chart).await?,
        releases: releases(client).await,
    })
}

fn part(pod: &Value) -> Option<Part> {
    if ["Succeeded", "Failed"].contains(&text(pod, "/status/phase")) {
        return None;
    }
    Some(Part {
        component: component(pod)?,
        pod: format!("{}/{}", text(pod, "/metadata/namespace"), name(pod)),
        node: text(pod, "/spec/nodeName").to_owned(),
        owner: owner(pod),
    })
}

async fn list<K>(
    client: &Client,
    kind: &'static str,
    params: ListParams,
) -> Result<Vec<K>, ViewError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    octavo_view::fetch::list(kind, &Api::all(client.clone()), params).await
}

/// CRDs and `DeviceClasses` that are there under the names that the chart's have.
async fn existing(client: &Client, chart: &[Value]) -> Result<Vec<Value>, ViewError> {
    let mut found = Vec::new();
    for object in chart {
        let (kind, plural, label) = match text(object, "/kind") {
            "CustomResourceDefinition" => {
                ("CustomResourceDefinition", "customresourcedefinitions", "CRDs")
            }
            "DeviceClass" => ("DeviceClass", "deviceclasses", "DeviceClasses"),
            _ => continue,
        };
        let api = dynamic(client, text(object, "/apiVersion"), kind, plural);
        match api.get_metadata_opt(name(object)).await {
            Ok(Some(meta)) => {
                let mut meta = serde_json::to_value(meta.metadata).unwrap_or_default();
                meta["managedFields"] = Value::Null;
                found.push(serde_json::json!({
                    "apiVersion": object["apiVersion"], "kind": kind, "metadata": meta,
                }));
            }
            Ok(None) => {}
            // A server without the kind has none of them.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(ViewError::api(label, error)),
        }
    }
    Ok(found)
}

/// An API for objects of a cluster-wide kind.
pub(crate) fn dynamic(
    client: &Client,
    api_version: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::gvk(group, version, kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
}

/// The plural of a kind with fixed names.
pub(crate) fn plural(kind: &str) -> &'static str {
    if kind == "DeviceClass" { "deviceclasses" } else { "customresourcedefinitions" }
}

/// The releases of helm, by its Secrets or `ConfigMaps`. Their content is not read.
async fn releases(client: &Client) -> Option<BTreeSet<Release>> {
    let params = ListParams::default().labels(OF_HELM);
    let secrets: Api<Secret> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let secrets =
        secrets.list_metadata(&params).await.ok()?.items.into_iter().map(|it| it.metadata);
    let maps = maps.list_metadata(&params).await.ok()?.items.into_iter().map(|it| it.metadata);
    Some(living(secrets.chain(maps)))
}

/// The releases whose newest version is not uninstalled.
fn living(versions: impl Iterator<Item = ObjectMeta>) -> BTreeSet<Release> {
    let mut newest: BTreeMap<Release, (u64, bool)> = BTreeMap::new();
    for version in versions {
        let labels = version.labels.unwrap_or_default();
        let (Some(name), Some(namespace)) = (labels.get("name"), version.namespace) else {
            continue;
        };
        let release = Release { namespace, name: name.clone() };
        let number = labels.get("version").and_then(|text| text.parse().ok()).unwrap_or_default();
        let is_there = labels.get("status").is_none_or(|status| status != "uninstalled");
        let known = newest.entry(release).or_insert((number, is_there));
        if number >= known.0 {
            *known = (number, is_there);
        }
    }
    newest.into_iter().filter(|(_, (_, is_there))| *is_there).map(|(release, _)| release).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_lives_by_its_newest_version() {
        let version = |name: &str, number: &str, status: &str| ObjectMeta {
            namespace: Some("ns".to_owned()),
            labels: Some(
                [("name", name), ("version", number), ("status", status)]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            ..ObjectMeta::default()
        };
        let found = living(
            [
                version("here", "10", "deployed"),
                version("here", "9", "superseded"),
                version("gone", "1", "superseded"),
                version("gone", "2", "uninstalled"),
            ]
            .into_iter(),
        );
        let names: Vec<&str> = found.iter().map(|release| release.name.as_str()).collect();
        assert_eq!(names, ["here"]);
    }
}
