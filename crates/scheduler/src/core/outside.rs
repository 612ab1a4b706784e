//! Nodes whose GPUs are not in the engine's picture, for those who wait for GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_api::names::EXTENDED_RESOURCE_GPU;
use serde::Serialize;

use super::Core;
use super::node::is_owned;
use super::queue::Unit;
use crate::devices::UnmodeledReason;

/// Most nodes that are named one by one.
const NAMED: usize = 3;

/// Nodes that have GPUs and are left out, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutsideNodes {
    /// The reason in one word, as metrics have it.
    pub reason: String,
    /// How many nodes.
    pub nodes: usize,
    /// Which ones and why, in a sentence.
    pub message: String,
}

impl Core {
    /// All nodes whose GPUs are not in the engine's picture, and why.
    pub(crate) fn outside(&self) -> &BTreeMap<Arc<str>, UnmodeledReason> {
        self.devices.all_unmodeled()
    }

    /// Nodes that would be asked for a unit's GPUs if the engine had them in its picture.
    pub(super) fn outside_for(&self, unit: &Unit) -> Vec<OutsideNodes> {
        let outside = self.outside();
        if outside.is_empty() || !self.wants_gpus(unit) {
            return Vec::new();
        }
        let mut by_reason: BTreeMap<&str, Vec<(&str, &UnmodeledReason)>> = BTreeMap::new();
        for (name, why) in outside {
            let is_ours = self.nodes.get(name).is_some_and(|record| {
                is_owned(&record.node, &self.config.scheduler_name)
                    || record.node.allocatable.contains_key(EXTENDED_RESOURCE_GPU)
            });
            if is_ours {
                by_reason.entry(why.reason()).or_default().push((name, why));
            }
        }
        let said = by_reason.into_iter().filter_map(|(reason, nodes)| {
            let names: Vec<_> = nodes.iter().map(|(name, _)| *name).collect();
            let (_, why) = nodes.first()?;
            Some(OutsideNodes {
                reason: reason.to_owned(),
                nodes: nodes.len(),
                message: format!("{} left out: {why}", nodes_are(&names)),
            })
        });
        said.collect()
    }

    fn wants_gpus(&self, unit: &Unit) -> bool {
        self.uids_of(unit).iter().any(|uid| {
            let shape = self.pods.get(uid).and_then(|record| record.shape.as_ref());
            shape.is_some_and(|shape| shape.gpus.is_some())
        })
    }
}

/// Nodes as the beginning of a sentence, such as `3 nodes (a, b, c) are`.
pub(crate) fn nodes_are(names: &[&str]) -> String {
    let more = if names.len() > NAMED { ", ..." } else { "" };
    let named = &names[..names.len().min(NAMED)];
    match named {
        [one] => format!("node {one} is"),
        _ => format!("{} nodes ({}{more}) are", names.len(), named.join(", ")),
    }
}
