//! The instances of one simulated GPU, and the driver's rules for them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{MigComputeProfile, MigProfile, MigTable};
use crate::description::Mig;

/// MIG mode and instances of one GPU.
///
/// Changes are atomic: a rejected change has no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MigState {
    /// The current mode; `None`: as in the machine description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The mode after the next reset, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
    /// GPU instances by id ([`MigTable::instance_id`]).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub instances: BTreeMap<u32, GpuInstance>,
}

/// A GPU instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuInstance {
    /// Id of its profile.
    pub profile: u32,
    /// First memory slice.
    pub start: u32,
    /// Compute instances by id.
    #[serde(default)]
    pub compute_instances: BTreeMap<u32, ComputeInstance>,
}

/// A compute instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ComputeInstance {
    /// Id of its profile, equal to the profile's number.
    pub profile: u32,
    /// First compute slice within the GPU instance.
    pub start: u32,
    /// Processes that use it; while there are any it cannot be destroyed.
    #[serde(default)]
    pub processes: u32,
}

/// Effect of an accepted change of the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigActivation {
    /// The requested mode is active.
    Done,
    /// The mode becomes active after a reset.
    ResetRequired,
    /// The mode becomes active after a reset, because processes use the GPU.
    InUse,
}

/// The driver rejects a change of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MigRefusal {
    /// The GPU has no MIG mode, or it is off.
    #[error("the GPU's MIG mode is off, or it has none")]
    NotSupported,
    /// No such profile or placement.
    #[error("the GPU has no such profile or placement")]
    InvalidArgument,
    /// No such instance.
    #[error("there is no such instance")]
    NotFound,
    /// Processes or compute instances use it.
    #[error("it is in use by processes, or by instances within it")]
    InUse,
    /// Other instances occupy the required slices or engines.
    #[error("another instance has the resources that it needs")]
    InsufficientResources,
}

impl MigState {
    /// The current mode.
    pub fn is_enabled(&self, model: &Mig) -> bool {
        self.enabled.unwrap_or(model.enabled)
    }

    /// The mode after the next reset.
    pub fn is_pending(&self, model: &Mig) -> bool {
        self.pending.unwrap_or_else(|| self.is_enabled(model))
    }

    /// Requests a mode. `is_gpu_in_use`: processes use the GPU as a whole. A GPU with instances
    /// keeps its mode.
    pub fn set_mode(
        &mut self,
        model: &Mig,
        enabled: bool,
        is_gpu_in_use: bool,
    ) -> Result<MigActivation, MigRefusal> {
        if enabled == self.is_enabled(model) {
            self.pending = None;
            return Ok(MigActivation::Done);
        }
        if !self.instances.is_empty() {
            return Err(MigRefusal::InUse);
        }
        if model.mode_needs_reset || is_gpu_in_use {
            self.pending = Some(enabled);
            return Ok(if is_gpu_in_use {
                MigActivation::InUse
            } else {
                MigActivation::ResetRequired
            });
        }
        (self.enabled, self.pending) = (Some(enabled), None);
        Ok(MigActivation::Done)
    }

    /// Creates a GPU instance of the profile with this id and returns the instance's id. Without
    /// `start` the driver chooses the last free placement. So the large profiles, which begin at
    /// the first slice, remain possible.
    pub fn create(
        &mut self,
        model: &Mig,
        table: &MigTable,
        profile: u32,
        start: Option<u32>,
    ) -> Result<u32, MigRefusal> {
        if !self.is_enabled(model) {
            return Err(MigRefusal::NotSupported);
        }
        let profile = table.profile(profile).ok_or(MigRefusal::InvalidArgument)?;
        if start.is_some_and(|start| !profile.starts.contains(&start)) {
            return Err(MigRefusal::InvalidArgument);
        }
        let free = self.free_starts(table, profile);
        let start = match start {
            Some(start) => free.into_iter().find(|&free| free == start),
            None => free.last().copied(),
        };
        let start = start.ok_or(MigRefusal::InsufficientResources)?;
        let id = table.instance_id(profile, start);
        let instance =
            GpuInstance { profile: profile.id, start, compute_instances: BTreeMap::new() };
        self.instances.insert(id, instance);
        Ok(id)
    }

    /// Destroys a GPU instance without compute instances.
    pub fn destroy(&mut self, gpu_instance: u32) -> Result<(), MigRefusal> {
        let instance = self.instances.get(&gpu_instance).ok_or(MigRefusal::NotFound)?;
        if !instance.compute_instances.is_empty() {
            return Err(MigRefusal::InUse);
        }
        self.instances.remove(&gpu_instance);
        Ok(())
    }

