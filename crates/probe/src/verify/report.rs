//! The report of the test.

use serde::{Deserialize, Serialize};

/// Outcome of a check, or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Verdict {
    /// Nothing was found.
    Passed,
    /// It could not be tried, so nothing is known.
    NotTried,
    /// A fault was found.
    Failed,
}

/// The report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    /// The harshest of the GPUs' verdicts.
    pub(crate) verdict: Verdict,
    /// Why nothing was tried at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// How long it took.
    pub(super) seconds: f64,
    pub(crate) gpus: Vec<GpuReport>,
}

/// What was found on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GpuReport {
    #[serde(flatten)]
    pub(crate) gpu: TestedGpu,
    /// The harshest of the checks' verdicts.
    pub(crate) verdict: Verdict,
    /// In the order of their run.
    pub(crate) checks: Vec<Check>,
}

/// A GPU that is tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TestedGpu {
    /// Its number in this process.
    pub(crate) gpu: i32,
    /// `GPU-...`.
    pub(crate) uuid: String,
    /// Product name.
    pub(crate) name: String,
}

/// A check of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    /// Which.
    #[serde(rename = "check")]
    pub(crate) name: CheckName,
    pub(crate) verdict: Verdict,
    /// What was found, or why it was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Its numbers, as far as it came.
    #[serde(flatten)]
    pub(crate) numbers: Option<Numbers>,
}

/// The checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CheckName {
    /// What the driver says.
    Facts,
    /// Memory keeps what is written.
    Memory,
    /// Every multiprocessor computes right.
    Compute,
    /// Other GPUs get what is sent to them.
    Peers,
}

/// Numbers of a check. Rates are for people: no verdict depends on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Numbers {
    Memory(MemoryNumbers),
    Compute(ComputeNumbers),
    Peers(PeerNumbers),
}

/// Numbers of the check of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemoryNumbers {
    /// Memory that was allocated, in bytes.
    pub(crate) bytes: u64,
    /// Memory that every pattern of the first pass has reached; less than `bytes` on a GPU so slow that the time was over.
    pub(crate) covered_bytes: u64,
    /// Patterns that were written and read.
    pub(crate) patterns: u64,
    /// Words of 8 bytes that were not as they were written.
    pub(crate) mismatches: u64,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<MemoryMismatch>,
    /// Bytes written in a second.
    pub(crate) write_rate: f64,
    /// Bytes read in a second.
    pub(crate) read_rate: f64,
}

/// A word of memory that is not as it was written. Numbers are hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemoryMismatch {
    pub(crate) address: String,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// Numbers of the check of computing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComputeNumbers {
    /// Multiprocessors of the GPU.
    pub(crate) multiprocessors: u32,
    /// Multiprocessors that have computed.
    pub(crate) used_multiprocessors: u32,
    /// Products of matrices.
    pub(crate) products: u64,
    /// Elements of products that were wrong.
    pub(crate) wrong_elements: u64,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<WrongElement>,
    /// Multiplications and additions in a second, of both kinds together.
    pub(crate) operation_rate: f64,
}

/// An element of a product that is wrong. Values are hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WrongElement {
    /// Number of the multiprocessor that computed it.
    pub(crate) multiprocessor: u32,
    pub(crate) element: u32,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// Numbers of the check of peers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeerNumbers {
    pub(crate) peers: Vec<Peer>,
}

/// Copies to another GPU and back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Peer {
    /// UUID of the other GPU.
    pub(crate) uuid: String,
    /// Whether the GPUs reach each other's memory; otherwise the driver copies through the host.
    pub(crate) is_direct: bool,
    /// Bytes of the last copy.
    pub(crate) bytes: u64,
    /// Words of 8 bytes that were wrong there, or after the way back.
    pub(crate) mismatches: u64,
    /// Bytes in a second, of both ways together.
    pub(crate) rate: f64,
}

impl Report {
    pub(super) fn new(gpus: Vec<GpuReport>, message: Option<String>, seconds: f64) -> Self {
        let verdict = harshest(gpus.iter().map(|gpu| gpu.verdict));
        let verdict = if message.is_some() { verdict.max(Verdict::NotTried) } else { verdict };
        let (api_version, kind) = ("cli.octavo.dev/v1alpha1", "ProbeVerify");
        Self { api_version, kind, verdict, message, seconds, gpus }
    }
}

impl GpuReport {
    /// A GPU before its first check.
    pub(super) fn new(gpu: TestedGpu) -> Self {
        Self { gpu, verdict: Verdict::NotTried, checks: Vec::new() }
    }

    /// Adds a check. A check that is missing was not tried. One GPU has no peers, so what is not known of them counts for nothing.
    pub(super) fn add(&mut self, check: Check) {
        self.checks.push(check);
        let verdict_of = |name: CheckName| {
            let of_name = self.checks.iter().filter(|check| check.name == name);
            harshest(of_name.map(|check| check.verdict))
        };
        let is_counted =
            |name: &CheckName| *name != CheckName::Peers || verdict_of(*name) == Verdict::Failed;
        self.verdict = harshest(CheckName::ALL.into_iter().filter(is_counted).map(verdict_of));
    }
}

impl Check {
    pub(super) fn passed(name: CheckName, numbers: Option<Numbers>) -> Self {
        Self { name, verdict: Verdict::Passed, message: None, numbers }
    }

    pub(super) fn not_tried(name: CheckName, message: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::NotTried, message: Some(message.into()), numbers: None }
    }

    pub(super) fn failed(
        name: CheckName,
        message: impl Into<String>,
        numbers: Option<Numbers>,
    ) -> Self {
        Self { name, verdict: Verdict::Failed, message: Some(message.into()), numbers }
    }
}

impl CheckName {
    /// All, in the order of their run.
    pub(super) const ALL: [Self; 4] = [Self::Facts, Self::Memory, Self::Compute, Self::Peers];

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Facts => "facts",
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Peers => "peers",
        }
    }
}

/// The harshest verdict; of none it is that nothing was tried.
fn harshest(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    verdicts.max().unwrap_or(Verdict::NotTried)
}
