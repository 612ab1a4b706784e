//! From a claim's record to the current GPU properties that its containers need.

use octavo_api::Refusal;
use octavo_cdi::{ExtraNodes, Majors, MissingModule};
use octavo_gpu::CharDevices;
use octavo_gpu::mig::{Capability, MigCaps};
use octavo_node::ClaimRef;

use super::{DeviceKind, Devices, Inner, KnownDevice};
use crate::cdi::CdiDevice;
use crate::checkpoint::{HeldDevice, HeldKind, HeldMig, MadeMig, Record};
use crate::gpu_mode::is_made;

impl Inner {
    /// The devices of a claim's spec. Blocks on files of the driver and of the enforcement backend.
    ///
    /// Fails if a kernel module of the driver, a GPU or an instance is missing, or a GPU or instance is replaced; the refusal
    /// says which. Missing nodes that a class adds are no failure here, see [`Inner::check_modules`].
    pub(super) fn cdi_devices<'a>(
        &self,
        devices: &'a Devices,
        record: &'a Record,
    ) -> Result<(Majors, Vec<CdiDevice<'a>>), Refusal> {
        let char_devices = self.char_devices()?;
        let majors = self.majors(&record.claim, &char_devices)?;
        let cdi_devices = record.devices.iter().map(|held| {
            let gpu = gpu_of(devices, held).ok_or_else(|| Refusal::UnknownDevice {
                device: held.device.clone(),
                node: self.node.clone(),
            })?;
            let minor = self.modes.minor(&gpu.uuid, gpu.minor);
            let caps = match &held.kind {
                HeldKind::Mig(mig) if is_replaced(devices, held, mig) => {
                    return Err(self.replaced(held));
                }
                HeldKind::Mig(mig) => {
                    let caps = self.caps(held, mig.made.as_ref(), minor)?;
                    let node = |cap: Capability| {
                        let node = majors.cap_node(cap.minor, cap.mode);
                        node.map_err(|missing| self.module_missing(&record.claim, missing))
                    };
                    Some([node(caps.gpu_instance)?, node(caps.compute_instance)?])
                }
                HeldKind::Whole | HeldKind::Share(_) => None,
            };
            let extra = ExtraNodes::find(&self.paths, held.extra_nodes, &char_devices);
            Ok(CdiDevice { held, gpu, minor, caps, backend: self.backend(devices, held)?, extra })
        });
        Ok((majors, cdi_devices.collect::<Result<_, _>>()?))
    }

    /// Refuses a claim while a kernel module of its device nodes is not loaded: of the driver, or of those that its class
    /// adds. Numbers change when a module is loaded again.
    pub(super) fn check_modules(&self, record: &Record) -> Result<(), Refusal> {
        let char_devices = self.char_devices()?;
        self.majors(&record.claim, &char_devices)?;
        let mut wanted = record.devices.iter().map(|held| held.extra_nodes);
        let missing =
            wanted.find_map(|extra| ExtraNodes::find(&self.paths, extra, &char_devices).missing);
        missing.map_or(Ok(()), |missing| Err(self.module_missing(&record.claim, missing)))
    }

    /// The major numbers of the driver's device nodes.
    fn majors(&self, claim: &ClaimRef, char_devices: &CharDevices) -> Result<Majors, Refusal> {
        Majors::of(char_devices).map_err(|missing| self.module_missing(claim, missing))
    }

    fn char_devices(&self) -> Result<CharDevices, Refusal> {
        CharDevices::read(&self.paths.proc_root).map_err(|error| Refusal::Storage {
            action: "read",
            path: self.paths.proc_root.join("devices").display().to_string(),
            error: error.to_string(),
        })
    }

    fn module_missing(&self, claim: &ClaimRef, missing: MissingModule) -> Refusal {
        let MissingModule { device, module } = missing;
        Refusal::KernelModuleMissing {
            claim: claim.to_string(),
            module,
            device,
            node: self.node.clone(),
        }
    }

    /// An instance's capabilities.
    fn caps(
        &self,
        held: &HeldDevice,
        made: Option<&MadeMig>,
        minor: u32,
    ) -> Result<MigCaps, Refusal> {
        let made = made.ok_or_else(|| self.replaced(held))?;
        let (gpu, compute) = (made.gpu_instance, made.compute_instance);
        let caps = octavo_gpu::mig::caps(&self.paths.proc_root, minor, gpu, compute);
        caps.map_err(|error| {
            self.unusable(held, format!("its capability files cannot be read: {error}"))
        })
    }
}

/// Whether a static instance is missing or replaced: its ids may identify another instance by now. On a GPU that came
/// under dynamic MIG since, it is not among the devices.
fn is_replaced(devices: &Devices, held: &HeldDevice, mig: &HeldMig) -> bool {
    let known = devices.by_name.get(&held.device).filter(|device| device.uuid == held.uuid);
    !mig.is_dynamic
        && match known.map(|device| &device.kind) {
            Some(DeviceKind::MigInstance { instance, .. }) => !is_made(instance, mig),
            Some(DeviceKind::MigPlacement { .. }) => false,
            Some(DeviceKind::Gpu { .. }) | None => true,
        }
}

/// The GPU of a held device. A whole GPU must exist under its name. An instance stays on its GPU even after the GPU
/// left dynamic MIG and the placement is no longer a device.
fn gpu_of<'a>(devices: &'a Devices, held: &HeldDevice) -> Option<&'a KnownDevice> {
    let named = devices.by_name.get(&held.device).filter(|device| device.uuid == held.uuid);
    if named.is_some() || !matches!(held.kind, HeldKind::Mig(_)) {
        return named;
    }
    devices.by_name.values().find(|device| device.uuid == held.uuid)
}
