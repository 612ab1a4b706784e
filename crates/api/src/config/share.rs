//! `GpuShareConfig` of `octavo.dev/v1alpha1`: enforcement and scheduling of a share of a GPU.

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::fields::Fields;

/// Config of a share of a GPU. The size is in the claim's `capacity.requests`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuShareConfig {
    /// Action on containers that exceed the share.
    pub overflow_policy: OverflowPolicy,
    /// Action on driver functions unknown to Octavo.
    pub strictness: Strictness,
    /// Scheduling class on the GPU.
    pub class: ShareClass,
}

/// Action on containers for which the driver counts more memory than the share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverflowPolicy {
    /// Launches and allocations wait until the use is below the limit.
    Hold,
    /// The containers are frozen.
    Freeze,
    /// Processes are killed until the use is below the limit.
    #[default]
    Kill,
    /// The overflow is reported only.
    Report,
}

/// Action on allocation and launch functions of a newer driver that are unknown to Octavo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strictness {
    /// They are refused.
    Strict,
    /// They are counted, reported and passed on.
    #[default]
    Lenient,
}

/// Scheduling class on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShareClass {
    /// Short, latency-sensitive work.
    LatencyCritical,
    /// Ordinary work.
    #[default]
    Normal,
    /// Uses only time that other shares leave.
    BestEffort,
}

/// Reads the fields of a `GpuShareConfig`.
pub(super) fn decode(fields: &mut Fields<'_>) -> Result<GpuShareConfig, ConfigError> {
    let policies = [
        ("Hold", OverflowPolicy::Hold),
        ("Freeze", OverflowPolicy::Freeze),
        ("Kill", OverflowPolicy::Kill),
        ("Report", OverflowPolicy::Report),
    ];
    let strictness = [("Strict", Strictness::Strict), ("Lenient", Strictness::Lenient)];
    let classes = [
        ("LatencyCritical", ShareClass::LatencyCritical),
        ("Normal", ShareClass::Normal),
        ("BestEffort", ShareClass::BestEffort),
    ];
    Ok(GpuShareConfig {
        overflow_policy: fields.word("overflowPolicy", &policies)?.unwrap_or_default(),
        strictness: fields.word("strictness", &strictness)?.unwrap_or_default(),
        class: fields.word("class", &classes)?.unwrap_or_default(),
    })
}
