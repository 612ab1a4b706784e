//! `GpuShareConfig` of `octavo.dev/v1alpha1`: enforcement and scheduling of a share of a GPU.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ComputePart, ConfigError, ParseBytes};
use crate::fields::{Fields, wrong_type};

/// Config of a share of a GPU. The size is in the claim's `capacity.requests`. An absent field has its type's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuShareConfig {
    /// Action on containers that exceed the share.
    pub overflow_policy: Option<OverflowPolicy>,
    /// Action on driver functions unknown to Octavo.
    pub strictness: Option<Strictness>,
    /// Scheduling class on the GPU.
    pub class: Option<ShareClass>,
    /// Part of the GPU's time that the share never exceeds. Default: none.
    pub compute_limit: Option<ComputePart>,
    /// Memory that the share may have while others leave it, in bytes. Default: its request.
    pub memory_limit: Option<u64>,
    /// How memory above the request is moved to the host.
    pub swap_unit: Option<SwapUnit>,
}

/// Action on containers for which the driver counts more memory than the share. A later one protects the GPU's other
/// containers better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OverflowPolicy {
    /// The overflow is reported only.
    Report,
    /// Launches and allocations wait until the use is below the limit.
    Hold,
    /// The containers are frozen. They keep the memory, but take no more.
    Freeze,
    /// Processes are killed until the use is below the limit.
    #[default]
    Kill,
}

/// A text that is no overflow policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one of Report, Hold, Freeze, Kill")]
pub struct OverflowPolicyError(String);

impl OverflowPolicy {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::Report, Self::Hold, Self::Freeze, Self::Kill];

    /// The policy's name in a config.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Report => "Report",
            Self::Hold => "Hold",
            Self::Freeze => "Freeze",
            Self::Kill => "Kill",
        }
    }
}

impl FromStr for OverflowPolicy {
    type Err = OverflowPolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == text);
        found.ok_or_else(|| OverflowPolicyError(text.to_owned()))
    }
}

impl GpuShareConfig {
    /// This config, completed by the fields of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            overflow_policy: self.overflow_policy.or(other.overflow_policy),
            strictness: self.strictness.or(other.strictness),
            class: self.class.or(other.class),
            compute_limit: self.compute_limit.or(other.compute_limit),
            memory_limit: self.memory_limit.or(other.memory_limit),
            swap_unit: self.swap_unit.or(other.swap_unit),
        }
    }
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

/// What of a share is moved to the host when others need its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwapUnit {
    /// Its processes with all their GPU memory, by the driver's checkpoints.
    #[default]
    Processes,
    /// The plain memory of its processes, by the guard, while their contexts stay on the GPU.
    Pages,
}

/// Reads the fields of a `GpuShareConfig`.
pub(super) fn decode(
    fields: &mut Fields<'_>,
    parse_bytes: ParseBytes,
) -> Result<GpuShareConfig, ConfigError> {
    let policies = OverflowPolicy::ALL.map(|policy| (policy.as_str(), policy));
    let strictness = [("Strict", Strictness::Strict), ("Lenient", Strictness::Lenient)];
    let classes = [
        ("LatencyCritical", ShareClass::LatencyCritical),
        ("Normal", ShareClass::Normal),
        ("BestEffort", ShareClass::BestEffort),
    ];
    let units = [("Processes", SwapUnit::Processes), ("Pages", SwapUnit::Pages)];
    let limit = fields.text("computeLimit")?.map(str::parse::<ComputePart>).transpose();
    let compute_limit = limit.map_err(|error| fields.error("computeLimit", error.to_string()))?;
    if compute_limit == Some(ComputePart(0)) {
        let problem = "is 0: no program of the share would ever launch".to_owned();
        return Err(fields.error("computeLimit", problem));
    }
    let memory_limit = memory_limit(fields, parse_bytes)?;
    Ok(GpuShareConfig {
        overflow_policy: fields.word("overflowPolicy", &policies)?,
        strictness: fields.word("strictness", &strictness)?,
        class: fields.word("class", &classes)?,
        compute_limit,
        memory_limit,
        swap_unit: fields.word("swapUnit", &units)?,
    })
}

/// `memoryLimit`: a quantity of bytes, as text or number.
fn memory_limit(
    fields: &mut Fields<'_>,
    parse_bytes: ParseBytes,
) -> Result<Option<u64>, ConfigError> {
    const NAME: &str = "memoryLimit";
    let text = match fields.value(NAME) {
        None => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(other) => return Err(wrong_type(&fields.path(NAME), "a quantity", other)),
    };
    let bytes = parse_bytes(&text).map_err(|problem| fields.error(NAME, problem))?;
    let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0);
    let problem = || format!("{text:?} is no amount of memory");
    bytes.map(Some).ok_or_else(|| fields.error(NAME, problem()))
}
