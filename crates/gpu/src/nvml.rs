//! The driver behind NVIDIA's management library, NVML.
//!
//! ```text
//! Nvml ── Library (loaded, initialised, shut down on drop)
//!   │        └── call: the few shapes of NVML functions, the only unsafe code
//!   ├── read    each GPU: mandatory and optional facts
//!   │     ├── links, fabric: NVLink
//!   │     └── sysfs: the kernel's facts about a PCI device
//!   ├── health, telemetry  what changes while it runs
//!   │     └── fields  many values with one call
//!   ├── events  the event set and its stream
//!   ├── processes  memory use by process
//!   ├── limits  memory limits of cgroups
//!   └── mig     profiles and placements
//!         ├── instances  existing instances
//!         ├── compare    whether mode or instances changed
//!         └── change     mode, creation and destruction
//! ```
//!
//! Functions are looked up by name when the library is loaded. A missing function fails only the
//! calls that need it, so an old driver still supports the others.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::mig::{MigInstance, MigPlacement, MigProfile};
use crate::{
    ComputeMode, Driver, DriverError, DriverVersions, EventStream, Gpu, GpuHealth, GpuProcess,
    GpuTelemetry, MemoryLimits, Mig, UnreadableGpu,
};
use library::Library;

pub use search::{LIBRARY_NAME, find_cuda_library, find_library};

/// NVIDIA's management library, loaded and initialised; shut down on drop.
pub struct Nvml {
    library: Arc<Library>,
    sys_root: PathBuf,
}

impl Nvml {
    /// Loads and initialises `library`, a path or a bare name that the loader resolves. `sys_root`
    /// is the path of sysfs, usually `/sys`.
    pub fn open(library: &Path, sys_root: &Path) -> Result<Self, DriverError> {
        let library = Arc::new(Library::load(library)?);
        Ok(Self { library, sys_root: sys_root.to_owned() })
    }
}

impl Driver for Nvml {
    fn versions(&self) -> Result<DriverVersions, DriverError> {
        let cuda = self.library.cuda_version()?;
        Ok(DriverVersions {
            driver: self.library.driver_version()?,
            cuda: (cuda / 1000, cuda % 1000 / 10),
            nvml: self.library.nvml_version()?,
        })
    }

    fn gpus(&self) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError> {
        read::gpus(&self.library, &self.sys_root)
    }

    fn health(&self, uuid: &str) -> Result<GpuHealth, DriverError> {
        health::health(self.library.device_of(uuid)?)
    }

    fn telemetry(&self, uuid: &str) -> Result<GpuTelemetry, DriverError> {
        telemetry::telemetry(self.library.device_of(uuid)?)
    }

    fn events(&self) -> Result<Box<dyn EventStream>, DriverError> {
        Ok(Box::new(events::NvmlEvents::listen(&self.library)?))
    }

    fn processes(&self, uuid: &str) -> Result<Vec<GpuProcess>, DriverError> {
        processes::processes(self.library.device_of(uuid)?)
    }

    fn mig_profiles(&self, uuid: &str) -> Result<Vec<MigProfile>, DriverError> {
        mig::profiles(self.library.device_of(uuid)?)
    }

    fn mig_instances(&self, uuid: &str) -> Result<Vec<MigInstance>, DriverError> {
        mig::instances(self.library.device_of(uuid)?)
    }

    fn has_mig_changed(&self, known: &Gpu) -> Result<bool, DriverError> {
        // A GPU cannot gain MIG support.
        if known.mig.is_none() {
            return Ok(false);
        }
        mig::has_changed(self.library.device_of(&known.uuid)?, known)
    }

    fn minor(&self, uuid: &str) -> Result<u32, DriverError> {
        self.library.device_of(uuid)?.minor()
    }

    fn mig_mode_changes(&self) -> u64 {
        self.library.mig_mode_changes()
    }

    fn set_mig_mode(&self, uuid: &str, enabled: bool) -> Result<Mig, DriverError> {
        mig::set_mode(self.library.device_of(uuid)?, enabled)
    }

    fn compute_mode(&self, uuid: &str) -> Result<ComputeMode, DriverError> {
        self.library.device_of(uuid)?.compute_mode()
    }

    fn set_compute_mode(&self, uuid: &str, mode: ComputeMode) -> Result<(), DriverError> {
        self.library.device_of(uuid)?.set_compute_mode(mode)
    }

    fn create_mig(
        &self,
        uuid: &str,
        profile: &MigProfile,
        placement: MigPlacement,
    ) -> Result<MigInstance, DriverError> {
        mig::create(self.library.device_of(uuid)?, profile, placement)
    }

    fn destroy_mig(&self, uuid: &str, gpu_instance: u32) -> Result<(), DriverError> {
        mig::destroy(self.library.device_of(uuid)?, gpu_instance)
    }

    fn has_memory_limits(&self) -> bool {
        let version = self.library.driver_version();
        let major = version.as_deref().unwrap_or_default().split('.').next();
        let is_new = major.and_then(|major| major.parse().ok()).is_some_and(|n: u32| n >= 615);
        is_new && self.library.limits().is_some()
    }

    fn set_memory_limits(
        &self,
        uuid: &str,
        cgroup: &Path,
        limits: MemoryLimits,
    ) -> Result<(), DriverError> {
        limits::set(self.library.device_of(uuid)?, cgroup, limits)
    }
}

mod call;
mod device;
mod events;
mod fabric;
mod fields;
mod health;
mod library;
mod limits;
mod links;
mod mig;
mod names;
mod processes;
mod read;
mod search;
mod status;
mod sysfs;
mod telemetry;
