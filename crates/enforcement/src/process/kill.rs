//! Kills processes, safely against pid reuse.

use std::io;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::process::Process;
use crate::process::proc::Proc;

/// Sends SIGKILL to a process. A process that exited already is fine. The pidfd refers to one process permanently, so a
/// check of the pid after opening it applies to that process.
pub(crate) fn kill(proc: &Proc, process: Process) -> io::Result<()> {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let opened = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        opened => opened?,
    };
    match proc.stat(process.pid) {
        Ok(stat) if stat.start_time == process.start_time => {}
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => return Ok(()),
    }
    match pidfd_send_signal(&opened, Signal::KILL) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        sent => Ok(sent?),
    }
}

#[cfg(test)]
mod tests;
