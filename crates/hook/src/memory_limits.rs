//! Sets the driver's memory limit of a container's cgroup to the sum of its shares.
//!
//! The limit is set through NVML. The node's agent has it open, and this program must not need it. So the hook asks the
//! agent over a socket that only root can use: one line of JSON each way.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use super::oci::{Container, values};

/// The agent's socket, below the run folder that a node's programs share.
pub const SOCKET: &str = "octavo/hook.sock";

/// Longest line in bytes, of either side.
pub const MAX_LINE_BYTES: u64 = 16 << 10;

/// Time in which the agent must answer. The driver may need seconds.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Time in which an agent must listen, and the interval of attempts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 15 });
const CONNECT_INTERVAL: Duration = Duration::from_millis(200);

/// What the hook asks of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitRequest {
    /// UUID of the GPU.
    pub gpu: String,
    /// Path of the container's cgroup in the hierarchy of version 2, absolute and without `..`.
    pub cgroup: PathBuf,
    /// Memory that the cgroup's processes may have on the GPU, in bytes.
    pub memory_bytes: u64,
}

/// What the agent answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitResponse {
    /// Why the limit is not set; absent: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Arguments of `octavo cdi-hook memory-limits`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// UUID of the GPU.
    #[arg(long, value_name = "UUID")]
    gpu: String,
    /// Memory of the share, in bytes.
    #[arg(long, value_name = "BYTES")]
    memory_bytes: u64,
    /// Socket of the node's agent.
    #[arg(long, value_name = "FILE")]
    socket: PathBuf,
    /// The proc file system.
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc_root: PathBuf,
}

/// Whether a path names a cgroup below the root, and nothing else.
pub fn is_own_cgroup(path: &Path) -> bool {
    let is_plain = path.components().all(|part| part != Component::ParentDir);
    path.is_absolute() && is_plain && path != Path::new("/")
}

/// Sets the limit. A container with several shares of the GPU gets their sum. Each hook sets the same sum, so repeated
/// runs are harmless.
pub(super) fn set(container: &Container, args: &Args) -> anyhow::Result<()> {
    let request = LimitRequest {
        gpu: args.gpu.clone(),
        cgroup: cgroup(container, args)?,
        memory_bytes: memory_bytes(container, args)?,
    };
    let response = ask(&args.socket, &request).with_context(|| {
        format!(
            "asking the node's agent on {} for the memory limit: is it running?",
            args.socket.display()
        )
    })?;
    if let Some(error) = response.error {
        let (gpu, bytes, cgroup) = (request.gpu, request.memory_bytes, request.cgroup.display());
        bail!("limiting GPU {gpu} to {bytes} bytes for cgroup {cgroup}: {error}");
    }
    Ok(())
}

fn ask(socket: &Path, request: &LimitRequest) -> anyhow::Result<LimitResponse> {
    let mut stream = connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_LINE_BYTES)).read_line(&mut answer)?;
    serde_json::from_str(&answer).context("its answer is no line of JSON")
}

/// Connects to the agent, which may just be replaced by its successor.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let until = Instant::now() + CONNECT_TIMEOUT;
    loop {
        match UnixStream::connect(socket) {
            Err(_) if Instant::now() < until => thread::sleep(CONNECT_INTERVAL),
            result => return result,
        }
    }
}

/// The container's memory on the GPU, in bytes.
fn memory_bytes(container: &Container, args: &Args) -> anyhow::Result<u64> {
    let mut sum: u64 = 0;
    for hook in container.octavo_hooks("memory-limits") {
        if values(hook, "--gpu").next() != Some(&args.gpu) {
            continue;
        }
        let bytes = values(hook, "--memory-bytes").next().unwrap_or_default();
        let bytes: u64 = bytes.parse().with_context(|| {
            format!("a hook of the container gives {bytes:?} as bytes of memory")
        })?;
        sum = sum.saturating_add(bytes);
    }
    // If the runtime does not list hooks in the config, only this hook's share is known.
    Ok(sum.max(args.memory_bytes))
}

/// The container's own cgroup.
fn cgroup(container: &Container, args: &Args) -> anyhow::Result<PathBuf> {
    let pid = container.pid.context("the container's state has no process id")?;
    let file = args.proc_root.join(pid.to_string()).join("cgroup");
    let text = fs::read_to_string(&file)
        .with_context(|| format!("reading the cgroups of the container's process {pid}"))?;
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else {
        bail!("process {pid} is in no cgroup of version 2: set `memoryEnforcement` to `guard`");
    };
    let path = PathBuf::from(path);
    let shown = path.display();
    ensure!(is_own_cgroup(&path), "cgroup {shown} of process {pid} is not the container's own");
    Ok(path)
}

#[cfg(test)]
mod tests;
