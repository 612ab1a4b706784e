//! A test-controlled driver of GPUs with MIG.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use octavo_gpu::mig::{
    MigComputeInstance, MigInstance, MigPlacement, MigProfile, MigShape, MigVariant,
};
use octavo_gpu::{
    ComputeMode, Driver, DriverError, DriverVersions, EventStream, Gpu, GpuHealth, Mig,
    UnreadableGpu,
};

use crate::claims::DeviceKind;

/// GPUs by UUID. A new GPU is whole, with its mode off.
pub(super) struct MigDriver {
    proc: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) gpus: BTreeMap<String, Card>,
    /// Next calls that fail: call and GPU.
    pub(super) failures: BTreeMap<(&'static str, String), DriverError>,
    made: u64,
}

#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that a test sets")]
pub(super) struct Card {
    pub(super) is_on: bool,
    pub(super) pending: bool,
    pub(super) needs_reset: bool,
    pub(super) is_lost: bool,
    pub(super) instances: Vec<MigInstance>,
    /// First memory slices of instances that processes use.
    pub(super) busy: BTreeSet<u32>,
    /// Whether processes use the GPU outside of instances.
    pub(super) is_in_use: bool,
    /// Whether the kernel has no files of its instances' capabilities.
    pub(super) lacks_capabilities: bool,
    /// Whether one process alone may have contexts.
    pub(super) is_exclusive: bool,
    /// How often the mode was changed.
    pub(super) switches: u32,
    /// Minor number that the next change of the mode gives it, and the one that it has then.
    pub(super) next_minor: Option<u32>,
    minor: Option<u32>,
}

impl Card {
    fn minor(&self, uuid: &str) -> u32 {
        self.minor.unwrap_or_else(|| uuid.trim_start_matches("GPU-").parse().expect("is a number"))
    }
}

/// A profile of the test's GPUs.
pub(super) fn profile(id: u32, name: &str, size: u32, starts: &[u32]) -> MigProfile {
    MigProfile {
        number: id,
        id,
        name: name.to_owned(),
        shape: MigShape { compute_slices: size, gpu_slices: size, variant: MigVariant::Plain },
        memory_mib: 10_240,
        instances: 1,
        multiprocessors: 16,
        copy_engines: 1,
        decoders: 1,
        encoders: 0,
        jpeg_engines: 1,
        ofa_engines: 0,
        placements: starts.iter().map(|start| MigPlacement { start: *start, size }).collect(),
    }
}

/// Profiles and placements of a GPU, by the suffix of the device name.
pub(super) fn placements() -> Vec<(String, DeviceKind)> {
    let profiles = [
        profile(19, "1g.10gb", 1, &[0, 1, 2, 3, 4, 5, 6]),
        profile(9, "3g.40gb", 4, &[0, 4]),
        profile(0, "7g.80gb", 8, &[0]),
    ];
    let mut placements = Vec::new();
    for profile in profiles {
        for placement in profile.placements.clone() {
            let name =
                format!("{}-{}-{}", profile.name.replace('.', ""), profile.id, placement.start);
            let profile = profile.clone();
            placements.push((name, DeviceKind::MigPlacement { profile, placement }));
        }
    }
    placements
}

