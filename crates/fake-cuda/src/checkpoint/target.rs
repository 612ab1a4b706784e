//! The steps of a checkpoint, in the process that is checkpointed.

use std::thread;
use std::time::{Duration, Instant};

use octavo_fake_gpu::Footprint;

use crate::checkpoint::message::{GpuPair, ProcessState};
use crate::code::{CallResult, Code};
use crate::device::Device;
use crate::execution::callbacks;
use crate::gate::{self, Gate};
use crate::machine::Driver;
use crate::memory::{heap, ipc, vmm};

/// How often a lock looks whether calls have ended.
const PAUSE: Duration = Duration::from_millis(1);

/// This process.
pub(crate) struct Target {
    driver: &'static Driver,
    state: ProcessState,
    /// What it had on the GPUs that it has left.
    footprints: Vec<(&'static Device, Footprint)>,
}

impl Target {
    pub(crate) fn new(driver: &'static Driver) -> Self {
        Self { driver, state: ProcessState::Running, footprints: Vec::new() }
    }

    pub(crate) fn state(&self) -> ProcessState {
        self.state
    }

    /// Blocks further calls, and waits until those in flight and all work have ended. After so many milliseconds, or when the
    /// caller has ended, the process runs on; 0 means never.
    pub(crate) fn lock(&mut self, timeout: u32, has_caller_ended: &dyn Fn() -> bool) -> CallResult {
        self.require(ProcessState::Running)?;
        let began = Instant::now();
        let timeout = Duration::from_millis(timeout.into());
        let is_over = || (!timeout.is_zero() && began.elapsed() >= timeout) || has_caller_ended();
        gate::set(Gate::Closed);
        if !self.drain(&is_over) {
            gate::set(Gate::Open);
            return Err(Code::NOT_READY);
        }
        self.state = ProcessState::Locked;
        Ok(())
    }

    /// Lets calls go on.
    pub(crate) fn unlock(&mut self) -> CallResult {
        self.require(ProcessState::Locked)?;
        self.state = ProcessState::Running;
        gate::set(Gate::Open);
        Ok(())
    }

    /// Leaves all GPUs. The contents of memory stay in the process, whose calls wait.
    pub(crate) fn checkpoint(&mut self) -> CallResult {
        self.require(ProcessState::Locked)?;
        if !self.is_supported() {
            return Err(Code::NOT_SUPPORTED);
        }
        let faults = self.faults();
        thread::sleep(Duration::from_millis(faults.checkpoint_millis));
        if faults.checkpoint_breaks {
            return self.fail();
        }
        let attached = self.driver.devices.iter();
        let attached = attached.filter_map(|device| Some((device, device.attached()?)));
        self.footprints = attached.map(|(device, process)| (device, process.leave_gpu())).collect();
        self.state = ProcessState::Checkpointed;
        Ok(())
    }

    /// Returns to all GPUs, or to none if the memory of one does not suffice. Pairs of GPUs must name each GPU; another GPU
    /// than before is not simulated.
    pub(crate) fn restore(&mut self, pairs: &[GpuPair]) -> CallResult {
        self.require(ProcessState::Checkpointed)?;
        self.check_pairs(pairs)?;
        let faults = self.faults();
        thread::sleep(Duration::from_millis(faults.restore_millis));
        if faults.restore_breaks {
            return self.fail();
        }
        for (place, (device, footprint)) in self.footprints.iter().enumerate() {
            if device.process_handle()?.return_to_gpu(*footprint) {
                continue;
            }
            for (device, _) in &self.footprints[..place] {
                device.process_handle()?.leave_gpu();
            }
            return Err(Code::OUT_OF_MEMORY);
        }
        self.footprints.clear();
        self.state = ProcessState::Locked;
        Ok(())
    }

    fn require(&self, state: ProcessState) -> CallResult {
        if self.state == state { Ok(()) } else { Err(Code::ILLEGAL_STATE) }
    }

    /// Waits until no call is in flight and all work is done. Returns false if it is over before.
    fn drain(&self, is_over: &dyn Fn() -> bool) -> bool {
        while !gate::is_idle() || self.faults().lock_hangs {
            if is_over() {
                return false;
            }
            thread::sleep(PAUSE);
        }
        let attached = || self.driver.devices.iter().filter_map(Device::attached);
        let is_done =
            attached().all(|process| process.wait(process.submitted(), &mut || is_over()));
        while is_done && !callbacks::are_all_done() {
            if is_over() {
                return false;
            }
            thread::sleep(PAUSE);
        }
        is_done
    }

    fn is_supported(&self) -> bool {
        let driver = self.driver;
        let is_mig = |device: &Device| {
            let state = |model| {
                driver.state.with(|state| {
                    state.gpus.get(&device.index).is_some_and(|gpu| gpu.mig.is_enabled(model))
                })
            };
            driver.machine.model.mig.as_ref().is_some_and(state)
        };
        let has_mig =
            driver.devices.iter().any(|device| device.attached().is_some() && is_mig(device));
        !has_mig && !heap::has_managed() && !ipc::is_used() && !vmm::is_shared()
    }

    fn check_pairs(&self, pairs: &[GpuPair]) -> CallResult {
        if pairs.is_empty() {
            return Ok(());
        }
        let is_paired = |device: &Device| pairs.iter().any(|pair| pair.old == device.uuid);
        if !self.footprints.iter().all(|(device, _)| is_paired(device)) {
            return Err(Code::INVALID_VALUE);
        }
        let moves = pairs.iter().any(|pair| pair.old != pair.new);
        if moves { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
    }

    fn fail(&mut self) -> CallResult {
        self.state = ProcessState::Failed;
        gate::set(Gate::Broken);
        Err(Code::UNKNOWN)
    }

    fn faults(&self) -> octavo_machine::CheckpointState {
        self.driver.state.refresh();
        self.driver.state.with(|state| state.checkpoints)
    }
}
