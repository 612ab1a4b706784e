//! The process that tests: a thread for each GPU, then their peers.

use std::cell::Cell;
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use octavo_gpu::nvml::{LIBRARY_NAME, find_cuda_library, find_library};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::args::VerifyArgs;
use super::facts::Links;
use super::gpu::{Stop, TestGpu};
use super::progress::{Line, Progress};
use super::report::{Check, CheckName, Numbers, TestedGpu, Verdict};
use super::{compute, facts, memory, peers};
use crate::driver::Cuda;
use crate::environment::{self, Gpu};

/// The driver's library of CUDA.
const CUDA_LIBRARY: &str = "libcuda.so.1";
/// Libraries that it opens to compile kernels.
const LIBRARIES_OF_CUDA: [&str; 2] = ["libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4"];
/// Pause between two signs of life.
const BEAT_PAUSE: Duration = Duration::from_secs(1);

/// Tests in this process, which ends with its supervisor.
pub(super) fn run(args: &VerifyArgs) {
    let mut out = io::stdout();
    // Without it the process would still end by its own deadlines.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let tested = open(args.driver_root.as_deref()).and_then(|cuda| test(&cuda, args, &mut out));
    if let Err(error) = tested {
        Progress::new(&mut out).write(&Line::NotTried(format!("{error:#}")));
    }
}

/// Opens the driver: that of a root, or the one that the dynamic linker finds.
fn open(driver_root: Option<&Path>) -> anyhow::Result<Cuda> {
    let Some(root) = driver_root else { return Ok(Cuda::open(CUDA_LIBRARY)?) };
    let library = find_cuda_library(root)?;
    // The driver opens these by name. The linker knows no folder of a driver elsewhere, and a search path would have it take the
    // C library there, too. What is loaded is found by its name. A driver that lacks one may do without.
    for name in LIBRARIES_OF_CUDA {
        let _ = Cuda::keep_loaded(&library.with_file_name(name));
    }
    Ok(Cuda::open(&library.to_string_lossy())?)
}

/// Tests the chosen GPUs. Fails if none can be tried.
pub(super) fn test(
    cuda: &Cuda,
    args: &VerifyArgs,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    cuda.init(0).context(
        "the driver cannot be initialised: check that this container has a GPU, and the driver's log (dmesg)",
    )?;
    let seen = environment::read(cuda)?.gpus;
    let gpus = choose(&seen, &args.gpus)?;
    let progress = Progress::new(out);
    progress.write(&Line::Gpus(gpus.clone()));
    let links = match (args.of_agent, seen.len()) {
        (true, _) => Links::Unasked,
        (false, 1) => Links::AllOrNone,
        (false, _) => Links::All,
    };
    // One that cannot be found is named by the check of facts.
    let nvml = args.driver_root.as_deref().and_then(|root| find_library(root).ok());
    let nvml = nvml.unwrap_or_else(|| LIBRARY_NAME.into());
    let plan = Plan { cuda, args, progress: &progress, nvml: &nvml, links };
    let usable: Vec<TestedGpu> = thread::scope(|scope| {
        let threads: Vec<_> =
            gpus.iter().map(|gpu| (gpu, scope.spawn(|| plan.test(gpu)))).collect();
        let is_usable = |(gpu, thread): (&TestedGpu, thread::ScopedJoinHandle<'_, bool>)| {
            thread.join().unwrap_or(false).then(|| gpu.clone())
        };
        threads.into_iter().filter_map(is_usable).collect()
    });
    let pairs = if usable.len() > 1 { &usable[..] } else { &[] };
    for gpu in gpus.iter().filter(|gpu| !pairs.contains(gpu)) {
        let why = if gpus.len() == 1 {
            "one GPU is tested"
        } else {
            "it takes two GPUs that can be used"
        };
        plan.leave_out(gpu.gpu, &[CheckName::Peers], why);
    }
    plan.test_peers(pairs);
    progress.write(&Line::Done);
    Ok(())
}

/// The GPUs that are named, by number or UUID; all if none is.
fn choose(seen: &[Gpu], names: &[String]) -> anyhow::Result<Vec<TestedGpu>> {
    let tested =
        |gpu: &Gpu| TestedGpu { gpu: gpu.number, uuid: gpu.uuid.clone(), name: gpu.name.clone() };
    ensure!(!seen.is_empty(), "this process sees no GPU");
    if names.is_empty() {
        return Ok(seen.iter().map(tested).collect());
    }
    let mut chosen: Vec<TestedGpu> = Vec::new();
    for name in names {
        let is_named = |gpu: &&Gpu| gpu.uuid == *name || gpu.number.to_string() == *name;
        let Some(gpu) = seen.iter().find(is_named) else {
            bail!(
                "there is no GPU {name}: this process sees {}, as `octavo probe --seen` lists them",
                seen.len()
            );
        };
        if chosen.iter().all(|other| other.gpu != gpu.number) {
            chosen.push(tested(gpu));
        }
    }
    Ok(chosen)
}

/// What all threads know.
struct Plan<'a> {
    cuda: &'a Cuda,
    args: &'a VerifyArgs,
    progress: &'a Progress<'a>,
    /// The driver's management library.
    nvml: &'a Path,
    /// Which links of NVLink are to be active.
    links: Links,
}