impl MigDriver {
    pub(super) fn new(proc: PathBuf) -> Self {
        Self { proc, state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    /// Changes a GPU.
    pub(super) fn with<T>(&self, gpu: &str, change: impl FnOnce(&mut Card) -> T) -> T {
        change(self.state().gpus.entry(gpu.to_owned()).or_default())
    }

    /// Lets the next call for a GPU fail.
    pub(super) fn fail(&self, call: &'static str, gpu: &str, error: DriverError) {
        self.state().failures.insert((call, gpu.to_owned()), error);
    }

    /// First memory slices and sizes of a GPU's instances.
    pub(super) fn slices(&self, gpu: &str) -> Vec<(u32, u32)> {
        self.with(gpu, |card| {
            let instances = card.instances.iter();
            instances.map(|instance| (instance.placement.start, instance.placement.size)).collect()
        })
    }

    pub(super) fn is_on(&self, gpu: &str) -> bool {
        self.with(gpu, |card| card.is_on)
    }

    /// Makes an instance as a person does.
    pub(super) fn make_by_hand(&self, gpu: &str, profile_id: u32, start: u32, size: u32) {
        let mut state = self.state();
        let card = state.gpus.entry(gpu.to_owned()).or_default();
        card.is_on = true;
        card.pending = true;
        let placement = MigPlacement { start, size };
        state.add(&self.proc, gpu, profile_id, placement);
    }

    /// Destroys an instance as a person does.
    pub(super) fn destroy_by_hand(&self, gpu: &str, start: u32) {
        self.with(gpu, |card| card.instances.retain(|found| found.placement.start != start));
    }

    fn begin(&self, call: &'static str, gpu: &str) -> Result<MutexGuard<'_, State>, DriverError> {
        let mut state = self.state();
        if state.gpus.entry(gpu.to_owned()).or_default().is_lost {
            return Err(DriverError::GpuLost { call });
        }
        match state.failures.remove(&(call, gpu.to_owned())) {
            Some(error) => Err(error),
            None => Ok(state),
        }
    }
}

impl State {
    fn add(
        &mut self,
        proc: &Path,
        gpu: &str,
        profile_id: u32,
        placement: MigPlacement,
    ) -> MigInstance {
        self.made += 1;
        let uuid = format!("MIG-{}", self.made);
        let card = self.gpus.entry(gpu.to_owned()).or_default();
        // Ids come back, as the driver's do.
        let is_free = |id: &u32| card.instances.iter().all(|found| found.gpu_instance != *id);
        let gpu_instance = (1..15).find(is_free).expect("there is one");
        let instance = MigInstance {
            gpu_instance,
            profile_id,
            placement,
            compute_instances: vec![MigComputeInstance { id: 0, uuid, index: 0 }],
        };
        card.instances.push(instance.clone());
        if !card.lacks_capabilities {
            card.write_capabilities(proc, gpu, gpu_instance);
        }
        instance
    }
}

impl Card {
    /// Writes the capability files of an instance.
    pub(super) fn write_capabilities(&self, proc: &Path, gpu: &str, gpu_instance: u32) {
        let minor = self.minor(gpu);
        let folder =
            proc.join(format!("driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"));
        fs::create_dir_all(folder.join("ci0")).expect("makes");
        let number = 100 * minor + 10 * gpu_instance;
        for (file, minor) in [("access", number), ("ci0/access", number + 1)] {
            let text =
                format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
            fs::write(folder.join(file), text).expect("writes");
        }
    }
}

impl Driver for MigDriver {
    fn versions(&self) -> Result<DriverVersions, DriverError> {
        Err(DriverError::NotSupported { call: "nvmlSystemGetDriverVersion" })
    }

    fn gpus(&self) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError> {
        Err(DriverError::NotSupported { call: "nvmlDeviceGetCount_v2" })
    }

    fn health(&self, _: &str) -> Result<GpuHealth, DriverError> {
        Err(DriverError::NotSupported { call: "nvmlDeviceGetFieldValues" })
    }

    fn events(&self) -> Result<Box<dyn EventStream>, DriverError> {
        Err(DriverError::NotSupported { call: "nvmlEventSetCreate" })
    }

    fn mig_instances(&self, uuid: &str) -> Result<Vec<MigInstance>, DriverError> {
        let state = self.begin("instances", uuid)?;
        let mut instances = state.gpus[uuid].instances.clone();
        instances.sort_by_key(|instance| instance.placement);
        Ok(instances)
    }

    fn minor(&self, uuid: &str) -> Result<u32, DriverError> {
        Ok(self.with(uuid, |card| card.minor(uuid)))
    }

    fn compute_mode(&self, uuid: &str) -> Result<ComputeMode, DriverError> {
        let state = self.begin("compute mode", uuid)?;
        let is_exclusive = state.gpus.get(uuid).is_some_and(|card| card.is_exclusive);
        Ok(if is_exclusive { ComputeMode::ExclusiveProcess } else { ComputeMode::Default })
    }

    fn set_compute_mode(&self, uuid: &str, mode: ComputeMode) -> Result<(), DriverError> {
        let mut state = self.begin("compute mode", uuid)?;
        let card = state.gpus.get_mut(uuid).expect("is there");
        card.is_exclusive = mode == ComputeMode::ExclusiveProcess;
        Ok(())
    }

    fn set_mig_mode(&self, uuid: &str, enabled: bool) -> Result<Mig, DriverError> {
        let mut state = self.begin("mode", uuid)?;
        let card = state.gpus.get_mut(uuid).expect("is there");
        if card.is_on != enabled && (card.is_in_use || !card.instances.is_empty()) {
            return Err(DriverError::InUse { call: "nvmlDeviceSetMigMode" });
        }
        card.pending = enabled;
        if !card.needs_reset && card.is_on != enabled {
            card.is_on = enabled;
            card.switches += 1;
            card.minor = card.next_minor.take().or(card.minor);
        }
        Ok(Mig { enabled: card.is_on, pending: card.pending })
    }

    fn create_mig(
        &self,
        uuid: &str,
        profile: &MigProfile,
        placement: MigPlacement,
    ) -> Result<MigInstance, DriverError> {
        let mut state = self.begin("create", uuid)?;
        let card = &state.gpus[uuid];
        assert!(card.is_on, "an instance of a GPU whose mode is off");
        if card.instances.iter().any(|found| found.placement.overlaps(placement)) {
            return Err(DriverError::NoRoom { call: "nvmlDeviceCreateGpuInstanceWithPlacement" });
        }
        let instance = state.add(&self.proc, uuid, profile.id, placement);
        Ok(instance)
    }

    fn destroy_mig(&self, uuid: &str, gpu_instance: u32) -> Result<(), DriverError> {
        let mut state = self.begin("destroy", uuid)?;
        let card = state.gpus.get_mut(uuid).expect("is there");
        let Some(at) = card.instances.iter().position(|i| i.gpu_instance == gpu_instance) else {
            return Err(DriverError::NotFound { call: "nvmlGpuInstanceDestroy" });
        };
        if card.busy.contains(&card.instances[at].placement.start) {
            return Err(DriverError::InUse { call: "nvmlGpuInstanceDestroy" });
        }
        card.instances.remove(at);
        let minor = card.minor(uuid);
        if !card.lacks_capabilities {
            let folder = format!("driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}");
            fs::remove_dir_all(self.proc.join(folder)).expect("removes");
        }
        Ok(())
    }
}
