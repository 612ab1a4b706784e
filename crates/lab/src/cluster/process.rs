//! Processes that outlive the command that started them and are stopped by another command.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions};
use tokio::time::Instant;

use crate::cluster::async_fd;

/// Environment variable with the state folder, set on every process of a lab. It identifies
/// processes without a pid file.
pub(crate) const STATE_DIR_VARIABLE: &str = "OCTAVO_LAB_OF";

/// Would direct clients of the lab, which is on loopback, to a proxy.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Interval between two checks of the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Longest time for a killed process to end: a busy machine frees its memory slowly.
const KILL_TIMEOUT: Duration = Duration::from_mins(1);

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
}

/// One process. The start time distinguishes it from a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    start: u64,
}

impl Process {
    /// The process with this id; `None` if there is none, or only a zombie without threads.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        parse_stat(&stat).map(|start| Self { pid, start })
    }

    /// Reads a pid file; `None` if it is missing or incomplete.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

    /// Parses the output of [`Process::to_text`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (pid, start) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, start: start.parse().ok()? })
    }

    /// Process id and start time, as in pid files.
    pub(crate) fn to_text(self) -> String {
        format!("{} {}", self.pid, self.start)
    }

    fn write(self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.to_text() + "\n")
    }

    /// Whether exactly this process runs.
    pub fn is_alive(self) -> bool {
        if Self::of(self.pid) == Some(self) {
            return true;
        }
        // Reap it if it was a child of this process.
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
        false
    }

    /// Waits until exactly this process has ended.
    pub(crate) async fn ended(self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        // Open the handle before the check: a handle never refers to another process.
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok();
        let handle = handle.map(async_fd::register);
        if self.is_alive()
            && let Some(Ok(handle)) = handle
        {
            // After an error the loop below waits.
            let _ = handle.readable().await;
        }
        while self.is_alive() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends a signal to exactly this process, or to none.
    pub(crate) fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        // Open the handle before the check: a handle never refers to another process.
        let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
        if Self::of(self.pid) == Some(self) {
            let _ = rustix::process::pidfd_send_signal(&handle, signal);
        }
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kibibytes * 1024)
    }
}

/// Starts a program of the lab in `state`. It gets its own process group, so Ctrl-C in the terminal
/// does not reach it. It has no input, its output is appended to `log`, and `pid_file` records its
/// identity.
pub(crate) fn spawn(
    command: &CommandLine,
    state: &Path,
    log: &Path,
    pid_file: &Path,
) -> anyhow::Result<Process> {
    let log_file = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("open the log {}", log.display()))?;
    let errors = log_file.try_clone().context("share a log between two streams")?;
    let mut program = std::process::Command::new(&command.program);
    for proxy in PROXY_VARIABLES {
        program.env_remove(proxy);
    }
    let child = program
        .args(&command.args)
        .env_remove("KUBECONFIG")
        .envs(&command.env)
        .env(STATE_DIR_VARIABLE, state)
        .stdin(Stdio::null())
        .stdout(log_file)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {}", command.program.display()))?;
    let pid = i32::try_from(child.id()).context("a process id fits 31 bits")?;
    // An ended process has no start time; later liveness checks detect that.
    let process = Process::of(pid).unwrap_or(Process { pid, start: 0 });
    process.write(pid_file).with_context(|| format!("write {}", pid_file.display()))?;
    Ok(process)
}

/// Raises the limit of open files to the maximum, for this process and its future children.
/// Hundreds of nodes in one process have thousands of sockets.
pub(crate) fn allow_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    // If this fails, the program that needs more files will report it.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}

/// Stops processes: SIGTERM, up to `grace`, then SIGKILL. Waits for their end.
pub(crate) async fn stop(processes: &[Process], grace: Duration) {
    for process in processes {
        process.signal(Signal::TERM);
    }
    if !wait_until_gone(processes, grace).await {
        for process in processes {
            process.signal(Signal::KILL);
        }
        wait_until_gone(processes, KILL_TIMEOUT).await;
    }
}

/// Waits until no process is alive. Returns whether that happened in time.
pub(crate) async fn wait_until_gone(processes: &[Process], timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        if !processes.iter().any(|process| process.is_alive()) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// All processes of this user in the lab in `state`, with or without a pid file.
pub(crate) fn processes_of_lab(state: &Path) -> Vec<Process> {
    let is_own = |process: &Process| u32::try_from(process.pid) == Ok(std::process::id());
    let of_lab =
        processes_of_all_labs().into_iter().filter(|(of, process)| of == state && !is_own(process));
    let mut found: Vec<Process> = of_lab.map(|(_, process)| process).collect();
    found.sort_unstable();
    found
}

/// All processes of this user in any lab, with the lab's state folder.
pub(crate) fn processes_of_all_labs() -> Vec<(PathBuf, Process)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| {
            // Not readable if the process belongs to another user or has ended.
            let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let state = environ.split(|byte| *byte == 0).find_map(|line| {
                line.strip_prefix(STATE_DIR_VARIABLE.as_bytes())?.strip_prefix(b"=")
            })?;
            Some((PathBuf::from(OsStr::from_bytes(state)), Process::of(pid)?))
        })
        .collect()
}

/// The start time in a line of `/proc/PID/stat`; `None` for a zombie.
///
/// A killed process may be a zombie while its other threads still end. They keep its files and
/// sockets open, so it is alive until the last of them has ended.
fn parse_stat(stat: &str) -> Option<u64> {
    // The name in parentheses may contain spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    let has_ended = matches!(state, "X" | "x") || (state == "Z" && threads <= 1);
    (!has_ended).then_some(start)
}

#[cfg(test)]
mod tests;
