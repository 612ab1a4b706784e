//! The NVLink fabric of a node.

use std::collections::BTreeSet;

use octavo_gpu::{FabricState, Inventory};

/// The NVLink fabric of a node, as its GPUs report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fabric {
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
    pub(crate) fn of(inventory: &Inventory) -> Self {
        let mut cliques = BTreeSet::new();
        for gpu in &inventory.gpus {
            let Some(fabric) = &gpu.fabric else { continue };
            match (&fabric.clique, fabric.problem()) {
                (_, _) if fabric.state == FabricState::NotSupported => {}
                (Some(clique), _) => {
                    cliques.insert(clique.to_string());
                }
                // A failed registration is no absent fabric: its job would start without a channel.
                (None, Some(problem)) => {
                    let problem = format!("the fabric of GPU {} is not up: {problem}", gpu.uuid);
                    return Self::NotUp(problem);
                }
                (None, None) => {}
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
    pub(crate) fn clique(&self) -> &str {
        match self {
            Self::Clique(clique) => clique,
            Self::Absent | Self::NotUp(_) => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use octavo_gpu::Clique;

    use super::*;
    use crate::testing;

    #[test]
    fn a_node_has_the_clique_that_all_of_its_gpus_are_in() {
        let mut inventory = testing::inventory(3);
        let one = Fabric::Clique("9c6f1f3e-0000-0000-0000-000000000001.1".to_owned());
        assert_eq!(Fabric::of(&inventory), one);
        // GPUs without a fabric take no part.
        inventory.gpus[0].fabric = None;
        assert_eq!(Fabric::of(&inventory), one);
        let second = inventory.gpus[1].fabric.as_mut().unwrap();
        (second.state, second.clique) = (FabricState::NotSupported, None);
        assert_eq!(Fabric::of(&inventory), one);
        let second = inventory.gpus[1].fabric.as_mut().unwrap();
        second.state = FabricState::Completed;
        second.clique = Some(Clique { cluster: "other".to_owned(), id: 1 });
        assert!(matches!(Fabric::of(&inventory), Fabric::NotUp(_)), "they are in two");
        inventory.gpus.clear();
        assert_eq!(Fabric::of(&inventory), Fabric::Absent);
    }

    #[test]
    fn a_fabric_that_is_not_up_is_not_absent() {
        for (state, status) in [
            (FabricState::NotStarted, 0),
            (FabricState::InProgress, 0),
            (FabricState::Completed, 999),
        ] {
            let mut inventory = testing::inventory(2);
            for gpu in &mut inventory.gpus {
                let fabric = gpu.fabric.as_mut().unwrap();
                (fabric.state, fabric.status, fabric.clique) = (state, status, None);
            }
            let Fabric::NotUp(problem) = Fabric::of(&inventory) else { panic!("{state:?}") };
            assert!(problem.contains("GPU-"), "{problem}");
        }
        // A cluster of zeros: the GPUs of one chassis.
        let mut inventory = testing::inventory(1);
        inventory.gpus[0].fabric.as_mut().unwrap().clique = None;
        assert_eq!(Fabric::of(&inventory), Fabric::Absent);
    }
}
