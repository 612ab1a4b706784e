//! Signals processes, safely against pid reuse.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::process::Process;
use crate::process::proc::Proc;

/// Sends SIGKILL to a process. A process that exited already is fine.
pub(crate) fn kill(proc: &Proc, process: Process) -> io::Result<()> {
    open(proc, process)?.map_or(Ok(()), |opened| send(opened, Signal::KILL))
}

/// A pidfd of a process; `None` if it exited. The pidfd refers to one process permanently, so a check of the pid after opening it
/// applies to that process.
pub(crate) fn open(proc: &Proc, process: Process) -> io::Result<Option<OwnedFd>> {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return Ok(None) };
    let opened = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        opened => opened?,
    };
    match proc.stat(process.pid) {
        Ok(stat) if stat.start_time == process.start_time => Ok(Some(opened)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(None),
    }
}

/// Sends a signal to a process. One that exited is fine.
pub(crate) fn send(process: impl AsFd, signal: Signal) -> io::Result<()> {
    match pidfd_send_signal(process, signal) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        sent => Ok(sent?),
    }
}

#[cfg(test)]
mod tests;
