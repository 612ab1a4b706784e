//! How the time of a GPU is divided among shares whose processes all want it, with leases and by the driver.
//!
//! Each case runs in a mount namespace of its own with a simulated driver. Every process is `octavo probe --busy` in a share of
//! `octavo share run`, or without a share for the driver's own division.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use octavo_figure::{Figure, Goal};
use serde::Deserialize;

use crate::lab_dir::print_progress;
use crate::memory_enforcement::Programs;

/// Turns of each case.
const TURNS: usize = 5;

/// Seconds for which processes are busy. The first and the last do not count.
const SECONDS: u64 = 6;

/// Duration of a kernel in nanoseconds.
const KERNEL_NANOS: u64 = 200_000;

/// Largest mean error of a share, in points.
const MAX_ERROR: f64 = 2.0;

/// Loss of time against processes alone, in percent.
const MAX_LOSS: f64 = 3.0;

const MACHINE: &str = include_str!("../../../../machines/hgx-h200.yaml");

/// Makes the files of a container with the simulated driver. `$1` has the libraries, `$2` the machine.
const ENTER: &str = r#"
mount --make-rprivate /
mount -t tmpfs octavo /run
library=/run/node/driver/usr/lib64
mkdir -p /run/octavo-simulator /run/octavo "$library" /run/node/sys /run/dev
cp "$1/liboctavo_fake_cuda.so" "$library/libcuda.so.1"
cp "$1/liboctavo_fake_nvml.so" "$library/libnvidia-ml.so.1"
cp "$2" "$library/machine.yaml"
mount --bind "$library" /run/octavo-simulator
mount -t tmpfs octavo /run/dev
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/fd /dev/std* /run/dev/
for device in nvidiactl nvidia-modeset nvidia-uvm nvidia-uvm-tools nvidia0; do : > "/run/dev/$device"; done
mkdir /run/dev/shm /run/dev/pts
mount --bind /dev/shm /run/dev/shm
mount --rbind /run/dev /dev
export LD_LIBRARY_PATH=$library
"#;

/// Shares with their percentages, and the number of processes of each.
type Case = &'static [(u32, u32)];

/// Parts of the time in thousandths, by turn.
const CASES: [(&str, Case); 5] = [
    ("30/70", &[(300, 1), (700, 1)]),
    ("50/25/25", &[(500, 1), (250, 1), (250, 1)]),
    ("10/90", &[(100, 1), (900, 1)]),
    ("3 processes and 1, 50/50", &[(500, 3), (500, 1)]),
    ("8 times 12.5", &[(125, 1); 8]),
];

/// The report of `octavo probe --busy`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Busy {
    kernels_by_second: BTreeMap<u64, u64>,
}

/// A run of a case.
struct Division {
    /// Kernels of each share.
    kernels: Vec<u64>,
    /// Seconds that count.
    seconds: u64,
}

/// Runs all cases in turn.
pub(super) fn run(octavo: &Path, programs: &Programs) -> anyhow::Result<Vec<Figure>> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the division of time needs mounts: run it as root"
    );
    let folder = tempfile::tempdir().context("make a folder")?;
    let machine = folder.path().join("machine.yaml");
    fs::write(&machine, one_gpu())?;
    let bed = Bed { octavo, programs, machine: &machine, folder: folder.path() };
    let mut errors = vec![(Vec::new(), Vec::new()); CASES.len()];
    let mut losses = Vec::new();
    for turn in 0..TURNS {
        print_progress(&format!("turn {} of {TURNS}", turn + 1));
        // Processes of one share change places on the GPU, too, which costs it time of its own. So its time is what it gets done, in
        // relation to what as many processes get done alone.
        let mut alone = BTreeMap::new();
        for processes in CASES.iter().flat_map(|(_, case)| *case).map(|(_, processes)| *processes) {
            if let Entry::Vacant(rate_alone) = alone.entry(processes) {
                rate_alone.insert(rate(&bed.run(&[(1000, processes)], true)?));
            }
        }
        for step in 0..CASES.len() {
            let index = (turn + step) % CASES.len();
            let (Some((_, case)), Some((leases, driver))) =
                (CASES.get(index), errors.get_mut(index))
            else {
                continue;
            };
            let times = times(case, &bed.run(case, true)?, &alone);
            leases.push(error(case, &times));
            losses.push(100.0 * (1.0 - times.iter().sum::<f64>()));
            driver.push(error(case, &self::times(case, &bed.run(case, false)?, &alone)));
        }
    }
    let mut figures = Vec::new();
    for ((name, _), (leases, driver)) in CASES.iter().zip(&errors) {
        let what = |of: &str| format!("error of a share, mean, {name}, {of}");
        figures.push(Figure::new(what("leases"), "points", leases, Goal::Below(MAX_ERROR))?);
        figures.push(Figure::new(what("simulated driver alone"), "points", driver, Goal::None)?);
    }
    let what = "time lost against processes alone, all cases";
    figures.push(Figure::new(what, "%", &losses, Goal::Below(MAX_LOSS))?);
    Ok(figures)
}

/// The machine with its first GPU alone. Its UUID does not depend on the folder.
fn one_gpu() -> String {
    let mut text = String::new();
    for line in MACHINE.lines() {
        if line.starts_with("  - minor:") && line != "  - minor: 0" {
            break;
        }
        text.push_str(line);
        text.push('\n');
        if line == "  - minor: 0" {
            text.push_str("    uuid: GPU-0c7a0000-0000-4000-8000-000000000000\n");
        }
    }
    text + &format!(
        "simulation: {{clock: wall, contextMib: 16, shortestKernelNanos: {KERNEL_NANOS}, \
         longestKernelNanos: {KERNEL_NANOS}}}\n"
    )
}

