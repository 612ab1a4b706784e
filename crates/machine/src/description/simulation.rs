//! Behaviour of simulated GPUs.

use serde::{Deserialize, Serialize};

/// Behaviour of simulated GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Simulation {
    /// Clock of the GPU.
    pub clock: SimulationClock,
    /// Memory of a context, in MiB.
    pub context_mib: u64,
    /// Seed from which each kernel's duration is drawn, together with its name.
    pub seed: u64,
    /// Duration of the shortest kernels, in nanoseconds.
    pub shortest_kernel_nanos: u64,
    /// Duration of the longest kernels, in nanoseconds.
    pub longest_kernel_nanos: u64,
    /// Copy bandwidth between host and GPU, in MiB per second.
    pub copy_mib_per_second: u64,
}

/// Clock of a simulated GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SimulationClock {
    /// A virtual clock, which stands still until a program waits, then jumps to the awaited time.
    /// No program ever sleeps, and measurements on the GPU are reproducible.
    #[default]
    Virtual,
    /// The host's clock: a kernel of a millisecond takes a millisecond.
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
