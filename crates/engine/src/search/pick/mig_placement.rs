//! Places of MIG instances.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::fit;
use crate::gpu::{GpuFree, GpuModel, MigProfile, Slices};
use crate::placement::GpuParts;

/// How many instances fewer of each profile fit, largest profile first.
type Loss = SmallVec<[u32; 12]>;

/// Placements for `count` instances, one by one. Each goes where the fewest instances of the
/// largest profile are lost, then of the next largest, and so on. Partitioned GPUs therefore come
/// before idle ones, unless the partitioned one loses more. Ties: a partitioned GPU, the lower
/// index, the lower start.
///
/// A placement after which the remaining instances would not fit is skipped. A result exists
/// whenever all instances fit at all.
pub(super) fn choose(
    model: &GpuModel,
    gpus: &[GpuFree],
    profile: &MigProfile,
    count: u32,
) -> Option<GpuParts> {
    let mut by_size: SmallVec<[&MigProfile; 12]> = model.mig.iter().collect();
    by_size.sort_by_key(|profile| Reverse((profile.size, profile.milli)));
    let mut free: SmallVec<[GpuFree; 8]> = gpus.into();
    let mut parts = GpuParts::new();
    for left in (0..count).rev() {
        let room = |gpu: &GpuFree| fit::instances_in(gpu, profile);
        let rooms: u32 = free.iter().map(room).sum();
        let mut best = None;
        for (index, gpu) in free.iter().enumerate() {
            let before = room(gpu);
            if before == 0 || gpu.milli < profile.milli || gpu.memory_mib < profile.memory_mib {
                continue;
            }
            for place in profile.places().filter(|place| !place.overlaps(gpu.slices)) {
                let after = with(gpu, profile, place);
                if rooms - before + room(&after) < left {
                    continue;
                }
                let loss = loss(&by_size, gpu, &after);
                let key = (loss, gpu.slices.is_empty(), index, place);
                if best.as_ref().is_none_or(|best| key < *best) {
                    best = Some(key);
                }
            }
        }
        let (_, _, index, place) = best?;
        free[index] = with(&free[index], profile, place);
        parts.push(profile.part(u16::try_from(index).ok()?, place));
    }
    parts.sort_unstable_by_key(|part| (part.gpu, part.slices));
    Some(parts)
}

fn with(gpu: &GpuFree, profile: &MigProfile, place: Slices) -> GpuFree {
    GpuFree {
        milli: gpu.milli.saturating_sub(profile.milli),
        memory_mib: gpu.memory_mib.saturating_sub(profile.memory_mib),
        slices: gpu.slices.plus(place),
        ..*gpu
    }
}

fn loss(by_size: &[&MigProfile], before: &GpuFree, after: &GpuFree) -> Loss {
    let times = |gpu: &GpuFree, profile: &MigProfile| profile.times_in(gpu.slices);
    by_size
        .iter()
        .map(|profile| times(before, profile).saturating_sub(times(after, profile)))
        .collect()
}
