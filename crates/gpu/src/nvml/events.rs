//! Events of all GPUs through one event set.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings as sys;

use super::call::{self, call};
use super::device::Device;
use super::library::Library;
use crate::{DriverError, EventStream, GpuEvent, GpuEventKind};

/// Critical XIDs and both kinds of memory errors.
const REGISTERED_EVENTS: u64 = (sys::nvmlEventTypeXidCriticalError
    | sys::nvmlEventTypeDoubleBitEccError
    | sys::nvmlEventTypeSingleBitEccError) as u64;

/// NVML's value for an event without an instance.
const NO_INSTANCE: u32 = u32::MAX;

/// The stream of one event set.
///
/// When a GPU falls off the bus, NVML's wait returns [`DriverError::GpuLost`] at once and does not
/// name the GPU. It may do so on every later wait, while events of other GPUs still arrive. The
/// stream returns the error and stays usable. The caller must find the GPU with
/// [`crate::Driver::health`] and pause before the next wait.
pub(super) struct NvmlEvents {
    library: Arc<Library>,
    set: EventSet,
    /// UUID of each registered GPU, by the address of its handle: a lost GPU can no longer report
    /// its UUID.
    uuids: BTreeMap<usize, String>,
    unmonitored: Vec<String>,
}

/// NVML's pointer to an event set, which the owning stream frees.
struct EventSet(sys::nvmlEventSet_t);

// JUSTIFICATION: the stream is waited on by a thread of its own.
// SAFETY: NVML is documented as thread-safe, and the pointer is only ever handed back to it.
unsafe impl Send for EventSet {}

impl NvmlEvents {
    /// Makes an event set and registers every GPU with it. GPUs that cannot be registered are
    /// listed as unmonitored.
    pub(super) fn listen(library: &Arc<Library>) -> Result<Self, DriverError> {
        let call = call!(library, nvmlEventSetCreate)?;
        let mut set = ptr::null_mut();
        library.check(call.name, call::out(call, &mut set))?;
        // From here on the drop of the stream frees the set.
        let mut stream = Self {
            library: Arc::clone(library),
            set: EventSet(set),
            uuids: BTreeMap::new(),
            unmonitored: Vec::new(),
        };
        for index in 0..library.device_count()? {
            // A GPU without handle or UUID is not in the inventory either.
            let Ok(device) = library.device_at(index) else { continue };
            let Ok(uuid) = device.uuid() else { continue };
            match register(device, set) {
                Ok(()) => {
                    stream.uuids.insert(device.handle().addr(), uuid);
                }
                Err(_) => stream.unmonitored.push(uuid),
            }
        }
        Ok(stream)
    }

    fn event(&self, data: &sys::nvmlEventData_t) -> Option<GpuEvent> {
        let kind = match u32::try_from(data.eventType).ok()? {
            sys::nvmlEventTypeXidCriticalError => GpuEventKind::Xid(data.eventData),
            sys::nvmlEventTypeDoubleBitEccError => GpuEventKind::DoubleBitEcc,
            sys::nvmlEventTypeSingleBitEccError => GpuEventKind::SingleBitEcc,
            _ => return None,
        };
        let uuid = self
            .uuids
            .get(&data.device.addr())
            .cloned()
            .or_else(|| Device::new(&self.library, data.device).uuid().ok());
        let instance = |id| (id != NO_INSTANCE).then_some(id);
        Some(GpuEvent {
            uuid,
            kind,
            gpu_instance: instance(data.gpuInstanceId),
            compute_instance: instance(data.computeInstanceId),
        })
    }
}

impl EventStream for NvmlEvents {
    fn wait(&mut self, timeout: Duration) -> Result<Option<GpuEvent>, DriverError> {
        let call = call!(self.library, nvmlEventSetWait_v2)?;
        let start = Instant::now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            let mut data = sys::nvmlEventData_t {
                device: ptr::null_mut(),
                eventType: 0,
                eventData: 0,
                gpuInstanceId: NO_INSTANCE,
                computeInstanceId: NO_INSTANCE,
            };
            let code = call::event_set_wait(call, self.set.0, &mut data, milliseconds(left));
            if code == sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT {
                return Ok(None);
            }
            self.library.check(call.name, code)?;
            // An unrequested event only shortens the remaining wait.
            if let Some(event) = self.event(&data) {
                return Ok(Some(event));
            }
            if start.elapsed() >= timeout {
                return Ok(None);
            }
        }
    }

    fn unmonitored(&self) -> &[String] {
        &self.unmonitored
    }
}

impl Drop for NvmlEvents {
    fn drop(&mut self) {
        // A set that cannot be freed lasts until shutdown; nothing can be undone.
        if let Ok(free) = call!(self.library, nvmlEventSetFree) {
            call::keyed(free, self.set.0);
        }
    }
}

/// Registers the wanted events that the GPU supports; fails if it supports none.
fn register(device: Device<'_>, set: sys::nvmlEventSet_t) -> Result<(), DriverError> {
    let supported = call!(device.library(), nvmlDeviceGetSupportedEventTypes)?;
    let events = device.get(supported, 0)? & REGISTERED_EVENTS;
    if events == 0 {
        return Err(DriverError::NotSupported { call: supported.name });
    }
    let call = call!(device.library(), nvmlDeviceRegisterEvents)?;
    let code = call::three_keyed(call, device.handle(), events, set);
    device.library().check(call.name, code)
}

/// Rounded up, so that a short wait does not become a busy loop.
fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
