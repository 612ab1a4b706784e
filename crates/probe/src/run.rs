//! A run of the probe.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::fs::MemfdFlags;
use serde::Serialize;

use crate::args::{ProbeArgs, ProbeCommand};
use crate::busy;
use crate::driver::{Cuda, CudaError};
use crate::environment::{self, Environment, Gpu};
use crate::fabric;
use crate::keep;
use crate::output;
use crate::paths::{self, ALLOCATION_PATHS, AllocationPath, Finding, GpuContext, Verdict};
use crate::round_trip;
use crate::timing::{self, Cost};
use crate::verify;

/// Folder of the driver's own libraries in a container with Octavo's guard.
const DRIVER_FOLDER: &str = "/run/octavo/real";

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// All is as it should be: every path that was tried stays within the limit, or every GPU passed its test.
    Holds,
    /// Some path exceeds the limit, or a bypass was not stopped.
    Leaks,
    /// A test has found a fault of a GPU.
    Faulty,
    /// A test could not be tried.
    NotTried,
}

impl ProbeResult {
    /// The exit code of a program with this result.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Holds => 0,
            Self::Leaks | Self::Faulty => 1,
            Self::NotTried => 3,
        }
    }
}

/// The report.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    api_version: &'static str,
    kind: &'static str,
    /// The environment of the process.
    #[serde(rename = "seen")]
    pub(crate) environment: Environment,
    /// Results per GPU.
    pub(crate) gpus: Vec<GpuReport>,
}

/// Results on one GPU.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GpuReport {
    /// Number of the GPU.
    pub(crate) gpu: i32,
    /// Memory that the process may have, in bytes: the total that the driver reports.
    pub(crate) limit_bytes: u64,
    /// Whether that is a share of the GPU.
    pub(crate) is_share: bool,
    /// Results of the paths.
    pub(crate) findings: Vec<Finding>,
    /// Cost of calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) costs: Vec<Cost>,
}

/// Runs the probe and writes the report.
pub fn run(args: &ProbeArgs, out: &mut dyn Write) -> anyhow::Result<ProbeResult> {
    if let Some(ProbeCommand::Verify(args)) = &args.command {
        return Ok(verify::run(args, out));
    }
    if args.list {
        output::list(out)?;
        return Ok(ProbeResult::Holds);
    }
    if args.fabric {
        fabric::run(Duration::from_secs(args.hold.into()), out)?;
        return Ok(ProbeResult::Holds);
    }
    if let (Some(seconds), false) = (args.bypass, args.limits.is_empty()) {
        bypass(&args.limits, Duration::from_secs(seconds.into()), out)?;
        return Ok(ProbeResult::Leaks);
    }
    let paths_to_try = select_paths(&args.paths)?;
    let cuda = Cuda::open("libcuda.so.1")?;
    cuda.init(0).context(
        "the driver cannot be initialised: check that this container has a GPU and that the limits of its share are intact",
    )?;
    let environment = environment::read(&cuda)?;
    let gpus: Vec<&Gpu> = environment
        .gpus
        .iter()
        .filter(|gpu| args.gpu.is_none_or(|number| i64::from(number) == i64::from(gpu.number)))
        .collect();
    ensure!(
        !gpus.is_empty(),
        "there is no such GPU: this process sees {} of them, numbered from 0",
        environment.gpus.len()
    );
    if args.round_trip {
        round_trip::run(&cuda, &gpus, out)?;
        return Ok(ProbeResult::Holds);
    }
    if let Some(seconds) = args.busy {
        busy::run(&cuda, &gpus, Duration::from_secs(seconds.into()), out)?;
        return Ok(ProbeResult::Holds);
    }
    if let Some(mebibytes) = args.keep {
        let interval = Duration::from_secs(args.check_interval.into());
        keep::run(&cuda, &gpus, mebibytes << 20, interval, args.checks, out)?;
        return Ok(ProbeResult::Holds);
    }
    let mut reports = Vec::new();
    let tried: &[&Gpu] = if args.seen { &[] } else { &gpus };
    for gpu in tried {
        reports.push(probe(&cuda, gpu, &environment, &paths_to_try, args)?);
    }
    let leaks =
        reports.iter().flat_map(|report| &report.findings).any(|f| f.verdict == Verdict::Passes);
    let wanted = gpus.iter().map(|gpu| (gpu.number, gpu.total_bytes)).collect::<Vec<_>>();
    let report = Report {
        api_version: "cli.octavo.dev/v1alpha1",
        kind: "Probe",
        environment,
        gpus: reports,
    };
    output::write(&report, args.output, out)?;
    if args.hold > 0 {
        hold(&cuda, &wanted, Duration::from_secs(args.hold.into()))?;
    }
    if let Some(seconds) = args.bypass {
        out.flush()?;
        return Err(run_bypass(&wanted, seconds));
    }
    Ok(if leaks { ProbeResult::Leaks } else { ProbeResult::Holds })
}

