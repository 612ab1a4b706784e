//! What is published about failures of large jobs, as studies with the figure that should come out.
//!
//! | study | source |
//! |---|---|
//! | AIReSim | the simulator of that name: its Table I, and policies on a fleet with hard repairs |
//! | RSC | Meta, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv 2410.21680 |
//! | Llama | "The Llama 3 Herd of Models", arXiv 2407.21783 |
//! | Delta | "Characterizing GPU Resilience and Impact on AI/HPC Systems", arXiv 2503.11901 |

mod cases;
mod fleets;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;

use serde::Serialize;

pub use cases::{Case, Figure, all};
pub use fleets::hard_repairs;

use super::policy::Policy;
use super::runs::{self, Plan};
use crate::metrics::summary::Spread;

/// A published figure beside the simulator's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduction {
    /// What is compared.
    pub name: &'static str,
    /// The policy.
    pub policy: Policy,
    /// The published figure.
    pub published: f64,
    /// How far the simulator's mean may be from it.
    pub allowed: f64,
    /// The simulator's figure over its seeds.
    pub found: Spread,
    /// Whether it is near enough.
    pub is_reproduced: bool,
}

/// Runs a case with seeds from 1 on.
pub fn reproduce(case: &Case, seeds: u32, jobs: NonZeroUsize) -> Reproduction {
    let seeds: Vec<i64> = (1..=i64::from(seeds)).collect();
    let plan = [Plan { study: &case.study, policy: case.policy }];
    let outcomes = runs::run(&plan, &seeds, jobs).pop().unwrap_or_default();
    let figures = outcomes.iter().map(|outcome| case.figure.of(outcome));
    let found = Spread::of(figures).unwrap_or_default();
    let is_reproduced = found.runs > 0 && (found.mean - case.published).abs() <= case.allowed;
    let Case { name, policy, published, allowed, .. } = *case;
    Reproduction { name, policy, published, allowed, found, is_reproduced }
}
