//! Published policies for comparison: those of "Beware of Fragmentation" (Weng et al., USENIX ATC
//! 2023), as implemented in the authors' simulator (hkust-adsl/kubernetes-scheduler-simulator).
//!
//! ```text
//! cluster log --> groups (nodes with equal scores) --> index of a shape: score of each group --> best, runner-up
//! ```
//!
//! Five of the six score a node by its state alone, or by its state and the pod kinds on it. Nodes
//! that agree in these form a group. A [`ranked::Rule`] scores a group for a shape.
//! [`ranked::Ranked`] caches the scores and reads only the changes. [`random::Random`] keeps the
//! feasible nodes and draws from them.
//!
//! The source knows whole GPUs and shares of one GPU. Shares of several GPUs, MIG instances, closed
//! GPUs and GPUs at different distances are additions in the same spirit.

pub mod best_fit;
pub mod clustering;
pub mod dot_product;
pub mod fgd;
pub mod gpu_packing;
mod groups;
mod index;
pub mod random;
pub mod ranked;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use best_fit::BestFit;
use clustering::Clustering;
use dot_product::DotProduct;
use fgd::Fgd;
use gpu_packing::GpuPacking;
use octavo_engine::Packing;
use octavo_engine::fragmentation::TypicalPods;
use random::Random;
use ranked::Ranked;

/// Names of the policies, as on the command line.
pub const NAMES: [&str; 6] = ["random", "best-fit", "dot-product", "packing", "clustering", "fgd"];

/// Initial data of the policies.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Seed of [`Random`].
    pub seed: u64,
    /// Ranks of nodes by id; of equal nodes the one with the lowest rank is chosen. The source uses
    /// a random permutation. Nodes without a rank come last, by id, so an empty list means the
    /// order of ids.
    pub ties: Vec<u32>,
    /// The pods by which [`Fgd`] measures fragments. The source takes the shapes of the whole list
    /// that is about to arrive.
    pub typical: Arc<TypicalPods>,
}

/// The policy with that name. An instance must be used with one cluster only.
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
