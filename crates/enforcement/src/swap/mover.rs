//! Moves the processes of a share, each move on a thread of its own. A move takes seconds.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use octavo_api::config::SwapUnit;
use octavo_node::failpoint;
use octavo_node::files::StorageError;
use octavo_process_checkpoint::CheckpointError;

use super::checkpoint::{Checkpoints, Direction, StepError};
use super::host::{ContainerMemory, HostMemory, missing_room};
use super::record::{Record, lock_path, remove_record};
use super::{HostBudget, SwapSettings, pages};
use crate::gpu_time::GpuTime;
use crate::process::Process;
use crate::process::proc::Proc;

/// How long a share's work may take to end before its processes are moved.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which the end of work is looked for.
const DRAIN_INTERVAL: Duration = Duration::from_millis(5);

/// A share to move.
#[derive(Clone, Debug)]
pub(crate) struct MovingShare {
    /// Name of its folder.
    pub(crate) name: String,
    /// Its folder on the host.
    pub(crate) folder: PathBuf,
    /// What of it is moved.
    pub(crate) unit: SwapUnit,
}

/// Sizes of a move to the host, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoveSizes {
    /// What the share has on the GPU and leaves it.
    pub(crate) bytes: u64,
    /// What stays there.
    pub(crate) staying: u64,
    /// What is in use on the host for other shares.
    pub(crate) taken: u64,
}

/// The end of a move.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Name of the share's folder.
    pub(crate) share: String,
    /// Whether it was moved to the host, and not back.
    pub(crate) is_out: bool,
    /// How long it took.
    pub(crate) took: Duration,
    /// Whether it succeeded.
    pub(crate) result: Result<(), MoveError>,
}

/// Why a share was not moved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MoveError {
    /// Its work does not end.
    #[error("its work on the GPU did not end within 30 s")]
    Busy,
    /// There is no room.
    #[error("{0}")]
    NoHostMemory(String),
    /// The driver did not move a process. All others are as they were before.
    #[error("{0}")]
    Refused(StepError),
    /// The driver did not move a process, and did not bring the others back.
    #[error("{0}; the other processes could not be brought back yet")]
    Stuck(StepError),
    /// The record could not be written.
    #[error("{0}")]
    Record(#[from] StorageError),
    /// The record could not be removed. Everything was moved.
    #[error("the record cannot be removed: {0}")]
    Remove(io::Error),
}

impl MoveError {
    /// The reason that the driver gave.
    pub(crate) fn reason(&self) -> Option<CheckpointError> {
        match self {
            Self::Refused(error) | Self::Stuck(error) => Some(error.reason),
            _ => None,
        }
    }
}

/// Begins moves, and knows which have ended.
#[derive(Debug)]
pub(crate) struct Mover {
    checkpoints: Checkpoints,
    host: HostBudget,
    proc: Proc,
    gpu_time: Arc<GpuTime>,
    sender: Sender<Moved>,
    receiver: Receiver<Moved>,
    /// Set at the end: no move begins any more.
    is_ended: Arc<AtomicBool>,
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }
}

impl Mover {
    /// A mover that runs `program`, which is `octavo`.
    pub(crate) fn new(
        settings: SwapSettings,
        program: PathBuf,
        proc: Proc,
        gpu_time: Arc<GpuTime>,
    ) -> Self {
        let (sender, receiver) = mpsc::channel();
        let SwapSettings { host, driver_root } = settings;
        let checkpoints = Checkpoints { program, driver_root };
        let is_ended = Arc::default();
        Self { checkpoints, host, proc, gpu_time, sender, receiver, is_ended }
    }

    /// Moves that have ended since the last call.
    pub(crate) fn ended(&self) -> Vec<Moved> {
        self.receiver.try_iter().collect()
    }

    /// Begins to move memory of a share's processes to the host.
    pub(crate) fn out(
        &self,
        share: MovingShare,
        mut processes: Vec<Process>,
        containers: Vec<ContainerMemory>,
        sizes: MoveSizes,
    ) {
        // Parents first.
        processes.sort_by_key(|process| (process.start_time, process.pid));
        let (checkpoints, gpu_time) = (self.checkpoints.clone(), Arc::clone(&self.gpu_time));
        let (budget, is_ended) = (self.host.bytes(), Arc::clone(&self.is_ended));
        let MoveSizes { bytes, staying, taken } = sizes;
        self.begin(share, true, move |share| {
            drain(&gpu_time, &share.name, &is_ended)?;
            if let Some(why) = missing_room(bytes, taken, budget, HostMemory::read(), &containers) {
                return Err(MoveError::NoHostMemory(why));
            }
            let _lock = lock(&share.folder)?;
            if is_ended.load(Ordering::Relaxed) {
                return Err(MoveError::Busy);
            }
            let recorded = processes.iter().map(|it| (*it).into()).collect();
            Record { processes: recorded, bytes, staying }.write(&share.folder)?;
            failpoint::hit("swap.recorded");
            match share.unit {
                SwapUnit::Processes => move_out(&checkpoints, &processes, &share.folder),
                SwapUnit::Pages => pages::move_out(&gpu_time, &share.name, &share.folder),
            }
        });
    }

