//! The probe from beginning to end.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::fs::MemfdFlags;
use serde::Serialize;

use crate::args::ProbeArgs;
use crate::driver::{Cuda, CudaError};
use crate::environment::{self, Environment, Gpu};
use crate::output;
use crate::paths::{self, ALLOCATION_PATHS, AllocationPath, Finding, GpuContext, Verdict};
use crate::timing::{self, Cost};

/// Where a container that is held by Octavo's guard finds the driver's own libraries.
const DRIVER_FOLDER: &str = "/run/octavo/real";

/// What the probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// Every wall that was report_of_gpu holds.
    Holds,
    /// Some path leads past the limit, or nobody stopped what went round it.
    Leaks,
}

/// Everything that the probe found out.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    api_version: &'static str,
    kind: &'static str,
    /// What is seen.
    #[serde(rename = "seen")]
    pub(crate) environment: Environment,
    /// What became of each path, a list for each GPU.
    pub(crate) gpus: Vec<GpuReport>,
}

/// What was report_of_gpu on a GPU.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GpuReport {
    /// Number of the GPU.
    pub(crate) gpu: i32,
    /// Memory that the process may have, in bytes: what the driver reports as total.
    pub(crate) limit_bytes: u64,
    /// Whether that is a share of the GPU.
    pub(crate) is_share: bool,
    /// What became of each path.
    pub(crate) findings: Vec<Finding>,
    /// What calls cost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) costs: Vec<Cost>,
}

/// Probes and writes the report.
pub fn run(args: &ProbeArgs, out: &mut dyn Write) -> anyhow::Result<ProbeResult> {
    if args.list {
        output::list(out)?;
        return Ok(ProbeResult::Holds);
    }
    let paths_to_try = select_paths(&args.paths)?;
    let cuda = Cuda::open("libcuda.so.1")?;
    cuda.init(0).context(
        "the driver does not start: is a GPU in this container, and are the limits of its share whole?",
    )?;
    let environment = environment::read(&cuda)?;
    let gpus: Vec<&Gpu> = environment
        .gpus
        .iter()
        .filter(|gpu| args.gpu.is_none_or(|number| i64::from(number) == i64::from(gpu.number)))
        .collect();
    ensure!(!gpus.is_empty(), "there is no such GPU: this process sees {}", environment.gpus.len());
    let mut reports = Vec::new();
    for gpu in &gpus {
        reports.push(probe(&cuda, gpu, &environment, &paths_to_try, !args.no_timing)?);
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
        bypass(&wanted, Duration::from_secs(seconds.into()), out)?;
        return Ok(ProbeResult::Leaks);
    }
    Ok(if leaks { ProbeResult::Leaks } else { ProbeResult::Holds })
}

/// The paths_to_try of some names; the usual ones if there are none.
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

/// Tries all paths_to_try on a GPU.
fn probe(
    cuda: &Cuda,
    gpu: &Gpu,
    environment: &Environment,
    paths_to_try: &[&'static AllocationPath],
    has_timing: bool,
) -> anyhow::Result<GpuReport> {
    let context = make_current(cuda, gpu.number)?;
    let is_share = environment.shares.iter().any(|share| share.gpu == gpu.uuid);
    let limit = gpu.total_bytes;
    let findings = paths_to_try.iter().map(|path| {
        let finding = paths::try_path(path, &context, limit, is_share);
        // A path may have left another context current.
        cuda.context_set(context.context).map(|()| finding)
    });
    let findings = findings.collect::<Result<Vec<_>, _>>()?;
    let costs = if has_timing { timing::measure(&context)? } else { Vec::new() };
    cuda.primary_release(context.device)?;
    Ok(GpuReport { gpu: gpu.number, limit_bytes: limit, is_share, findings, costs })
}

/// Makes a GPU's context current.
fn make_current(cuda: &Cuda, number: i32) -> Result<GpuContext<'_>, CudaError> {
    let mut device = 0;
    cuda.device_get(&mut device, number)?;
    let mut context = null_mut();
    cuda.primary_retain(&mut context, device)?;
    cuda.context_set(context)?;
    Ok(GpuContext { cuda, device, context })
}

/// Takes what is granted on some GPUs and keeps it for a while.
fn hold(cuda: &Cuda, gpus: &[(i32, u64)], time: Duration) -> anyhow::Result<()> {
    for (number, limit) in gpus {
        make_current(cuda, *number)?;
        take(cuda, *limit);
    }
    thread::sleep(time);
    Ok(())
}

/// Takes up to an amount in pieces, as much as is granted; the process's end gives it back. Says how much.
fn take(cuda: &Cuda, most: u64) -> u64 {
    const MIN_PIECE_BYTES: usize = 64 << 20;
    let mut taken = 0;
    let mut pointer = 0;
    while taken < most && cuda.allocate(&mut pointer, MIN_PIECE_BYTES).is_ok() {
        taken += MIN_PIECE_BYTES as u64;
    }
    taken
}

/// Opens a copy of the driver's own library and takes half as much again as each limit. In the library itself,
/// which is open already, the guard is where its functions were.
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
        writeln!(out, "gone round the wall on GPU {number}: {taken} bytes of {limit}")?;
    }
    out.flush()?;
    let begun = Instant::now();
    while begun.elapsed() < time {
        thread::sleep(Duration::from_millis(50));
    }
    writeln!(out, "nobody has stopped it in {} s", time.as_secs())?;
    Ok(())
}

/// The driver's own CUDA library in a container of a share.
fn driver_library(folder: &Path) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| {
        format!("{} cannot be read: no guard holds this container", folder.display())
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
