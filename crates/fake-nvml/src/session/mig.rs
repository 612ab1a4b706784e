//! GPU instances, compute instances and their MIG devices.

use nvml_wrapper_sys::bindings::{nvmlComputeInstance_t, nvmlDevice_t, nvmlGpuInstance_t};
use octavo_machine::{
    ComputeInstance, GpuInstance, GpuState, Mig, MigComputeProfile, MigProfile, MigRefusal,
    MigTable, mig_uuid,
};

use super::{Device, Session};
use crate::code::Code;
use crate::handle::{HandleKind, Part};

/// The MIG device of a call.
pub(crate) struct Slice<'a> {
    pub(crate) part: Part,
    /// Its index among the MIG devices of its GPU.
    pub(crate) index: u32,
    pub(crate) profile: &'a MigProfile,
    pub(crate) compute: MigComputeProfile,
}

impl Slice<'_> {
    pub(crate) fn name(&self) -> String {
        compute_name(self.profile, &self.compute)
    }

    pub(crate) fn uuid(&self, gpu: &str) -> String {
        mig_uuid(gpu, self.part.gpu_instance, self.part.compute_instance)
    }
}

/// Name of a compute instance profile: that of the GPU instance if it fills the instance, else with
/// a prefix for its slices.
pub(crate) fn compute_name(profile: &MigProfile, compute: &MigComputeProfile) -> String {
    if compute.compute_slices == profile.compute_slices {
        profile.name.to_owned()
    } else {
        format!("{}c.{}", compute.compute_slices, profile.name)
    }
}

/// A GPU instance during one call.
pub(crate) struct Instance<'a> {
    pub(crate) part: Part,
    pub(crate) profile: &'a MigProfile,
    pub(crate) state: &'a GpuInstance,
}

impl Session {
    /// The GPU or MIG device behind a handle, unless its GPU is lost or the state fails this call.
    pub(crate) fn any_device(
        &mut self,
        call: &str,
        handle: nvmlDevice_t,
    ) -> Result<Device<'_>, Code> {
        let Ok(part) = self.handles.part(HandleKind::MigDevice, handle) else {
            return self.device(call, handle);
        };
        let mut device = self.device_at(call, part.gpu)?;
        let host_pids = (part.gpu_instance, part.compute_instance);
        let mig = &device.state.mig;
        let place = (0..).zip(mig.devices()).find(|(_, there)| *there == host_pids);
        let (index, _) = place.ok_or(Code::NOT_FOUND)?;
        let table = device.table.ok_or(Code::NOT_SUPPORTED)?;
        let instance = mig.instances.get(&part.gpu_instance).ok_or(Code::NOT_FOUND)?;
        let inner = instance.compute_instances.get(&part.compute_instance);
        let inner = inner.ok_or(Code::NOT_FOUND)?;
        let profile = table.profile(instance.profile).ok_or(Code::UNKNOWN)?;
        let compute = profile.compute_profile(inner.profile).ok_or(Code::UNKNOWN)?;
        device.slice = Some(Slice { part, index, profile, compute });
        Ok(device)
    }

    /// The handle of the MIG device with that UUID.
    pub(crate) fn find_slice(&self, call: &str, uuid: &str) -> Result<nvmlDevice_t, Code> {
        let found = self.visible.iter().find_map(|&gpu| {
            let whole = self.machine.gpus.get(gpu as usize)?.uuid.as_deref()?;
            let (gpu_instance, compute_instance) = self
                .gpu_state(gpu)
                .mig
                .devices()
                .find(|&(outer, inner)| mig_uuid(whole, outer, inner) == uuid)?;
            Some(Part { gpu, gpu_instance, compute_instance })
        });
        let part = found.ok_or(Code::NOT_FOUND)?;
        self.answers(call, part.gpu)?;
        Ok(self.slice_handle(part))
    }

    /// The handle of a MIG device.
    pub(crate) fn slice_handle(&self, part: Part) -> nvmlDevice_t {
        self.handles.make_part(HandleKind::MigDevice, part)
    }

    /// The handle of a GPU instance.
    pub(crate) fn instance_handle(&self, gpu: u32, gpu_instance: u32) -> nvmlGpuInstance_t {
        let part = Part { gpu, gpu_instance, compute_instance: 0 };
        self.handles.make_part(HandleKind::GpuInstance, part)
    }

    /// The handle of a compute instance.
    pub(crate) fn compute_handle(&self, part: Part) -> nvmlComputeInstance_t {
        self.handles.make_part(HandleKind::ComputeInstance, part)
    }

    /// The GPU instance behind a handle, unless it is destroyed, its GPU is lost, or the state
    /// fails this call.
    pub(crate) fn instance(
        &self,
        call: &str,
        handle: nvmlGpuInstance_t,
    ) -> Result<Instance<'_>, Code> {
        let part = self.handles.part(HandleKind::GpuInstance, handle)?;
        self.answers(call, part.gpu)?;
        self.instance_at(part)
    }

    /// The compute instance behind a handle, with its GPU instance.
    pub(crate) fn compute_instance(
        &self,
        call: &str,
        handle: nvmlComputeInstance_t,
    ) -> Result<(Instance<'_>, &ComputeInstance), Code> {
        let part = self.handles.part(HandleKind::ComputeInstance, handle)?;
        self.answers(call, part.gpu)?;
        let instance = self.instance_at(part)?;
        let inner = instance.state.compute_instances.get(&part.compute_instance);
        Ok((instance, inner.ok_or(Code::INVALID_ARGUMENT)?))
    }

    fn instance_at(&self, part: Part) -> Result<Instance<'_>, Code> {
        let table = self.table.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let instances = &self.gpu_state(part.gpu).mig.instances;
        let state = instances.get(&part.gpu_instance).ok_or(Code::INVALID_ARGUMENT)?;
        let profile = table.profile(state.profile).ok_or(Code::UNKNOWN)?;
        Ok(Instance { part, profile, state })
    }

    /// The GPU behind a handle, if its MIG mode is on.
    pub(crate) fn partitioned(
        &self,
        call: &str,
        handle: nvmlDevice_t,
    ) -> Result<(u32, &MigTable, &GpuState), Code> {
        let gpu = self.place(call, handle)?;
        let mig = self.machine.model.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let table = self.table.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let state = self.gpu_state(gpu);
        if !state.mig.is_enabled(mig) {
            return Err(Code::NOT_SUPPORTED);
        }
        Ok((gpu, table, state))
    }

    fn gpu_state(&self, gpu: u32) -> &GpuState {
        self.state.state().gpus.get(&gpu).unwrap_or(&self.healthy_state)
    }

    /// Changes MIG mode or instances of a GPU for all processes on the machine.
    pub(crate) fn change<T>(
        &mut self,
        gpu: u32,
        change: &mut dyn FnMut(&Mig, &MigTable, &mut GpuState) -> Result<T, MigRefusal>,
    ) -> Result<T, Code> {
        let mig = self.machine.model.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let table = self.table.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let changed = octavo_machine::change(&self.folder, &self.machine, |state| {
            let done = change(mig, table, state.gpus.entry(gpu).or_default());
            done.map_err(Code::from)
        });
        self.state.refresh();
        changed
    }
}
