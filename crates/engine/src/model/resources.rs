//! Plain resources of a node: everything except GPUs.

use serde::{Deserialize, Serialize};

/// Amounts of CPU, memory and pods: a node's capacity, its free capacity, or a pod's request. Free
/// amounts may be negative, because `status.allocatable` can shrink under running pods.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// CPU in thousandths of a core.
    #[serde(default)]
    pub cpu_milli: i64,
    /// Memory in MiB.
    #[serde(default)]
    pub memory_mib: i64,
    /// Pods.
    #[serde(default)]
    pub pods: i64,
}

impl Resources {
    /// A pod's request: these amounts and one pod.
    pub fn of_pod(cpu_milli: i64, memory_mib: i64) -> Self {
        Self { cpu_milli, memory_mib, pods: 1 }
    }

    /// Whether this request fits into `free`. Amounts that are not requested are ignored: a pod
    /// without a CPU request fits a node with overdrawn CPU, as in Kubernetes.
    pub fn fits(&self, free: &Self) -> bool {
        let fits = |wanted: i64, free: i64| wanted <= 0 || wanted <= free;
        fits(self.cpu_milli, free.cpu_milli)
            && fits(self.memory_mib, free.memory_mib)
            && fits(self.pods, free.pods)
    }

    /// How often this request fits into `free`; [`u32::MAX`] if nothing is requested.
    pub fn times_in(&self, free: &Self) -> u32 {
        let amounts = [
            (self.cpu_milli, free.cpu_milli),
            (self.memory_mib, free.memory_mib),
            (self.pods, free.pods),
        ];
        amounts.into_iter().fold(u32::MAX, |most, (wanted, free)| match wanted {
            ..=0 => most,
            // Divisions dominate the cost. They are skipped if less than one request is free, and
            // if this resource is not the scarcest so far.
            _ if free < wanted => 0,
            _ if i64::from(most).saturating_mul(wanted) <= free => most,
            _ => u32::try_from(free / wanted).map_or(most, |times| times.min(most)),
        })
    }

    /// These amounts minus `other`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(other.cpu_milli),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
            pods: self.pods.saturating_sub(other.pods),
        }
    }

    /// These amounts and `other`.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
            pods: self.pods.saturating_add(other.pods),
        }
    }
}
