//! The machine between `nvmlInit` and `nvmlShutdown`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventSet_t};
use octavo_fake_gpu::driver_client::DriverClient;
use octavo_fake_gpu::locate::MachineLocation;
use octavo_machine::{Gpu, GpuState, Machine, MachineError, MigTable, Model, State, StateFile};

use crate::code::{CallResult, Code};
use crate::events::EventSet;
use crate::handle::{HandleKind, Handles};
use crate::permission;
use crate::processes::GpuUsage;

/// An initialised library.
pub(crate) struct Session {
    folder: PathBuf,
    machine: Machine,
    /// Places in the machine of the GPUs that this process may use, by their index in NVML.
    visible: Vec<u32>,
    /// MIG profiles of the machine's GPUs, if any.
    table: Option<MigTable>,
    state: StateFile,
    /// State of a GPU that the state file does not name.
    healthy_state: GpuState,
    settings: Vec<Settings>,
    usages: Vec<GpuUsage>,
    handles: Handles,
    sets: BTreeMap<u32, Arc<EventSet>>,
    /// Open as long as the library is initialised, as the real one holds the device nodes.
    _client: Option<DriverClient>,
}

/// Settings of a GPU; kept until the library is shut down.
pub(crate) struct Settings {
    pub(crate) persistence: u32,
    /// Energy drawn up to an instant, in millijoules.
    energy: (Instant, f64),
}

/// One GPU during one call.
pub(crate) struct Device<'a> {
    /// Its place in the machine.
    pub(crate) place: u32,
    /// Its index in NVML.
    pub(crate) index: u32,
    pub(crate) machine: &'a Machine,
    pub(crate) model: &'a Model,
    pub(crate) gpu: &'a Gpu,
    pub(crate) state: &'a GpuState,
    pub(crate) settings: &'a mut Settings,
    /// Its processes.
    pub(crate) usage: &'a mut GpuUsage,
    pub(crate) table: Option<&'a MigTable>,
    /// The MIG device of the call; `None` for the whole GPU.
    pub(crate) slice: Option<Slice<'a>>,
}

/// Maximum number of event sets of a caller, far above the usual few.
const MAX_EVENT_SETS: u32 = 1024;

impl Session {
    /// Reads the machine of a location; `handles` must differ from those of earlier sessions.
    pub(crate) fn open(location: &MachineLocation, handles: Handles) -> Result<Self, MachineError> {
        let folder = location.folder.as_path();
        let mut machine = Machine::read(&folder.join("machine.yaml"))?;
        // A description that was never instantiated for a node still gets unique GPU identities.
        machine.instantiate(&folder.to_string_lossy());
        let settings = machine.gpus.iter().map(|_| Settings::new()).collect();
        let usages = machine.gpus.iter().map(|_| GpuUsage::default()).collect();
        let may_open = |gpu: &Gpu| location.may_open(&format!("nvidia{}", gpu.minor));
        let visible = (0..).zip(&machine.gpus).filter(|(_, gpu)| may_open(gpu));
        Ok(Self {
            visible: visible.map(|(place, _)| place).collect(),
            folder: folder.to_owned(),
            table: machine.model.mig.as_ref().and_then(|mig| MigTable::find(&mig.table)),
            machine,
            state: StateFile::open(folder.join("state.json")),
            healthy_state: GpuState::default(),
            settings,
            usages,
            handles,
            sets: BTreeMap::new(),
            _client: DriverClient::open(&folder.join("machine.yaml")).ok(),
        })
    }

    /// Begins a call: refreshes the state, and fails if the state says so.
    pub(crate) fn begin(&mut self, call: &str) -> CallResult {
        refusal(&self.state.refresh().failing_calls, call)?;
        permission::check(call, &self.folder.join("machine.yaml"))
    }

