//! What has to change on a GPU for its layout. No I/O.
//!
//! Placements are computed. As many of the instances that are there stay as possible, those in use first. Of several ways the one
//! with the first placements is taken.

use octavo_gpu::Gpu;
use octavo_gpu::mig::{MigInstance, MigPlacement, MigProfile};

use super::wanted::{GpuLayout, LayoutError, no_profile};

/// What has to change on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Instances to destroy.
    pub(crate) destroyed: Vec<MigInstance>,
    /// Instances to create, after that.
    pub(crate) created: Vec<(MigProfile, MigPlacement)>,
    /// The MIG mode to set: on before instances are created, off after they are destroyed.
    pub(crate) mode: Option<bool>,
}

impl Change {
    /// Whether nothing has to change.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Worth of an instance that stays, if it is in use. A GPU has fewer instances than that.
const USED: u32 = 100;

/// What has to change on a GPU. `is_used` says whether something has an instance.
///
/// # Errors
///
/// The GPU has no such profile, or no room.
pub(crate) fn change(
    gpu: &Gpu,
    layout: &GpuLayout,
    is_used: &dyn Fn(&MigInstance) -> bool,
) -> Result<Change, LayoutError> {
    let is_on = gpu.mig.is_some_and(|mig| mig.enabled);
    let GpuLayout::On(devices) = layout else {
        let destroyed = gpu.mig_instances.clone();
        return Ok(Change { destroyed, created: Vec::new(), mode: is_on.then_some(false) });
    };
    let mut wanted: Vec<&MigProfile> = Vec::new();
    for (name, count) in devices {
        let found = gpu.mig_profiles.iter().find(|it| it.name == *name);
        let profile = found.ok_or_else(|| no_profile(gpu, name))?;
        if *count > profile.instances {
            return Err(no_room(gpu, devices.iter()));
        }
        wanted.extend((0..*count).map(|_| profile));
    }
    // The largest first: they have the fewest placements.
    let size = |it: &MigProfile| it.placements.first().map_or(0, |place| place.size);
    wanted.sort_by_key(|it| (std::cmp::Reverse(size(it)), it.number));
    // One that people divided further is no MIG device of the layout.
    let kept = |profile: &MigProfile, place: MigPlacement| {
        gpu.mig_instances.iter().find(|it| {
            it.profile_id == profile.id && it.placement == place && it.compute_instances.len() == 1
        })
    };
    let worth = |profile: &MigProfile, place: MigPlacement| match kept(profile, place) {
        Some(instance) if is_used(instance) => USED,
        Some(_) => 1,
        None => 0,
    };
    let mut search = Search { wanted: &wanted, worth: &worth, best: None };
    search.extend(&mut Vec::new(), 0);
    let Some((_, places)) = search.best else { return Err(no_room(gpu, devices.iter())) };
    let placed = || wanted.iter().copied().zip(places.iter().copied());
    let stays = |instance: &MigInstance| {
        placed().any(|(profile, place)| kept(profile, place) == Some(instance))
    };
    Ok(Change {
        destroyed: gpu.mig_instances.iter().filter(|it| !stays(it)).cloned().collect(),
        created: placed()
            .filter(|(profile, place)| kept(profile, *place).is_none())
            .map(|(profile, place)| (profile.clone(), place))
            .collect(),
        mode: (!is_on).then_some(true),
    })
}

fn no_room<'a>(gpu: &Gpu, devices: impl Iterator<Item = (&'a String, &'a u32)>) -> LayoutError {
    let devices: Vec<String> = devices.map(|(name, count)| format!("{count} x {name}")).collect();
    LayoutError::NoRoom { gpu: gpu.index, devices: devices.join(", ") }
}

/// The search for placements.
struct Search<'a> {
    wanted: &'a [&'a MigProfile],
    worth: &'a dyn Fn(&MigProfile, MigPlacement) -> u32,
    /// Worth and placements of the best way so far.
    best: Option<(u32, Vec<MigPlacement>)>,
}

impl Search<'_> {
    /// Tries all ways that begin with `places`. Devices of one profile are in order of their placements.
    fn extend(&mut self, places: &mut Vec<MigPlacement>, worth: u32) {
        let Some(profile) = self.wanted.get(places.len()).copied() else {
            if self.best.as_ref().is_none_or(|(best, _)| worth > *best) {
                self.best = Some((worth, places.clone()));
            }
            return;
        };
        let before = places.len().checked_sub(1).filter(|last| self.wanted[*last] == profile);
        let least = before.map(|last| places[last].start + 1).unwrap_or_default();
        for place in &profile.placements {
            if place.start >= least && places.iter().all(|other| !other.overlaps(*place)) {
                places.push(*place);
                self.extend(places, worth + (self.worth)(profile, *place));
                places.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests;