/// The paths with these names; the default ones without names.
fn select_paths(names: &[String]) -> anyhow::Result<Vec<&'static AllocationPath>> {
    if names.is_empty() {
        return Ok(ALLOCATION_PATHS.iter().filter(|path| paths::is_default(path)).collect());
    }
    let find = |name: &String| {
        let path = ALLOCATION_PATHS.iter().find(|path| path.name == name);
        path.with_context(|| format!("there is no path {name:?}: `octavo probe --list` names all"))
    };
    names.iter().map(find).collect()
}

/// Tries all paths on a GPU.
fn probe(
    cuda: &Cuda,
    gpu: &Gpu,
    environment: &Environment,
    paths_to_try: &[&'static AllocationPath],
    args: &ProbeArgs,
) -> anyhow::Result<GpuReport> {
    let context = make_current(cuda, gpu.number)?;
    let is_share = environment.shares.iter().any(|share| share.gpu == gpu.uuid);
    let limit = gpu.total_bytes;
    let is_named = !args.paths.is_empty();
    let tried = paths_to_try.iter().filter(|path| is_named || paths::is_possible(path, &context));
    let findings = tried.map(|path| {
        let finding = paths::try_path(path, &context, limit, is_share);
        // The path may have made another context current.
        cuda.context_set(context.context).map(|()| finding)
    });
    let findings = findings.collect::<Result<Vec<_>, _>>()?;
    let costs = if args.no_timing { Vec::new() } else { timing::measure(&context)? };
    cuda.primary_release(context.device)?;
    Ok(GpuReport { gpu: gpu.number, limit_bytes: limit, is_share, findings, costs })
}

/// Makes a GPU's context current.
pub(crate) fn make_current(cuda: &Cuda, number: i32) -> Result<GpuContext<'_>, CudaError> {
    let mut device = 0;
    cuda.device_get(&mut device, number)?;
    let mut context = null_mut();
    cuda.primary_retain(&mut context, device)?;
    cuda.context_set(context)?;
    Ok(GpuContext { cuda, device, context })
}

/// Allocates as much as possible on some GPUs and holds it for a while.
fn hold(cuda: &Cuda, gpus: &[(i32, u64)], time: Duration) -> anyhow::Result<()> {
    for (number, limit) in gpus {
        make_current(cuda, *number)?;
        take(cuda, *limit);
    }
    thread::sleep(time);
    Ok(())
}

/// Allocates up to `most` bytes in pieces. The end of the process frees them. Returns the bytes.
fn take(cuda: &Cuda, most: u64) -> u64 {
    const MIN_PIECE_BYTES: usize = 64 << 20;
    let mut taken = 0;
    let mut pointer = 0;
    while taken < most && cuda.allocate(&mut pointer, MIN_PIECE_BYTES).is_ok() {
        taken += MIN_PIECE_BYTES as u64;
    }
    taken
}

/// Opens a copy of the driver's own library and allocates half as much again as each limit. The
/// library itself is open already, and its functions are hooked.
fn bypass(gpus: &[(i32, u64)], time: Duration, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut library = fs::File::open(driver_library(Path::new(DRIVER_FOLDER))?)?;
    let copy = rustix::fs::memfd_create("libcuda", MemfdFlags::CLOEXEC)
        .context("no memory for a copy of the driver's library")?;
    let mut copy = fs::File::from(copy);
    io::copy(&mut library, &mut copy).context("copying the driver's library")?;
    let cuda = Cuda::open(&format!("/proc/self/fd/{}", copy.as_raw_fd()))?;
    cuda.init(0)?;
    for (number, limit) in gpus {
        make_current(&cuda, *number)?;
        let taken = take(&cuda, limit + limit / 2);
        writeln!(out, "bypassed the guard on GPU {number}: {taken} bytes, limit {limit}")?;
    }
    out.flush()?;
    let begun = Instant::now();
    while begun.elapsed() < time {
        thread::sleep(Duration::from_millis(50));
    }
    writeln!(out, "not stopped within {} s", time.as_secs())?;
    Ok(())
}

/// Replaces this process by one that bypasses the guard; it keeps its number. The driver refuses a second copy of its library in
/// a process with `OPERATING_SYSTEM` (580.159.04). Returns why that failed.
fn run_bypass(gpus: &[(i32, u64)], seconds: u32) -> anyhow::Error {
    let mut command = Command::new("/proc/self/exe");
    command.arg("probe").arg(format!("--bypass={seconds}"));
    command.args(gpus.iter().map(|(number, limit)| format!("--limits={number}={limit}")));
    anyhow::Error::new(command.exec()).context("start this program again to bypass the guard")
}

/// The driver's own CUDA library in a container with a share.
fn driver_library(folder: &Path) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| {
        format!("{} cannot be read: this container has no guard to bypass", folder.display())
    })?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let Some(name) = names.iter().find(|name| name.to_string_lossy().starts_with("libcuda.so"))
    else {
        bail!("there is no libcuda.so in {}", folder.display());
    };
    Ok(folder.join(name))
}

#[cfg(test)]
mod tests;
