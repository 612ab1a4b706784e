//! The parts of GPUs that are about to change, which nothing gets meanwhile. No I/O.

use std::collections::BTreeSet;

use octavo_gpu::Inventory;
use octavo_gpu::mig::MigPlacement;

/// Parts of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClosedParts {
    /// UUIDs of GPUs.
    whole: BTreeSet<String>,
    /// UUIDs of GPUs, and memory slices of them.
    places: BTreeSet<(String, MigPlacement)>,
}

impl ClosedParts {
    /// Adds a GPU.
    pub(crate) fn add_gpu(&mut self, uuid: &str) {
        self.whole.insert(uuid.to_owned());
    }

    /// Adds memory slices of a GPU.
    pub(crate) fn add_place(&mut self, uuid: &str, place: MigPlacement) {
        self.places.insert((uuid.to_owned(), place));
    }

    /// Adds all of others.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.whole.extend(other.whole.iter().cloned());
        self.places.extend(other.places.iter().cloned());
    }

    /// Whether a part of a GPU is among them; `None` is the GPU as a whole.
    pub(crate) fn covers(&self, uuid: &str, place: Option<MigPlacement>) -> bool {
        let overlaps = |closed: &MigPlacement| place.is_none_or(|place| closed.overlaps(place));
        self.whole.contains(uuid)
            || self.places.iter().any(|(gpu, closed)| gpu == uuid && overlaps(closed))
    }

    /// The GPUs and instances that are not among them.
    pub(crate) fn without(&self, inventory: &Inventory) -> Inventory {
        let mut rest = inventory.clone();
        rest.gpus.retain(|gpu| !self.whole.contains(&gpu.uuid));
        for gpu in &mut rest.gpus {
            let uuid = gpu.uuid.clone();
            gpu.mig_instances.retain(|it| !self.covers(&uuid, Some(it.placement)));
        }
        rest
    }

    /// The UUIDs of the GPUs and MIG devices that are among them.
    pub(crate) fn uuids(&self, inventory: &Inventory) -> BTreeSet<String> {
        let mut uuids = BTreeSet::new();
        for gpu in &inventory.gpus {
            if self.whole.contains(&gpu.uuid) {
                uuids.insert(gpu.uuid.clone());
            }
            let instances =
                gpu.mig_instances.iter().filter(|it| self.covers(&gpu.uuid, Some(it.placement)));
            let computes = instances.flat_map(|it| &it.compute_instances);
            uuids.extend(computes.map(|compute| compute.uuid.clone()));
        }
        uuids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::mig;

    #[test]
    fn parts_cover_what_overlaps_them_and_leave_the_rest() {
        let mut inventory = mig::inventory(2);
        for (gpu, id) in inventory.gpus.iter_mut().zip([1, 3]) {
            gpu.mig_instances = vec![mig::instance(id, 9, 0), mig::instance(id + 1, 9, 4)];
        }
        let (first, second) = (inventory.gpus[0].uuid.clone(), inventory.gpus[1].uuid.clone());
        let mut parts = ClosedParts::default();
        assert_eq!(parts.without(&inventory), inventory);
        parts.add_place(&first, MigPlacement { start: 4, size: 1 });
        assert!(parts.covers(&first, None), "the GPU as a whole");
        assert!(parts.covers(&first, Some(MigPlacement { start: 4, size: 4 })));
        assert!(!parts.covers(&first, Some(MigPlacement { start: 0, size: 4 })));
        assert!(!parts.covers(&second, None));
        assert_eq!(parts.uuids(&inventory), BTreeSet::from(["MIG-2".to_owned()]));
        let mut others = ClosedParts::default();
        others.add_gpu(&second);
        parts.extend(&others);
        let rest = parts.without(&inventory);
        assert_eq!((rest.gpus.len(), rest.gpus[0].mig_instances.len()), (1, 1));
        let all = ["MIG-2", "MIG-3", "MIG-4", &second].map(str::to_owned);
        assert_eq!(parts.uuids(&inventory), all.into());
    }
}
