//! A share of a GPU: what it may have, what was found about it, and its files.

pub(crate) mod files;
mod folder;
pub(crate) mod mount;

use std::path::PathBuf;

use octavo_api::config::{OverflowPolicy, ShareClass, Strictness, SwapUnit};
use octavo_api::names::{
    CONDITION_ENFORCED, CONDITION_MEMORY_SWAP, CONDITION_OVERFLOW, CONDITION_TIME_ENFORCED,
    REASON_SWAPPED_IN, REASON_SWAPPED_OUT, REASON_WATCHED,
};
use octavo_node::ClaimRef;

use crate::backend::BackendKind;

pub(crate) use files::LimitsFile;
pub use files::generation;
pub(crate) use folder::parent;
pub use folder::{GuardedShare, LimitedShare, ShareFolder, share_folder, write};

/// Bytes charged for a CUDA context before it is created. The real size depends on GPU, driver and program; the agent
/// measures it and adds the surplus.
pub const CONTEXT_BYTES: u64 = 256 << 20;

/// A share that a claim holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveShare {
    /// The claim.
    pub claim: ClaimRef,
    /// Pool of the device.
    pub pool: String,
    /// The device.
    pub device: String,
    /// The share of the device.
    pub share_id: String,
    /// `GPU-...` of the GPU.
    pub gpu_uuid: String,
    /// The share's folder on the host.
    pub folder: PathBuf,
    /// Memory that it may have, in bytes.
    pub memory_bytes: u64,
    /// Memory that it has whenever it wants, in bytes; the rest it has while others leave it. Less than `memory_bytes`
    /// only on a node that swaps memory.
    pub memory_request: u64,
    /// Guaranteed compute time in thousandths of a percent; 0 means no guarantee.
    pub compute_milli_percent: u32,
    /// How memory beyond `memory_request` is moved to the host.
    pub swap_unit: SwapUnit,
    /// Compute time that it never exceeds, in thousandths of a percent; `None` means no limit.
    pub compute_limit: Option<u32>,
    /// Shortest turn while other shares wait for it, in milliseconds; `None` is that of its class.
    pub quantum_ms: Option<u32>,
    /// Action on containers that exceed the share.
    pub overflow: OverflowPolicy,
    /// Action on driver functions unknown to the guard.
    pub strictness: Strictness,
    /// Scheduling class on the GPU.
    pub class: ShareClass,
    /// Enforcement backend; `None` if the share was prepared before memory enforcement existed.
    pub backend: Option<BackendKind>,
    /// The writing of its files.
    pub generation: u64,
}

/// A finding about a share at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareFinding {
    /// Reason of the event and of the condition, in `CamelCase`.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// Type and status of the condition that changes on the claim's device, if any.
    pub condition: Option<(&'static str, Status)>,
}

/// Takes findings about shares, for the status and the events of their claims.
pub trait ShareReports: Send + Sync {
    /// Reports a finding as an event of its claim if `has_event`, and as a condition if it changes one. Must not block.
    /// Findings about shares that no claim holds are ignored.
    fn report_share(&self, uid: &str, share_id: &str, finding: ShareFinding, has_event: bool);
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is so.
    True,
    /// It is not.
    False,
    /// The status cannot be determined.
    Unknown,
}

impl ShareFinding {
    /// Whether it is no warning: all is well again, or memory was moved as it should be.
    pub fn is_good(&self) -> bool {
        self.is_recovery() || [REASON_SWAPPED_OUT, REASON_SWAPPED_IN].contains(&self.reason)
    }

    /// Whether all is well again. The claim's condition shows that, so the claim has no event of it.
    pub fn is_recovery(&self) -> bool {
        let is_good = |condition| {
            condition == (CONDITION_OVERFLOW, Status::False)
                || condition == (CONDITION_ENFORCED, Status::True)
                || condition == (CONDITION_MEMORY_SWAP, Status::True)
                || condition == (CONDITION_TIME_ENFORCED, Status::True)
        };
        self.condition.is_some_and(is_good) || self.reason == REASON_WATCHED
    }
}

impl Status {
    /// As the API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}
