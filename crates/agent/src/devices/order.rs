//! The order in which a node's devices are listed.
//!
//! Allocators take the first matching free device of the list. Kubernetes' allocator has no scores, so the order is the
//! driver's only influence on placement. This order keeps as many further placements possible as it can:
//!
//! - **Smaller profiles come before larger ones.** A request that fits several, such as one for an amount of memory,
//!   takes the smallest.
//! - **Within a profile, GPUs come from last to first**, so one GPU is filled before the next. **Whole GPUs come from
//!   first to last**, so the two meet only when the node is full. Whole GPUs without dynamic MIG come before those with
//!   it.
//! - **Within a profile and GPU, placements come by least harm.** The next placement is the one that leaves the larger
//!   profiles most of their placements, given the placements before it. The largest profile is compared first. Among
//!   equals the highest first slice wins. On an H100, `1g` therefore begins at slice 6 and not at 0, which `4g` needs,
//!   and `3g` at 4.
//!
//! The list depends on the GPU's profiles alone and never on allocations, so allocating writes nothing to the API.
//! [`simulate`](fn@simulate) measures the cost of that.

mod simulate;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use octavo_gpu::mig::{MigPlacement, MigProfile};

pub use simulate::{ListOrder, SimulationResult, Step, simulate};

/// The placements of a profile in the order in which an allocator should try them. `profiles` are all profiles of the
/// GPU.
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

/// The larger profiles, the largest first.
fn larger<'a>(profiles: &'a [MigProfile], than: &MigProfile) -> Vec<&'a MigProfile> {
    let mut larger: Vec<_> = profiles.iter().filter(|profile| size(profile) > size(than)).collect();
    larger.sort_by_key(|profile| Reverse((size(profile), profile.id)));
    larger
}

/// Sort key of a profile among all GPUs: its size, then its number of media engines. Profiles with more engines are
/// kept for requests that need them.
pub(super) fn rank(profile: &MigProfile) -> [u32; 4] {
    let [slices, compute, multiprocessors] = size(profile);
    let media = [profile.decoders, profile.encoders, profile.jpeg_engines, profile.ofa_engines];
    [slices, compute, multiprocessors, media.iter().sum()]
}

/// Size of a profile: memory slices, compute slices, multiprocessors.
fn size(profile: &MigProfile) -> [u32; 3] {
    let slices = profile.placements.first().map_or(0, |placement| placement.size);
    [slices, profile.shape.gpu_slices, profile.multiprocessors]
}
