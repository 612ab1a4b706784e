//! The order in which a node's devices are listed.
//!
//! Allocators take the first device in the order of the list that matches and is free: Kubernetes'
//! has no scores, so the order is all that a driver says about placement. Ours harms what is left
//! least:
//!
//! - **Smaller profiles come before larger ones**, so that a request that several fit, such as one
//!   for an amount of memory, takes the smallest.
//! - **Within a profile GPUs come from the last to the first**: one GPU is filled before the next
//!   is begun. **Whole GPUs come from the first to the last**, so that the two meet only when the
//!   node is full; those that MIG does not cut come before those that it may.
//! - **Within a profile and GPU placements come by least harm**: the next is the one that leaves
//!   the larger profiles most of their placements, the largest profile's counted first, given that
//!   the placements before it are taken; among equals the one with the highest first slice. On
//!   an H100 this makes `1g` begin at slice 6 and not at 0, which `4g` needs, and `3g` at 4.
//!
//! The list depends on the GPU's table alone and never on what is allocated, so allocating writes
//! nothing to the API. [`simulate`](fn@simulate) tells what that costs.

mod simulate;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use octavo_gpu::mig::{MigPlacement, MigProfile};

pub use simulate::{ListOrder, SimulationResult, Step, simulate};

/// The placements of a profile in the order in which an allocator should try them; `profiles` are
/// all that the GPU has.
pub fn least_harm(profiles: &[MigProfile], profile: &MigProfile) -> Vec<MigPlacement> {
    let larger = larger(profiles, profile);
    let mut left = profile.placements.clone();
    let mut ordered: Vec<MigPlacement> = Vec::with_capacity(left.len());
    let is_free = |taken: &[MigPlacement], place: MigPlacement| {
        taken.iter().all(|other| !other.overlaps(place))
    };
    while !left.is_empty() {
        let best = (0..left.len()).max_by_key(|&index| {
            let candidate = left[index];
            let survivors: Vec<_> = larger
                .iter()
                .map(|other| {
                    let survives = |place: &&MigPlacement| {
                        is_free(&ordered, **place) && !candidate.overlaps(**place)
                    };
                    other.placements.iter().filter(survives).count()
                })
                .collect();
            (survivors, candidate.start)
        });
        let Some(best) = best else { break };
        ordered.push(left.swap_remove(best));
    }
    ordered
}

/// The profiles that are larger than one, the largest first.
fn larger<'a>(profiles: &'a [MigProfile], than: &MigProfile) -> Vec<&'a MigProfile> {
    let mut larger: Vec<_> = profiles.iter().filter(|profile| size(profile) > size(than)).collect();
    larger.sort_by_key(|profile| Reverse((size(profile), profile.id)));
    larger
}

/// Where a profile stands among others of all GPUs: its size, and among equals the number of its
/// media engines, for a profile that has more is not to be given to those who can do without.
pub(super) fn rank(profile: &MigProfile) -> [u32; 4] {
    let [slices, compute, multiprocessors] = size(profile);
    let media = [profile.decoders, profile.encoders, profile.jpeg_engines, profile.ofa_engines];
    [slices, compute, multiprocessors, media.iter().sum()]
}

/// How large a profile is: memory slices, compute slices, multiprocessors.
fn size(profile: &MigProfile) -> [u32; 3] {
    let slices = profile.placements.first().map_or(0, |placement| placement.size);
    [slices, profile.shape.gpu_slices, profile.multiprocessors]
}
