//! Synthetic clusters: topology, machines, tenants, running workloads and waiting gangs, and traces
//! for them.
//!
//! Nothing here is measured. Sizes, mixes and times are round figures, chosen so that a cluster has
//! a bit of everything. Each document contains `synthetic: true`. The same options give the same
//! bytes on every machine.
//!
//! ```text
//! machines, blocks, racks --nodes--> empty cluster --fill--> running workloads --gangs--> waiting gangs
//!                                        \--trace--> node list, pod list with times
//! ```

pub mod args;
mod demand;
mod fill;
mod gangs;
pub mod machines;
mod mix;
mod nodes;
pub mod random;
#[cfg(test)]
mod tests;
mod trace;

use std::fmt;
use std::str::FromStr;

use octavo_engine::snapshot::{Snapshot, SnapshotError};

pub use machines::Machine;
pub use mix::{Mix, MixError, WorkloadKind};
pub use trace::{Load, TraceLists};

use random::Random;

/// The cluster to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Blocks; those of several machines take turns.
    pub blocks: u32,
    /// Racks of a block.
    pub racks: u32,
    /// Nodes of a rack; none: as many as is usual for the machine.
    pub nodes: Option<u32>,
    /// GPUs of a node; none: as many as the machine has.
    pub gpus: Option<u16>,
    /// Machines, each once.
    pub machines: Vec<Machine>,
    /// Allocated part of the GPUs' compute.
    pub fill: Fraction,
    /// The running workloads, by their parts of the allocated compute.
    pub mix: Mix,
    /// Tenants.
    pub tenants: u32,
    /// Gangs that wait.
    pub waiting: u32,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            blocks: 2,
            racks: 4,
            nodes: None,
            gpus: None,
            machines: vec![Machine::H100],
            fill: Fraction(700),
            mix: Mix::default(),
            tenants: 4,
            waiting: 3,
            seed: 1,
        }
    }
}

/// A part of a whole, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction(u16);

/// Why nothing was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// No machines.
    #[error("no machine is listed; list at least one")]
    NoMachines,
    /// A machine twice.
    #[error("the machine {0} is listed twice; list each machine once, blocks alternate among them")]
    MachineTwice(&'static str),
    /// More machines than blocks: each machine needs a block.
    #[error("{machines} machines in {blocks} blocks; each machine needs a block: add blocks")]
    TooFewBlocks {
        /// Machines.
        machines: usize,
        /// Blocks.
        blocks: u32,
    },
    /// Too large.
    #[error(
        "these options make {gpus} GPUs; the maximum is {most}: use fewer blocks, racks or nodes"
    )]
    TooLarge {
        /// GPUs.
        gpus: u64,
        /// The most.
        most: u64,
    },
    /// The load takes too many pods.
    #[error(
        "these options make about {pods} pods; the maximum is {most}: use fewer hours or longer lives"
    )]
    TooManyPods {
        /// Pods by expectation.
        pods: u64,
        /// The most.
        most: u64,
    },
    /// The generated document is no valid cluster: a defect.
    #[error("the generated cluster is invalid, which is a defect of the generator: {0}")]
    Snapshot(#[from] SnapshotError),
    /// The lists could not be written as CSV.
    #[error("the lists cannot be written as CSV")]
    Csv(#[from] csv::Error),
    /// A time, length or share that makes no sense.
    #[error("{what} is {value}; it must be {wanted}")]
    Amount {
        /// Of what.
        what: &'static str,
        /// The amount.
        value: String,
        /// The allowed values.
        wanted: &'static str,
    },
}

impl GenerateError {
    /// Whether the options alone make generation impossible. No other input could help.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::NoMachines
            | Self::MachineTwice(_)
            | Self::TooFewBlocks { .. }
            | Self::TooLarge { .. }
            | Self::TooManyPods { .. }
            | Self::Amount { .. } => true,
            Self::Snapshot(_) | Self::Csv(_) => false,
        }
    }
}

/// Generates a cluster with its running workloads and waiting gangs.
pub fn cluster(options: &Options) -> Result<Snapshot, GenerateError> {
    let mut snapshot = nodes::cluster(options)?;
    let machines = nodes::machines(options)?;
    let mut random = Random::new(options.seed, "tenants");
    for number in 1..=options.tenants {
        let weight = [1, 1, 2, 4][random.index(4)];
        snapshot.tenants.insert(tenant_name(number), weight);
    }
    fill::run(options, &machines, &mut snapshot)?;
    gangs::wait(options, &machines, &mut snapshot);
    Ok(snapshot)
}

/// Generates a node list and a pod list in openb's format, with creation and deletion times.
pub fn lists(options: &Options, load: &Load) -> Result<TraceLists, GenerateError> {
    trace::lists(options, load)
}

fn tenant_name(number: u32) -> String {
    format!("tenant-{number}")
}

/// Draws a tenant; lower numbers are more active.
fn tenant(random: &mut Random, tenants: u32) -> String {
    if tenants == 0 {
        return "default".to_owned();
    }
    let most = u64::from(tenants);
    let drawn = random.below(most).min(random.below(most));
    tenant_name(u32::try_from(drawn).unwrap_or_default() + 1)
}

impl Fraction {
    /// In thousandths.
    pub fn milli(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

impl FromStr for Fraction {
    type Err = GenerateError;

    fn from_str(text: &str) -> Result<Self, GenerateError> {
        let wrong = || GenerateError::Amount {
            what: "the part",
            value: text.to_owned(),
            wanted: "from 0 to 1 with at most three decimals, such as 0.7",
        };
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 3 {
            return Err(wrong());
        }
        let number = |text: &str| text.parse::<u16>().map_err(|_| wrong());
        let milli = number(&format!("{part:0<3}"))?;
        match (number(whole)?, milli) {
            (0, milli) => Ok(Self(milli)),
            (1, 0) => Ok(Self(1000)),
            _ => Err(wrong()),
        }
    }
}
