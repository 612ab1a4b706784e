//! Users of a GPU: processes of the simulated GPU, with the pids by which this process would find
//! them.
//!
//! A process records its pid in its own namespace, and its pid namespace. `/proc` gives the pid of
//! the same process in this namespace; a process that is invisible here has none.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use octavo_fake_gpu::{Clock, FakeGpu, Process};
use octavo_machine::{Machine, SimulationClock};

/// Usage of a GPU, once a process uses it.
#[derive(Default)]
pub(crate) struct GpuUsage {
    gpu: Option<FakeGpu>,
    /// Last reported samples, by pid; `None` is the GPU itself.
    last_samples: BTreeMap<Option<u32>, Sample>,
}

/// A reported sample.
#[derive(Clone, Copy)]
struct Sample {
    taken: Instant,
    /// Time of the GPU's clock.
    now: u64,
    /// Time used by then.
    used: u64,
    percent: u32,
}

/// How long a sample of utilisation is valid; hardware samples no more often.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// A process with contexts on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Pid in this process's namespace.
    pub(crate) pid: u32,
    /// Memory in bytes.
    pub(crate) used: u64,
    /// GPU time that it received, in nanoseconds.
    served: u64,
    is_busy: bool,
}

impl GpuUsage {
    /// Opens the GPU with that minor number, if any process has used it.
    pub(crate) fn open(
        &mut self,
        folder: &Path,
        minor: u32,
        machine: &Machine,
    ) -> Option<&FakeGpu> {
        if self.gpu.is_none() {
            let clock = match machine.simulation.clock {
                SimulationClock::Virtual => Clock::Virtual,
                SimulationClock::WallClock => Clock::Host,
            };
            self.gpu = FakeGpu::existing(folder, minor, clock).ok();
        }
        self.gpu.as_ref()
    }

    /// Memory of processes in bytes.
    pub(crate) fn used(&self) -> u64 {
        self.gpu.as_ref().map_or(0, FakeGpu::used)
    }

    /// Whether no process has a context on the GPU, seen from here or not.
    pub(crate) fn is_free(&self) -> bool {
        self.gpu.as_ref().is_none_or(|gpu| gpu.processes().is_empty())
    }

    /// Processes that use the GPU, in order of their pids.
    pub(crate) fn users(&self) -> Vec<User> {
        let Some(gpu) = &self.gpu else { return Vec::new() };
        let processes = gpu.processes();
        if processes.is_empty() {
            return Vec::new();
        }
        let host_pids = host_pids();
        let user = |process: &Process| {
            let Process { used, served, is_busy, .. } = *process;
            let pid = *host_pids.get(&(process.namespace, process.pid))?;
            Some(User { pid, used, served, is_busy })
        };
        let mut users: Vec<User> = processes.iter().filter_map(user).collect();
        users.sort_by_key(|user| user.pid);
        users
    }

    /// Percent of the time with work since the last query.
    pub(crate) fn percent(&mut self) -> u32 {
        let Some(gpu) = &self.gpu else { return 0 };
        let (now, used, is_busy) = (gpu.now(), gpu.busy(), gpu.is_busy());
        self.busy_percent(None, now, used, is_busy)
    }

    /// Processes with the percent of time of each since the last query.
    pub(crate) fn shares(&mut self) -> Vec<(User, u32)> {
        let users = self.users();
        let Some(now) = self.gpu.as_ref().map(FakeGpu::now) else { return Vec::new() };
        self.last_samples
            .retain(|pid, _| pid.is_none_or(|pid| users.iter().any(|user| user.pid == pid)));
        let busy_percent =
            |user: User| (user, self.busy_percent(Some(user.pid), now, user.served, user.is_busy));
        users.into_iter().map(busy_percent).collect()
    }

    fn busy_percent(&mut self, of: Option<u32>, now: u64, used: u64, is_busy: bool) -> u32 {
        let taken = Instant::now();
        let before = self.last_samples.get(&of).copied();
        let percent = match before {
            Some(before) if taken.duration_since(before.taken) < SAMPLE_INTERVAL => {
                return before.percent;
            }
            Some(before) if now > before.now => {
                let part = used.saturating_sub(before.used).saturating_mul(100);
                u32::try_from(part / (now - before.now)).unwrap_or(100).min(100)
            }
            // No time has passed on the GPU: either no process waits, or there is no work.
            _ => {
                if is_busy {
                    100
                } else {
                    0
                }
            }
        };
        self.last_samples.insert(of, Sample { taken, now, used, percent });
        percent
    }
}

/// Pids by namespace and pid in it.
fn host_pids() -> BTreeMap<(u64, u32), u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let id = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let pid: u32 = path.file_name()?.to_str()?.parse().ok()?;
        let namespace = fs::metadata(path.join("ns/pid")).ok()?.ino();
        let status = fs::read_to_string(path.join("status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let own = numbers.split_ascii_whitespace().next_back()?.parse().ok()?;
        Some(((namespace, own), pid))
    };
    entries.filter_map(id).collect()
}

#[cfg(test)]
mod tests;
