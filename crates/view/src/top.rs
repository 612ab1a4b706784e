//! `octavo top`: GPUs and their holders.

mod table;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

pub use table::{TableOptions, render};

use crate::snapshot::{ClusterSnapshot, Gap, Holder, Holders};
use crate::usage::{self, GpuState, GpuUse};

/// The cluster's GPUs and their holders at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopReport {
    /// Sums over all nodes.
    pub totals: Totals,
    /// Nodes that publish GPUs, in order of name.
    pub nodes: Vec<NodeUse>,
    /// Devices, in order of node and slice.
    pub gpus: Vec<GpuUse>,
    /// Claims that hold devices while no pod may use them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idle_claims: Vec<IdleClaim>,
    /// Devices that are held and that no slice publishes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unpublished: Vec<UnpublishedDevice>,
    /// Pools with missing slices, from which nothing is allocated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incomplete_pools: Vec<String>,
    /// Objects that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// Counts of GPUs, those in MIG mode included. A GPU is used, free or neither; a used GPU may also be tainted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Nodes.
    pub nodes: usize,
    /// GPUs.
    pub gpus: usize,
    /// GPUs that claims hold, whole or in part.
    pub used: usize,
    /// Of these, GPUs that are held in shares or MIG devices.
    pub split: usize,
    /// GPUs that a new claim can get; a GPU in MIG mode as MIG devices only.
    pub free: usize,
    /// GPUs with a taint that keeps new pods away.
    pub tainted: usize,
}

/// One node's GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUse {
    /// Node.
    pub name: String,
    /// `Ready`, `NotReady`, `Cordoned`, `Missing` or `Unknown`.
    pub status: String,
    /// Products, each once.
    pub products: Vec<String>,
    /// GPUs.
    pub gpus: usize,
    /// GPUs that claims hold, whole or in part.
    pub used: usize,
    /// Of these, GPUs that are held in shares or MIG devices.
    pub split: usize,
    /// GPUs that a new claim can get; a GPU in MIG mode as MIG devices only.
    pub free: usize,
    /// GPUs with a taint that keeps new pods away.
    pub tainted: usize,
}

/// A claim that holds devices and is reserved for no pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleClaim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub claim: String,
    /// Its devices, as `pool/device`.
    pub devices: Vec<String>,
}

/// A held device that no slice publishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnpublishedDevice {
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Its holders.
    pub holders: Vec<Holder>,
}

/// Which rows of a report are wanted.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only these nodes; all if empty.
    pub nodes: BTreeSet<String>,
    /// Only GPUs that this namespace holds. Node counts stay complete.
    pub namespace: Option<String>,
}

/// Draws the report from a snapshot.
pub fn top(snapshot: &ClusterSnapshot) -> TopReport {
    let holders = Holders::of(snapshot);
    let gpus = usage::gpus_with_mig_mode(snapshot, &holders);
    let mut nodes: Vec<NodeUse> = Vec::new();
    for gpu in &gpus {
        if nodes.last().is_none_or(|node| node.name != gpu.node) {
            nodes.push(NodeUse::new(snapshot, &gpu.node));
        }
        if let Some(node) = nodes.last_mut() {
            node.count(gpu);
        }
    }
    TopReport {
        totals: Totals::of(&nodes),
        nodes,
        gpus,
        idle_claims: idle_claims(snapshot),
        unpublished: holders
            .unpublished(snapshot)
            .map(|(pool, device, holders)| UnpublishedDevice {
                pool: pool.to_owned(),
                device: device.to_owned(),
                holders: holders.to_vec(),
            })
            .collect(),
        incomplete_pools: usage::incomplete_pools(snapshot),
        gaps: snapshot.gaps.clone(),
    }
}

impl TopReport {
    /// Keeps the selected rows. Totals become those of the remaining nodes.
    ///
    /// Returns the first selected node without devices as an error.
    pub fn select(mut self, selection: &Selection) -> Result<Self, String> {
        if !selection.nodes.is_empty() {
            let known: BTreeSet<&str> = self.nodes.iter().map(|node| &*node.name).collect();
            if let Some(missing) = selection.nodes.iter().find(|name| !known.contains(&***name)) {
                return Err(missing.clone());
            }
            self.nodes.retain(|node| selection.nodes.contains(&node.name));
            self.gpus.retain(|gpu| selection.nodes.contains(&gpu.node));
            self.totals = Totals::of(&self.nodes);
        }
        if let Some(namespace) = &selection.namespace {
            let ours = |holder: &Holder| holder.namespace == *namespace;
            self.gpus.retain(|gpu| gpu.holders.iter().any(ours));
            self.idle_claims.retain(|claim| claim.namespace == *namespace);
            self.unpublished.retain(|device| device.holders.iter().any(ours));
        }
        Ok(self)
    }
}

impl NodeUse {
    fn new(snapshot: &ClusterSnapshot, name: &str) -> Self {
        let status = match snapshot.nodes.get(name) {
            Some(node) if !node.ready => "NotReady",
            Some(node) if node.cordoned => "Cordoned",
            Some(_) => "Ready",
            None if snapshot.lacks(crate::snapshot::GapKind::Nodes) => "Unknown",
            None => "Missing",
        };
        Self {
            name: name.to_owned(),
            status: status.to_owned(),
            products: Vec::new(),
            gpus: 0,
            used: 0,
            split: 0,
            free: 0,
            tainted: 0,
        }
    }

    fn count(&mut self, gpu: &GpuUse) {
        if let Some(product) = &gpu.product
            && !self.products.contains(product)
        {
            self.products.push(product.clone());
        }
        // A MIG device counts with its GPU.
        if !gpu.whole && gpu.mig.is_none() {
            return;
        }
        self.gpus += 1;
        self.used += usize::from(gpu.state.is_held());
        self.split += usize::from(gpu.state.is_held() && gpu.state != GpuState::Used);
        self.free += usize::from(gpu.state == GpuState::Free);
        self.tainted += usize::from(!gpu.taints.is_empty());
    }
}

impl Totals {
    fn of(nodes: &[NodeUse]) -> Self {
        let mut totals = Self { nodes: nodes.len(), ..Self::default() };
        for node in nodes {
            totals.gpus += node.gpus;
            totals.used += node.used;
            totals.split += node.split;
            totals.free += node.free;
            totals.tainted += node.tainted;
        }
        totals
    }
}

fn idle_claims(snapshot: &ClusterSnapshot) -> Vec<IdleClaim> {
    let mut found: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (name, claim) in &snapshot.claims {
        let Some(allocation) = &claim.allocation else { continue };
        if !claim.reserved_for.is_empty() {
            continue;
        }
        for given in &allocation.devices {
            if given.driver == usage::driver() && !given.admin_access {
                found.entry(name).or_default().push(format!("{}/{}", given.pool, given.device));
            }
        }
    }
    found
        .into_iter()
        .map(|(name, devices)| IdleClaim {
            namespace: name.namespace.clone(),
            claim: name.name.clone(),
            devices,
        })
        .collect()
}

#[cfg(test)]
mod tests;
