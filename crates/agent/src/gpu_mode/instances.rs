//! Which MIG instance of a GPU is which.

use octavo_gpu::mig::MigInstance;

use crate::checkpoint::{HeldMig, MadeMig};

/// An instance filled by one compute instance, as containers need it.
pub(crate) fn whole_instance(instance: &MigInstance) -> Option<MadeMig> {
    let [compute] = instance.compute_instances.as_slice() else { return None };
    Some(MadeMig {
        gpu_instance: instance.gpu_instance,
        compute_instance: compute.id,
        uuid: compute.uuid.clone(),
    })
}

/// Whether an instance is the recorded one and usable by containers.
pub(crate) fn is_made(found: &MigInstance, mig: &HeldMig) -> bool {
    found.placement == mig.placement() && mig.made.is_some() && whole_instance(found) == mig.made
}

/// Whether an instance is the recorded one. Ids are reused, so the UUID decides once it is known. Before that the
/// placement decides, which no other claim can have.
pub(super) fn is_recorded(found: &MigInstance, mig: &HeldMig) -> bool {
    let is_made = |made: &MadeMig| match found.compute_instances.as_slice() {
        [] => found.gpu_instance == made.gpu_instance,
        computes => computes.iter().any(|compute| compute.uuid == made.uuid),
    };
    found.placement == mig.placement()
        && match &mig.made {
            Some(made) => is_made(made),
            None => found.profile_id == mig.profile_id,
        }
}
