//! Metrics of shares and memory enforcement. A share's series are removed with the share, which bounds their number.

mod swap;
mod time;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use octavo_arbiter::ShareTime;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use swap::SwapMetrics;
use time::TimeMetrics;

/// Labels of a share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ShareLabels {
    /// Node.
    pub node: String,
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
    /// Id of the share.
    pub share: String,
    /// Name of the device in the node's pool.
    pub device: String,
    /// UUID of the GPU.
    pub gpu: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OverflowLabels {
    #[prometheus(flatten)]
    share: ShareLabels,
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GpuLabels {
    node: String,
    gpu: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BlindLabels {
    node: String,
    gpu: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

/// Figures of a share at one time; memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareFigures {
    /// Limit.
    pub limit: u64,
    /// Use according to its ledger.
    pub used: u64,
    /// Use counted by the driver.
    pub driver: u64,
    /// Use counted by the driver but missing in the ledger.
    pub untracked: u64,
    /// The most that was seen.
    pub peak: u64,
    /// Its processes on the GPU.
    pub processes: u64,
    /// Its gate: 0 open, 1 held, 2 fenced.
    pub gate: u32,
}

/// The metrics.
#[derive(Debug, Default)]
pub struct EnforcementMetrics {
    limit: Family<ShareLabels, Gauge>,
    used: Family<ShareLabels, Gauge>,
    driver: Family<ShareLabels, Gauge>,
    untracked: Family<ShareLabels, Gauge>,
    peak: Family<ShareLabels, Gauge>,
    processes: Family<ShareLabels, Gauge>,
    gate: Family<ShareLabels, Gauge>,
    refused: Family<ShareLabels, Counter>,
    unknown: Family<ShareLabels, Counter>,
    overflows: Family<OverflowLabels, Counter>,
    time: TimeMetrics,
    swap: SwapMetrics,
    foreign: Family<GpuLabels, Gauge>,
    hanging: Family<NodeLabels, Gauge>,
    blind: Family<BlindLabels, Gauge>,
    /// Current blind spot by node and GPU, so that an outdated series can be removed.
    reasons: Mutex<BTreeMap<(String, String), &'static str>>,
}

/// Everything that is done about overflows.
const ACTIONS: [&str; 4] = ["report", "hold", "freeze", "kill"];

impl EnforcementMetrics {
    /// Makes the metrics and registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let mut memory = |name: &str, help: &str, family: &Family<ShareLabels, Gauge>| {
            registry.register_with_unit(name, help, Unit::Bytes, family.clone());
        };
        memory("octavo_agent_share_memory_limit", "Memory that a share may have", &metrics.limit);
        memory(
            "octavo_agent_share_memory_used",
            "Memory of a share according to its ledger, which its containers write",
            &metrics.used,
        );
        memory(
            "octavo_agent_share_memory_driver",
            "Memory of a share's processes counted by the driver",
            &metrics.driver,
        );
        memory(
            "octavo_agent_share_memory_untracked",
            "Memory of a share counted by the driver but missing in its ledger",
            &metrics.untracked,
        );
        memory("octavo_agent_share_memory_peak", "Peak memory of a share", &metrics.peak);
        let mut plain = |name: &str, help: &str, family: &Family<ShareLabels, Gauge>| {
            registry.register(name, help, family.clone());
        };
        plain(
            "octavo_agent_share_processes",
            "Processes of a share with memory on its GPU",
            &metrics.processes,
        );
        plain(
            "octavo_agent_share_gate",
            "Gate of a share: 0 open, 1 held, 2 fenced",
            &metrics.gate,
        );
        registry.register(
            "octavo_agent_share_refused_allocations",
            "Allocations refused by the guards of a share",
            metrics.refused.clone(),
        );
        registry.register(
            "octavo_agent_share_unknown_calls",
            "Calls of driver functions unknown to the guards of a share",
            metrics.unknown.clone(),
        );
        registry.register(
            "octavo_agent_share_overflows",
            "Responses to memory overflows of a share",
            metrics.overflows.clone(),
        );
        registry.register(
            "octavo_agent_foreign_processes",
            "Foreign processes on a GPU with shares",
            metrics.foreign.clone(),
        );
        registry.register(
            "octavo_agent_watch_hanging",
            "Whether the driver does not answer queries for processes",
            metrics.hanging.clone(),
        );
        registry.register(
            "octavo_agent_watch_blind",
            "1 for each GPU with shares on which bypassing allocations are not detected, with the reason",
            metrics.blind.clone(),
        );
        metrics.time.register(registry);
        metrics.swap.register(registry);
        metrics
    }

    /// Sets the figures of a share.
    pub fn set(&self, share: &ShareLabels, figures: ShareFigures) {
        let ShareFigures { limit, used, driver, untracked, peak, processes, gate } = figures;
        let gauges = [
            (&self.limit, limit),
            (&self.used, used),
            (&self.driver, driver),
            (&self.untracked, untracked),
            (&self.peak, peak),
            (&self.processes, processes),
            (&self.gate, gate.into()),
        ];
        for (family, value) in gauges {
            family.get_or_create(share).set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    /// Counts reports of the share's guards.
    pub fn count(&self, share: &ShareLabels, refused: u64, unknown: u64) {
        self.refused.get_or_create(share).inc_by(refused);
        self.unknown.get_or_create(share).inc_by(unknown);
    }

    /// Sets the GPU time that a share has had.
    pub fn set_time(&self, share: &ShareLabels, time: ShareTime) {
        self.time.set(share, time);
    }

    /// Sets how much of a share's memory is on the host, in bytes.
    pub fn set_swapped(&self, share: &ShareLabels, bytes: u64) {
        self.swap.set(share, bytes);
    }

    /// Counts a move of a share's memory, to the host or back.
    pub fn count_move(&self, share: &ShareLabels, is_out: bool, is_done: bool, took: Duration) {
        self.swap.count(share, is_out, is_done, took);
    }

    /// Counts a response to an overflow.
    pub fn overflow(&self, share: &ShareLabels, action: &'static str) {
        self.overflows.get_or_create(&share.with(action)).inc();
    }

    /// Forgets a share.
    pub fn remove(&self, share: &ShareLabels) {
        let gauges = [
            &self.limit,
            &self.used,
            &self.driver,
            &self.untracked,
            &self.peak,
            &self.processes,
            &self.gate,
        ];
        for family in gauges {
            family.remove(share);
        }
        self.time.remove(share);
        self.swap.remove(share);
        self.refused.remove(share);
        self.unknown.remove(share);
        for action in ACTIONS {
            self.overflows.remove(&share.with(action));
        }
    }

    /// Sets the number of foreign processes on a GPU; `None` once the GPU has no shares.
    pub fn foreign(&self, node: &str, gpu: &str, processes: Option<usize>) {
        let labels = GpuLabels { node: node.to_owned(), gpu: gpu.to_owned() };
        match processes {
            Some(count) => {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                self.foreign.get_or_create(&labels).set(count);
            }
            None => {
                self.foreign.remove(&labels);
            }
        }
    }

    /// Sets the blind spot of a GPU: the reason why bypassing allocations are not detected. `None` if they are, or the
    /// GPU has no shares.
    pub fn blind(&self, node: &str, gpu: &str, reason: Option<&'static str>) {
        let labels = |reason| BlindLabels { node: node.to_owned(), gpu: gpu.to_owned(), reason };
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (node.to_owned(), gpu.to_owned());
        if let Some(old) = reasons.remove(&key) {
            self.blind.remove(&labels(old));
        }
        if let Some(reason) = reason {
            self.blind.get_or_create(&labels(reason)).set(1);
            reasons.insert(key, reason);
        }
    }

    /// Sets whether the driver does not answer.
    pub fn hanging(&self, node: &str, is_hanging: bool) {
        let gauge = self.hanging.get_or_create_owned(&NodeLabels { node: node.to_owned() });
        gauge.set(i64::from(is_hanging));
    }
}

impl ShareLabels {
    fn with(&self, action: &'static str) -> OverflowLabels {
        OverflowLabels { share: self.clone(), action }
    }
}

#[cfg(test)]
mod tests;
