//! The published policies to compare with: those of "Beware of Fragmentation" (Weng et al., USENIX
//! ATC 2023), each as the authors' simulator (hkust-adsl/kubernetes-scheduler-simulator) has it.
//!
//! ```text
//! cluster's log --> groups (nodes that score alike) --> index of a shape: score of each group --> best, runner-up
//! ```
//!
//! Five of the six score a node by its state alone, or by its state and which kinds of pods are on
//! it; such nodes form a group. A policy says the score of a group for a shape ([`ranked::Rule`]),
//! and [`ranked::Ranked`] keeps the scores and looks only at what changed. [`random::Random`] keeps
//! who is feasible and draws.
//!
//! The source knows whole GPUs and shares of one GPU. Shares of several GPUs, MIG instances, closed
//! GPUs and GPUs that are not equally near are ours, and done in the same spirit.

pub mod best_fit;
pub mod clustering;
pub mod dot_product;
pub mod fgd;
pub mod gpu_packing;
mod groups;
mod index;
pub mod random;
pub mod ranked;
mod split_mix;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::Packing;
use crate::fragmentation::TypicalPods;
use best_fit::BestFit;
use clustering::Clustering;
use dot_product::DotProduct;
use fgd::Fgd;
use gpu_packing::GpuPacking;
use random::Random;
use ranked::Ranked;

/// Names of the policies, as on the command line.
pub const NAMES: [&str; 6] = ["random", "best-fit", "dot-product", "packing", "clustering", "fgd"];

/// What policies start with.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Seed of [`Random`].
    pub seed: u64,
    /// Ranks of nodes by id: of equal nodes the one of the lowest rank is chosen. The source's
    /// order is a random permutation. Nodes without a rank come after the others, by id; so an
    /// empty list is the order of ids.
    pub ties: Vec<u32>,
    /// What [`Fgd`] measures fragments by: the source takes the shapes of the whole list that is
    /// about to arrive.
    pub typical: Arc<TypicalPods>,
}

/// The policy of that name; none if there is no such name. It must be asked about one cluster only.
pub fn policy(name: &str, setup: &Setup) -> Option<Box<dyn Packing>> {
    let ties = setup.ties.clone();
    Some(match name {
        "random" => Box::new(Random::new(setup.seed)),
        "best-fit" => Box::new(Ranked::new(BestFit, ties)),
        "dot-product" => Box::new(Ranked::new(DotProduct, ties)),
        "packing" => Box::new(Ranked::new(GpuPacking, ties)),
        "clustering" => Box::new(Ranked::new(Clustering::default(), ties)),
        "fgd" => Box::new(Ranked::new(Fgd::new(Arc::clone(&setup.typical)), ties)),
        _ => return None,
    })
}
