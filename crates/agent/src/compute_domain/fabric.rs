//! The NVLink fabric of a node.

use std::collections::BTreeSet;

use octavo_gpu::{FabricState, Inventory};

/// The NVLink fabric of a node, as its GPUs report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fabric {
    /// No GPU is part of a fabric of several nodes.
    Absent,
    /// All GPUs with a fabric are in this clique, `<cluster UUID>.<clique id>`.
    Clique(String),
    /// There is a fabric, but no common clique yet: the problem.
    NotUp(String),
}

impl Fabric {
    /// The fabric of a node's GPUs.
    ///
    /// A cluster UUID of zeros means that the NVLink connects the GPUs of one node only, as NVIDIA's driver takes it.
    pub(super) fn of(inventory: &Inventory) -> Self {
        let mut cliques = BTreeSet::new();
        for gpu in &inventory.gpus {
            let Some(fabric) = &gpu.fabric else { continue };
            match (&fabric.clique, fabric.state) {
                (Some(clique), _) => {
                    cliques.insert(clique.to_string());
                }
                (None, FabricState::NotStarted | FabricState::InProgress) => {
                    let problem = format!("the fabric of GPU {} is not up yet", gpu.uuid);
                    return Self::NotUp(problem);
                }
                (None, FabricState::NotSupported | FabricState::Completed) => {}
            }
        }
        match cliques.into_iter().collect::<Vec<_>>().as_slice() {
            [] => Self::Absent,
            [clique] => Self::Clique(clique.clone()),
            cliques => {
                let cliques = cliques.join(", ");
                Self::NotUp(format!("its GPUs are in several NVLink cliques: {cliques}"))
            }
        }
    }

    /// The clique; empty without one.
    pub(super) fn clique(&self) -> &str {
        match self {
            Self::Clique(clique) => clique,
            Self::Absent | Self::NotUp(_) => "",
        }
    }
}