/// What all runs need.
struct Bed<'a> {
    octavo: &'a Path,
    programs: &'a Programs,
    machine: &'a PathBuf,
    folder: &'a Path,
}

impl Bed<'_> {
    fn run(&self, case: &[(u32, u32)], has_leases: bool) -> anyhow::Result<Division> {
        let mut script = format!("set -e{ENTER}");
        let octavo = self.octavo.display();
        for (share, (part, processes)) in case.iter().enumerate() {
            for process in 0..*processes {
                let probe = format!("{octavo} probe --busy {SECONDS}");
                let file = self.folder.join(format!("{share}-{process}")).display().to_string();
                let percent = f64::from(*part) / 10.0;
                let run = format!(
                    "{octavo} share run --memory 4Gi --name s{share} --compute {percent} \
                     --driver-root /run/node/driver --sys-root /run/node/sys -- {probe}"
                );
                let command = if has_leases { run } else { probe };
                writeln!(script, "{command} > {file} & pids=\"$pids $!\"")?;
            }
        }
        script.push_str("for pid in $pids; do wait $pid; done\n");
        let libraries = self.programs.folder();
        let status = Command::new("unshare")
            .args(["--mount", "bash", "-c", &script, "bash"])
            .args([libraries, self.machine.as_path()])
            .status()
            .context("run `unshare` of util-linux")?;
        ensure!(status.success(), "a busy process failed: its errors are above");
        let read = |share: usize, process: u32| -> anyhow::Result<Busy> {
            let text = fs::read(self.folder.join(format!("{share}-{process}")))?;
            serde_json::from_slice(&text).context("read the report of a busy process")
        };
        let mut reports = Vec::new();
        for (share, (_, processes)) in case.iter().enumerate() {
            let own = (0..*processes).map(|process| read(share, process));
            reports.push(own.collect::<anyhow::Result<Vec<_>>>()?);
        }
        division(&reports)
    }
}

/// Kernels of each share in the seconds in which all processes ran.
fn division(reports: &[Vec<Busy>]) -> anyhow::Result<Division> {
    let all = || reports.iter().flatten();
    let first = all().filter_map(|busy| busy.kernels_by_second.keys().min()).max();
    let last = all().filter_map(|busy| busy.kernels_by_second.keys().max()).min();
    let (first, last) = first.zip(last).context("a process was never busy")?;
    ensure!(*last > first + 1, "the processes ran at different times");
    let within = |busy: &Busy| -> u64 {
        busy.kernels_by_second.range(first + 1..*last).map(|(_, kernels)| kernels).sum()
    };
    let kernels = reports.iter().map(|own| own.iter().map(within).sum()).collect();
    Ok(Division { kernels, seconds: last - first - 1 })
}

/// Part of the time that each share had: its kernels in a second, of those that as many processes have alone.
#[expect(clippy::cast_precision_loss, reason = "a run has far less than 2^52 kernels")]
fn times(case: &[(u32, u32)], division: &Division, alone: &BTreeMap<u32, f64>) -> Vec<f64> {
    let seconds = division.seconds.max(1) as f64;
    let time = |((_, processes), kernels): (&(u32, u32), &u64)| {
        *kernels as f64 / seconds / alone.get(processes).copied().unwrap_or(f64::NAN)
    };
    case.iter().zip(&division.kernels).map(time).collect()
}

/// Mean error of the shares' parts of the time that was used, in points.
#[expect(clippy::cast_precision_loss, reason = "a case has few shares")]
fn error(case: &[(u32, u32)], times: &[f64]) -> f64 {
    let all = times.iter().sum::<f64>();
    let errors = case
        .iter()
        .zip(times)
        .map(|((part, _), time)| (100.0 * time / all - f64::from(*part) / 10.0).abs());
    errors.sum::<f64>() / case.len() as f64
}

/// Kernels in a second.
#[expect(clippy::cast_precision_loss, reason = "a run has far less than 2^52 kernels")]
fn rate(division: &Division) -> f64 {
    division.kernels.iter().sum::<u64>() as f64 / division.seconds.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(seconds: &[(u64, u64)]) -> Busy {
        Busy { kernels_by_second: seconds.iter().copied().collect() }
    }

    #[test]
    fn only_seconds_count_in_which_all_processes_ran() {
        let reports = [
            vec![busy(&[(10, 500), (11, 30), (12, 30), (13, 30)])],
            vec![busy(&[(11, 5), (12, 70), (13, 70), (14, 900)])],
        ];
        let division = division(&reports).unwrap();
        assert_eq!((&division.kernels[..], division.seconds), (&[30, 70][..], 1));
        let error = |case: &[(u32, u32)], alone| error(case, &times(case, &division, &alone));
        assert!(error(&[(300, 1), (700, 1)], [(1, 100.0)].into()).abs() < 1e-9);
        assert!((error(&[(500, 1), (500, 1)], [(1, 100.0)].into()) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn a_share_pays_for_the_changes_between_its_own_processes() {
        let division = Division { kernels: vec![45, 50], seconds: 1 };
        let case = [(500, 3), (500, 1)];
        let times = times(&case, &division, &[(1, 100.0), (3, 90.0)].into());
        assert!(error(&case, &times).abs() < 1e-9);
        assert!((times.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn processes_at_different_times_are_no_division() {
        let reports = [vec![busy(&[(1, 5), (2, 5)])], vec![busy(&[(5, 5), (6, 5)])]];
        assert!(division(&reports).is_err());
    }
}
