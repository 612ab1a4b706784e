//! `octavo top --shares`: the limit and the current use of each share.
//!
//! The API server knows the shares and their owners. Only the nodes know their use: it is in the
//! agents' metrics. They are read through the API server's proxy for pods, with the right to `get`
//! `pods/proxy`, or by a port-forward, with the right to `create` `pods/portforward`. Agents that are no pods, as in the lab, are named by address and read
//! directly.

mod agents;
mod metrics_parser;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

pub(crate) use agents::AGENT_LABELS;
pub use agents::{AgentAddress, metrics_of_nodes, read};
pub use metrics_parser::{ShareKey, parse};
pub use table::render;

use crate::snapshot::{ClusterSnapshot, Gap, Holders};
use crate::usage;

/// Every share of the cluster at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SharesReport {
    /// Shares, in order of node, device, namespace and claim.
    pub shares: Vec<ShareUse>,
    /// Nodes with shares whose figures could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadNode>,
    /// Objects that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// A share and its use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareUse {
    /// Node.
    pub node: String,
    /// Device in the node's pool.
    pub device: String,
    /// `GPU-...` of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Namespace of claim and pods.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
    /// Id of the share.
    pub share: String,
    /// Pods that the claim is reserved for.
    pub pods: Vec<String>,
    /// Requested memory, a quantity such as `20Gi`.
    pub asked: String,
    /// Figures of the node's agent; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figures: Option<ShareFigures>,
}

/// An agent's figures of a share. Memory is in bytes; counters start with the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareFigures {
    /// Memory limit.
    pub limit_bytes: u64,
    /// Use by its ledger, which its containers write.
    pub used_bytes: u64,
    /// Use that the driver counts.
    pub driver_bytes: u64,
    /// Use that the driver counts and the ledger does not.
    pub untracked_bytes: u64,
    /// Highest use so far.
    pub peak_bytes: u64,
    /// Processes on the GPU.
    pub processes: u64,
    /// Allocations that were refused.
    pub refused: u64,
    /// Calls of functions that the guard does not know.
    pub unknown_calls: u64,
    /// Number of actions taken because it exceeded its limit.
    pub overflows: u64,
    /// Whether its launches and allocations may proceed.
    pub gate: GateState,
    /// Memory that is on the host; absent if the node does not swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swapped_bytes: Option<u64>,
    /// GPU time; absent if the node gives no leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeFigures>,
}

/// GPU time of a share since its agent began, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeFigures {
    /// Time in which it ran.
    pub used_ms: u64,
    /// Time in which it waited for other shares.
    pub waited_ms: u64,
    /// Time in which it waited because of its limit.
    pub throttled_ms: u64,
    /// Time that it used beyond what was due to it.
    pub debt_ms: u64,
}

/// Whether a share may go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum GateState {
    /// It may.
    #[default]
    Open,
    /// Its launches and allocations wait.
    Held,
    /// Its launches and allocations fail.
    Fenced,
    /// The agent is newer than this program.
    Unknown,
}

/// A node with shares whose use is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadNode {
    /// Node; empty where an address was named.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Why.
    pub message: String,
}

/// Figures read from agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentReadings {
    /// Figures of each share.
    pub figures: BTreeMap<ShareKey, ShareFigures>,
    /// Agents that could not be read.
    pub unread: Vec<UnreadNode>,
}

/// The shares of a snapshot, with no figures yet.
pub fn shares(snapshot: &ClusterSnapshot) -> SharesReport {
    let holders = Holders::of(snapshot);
    let mut shares = Vec::new();
    // In order of node and device.
    for gpu in usage::gpus(snapshot, &holders) {
        let mut of_gpu: Vec<_> = gpu
            .shares()
            .map(|(holder, share)| ShareUse {
                node: gpu.node.clone(),
                device: gpu.device.clone(),
                gpu: gpu.uuid.clone(),
                namespace: holder.namespace.clone(),
                claim: holder.claim.clone(),
                share: share.id.clone(),
                pods: holder.pods.clone(),
                asked: share.memory.to_string(),
                figures: None,
            })
            .collect();
        of_gpu.sort_by(|left, right| {
            (&left.namespace, &left.claim, &left.share).cmp(&(
                &right.namespace,
                &right.claim,
                &right.share,
            ))
        });
        shares.extend(of_gpu);
    }
    SharesReport { shares, unread: Vec::new(), gaps: snapshot.gaps.clone() }
}

impl SharesReport {
    /// Nodes that have shares.
    pub fn nodes(&self) -> BTreeSet<String> {
        self.shares.iter().map(|share| share.node.clone()).collect()
    }

    /// Keeps the shares on some nodes (all, if none is named) that a namespace holds.
    #[must_use]
    pub fn select(mut self, nodes: &BTreeSet<String>, namespace: Option<&str>) -> Self {
        self.shares.retain(|share| {
            (nodes.is_empty() || nodes.contains(&share.node))
                && namespace.is_none_or(|namespace| share.namespace == namespace)
        });
        self
    }

    /// Adds the figures of agents.
    #[must_use]
    pub fn with(mut self, readings: AgentReadings) -> Self {
        for share in &mut self.shares {
            share.figures = readings.figures.get(&share.key()).copied();
        }
        self.unread = readings.unread;
        self
    }
}

impl ShareUse {
    fn key(&self) -> ShareKey {
        ShareKey {
            node: self.node.clone(),
            namespace: self.namespace.clone(),
            claim: self.claim.clone(),
            share: self.share.clone(),
        }
    }
}

impl GateState {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Held => "held",
            Self::Fenced => "fenced",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests;