    /// The folder that describes the machine.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn state(&self) -> &State {
        self.state.state()
    }

    /// The GPU behind a handle, unless it is lost or the state fails this call.
    pub(crate) fn device(&mut self, call: &str, handle: nvmlDevice_t) -> Result<Device<'_>, Code> {
        let index = self.place(call, handle)?;
        self.device_at(call, index)
    }

    /// Place in the machine of the GPU behind a handle, unless it is lost or the state fails this call.
    pub(crate) fn place(&self, call: &str, handle: nvmlDevice_t) -> Result<u32, Code> {
        let index = self.handles.number(HandleKind::Gpu, handle)?;
        self.answers(call, index)?;
        Ok(index)
    }

    /// Handle of the first GPU for which `wanted` holds, unless it is lost or the state fails this
    /// call.
    pub(crate) fn find(
        &self,
        call: &str,
        otherwise: Code,
        wanted: &dyn Fn(u32, &Gpu) -> bool,
    ) -> Result<nvmlDevice_t, Code> {
        let is_wanted = |index: u32, place: u32| {
            self.machine.gpus.get(place as usize).is_some_and(|gpu| wanted(index, gpu))
        };
        let mut visible = (0..).zip(self.visible.iter().copied());
        let found = visible.find(|&(index, place)| is_wanted(index, place));
        let (_, place) = found.ok_or(otherwise)?;
        self.answers(call, place)?;
        Ok(self.handle(place))
    }

    /// Number of the GPUs that this process may use.
    pub(crate) fn count(&self) -> usize {
        self.visible.len()
    }

    /// The handle of the GPU at that place of the machine.
    pub(crate) fn handle(&self, index: u32) -> nvmlDevice_t {
        self.handles.make(HandleKind::Gpu, index)
    }

    /// Creates an event set for events from now on.
    pub(crate) fn create_set(&mut self) -> Result<nvmlEventSet_t, Code> {
        let free = (0..MAX_EVENT_SETS).find(|number| !self.sets.contains_key(number));
        let number = free.ok_or(Code::MEMORY)?;
        let set = EventSet::new(self.state().events.len());
        self.sets.insert(number, Arc::new(set));
        Ok(self.handles.make(HandleKind::EventSet, number))
    }

    /// The event set behind a handle.
    pub(crate) fn set(&self, handle: nvmlEventSet_t) -> Result<&Arc<EventSet>, Code> {
        let number = self.handles.number(HandleKind::EventSet, handle)?;
        self.sets.get(&number).ok_or(Code::INVALID_ARGUMENT)
    }

    /// Removes an event set.
    pub(crate) fn free_set(&mut self, handle: nvmlEventSet_t) -> CallResult {
        let number = self.handles.number(HandleKind::EventSet, handle)?;
        self.sets.remove(&number).map(drop).ok_or(Code::INVALID_ARGUMENT)
    }

    /// Changes the state of a GPU for all processes on the machine.
    pub(crate) fn change_state<T>(
        &mut self,
        gpu: u32,
        change: &mut dyn FnMut(&Machine, &mut GpuState) -> Result<T, Code>,
    ) -> Result<T, Code> {
        let changed = octavo_machine::change(&self.folder, &self.machine, |state| {
            change(&self.machine, state.gpus.entry(gpu).or_default())
        });
        self.state.refresh();
        changed
    }

    fn answers(&self, call: &str, index: u32) -> CallResult {
        if index as usize >= self.machine.gpus.len() {
            return Err(Code::INVALID_ARGUMENT);
        }
        let state = self.state().gpus.get(&index).unwrap_or(&self.healthy_state);
        refusal(&state.failing_calls, call)?;
        if state.lost { Err(Code::GPU_IS_LOST) } else { Ok(()) }
    }

    fn device_at(&mut self, call: &str, index: u32) -> Result<Device<'_>, Code> {
        self.answers(call, index)?;
        let slot = index as usize;
        let gpu = self.machine.gpus.get(slot).ok_or(Code::INVALID_ARGUMENT)?;
        let usage = self.usages.get_mut(slot).ok_or(Code::INVALID_ARGUMENT)?;
        usage.open(&self.folder, gpu.minor, &self.machine);
        let seen = self.visible.iter().position(|place| *place == index);
        Ok(Device {
            place: index,
            index: seen.and_then(|seen| u32::try_from(seen).ok()).unwrap_or(u32::MAX),
            machine: &self.machine,
            model: &self.machine.model,
            gpu,
            state: self.state.state().gpus.get(&index).unwrap_or(&self.healthy_state),
            settings: self.settings.get_mut(slot).ok_or(Code::INVALID_ARGUMENT)?,
            usage,
            table: self.table.as_ref(),
            slice: None,
        })
    }
}

impl Settings {
    fn new() -> Self {
        // Server installations enable persistence.
        Self { persistence: 1, energy: (Instant::now(), 0.0) }
    }
}

impl Device<'_> {
    /// Core temperature in degrees Celsius.
    pub(crate) fn temperature(&self) -> u32 {
        const IDLE: u32 = 32;
        self.state.temperature_celsius.unwrap_or(IDLE)
    }

    /// Power draw in milliwatts: a tenth of the limit when idle.
    pub(crate) fn power(&self) -> u32 {
        self.state.power_milliwatts.unwrap_or_else(|| self.power_limit() / 10)
    }

    /// Board power limit in milliwatts.
    pub(crate) fn power_limit(&self) -> u32 {
        self.model.power_limit_watts.saturating_mul(1000)
    }

    /// Energy drawn since the library was initialised, in millijoules; never falls.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a sum of non-negative terms, far below 2^64"
    )]
    pub(crate) fn energy(&mut self) -> u64 {
        let (since, drawn) = self.settings.energy;
        let now = Instant::now();
        let drawn = drawn + now.duration_since(since).as_secs_f64() * f64::from(self.power());
        self.settings.energy = (now, drawn);
        drawn as u64
    }
}

mod mig;

pub(crate) use mig::{Slice, compute_name};

/// A call fails if the state names it with or without its version suffix: `nvmlInit` includes
/// `nvmlInit_v2`.
fn refusal(failing: &BTreeMap<String, u32>, call: &str) -> CallResult {
    let code = failing.get(call).or_else(|| failing.get(without_version(call)));
    match code {
        None | Some(0) => Ok(()),
        Some(&code) => Err(Code(code)),
    }
}

fn without_version(call: &str) -> &str {
    match call.rsplit_once("_v") {
        Some((name, version)) if version.parse::<u32>().is_ok() => name,
        _ => call,
    }
}

#[cfg(test)]
mod tests;
