//! The probe from beginning to end.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use crate::args::ProbeArgs;
use crate::driver::{Cuda, CudaError};
use crate::output;
use crate::paths::{self, Finding, Place, Verdict, WAYS, Way};
use crate::seen::{self, Gpu, Seen};
use crate::timing::{self, Cost};

/// Where a container that is held by Octavo's guard finds the driver's own libraries.
const REAL: &str = "/run/octavo/real";

/// What the probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every wall that was tried holds.
    Holds,
    /// Some way leads past the limit, or nobody stopped what went round it.
    Leaks,
}

/// Everything that the probe found out.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    api_version: &'static str,
    kind: &'static str,
    /// What is seen.
    pub(crate) seen: Seen,
    /// What became of each way, a list for each GPU.
    pub(crate) gpus: Vec<Tried>,
}

/// What was tried on a GPU.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tried {
    /// Number of the GPU.
    pub(crate) gpu: i32,
    /// Memory that the process may have, in bytes: what the driver reports as total.
    pub(crate) limit_bytes: u64,
    /// Whether that is a share of the GPU.
    pub(crate) is_share: bool,
    /// What became of each way.
    pub(crate) findings: Vec<Finding>,
    /// What calls cost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) costs: Vec<Cost>,
}

/// Probes and writes the report.
pub fn run(args: &ProbeArgs, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    if args.list {
        output::list(out)?;
        return Ok(Outcome::Holds);
    }
    let ways = chosen(&args.paths)?;
    let cuda = Cuda::open("libcuda.so.1")?;
    cuda.init(0).context(
        "the driver does not start: is a GPU in this container, and are the limits of its share whole?",
    )?;
    let seen = seen::look(&cuda)?;
    let gpus: Vec<&Gpu> = seen
        .gpus
        .iter()
        .filter(|gpu| args.gpu.is_none_or(|number| i64::from(number) == i64::from(gpu.number)))
        .collect();
    ensure!(!gpus.is_empty(), "there is no such GPU: this process sees {}", seen.gpus.len());
    let mut tried = Vec::new();
    for gpu in &gpus {
        tried.push(probe(&cuda, gpu, &seen, &ways, !args.no_timing)?);
    }
    let leaks =
        tried.iter().flat_map(|tried| &tried.findings).any(|f| f.verdict == Verdict::Passes);
    let wanted = gpus.iter().map(|gpu| (gpu.number, gpu.total_bytes)).collect::<Vec<_>>();
    let report =
        Report { api_version: "cli.octavo.dev/v1alpha1", kind: "Probe", seen, gpus: tried };
    output::write(&report, args.output, out)?;
    if args.hold > 0 {
        hold(&cuda, &wanted, Duration::from_secs(args.hold.into()))?;
    }
    if let Some(seconds) = args.go_round {
        go_round(&wanted, Duration::from_secs(seconds.into()), out)?;
        return Ok(Outcome::Leaks);
    }
    Ok(if leaks { Outcome::Leaks } else { Outcome::Holds })
}

/// The ways of some names; the usual ones if there are none.
fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Way>> {
    if names.is_empty() {
        return Ok(WAYS.iter().filter(|way| paths::is_usual(way)).collect());
    }
    let find = |name: &String| {
        let way = WAYS.iter().find(|way| way.name == name);
        way.with_context(|| format!("there is no path {name:?}: `octavo probe --list` names all"))
    };
    names.iter().map(find).collect()
}

/// Tries all ways on a GPU.
fn probe(
    cuda: &Cuda,
    gpu: &Gpu,
    seen: &Seen,
    ways: &[&'static Way],
    has_timing: bool,
) -> anyhow::Result<Tried> {
    let place = enter(cuda, gpu.number)?;
    let is_share = seen.shares.iter().any(|share| share.gpu == gpu.uuid);
    let limit = gpu.total_bytes;
    let findings = ways.iter().map(|way| {
        let finding = paths::try_way(way, &place, limit, is_share);
        // A way may have left another context current.
        cuda.context_set(place.context).map(|()| finding)
    });
    let findings = findings.collect::<Result<Vec<_>, _>>()?;
    let costs = if has_timing { timing::measure(&place)? } else { Vec::new() };
    cuda.primary_release(place.device)?;
    Ok(Tried { gpu: gpu.number, limit_bytes: limit, is_share, findings, costs })
}

/// Makes a GPU's context current.
fn enter(cuda: &Cuda, number: i32) -> Result<Place<'_>, CudaError> {
    let mut device = 0;
    cuda.device_get(&mut device, number)?;
    let mut context = null_mut();
    cuda.primary_retain(&mut context, device)?;
    cuda.context_set(context)?;
    Ok(Place { cuda, device, context })
}

/// Takes what is granted on some GPUs and keeps it for a while.
fn hold(cuda: &Cuda, gpus: &[(i32, u64)], time: Duration) -> anyhow::Result<()> {
    for (number, limit) in gpus {
        enter(cuda, *number)?;
        take(cuda, *limit);
    }
    thread::sleep(time);
    Ok(())
}

/// Takes up to an amount in pieces, as much as is granted; the process's end gives it back. Says how much.
fn take(cuda: &Cuda, most: u64) -> u64 {
    const PIECE: usize = 64 << 20;
    let mut taken = 0;
    let mut pointer = 0;
    while taken < most && cuda.allocate(&mut pointer, PIECE).is_ok() {
        taken += PIECE as u64;
    }
    taken
}

/// Opens a copy of the driver's own library and takes half as much again as each limit. In the library itself,
/// which is open already, the guard is where its functions were.
fn go_round(gpus: &[(i32, u64)], time: Duration, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut library = fs::File::open(real_library(Path::new(REAL))?)?;
    // SAFETY: the name ends with a zero; the descriptor is new, or negative.
    let copy = unsafe { libc::memfd_create(c"libcuda".as_ptr(), libc::MFD_CLOEXEC) };
    ensure!(copy >= 0, "no memory for a copy of the driver's library");
    // SAFETY: it is open and nobody else's.
    let mut copy = unsafe { fs::File::from_raw_fd(copy) };
    io::copy(&mut library, &mut copy).context("copying the driver's library")?;
    let cuda = Cuda::open(&format!("/proc/self/fd/{}", copy.as_raw_fd()))?;
    cuda.init(0)?;
    for (number, limit) in gpus {
        enter(&cuda, *number)?;
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
fn real_library(folder: &Path) -> anyhow::Result<PathBuf> {
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