impl Plan<'_> {
    /// Checks one GPU by itself. Returns whether it can be used further.
    fn test(&self, gpu: &TestedGpu) -> bool {
        let number = gpu.gpu;
        self.begin(number, CheckName::Facts);
        let facts = facts::check(self.nvml, &gpu.uuid, self.links);
        let is_well = facts.verdict != Verdict::Failed;
        self.end(number, facts);
        if !is_well {
            let why = "the facts that the driver reports have failed";
            self.leave_out(number, &[CheckName::Memory, CheckName::Compute], why);
        }
        is_well && self.work(gpu)
    }

    /// Checks memory and computing. Returns whether the GPU can be used further.
    fn work(&self, tested: &TestedGpu) -> bool {
        let number = tested.gpu;
        let last_beat = Cell::new(Instant::now());
        let beat = || self.beat(&[number], &last_beat);
        self.begin(number, CheckName::Memory);
        let gpu = match TestGpu::open(self.cuda, number, self.args.deadline(), &beat) {
            Ok(gpu) => gpu,
            Err(error) => {
                self.end(number, Stop::from(error).check(CheckName::Memory, None));
                self.leave_out(number, &[CheckName::Compute], "the GPU cannot be used");
                return false;
            }
        };
        let time = Duration::from_secs(self.args.seconds.into()) / 2;
        let (numbers, result) = memory::check(&gpu, self.args.memory.into(), time);
        let found = (numbers.mismatches > 0).then(|| {
            format!("{} words of memory are not as they were written", numbers.mismatches)
        });
        let goes_on = result.is_ok();
        self.end(number, judge(CheckName::Memory, Numbers::Memory(numbers), found, result));
        if !goes_on {
            self.leave_out(number, &[CheckName::Compute], "the check of memory ended early");
            return false;
        }
        self.begin(number, CheckName::Compute);
        let (numbers, result) = compute::check(&gpu, time);
        let (used, all) = (numbers.used_multiprocessors, numbers.multiprocessors);
        let found = if numbers.wrong_elements > 0 {
            Some(format!("{} elements of products are wrong", numbers.wrong_elements))
        } else {
            (result.is_ok() && used < all)
                .then(|| format!("of {all} multiprocessors {used} have computed"))
        };
        let goes_on = result.is_ok();
        // The load may have brought a fault to light that the driver has mended or noted.
        let mut facts = facts::check(self.nvml, &tested.uuid, self.links);
        if facts.verdict == Verdict::Failed {
            facts.message = facts.message.map(|message| format!("after the load: {message}"));
            self.end(number, facts);
        }
        let check = judge(CheckName::Compute, Numbers::Compute(numbers), found, result);
        self.end(number, check);
        goes_on && gpu.close().is_ok()
    }

    /// Checks each pair of the GPUs that have shown that they can be used.
    fn test_peers(&self, gpus: &[TestedGpu]) {
        for gpu in gpus {
            self.begin(gpu.gpu, CheckName::Peers);
        }
        let numbers: Vec<i32> = gpus.iter().map(|gpu| gpu.gpu).collect();
        let last_beat = Cell::new(Instant::now());
        // All wait for the pair that is tested.
        let beat = || self.beat(&numbers, &last_beat);
        let open = |number: &i32| TestGpu::open(self.cuda, *number, self.args.deadline(), &beat);
        let opened = match numbers.iter().map(open).collect::<Result<Vec<_>, _>>() {
            Ok(opened) => opened,
            // Alone each of them could be used.
            Err(error) => {
                let why = format!("{error}: the GPUs cannot be used together");
                return numbers
                    .iter()
                    .for_each(|gpu| self.leave_out(*gpu, &[CheckName::Peers], &why));
            }
        };
        for (gpu, check) in numbers.iter().zip(peers::check(gpus, &opened)) {
            self.end(*gpu, check);
        }
        for gpu in &opened {
            // The end of the process releases it otherwise.
            let _ = gpu.close();
        }
    }

    fn begin(&self, gpu: i32, check: CheckName) {
        self.progress.write(&Line::Begin(gpu, check));
    }

    fn end(&self, gpu: i32, check: Check) {
        self.progress.write(&Line::End(gpu, check));
    }

    fn leave_out(&self, gpu: i32, checks: &[CheckName], why: &str) {
        for check in checks {
            self.end(gpu, Check::not_tried(*check, why));
        }
    }

    fn beat(&self, gpus: &[i32], last: &Cell<Instant>) {
        if last.get().elapsed() > BEAT_PAUSE {
            last.set(Instant::now());
            for gpu in gpus {
                self.progress.write(&Line::Beat(*gpu));
            }
        }
    }
}

/// The outcome of a check: `found` is a fault that it has found before it ended.
fn judge(
    check: CheckName,
    numbers: Numbers,
    found: Option<String>,
    result: Result<(), Stop>,
) -> Check {
    match (found, result) {
        (Some(found), _) => Check::failed(check, found, Some(numbers)),
        (None, Err(stop)) => stop.check(check, Some(numbers)),
        (None, Ok(())) => Check::passed(check, Some(numbers)),
    }
}
