//! Resource use of a process, from /proc.

use std::time::Duration;

use anyhow::Context;

/// Memory of a process, in MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Resident, shared and file-backed pages included.
    pub(crate) resident: f64,
    /// Resident anonymous pages: heap and stacks.
    pub(crate) anonymous: f64,
}

/// Memory of process `pid` now.
pub(crate) fn memory(pid: u32) -> anyhow::Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let mib = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"))
            .and_then(|kib| kib.trim().parse::<f64>().ok())
            .map(|kib| kib / 1024.0)
            .with_context(|| format!("{path} has no {name}"))
    };
    Ok(Memory { resident: mib("VmRSS:")?, anonymous: mib("RssAnon:")? })
}

/// Peak resident memory of process `pid`, in MiB.
pub(crate) fn peak_memory(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB"));
    let kib = line.and_then(|kib| kib.trim().parse::<f64>().ok());
    Ok(kib.with_context(|| format!("{path} has no VmHWM"))? / 1024.0)
}

/// Processor time that process `pid` has used so far.
pub(crate) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    // The command name, in parentheses, may hold spaces: count the fields after it.
    let (_, fields) = stat.rsplit_once(')').with_context(|| format!("{path} is malformed"))?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap_or(0))
        .sum();
    // USER_HZ is 100 in the kernel's interface on every architecture that Octavo runs on.
    Ok(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        let memory = memory(std::process::id()).unwrap();
        assert!(memory.resident > memory.anonymous && memory.anonymous > 0.0);
        assert!(peak_memory(std::process::id()).unwrap() >= memory.anonymous);
    }
}
