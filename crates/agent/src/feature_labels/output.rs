//! Where the labels are written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use octavo_api::names::{FEATURE_LABELS_MANAGER, LABEL_CLIQUE};
use octavo_node::files::{self, StorageError, write_atomically};
use serde_json::json;

use super::values::Labels;

/// Where the labels go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To the Node object.
    Node,
    /// To a `NodeFeature` object of node feature discovery, in the agent's namespace.
    NodeFeature,
    /// To a file that node feature discovery reads.
    File(PathBuf),
}

/// Why labels are not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The API server refused, or is not there.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] StorageError),
    /// Another program has other values.
    #[error(
        "another program writes labels of GPU feature discovery to this node, such as NVIDIA's: end it, or set \
         featureLabels to none: {0}"
    )]
    Conflict(String),
}

impl WriteError {
    /// Whether it stays until a person, or another program, does something.
    pub(super) fn lasts(&self) -> bool {
        match self {
            Self::Api(kube::Error::Api(status)) => matches!(status.code, 403 | 404 | 422),
            Self::Conflict(_) => true,
            Self::Api(_) | Self::File(_) => false,
        }
    }
}

/// Writes the labels of a node.
#[derive(Clone)]
pub(crate) struct LabelWriter {
    client: Client,
    node: String,
}

impl LabelWriter {
    /// The writer of this node's labels.
    pub(crate) fn new(client: Client, node: String) -> Self {
        Self { client, node }
    }

    /// Writes the labels, and removes those that were written before.
    ///
    /// # Errors
    ///
    /// They are not written. Earlier ones stay.
    pub(super) async fn write(&self, target: &Target, labels: &Labels) -> Result<(), WriteError> {
        match target {
            Target::Node => {
                let mut labels = labels.clone();
                // The agent writes it whatever the settings are.
                labels.remove(LABEL_CLIQUE);
                self.apply_to_node(&labels).await
            }
            Target::NodeFeature => {
                let nodes: Api<Node> = Api::all(self.client.clone());
                let uid = nodes.get_metadata(&self.node).await?.metadata.uid.unwrap_or_default();
                let object = node_feature(&self.node, &uid, labels);
                let params = PatchParams::apply(FEATURE_LABELS_MANAGER).force();
                let name = node_feature_name(&self.node);
                self.node_features().patch(&name, &params, &Patch::Apply(&object)).await?;
                Ok(())
            }
            Target::File(path) => {
                write_atomically(path, file_text(labels).as_bytes(), false)?;
                Ok(())
            }
        }
    }

    /// Removes what was written to a target that is used no more.
    ///
    /// # Errors
    ///
    /// It is not removed.
    pub(super) async fn remove(&self, target: &Target) -> Result<(), WriteError> {
        match target {
            Target::Node => self.apply_to_node(&Labels::new()).await,
            Target::NodeFeature => {
                let name = node_feature_name(&self.node);
                match self.node_features().delete(&name, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    result => Ok(result.map(drop)?),
                }
            }
            Target::File(path) => Ok(files::remove(path)?),
        }
    }

    /// Whether a target has these labels now.
    ///
    /// # Errors
    ///
    /// The API server does not say.
    pub(super) async fn has(&self, target: &Target, labels: &Labels) -> Result<bool, WriteError> {
        match target {
            Target::Node => {
                let nodes: Api<Node> = Api::all(self.client.clone());
                let found = nodes.get_metadata(&self.node).await?.metadata.labels;
                let found = found.unwrap_or_default();
                Ok(labels.iter().all(|(key, value)| found.get(key) == Some(value)))
            }
            Target::NodeFeature => {
                let found = self.node_features().get_opt(&node_feature_name(&self.node)).await?;
                Ok(found.is_some_and(|found| found.data["spec"]["labels"] == json!(labels)))
            }
            Target::File(path) => Ok(has_text(path, &file_text(labels))),
        }
    }

    /// Removes all labels of the Node object that were written, if the API server permits it.
    pub(crate) async fn remove_from_node(&self) {
        if let Err(error) = self.remove(&Target::Node).await {
            let node = &self.node;
            tracing::warn!(%node, %error, "labels of GPU feature discovery that an agent wrote are not removed");
        }
    }

    async fn apply_to_node(&self, labels: &Labels) -> Result<(), WriteError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels}});
        let params = PatchParams::apply(FEATURE_LABELS_MANAGER);
        match nodes.patch_metadata(&self.node, &params, &Patch::Apply(&object)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                Err(WriteError::Conflict(status.message.clone()))
            }
            result => Ok(result.map(drop)?),
        }
    }

    fn node_features(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature");
        let resource = ApiResource::from_gvk_with_plural(&kind, "nodefeatures");
        Api::default_namespaced_with(self.client.clone(), &resource)
    }
}

/// The name of a node's `NodeFeature` object, as of NVIDIA's GPU feature discovery.
fn node_feature_name(node: &str) -> String {
    format!("nvidia-features-for-{node}")
}

/// A node's `NodeFeature` object, which ends with the node.
fn node_feature(node: &str, uid: &str, labels: &Labels) -> serde_json::Value {
    json!({
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {
            "name": node_feature_name(node),
            "labels": {"nfd.node.kubernetes.io/node-name": node},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
        },
        "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}, "labels": labels},
    })
}

/// The text of a file for node feature discovery: a line for each label.
fn file_text(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| [key, "=", value, "\n"].concat()).collect()
}

fn has_text(path: &Path, text: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|found| found == text)
}
