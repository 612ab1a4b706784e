//! The flags that `octavo sim replay` and `octavo sim report` share.

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::thread;

use clap::Args;

use super::Seeds;
use crate::arrivals::{ArrivalError, Factor};
use crate::replay::{Options, Order, PUBLISHED_FACTOR, Policy, Popularity, ReplayError};

/// The requested runs: each policy with each seed.
///
/// The defaults here suit a first look: one policy and one seed. `octavo sim report` compares
/// policies, so [`crate::report::args::ReportArgs`] sets other defaults for these two flags.
#[derive(Args, Clone, Debug)]
pub struct RunsArgs {
    /// Policies, one or more
    #[arg(
        long = "policy",
        visible_alias = "policies",
        value_name = "NAME,...",
        value_enum,
        value_delimiter = ',',
        default_value = "octavo"
    )]
    pub policies: Vec<Policy>,
    /// What octavo knows about future pods
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub popularity: Popularity,
    /// Seed, or an inclusive range of seeds such as 42..51; may be repeated
    #[arg(
        long = "seed",
        visible_alias = "seeds",
        value_name = "N|A..B",
        value_delimiter = ',',
        allow_hyphen_values = true,
        default_value = "42"
    )]
    pub seeds: Vec<Seeds>,
    /// Demand over capacity of a shuffled list, or `none`. Pods are repeated or left out to reach it
    /// [default: 1.3 when shuffled]
    #[arg(long, value_name = "FACTOR")]
    pub inflate: Option<Inflate>,
    /// Order in which pods arrive [default: shuffled, or created with --departures]
    #[arg(long, value_name = "ORDER", value_enum)]
    pub order: Option<Order>,
    /// Let pods leave at their deletion times
    #[arg(long)]
    pub departures: bool,
    /// Parallel runs [default: one for each CPU]. Results do not change, but decisions take longer
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Draw no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// The target demand of a list, or the list's own demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inflate {
    /// The list's own demand.
    None,
    /// This multiple of the cluster's GPUs.
    To(Factor),
}

impl FromStr for Inflate {
    type Err = ArrivalError;

    fn from_str(text: &str) -> Result<Self, ArrivalError> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::To) }
    }
}

impl RunsArgs {
    /// The options that the flags describe, or an error if the flags contradict each other.
    pub(crate) fn options(&self) -> Result<Options, ReplayError> {
        let by_default = if self.departures { Order::Created } else { Order::Shuffled };
        let order = self.order.unwrap_or(by_default);
        let inflate = match self.inflate {
            Some(Inflate::To(factor)) => Some(factor),
            None if order == Order::Shuffled => Factor::new(PUBLISHED_FACTOR).ok(),
            Some(Inflate::None) | None => None,
        };
        let mut policies = Vec::new();
        for policy in &self.policies {
            if !policies.contains(policy) {
                policies.push(*policy);
            }
        }
        let all_cpus = || thread::available_parallelism().ok();
        let options = Options {
            policies,
            popularity: self.popularity,
            seeds: Seeds::all(&self.seeds),
            order,
            inflate,
            departures: self.departures,
            jobs: self.jobs.or_else(all_cpus).unwrap_or(NonZeroUsize::MIN),
        };
        options.check()?;
        Ok(options)
    }
}
