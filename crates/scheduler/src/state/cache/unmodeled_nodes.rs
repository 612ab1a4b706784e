//! Nodes whose GPUs are not modeled in the engine cache, for entries that request GPUs.

use std::collections::BTreeMap;

use octavo_api::names::EXTENDED_RESOURCE_GPU;
use octavo_kube_io::objects::NodeName;
use serde::Serialize;

use super::Cache;
use super::node::is_owned;
use crate::devices::UnmodeledReason;
use crate::state::queue::QueueKey;

/// Nodes that are named individually.
const MAX_NAMED_NODES: usize = 3;

/// Nodes with GPUs that are not modeled, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnmodeledNodes {
    /// The reason in one word, as in metrics.
    pub reason: String,
    /// Number of nodes.
    pub nodes: usize,
    /// The nodes and the reason, in a sentence.
    pub message: String,
    /// The reason without the nodes.
    #[serde(skip)]
    pub(in crate::state) why: String,
}

impl Cache {
    /// All nodes whose GPUs are not modeled, with the reasons.
    pub(in crate::state) fn unmodeled(&self) -> &BTreeMap<NodeName, UnmodeledReason> {
        self.devices.all_unmodeled()
    }

    /// Unmodeled nodes whose GPUs this entry could otherwise use.
    pub(in crate::state) fn unmodeled_for(&self, key: &QueueKey) -> Vec<UnmodeledNodes> {
        let unmodeled = self.unmodeled();
        if unmodeled.is_empty() || !self.wants_gpus(key) {
            return Vec::new();
        }
        let mut by_reason: BTreeMap<&str, Vec<(&str, &UnmodeledReason)>> = BTreeMap::new();
        for (name, why) in unmodeled {
            let is_ours = self.nodes.get(name).is_some_and(|record| {
                is_owned(&record.node, &self.config.scheduler_name)
                    || record.node.allocatable.contains_key(EXTENDED_RESOURCE_GPU)
            });
            if is_ours {
                by_reason.entry(why.reason()).or_default().push((name, why));
            }
        }
        let groups = by_reason.into_iter().filter_map(|(reason, nodes)| {
            let names: Vec<_> = nodes.iter().map(|(name, _)| *name).collect();
            let (_, why) = nodes.first()?;
            Some(UnmodeledNodes {
                reason: reason.to_owned(),
                nodes: nodes.len(),
                why: why.to_string(),
                message: format!("{} not used for GPUs: {why}", nodes_phrase(&names)),
            })
        });
        groups.collect()
    }

    fn wants_gpus(&self, key: &QueueKey) -> bool {
        self.pods_of(key).iter().any(|uid| {
            let shape = self.pods.get(uid).and_then(|record| record.shape.as_ref());
            shape.is_some_and(|shape| shape.gpus.is_some())
        })
    }
}

/// Nodes as the subject of a sentence with its verb, such as `3 nodes (a, b, c) are`.
pub(crate) fn nodes_phrase(names: &[&str]) -> String {
    let more = if names.len() > MAX_NAMED_NODES { ", ..." } else { "" };
    let named = &names[..names.len().min(MAX_NAMED_NODES)];
    match named {
        [name] => format!("node {name} is"),
        _ => format!("{} nodes ({}{more}) are", names.len(), named.join(", ")),
    }
}