    /// Begins to move a share back.
    pub(crate) fn back(&self, share: MovingShare) {
        let (checkpoints, proc) = (self.checkpoints.clone(), self.proc.clone());
        let gpu_time = Arc::clone(&self.gpu_time);
        self.begin(share, false, move |share| {
            let _lock = lock(&share.folder)?;
            match share.unit {
                SwapUnit::Processes => move_back(&checkpoints, &proc, &share.folder),
                SwapUnit::Pages => pages::move_back(&gpu_time, &share.name, &proc, &share.folder),
            }
        });
    }

    fn begin(
        &self,
        share: MovingShare,
        is_out: bool,
        work: impl FnOnce(&MovingShare) -> Result<(), MoveError> + Send + 'static,
    ) {
        let (sender, gpu_time) = (self.sender.clone(), Arc::clone(&self.gpu_time));
        let name = share.name.clone();
        let thread = thread::Builder::new().name("swap".to_owned()).spawn(move || {
            let began = Instant::now();
            let result = work(&share);
            // The watchdog may have ended meanwhile. Its successor reads the record.
            let _ = sender.send(Moved { share: share.name, is_out, took: began.elapsed(), result });
            gpu_time.notify_needs();
        });
        if let Err(error) = thread {
            let error = StepError {
                reason: CheckpointError::Failed,
                message: format!("no thread can be started: {error}"),
            };
            let result = Err(MoveError::Refused(error));
            let _ = self.sender.send(Moved { share: name, is_out, took: Duration::ZERO, result });
        }
    }
}

/// Waits until a share has no work in flight: its threads wait for leases, and none is in the driver.
fn drain(gpu_time: &GpuTime, share: &str, is_ended: &AtomicBool) -> Result<(), MoveError> {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    loop {
        if !gpu_time.has_work(share) {
            return Ok(());
        }
        if Instant::now() > deadline || is_ended.load(Ordering::Relaxed) {
            return Err(MoveError::Busy);
        }
        thread::sleep(DRAIN_INTERVAL);
    }
}

/// Waits for the end of another move of the share: an agent that was killed may have left its last step behind.
fn lock(folder: &Path) -> Result<File, MoveError> {
    let path = lock_path(folder);
    let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| MoveError::Record(StorageError::of("lock", &path)(error)))
}

/// Moves processes to the host. If one cannot be moved, the others come back.
fn move_out(
    checkpoints: &Checkpoints,
    processes: &[Process],
    folder: &Path,
) -> Result<(), MoveError> {
    for (index, process) in processes.iter().enumerate() {
        let moved = checkpoints.step(process.pid, Direction::Out);
        failpoint::hit("swap.out");
        let error = match moved {
            Ok(()) => continue,
            // It has ended, or never used the GPU.
            Err(error) if error.reason == CheckpointError::NoProcess => continue,
            Err(error) => error,
        };
        // The process itself may be in any state after a failure.
        let undone = processes.iter().take(index + 1).rev().map(|it| bring_back(checkpoints, *it));
        let is_undone = undone.filter(Result::is_err).count() == 0;
        // The record stays while a process may be on the host.
        let is_whole = is_undone && remove_record(folder).is_ok();
        return Err(if is_whole { MoveError::Refused(error) } else { MoveError::Stuck(error) });
    }
    Ok(())
}

/// Moves the recorded processes of a share back, children first.
fn move_back(checkpoints: &Checkpoints, proc: &Proc, folder: &Path) -> Result<(), MoveError> {
    let processes = Record::read(folder).map(|record| record.processes).unwrap_or_default();
    let mut first_error = None;
    // One that stays keeps no other one.
    for process in processes.into_iter().rev().filter(|process| process.is_there(proc)) {
        let error = bring_back(checkpoints, process.into()).err();
        first_error = first_error.or(error);
        failpoint::hit("swap.in");
    }
    match first_error {
        Some(error) => Err(MoveError::Refused(error)),
        None => remove_record(folder).map_err(MoveError::Remove),
    }
}

/// Moves a process back, if it is still there.
fn bring_back(checkpoints: &Checkpoints, process: Process) -> Result<(), StepError> {
    match checkpoints.step(process.pid, Direction::In) {
        Err(error) if error.reason == CheckpointError::NoProcess => Ok(()),
        moved => moved,
    }
}

#[cfg(test)]
mod tests;