    /// Creates a compute instance of a profile and returns its id. Without `start` it takes the
    /// first free compute slice of the GPU instance.
    pub fn create_compute(
        &mut self,
        table: &MigTable,
        gpu_instance: u32,
        profile: u32,
        start: Option<u32>,
    ) -> Result<u32, MigRefusal> {
        let instance = self.instances.get_mut(&gpu_instance).ok_or(MigRefusal::NotFound)?;
        let outer = table.profile(instance.profile).ok_or(MigRefusal::InvalidArgument)?;
        let inner = outer.compute_profile(profile).ok_or(MigRefusal::InvalidArgument)?;
        if start.is_some_and(|start| !inner.starts.contains(&start)) {
            return Err(MigRefusal::InvalidArgument);
        }
        let mut free = instance.free_slices(outer, &inner).into_iter();
        let start = free
            .find(|&free| start.is_none_or(|start| start == free))
            .ok_or(MigRefusal::InsufficientResources)?;
        let inner = &instance.compute_instances;
        let id = (0..outer.compute_slices).find(|id| !inner.contains_key(id));
        let id = id.ok_or(MigRefusal::InsufficientResources)?;
        instance.compute_instances.insert(id, ComputeInstance { profile, start, processes: 0 });
        Ok(id)
    }

    /// Destroys a compute instance that no process uses.
    pub fn destroy_compute(
        &mut self,
        gpu_instance: u32,
        compute_instance: u32,
    ) -> Result<(), MigRefusal> {
        let instance = self.instances.get_mut(&gpu_instance).ok_or(MigRefusal::NotFound)?;
        let inner =
            instance.compute_instances.get(&compute_instance).ok_or(MigRefusal::NotFound)?;
        if inner.processes > 0 {
            return Err(MigRefusal::InUse);
        }
        instance.compute_instances.remove(&compute_instance);
        Ok(())
    }

    /// Number of further instances of a profile that fit.
    pub fn remaining(&self, table: &MigTable, profile: &MigProfile) -> u32 {
        // Placements of one profile do not overlap, but their number may be limited further.
        let free = u32::try_from(self.free_starts(table, profile).len()).unwrap_or(u32::MAX);
        free.min(profile.instances.saturating_sub(self.count(profile.id)))
    }

    /// Compute instances as pairs of ids, in the driver's order of MIG devices.
    pub fn devices(&self) -> impl Iterator<Item = (u32, u32)> {
        self.instances
            .iter()
            .flat_map(|(outer, instance)| instance.compute_instances.keys().map(|id| (*outer, *id)))
    }

    /// Resets the GPU: removes instances and processes, and activates the pending mode.
    pub fn reset(&mut self, model: &Mig) {
        self.instances.clear();
        self.enabled = Some(self.is_pending(model));
        self.pending = None;
    }

    /// Reboots the GPU: removes instances. Boards whose mode needs a reset keep the mode. On later
    /// boards it ends when the driver is loaded (MIG user guide, "Persistence").
    pub fn reboot(&mut self, model: &Mig) {
        if model.mode_needs_reset {
            self.reset(model);
        } else {
            *self = Self::default();
        }
    }

    /// First memory slices of free placements for a profile.
    fn free_starts(&self, table: &MigTable, profile: &MigProfile) -> Vec<u32> {
        let taken = |of: fn(&MigProfile) -> u32| -> u32 {
            self.profiles(table).map(|(_, profile)| of(profile)).sum()
        };
        let max = |of: fn(&MigProfile) -> u32| table.profiles.iter().map(of).max().unwrap_or(0);
        let fits = |of: fn(&MigProfile) -> u32| taken(of) + of(profile) <= max(of);
        let is_limited = self.count(profile.id) >= profile.instances;
        // A GPU has one optical flow engine, which belongs to the instance with media engines.
        if is_limited || !fits(|p| p.compute_slices) || !fits(|p| p.ofa_engines) {
            return Vec::new();
        }
        let is_free = |start: u32| {
            self.profiles(table).all(|(instance, other)| {
                start + profile.memory_slices <= instance.start
                    || instance.start + other.memory_slices <= start
            })
        };
        profile.starts.iter().copied().filter(|&start| is_free(start)).collect()
    }

    fn profiles<'a>(
        &'a self,
        table: &'a MigTable,
    ) -> impl Iterator<Item = (&'a GpuInstance, &'a MigProfile)> {
        self.instances.values().filter_map(|instance| {
            table.profile(instance.profile).map(|profile| (instance, profile))
        })
    }

    fn count(&self, profile: u32) -> u32 {
        let same = self.instances.values().filter(|instance| instance.profile == profile);
        u32::try_from(same.count()).unwrap_or(u32::MAX)
    }
}

impl GpuInstance {
    /// First compute slices of free placements for a compute instance profile; `outer` is the GPU
    /// instance's profile.
    pub fn free_slices(&self, outer: &MigProfile, profile: &MigComputeProfile) -> Vec<u32> {
        let is_free = |start: u32| {
            self.compute_instances.values().all(|other| {
                let taken = outer.compute_profile(other.profile).map_or(0, |p| p.compute_slices);
                start + profile.compute_slices <= other.start || other.start + taken <= start
            })
        };
        profile.starts.iter().copied().filter(|&start| is_free(start)).collect()
    }
}

#[cfg(test)]
mod tests;
