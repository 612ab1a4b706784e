//! How simulated GPUs compute.

use serde::{Deserialize, Serialize};

/// How simulated GPUs compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Simulation {
    /// How a GPU's time passes.
    pub clock: SimulationClock,
    /// Memory that a context takes, in MiB.
    pub context_mib: u64,
    /// What the length of each kernel is drawn from, by its name.
    pub seed: u64,
    /// Length of the shortest kernels, in nanoseconds.
    pub shortest_kernel_nanos: u64,
    /// Length of the longest kernels, in nanoseconds.
    pub longest_kernel_nanos: u64,
    /// Bytes that a second of copying moves between host and GPU, in MiB.
    pub copy_mib_per_second: u64,
}

/// How the time of a simulated GPU passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SimulationClock {
    /// It stands still until a program waits, then jumps to what is waited for: no program ever
    /// sleeps, and all that is measured on the GPU is the same in each run.
    #[default]
    Virtual,
    /// As on the host: a kernel of a millisecond takes a millisecond.
    #[serde(rename = "wall")]
    WallClock,
}

impl Simulation {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            clock: SimulationClock::Virtual,
            context_mib: 300,
            seed: 0,
            shortest_kernel_nanos: 2_000,
            longest_kernel_nanos: 50_000,
            copy_mib_per_second: 24 << 10,
        }
    }
}
