//! `GpuShareConfig` of `octavo.dev/v1alpha1`: how a share of a GPU is held and treated.

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::fields::Fields;

/// Config of a share of a GPU. Its size is in the claim's `capacity.requests`, not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuShareConfig {
    /// What becomes of containers that have more memory than the share in spite of all.
    pub overflow_policy: OverflowPolicy,
    /// What becomes of calls of the driver that Octavo does not know.
    pub strictness: Strictness,
    /// Who goes first on the GPU.
    pub class: ShareClass,
}

/// What becomes of a share's containers when the driver says that they have more memory than the share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverflowPolicy {
    /// Launches and allocations wait until they are below the limit again.
    Hold,
    /// The containers are frozen.
    Freeze,
    /// The processes that have too much are killed.
    #[default]
    Kill,
    /// It is told, and nothing else happens.
    Report,
}

/// What becomes of allocation and launch functions of a newer driver that Octavo does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strictness {
    /// They are refused.
    Strict,
    /// They are counted, told of and passed on.
    #[default]
    Lenient,
}

/// Who goes first on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShareClass {
    /// Short work that somebody waits for.
    LatencyCritical,
    /// Ordinary work.
    #[default]
    Normal,
    /// What nobody else uses is enough.
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
