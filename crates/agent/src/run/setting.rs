//! Which GPUs of the node are cut by MIG: its label, or else the agent's own setting.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use octavo_api::names::LABEL_DYNAMIC_MIG;
use tokio::sync::watch;
use tokio::time::sleep;

use super::node::retry_delays;
use crate::config::{DynamicMig, NodeConfig};
use crate::devices::Note;

/// What holds for the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Setting {
    /// The GPUs that are cut.
    pub(super) dynamic: DynamicMig,
    /// What is wrong with the label.
    pub(super) problem: Option<Note>,
    /// Whether the label was read. Without it claims are served as the agent's own setting says, and
    /// nothing is published.
    pub(super) is_read: bool,
}

impl Setting {
    /// What follows from the agent's own setting and the node's label, if it has one.
    fn of(own: &DynamicMig, label: Option<&str>) -> Self {
        match label.map(DynamicMig::from_label) {
            None => Self { dynamic: own.clone(), problem: None, is_read: true },
            Some(Ok(dynamic)) => Self { dynamic, problem: None, is_read: true },
            Some(Err(error)) => {
                let text = format!("the node's label {LABEL_DYNAMIC_MIG} is not heeded: {error}");
                let problem = Some(Note { reason: "DynamicMigLabelInvalid", text });
                Self { dynamic: own.clone(), problem, is_read: true }
            }
        }
    }
}

/// Follows the label of the node, for ever; tells `None` until it was asked for once.
pub(super) async fn follow(
    client: Client,
    config: Arc<NodeConfig>,
    setting: watch::Sender<Option<Setting>>,
) {
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client);
    let name = &config.node_name;
    let only_ours = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = watcher::watcher(nodes.clone(), only_ours).default_backoff();
    let mut events = pin!(events);
    // The watcher's own delays begin anew with every attempt that reaches the server.
    let mut backoff = retry_delays();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(node) | Event::Apply(node)) => {
                backoff.reset();
                tell(&setting, read(&config, &node.metadata));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(node = %name, %error, "cannot watch the node's labels");
                // An installation that grants no watch may grant this.
                match nodes.get(name).await {
                    Ok(node) => tell(&setting, read(&config, &node.metadata)),
                    Err(_) if setting.borrow().is_some() => {}
                    Err(_) => {
                        let dynamic = config.dynamic_mig.clone();
                        tell(&setting, Setting { dynamic, problem: None, is_read: false });
                    }
                }
                sleep(backoff.next_delay()).await;
            }
        }
    }
}

fn read(config: &NodeConfig, node: &ObjectMeta) -> Setting {
    let label = node.labels.as_ref().and_then(|labels| labels.get(LABEL_DYNAMIC_MIG));
    Setting::of(&config.dynamic_mig, label.map(String::as_str))
}

fn tell(setting: &watch::Sender<Option<Setting>>, new: Setting) {
    setting.send_if_modified(|old| {
        let is_changed = old.as_ref() != Some(&new);
        *old = Some(new);
        is_changed
    });
}

#[cfg(test)]
mod tests;
