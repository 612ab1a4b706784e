//! Settings of a node from its labels, or else from the agent's config: the GPUs under dynamic MIG, the owning
//! scheduler, and whether the driver is released.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use octavo_api::names::{
    FEATURE_LABELS_MANAGER, LABEL_DRIVER_RELEASED, LABEL_DYNAMIC_MIG, LABEL_MIG_CONFIG,
    LABEL_MIG_CONFIG_STATE, LABEL_MODE, LABEL_OWNER, LABEL_PLUGIN_CONFIG,
    LABEL_PREFIX_OPERATOR_DEPLOY,
};
use tokio::sync::watch;
use tokio::time::sleep;

use super::retry::retry_delays;
use crate::config::{DynamicMig, Mode, NodeConfig, Owner};
use crate::devices::Note;

/// Effective settings of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeSettings {
    /// The GPUs under dynamic MIG.
    pub(super) dynamic: DynamicMig,
    /// The scheduler that owns the node.
    pub(super) owner: Owner,
    /// How the node offers its GPUs.
    pub(super) mode: Mode,
    /// Name of the device plugin's config, if the node's label has one.
    pub(super) plugin_config: Option<String>,
    /// Name of the layout of MIG devices, if the node's label has one.
    pub(super) mig_config: Option<String>,
    /// State of that layout, as the node's label says.
    pub(super) mig_config_state: Option<String>,
    /// Whether the node has labels of GPU feature discovery that an agent wrote.
    pub(super) has_feature_labels: bool,
    /// Whether the driver is to be released.
    pub(super) is_released: bool,
    /// Errors in the labels.
    pub(super) problems: Vec<Note>,
    /// Whether the labels were read. Until then claims are served with the agent's own settings, and nothing is
    /// published.
    pub(super) is_read: bool,
}

impl NodeSettings {
    /// Combines the agent's own settings with the node's labels.
    fn of(config: &NodeConfig, node: &ObjectMeta) -> Self {
        let own = Self::unread(config);
        let (dynamic, not_cut) = label_or(node, LABEL_DYNAMIC_MIG, own.dynamic, |label| {
            DynamicMig::from_label(label)
                .map_err(|error| ("DynamicMigLabelInvalid", error.to_string()))
        });
        let (owner, not_owned) = label_or(node, LABEL_OWNER, own.owner, |label| {
            label.parse::<Owner>().map_err(|error| ("SchedulerLabelInvalid", error.to_string()))
        });
        let (mode, no_mode) = label_or(node, LABEL_MODE, own.mode, |label| {
            label.parse::<Mode>().map_err(|error| ("ModeLabelInvalid", error.to_string()))
        });
        let text = |key| node.labels.as_ref()?.get(key).filter(|text| !text.is_empty()).cloned();
        let plugin_config = text(LABEL_PLUGIN_CONFIG);
        let (mig_config, mig_config_state) = (text(LABEL_MIG_CONFIG), text(LABEL_MIG_CONFIG_STATE));
        let (is_released, not_released) =
            label_or(node, LABEL_DRIVER_RELEASED, false, |label| match label {
                "true" => Ok(true),
                "false" | "" => Ok(false),
                other => {
                    let error = format!("{other:?} is neither true nor false");
                    Err(("DriverReleasedLabelInvalid", error))
                }
            });
        let is_paused = |(key, value): (&String, &String)| {
            key.starts_with(LABEL_PREFIX_OPERATOR_DEPLOY) && value.contains("paused-for-")
        };
        let is_released = is_released || node.labels.iter().flatten().any(is_paused);
        let problems = not_cut.into_iter().chain(not_owned).chain(no_mode).chain(not_released);
        let problems = problems.collect();
        let managers = node.managed_fields.iter().flatten();
        let mut managers = managers.filter_map(|fields| fields.manager.as_deref());
        let has_feature_labels = managers.any(|manager| manager == FEATURE_LABELS_MANAGER);
        Self {
            dynamic,
            owner,
            mode,
            plugin_config,
            mig_config,
            mig_config_state,
            has_feature_labels,
            is_released,
            problems,
            is_read: true,
        }
    }

    /// The agent's own settings, while the node's labels cannot be read.
    fn unread(config: &NodeConfig) -> Self {
        Self {
            dynamic: config.dynamic_mig.clone(),
            owner: config.owner.clone(),
            mode: config.mode,
            ..Self::default()
        }
    }
}

/// The value of a label, or else the agent's own setting with the reason why the label is ignored.
fn label_or<T>(
    node: &ObjectMeta,
    key: &str,
    own: T,
    read: impl FnOnce(&str) -> Result<T, (&'static str, String)>,
) -> (T, Option<Note>) {
    match node.labels.as_ref().and_then(|labels| labels.get(key)).map(|label| read(label)) {
        None => (own, None),
        Some(Ok(value)) => (value, None),
        Some(Err((reason, error))) => {
            let text = format!("the node's label {key} is not heeded: {error}");
            (own, Some(Note { reason, text }))
        }
    }
}

/// What policies and the node's own objects need of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeIdentity {
    /// Its UID.
    pub(super) uid: String,
    /// Its labels.
    pub(super) labels: BTreeMap<String, String>,
}

impl NodeIdentity {
    fn of(node: &ObjectMeta) -> Self {
        let uid = node.uid.clone().unwrap_or_default();
        Self { uid, labels: node.labels.clone().unwrap_or_default() }
    }
}

/// Follows the node's labels forever. The values are `None` until the first read.
pub(super) async fn follow(
    client: Client,
    config: Arc<NodeConfig>,
    setting: watch::Sender<Option<NodeSettings>>,
    identity: watch::Sender<Option<NodeIdentity>>,
) {
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client);
    let name = &config.node_name;
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = watcher::watcher(nodes.clone(), only_ours).default_backoff();
    let mut events = pin!(events);
    // The watcher's own backoff restarts with every attempt that reaches the server.
    let mut backoff = retry_delays();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(node) | Event::Apply(node)) => {
                backoff.reset();
                send_if_changed(&identity, NodeIdentity::of(&node.metadata));
                send_if_changed(&setting, NodeSettings::of(&config, &node.metadata));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(node = %name, %error, "cannot watch the node's labels");
                // An installation that grants no watch may grant this.
                match nodes.get(name).await {
                    Ok(node) => {
                        send_if_changed(&identity, NodeIdentity::of(&node.metadata));
                        send_if_changed(&setting, NodeSettings::of(&config, &node.metadata));
                    }
                    Err(_) if setting.borrow().is_some() => {}
                    Err(_) => send_if_changed(&setting, NodeSettings::unread(&config)),
                }
                sleep(backoff.next_delay()).await;
            }
        }
    }
}

fn send_if_changed<T: PartialEq>(setting: &watch::Sender<Option<T>>, new: T) {
    setting.send_if_modified(|old| {
        let is_changed = old.as_ref() != Some(&new);
        *old = Some(new);
        is_changed
    });
}

#[cfg(test)]
mod tests;
