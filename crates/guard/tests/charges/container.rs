//! A container with one share, and processes in it.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use octavo_guard_abi::limits::{self, Terms};
use octavo_guard_abi::{state, uuid};
use octavo_machine::{Machine, State};

use crate::cuda::{CONTEXT, Cuda, MIB};

/// Environment variable with the container of a process.
const INSIDE: &str = "OCTAVO_TEST_CONTAINER";

/// Environment variable with the GPUs that a process sees.
pub(crate) const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

const GENERATION: u64 = 3;

/// Runs the calling test in a container with a share of the given bytes: in a separate process,
/// whose driver this returns. The process that was asked to run the test waits and returns. The GPU
/// has 80 GiB, or the second number of bytes. The share has flags of the limits file; with `PAGES` its processes see one GPU.
#[macro_export]
macro_rules! inside {
    ($limit:expr) => {
        $crate::inside!($limit, 80 * $crate::cuda::GIB)
    };
    ($limit:expr, $chip:expr) => {
        $crate::inside!($limit, $chip, octavo_guard_abi::limits::STRICT)
    };
    ($limit:expr, $chip:expr, $flags:expr) => {{
        fn here() {}
        match $crate::container::inside(std::any::type_name_of_val(&here), ($limit, $chip), $flags)
        {
            Some(cuda) => cuda,
            None => return,
        }
    }};
}

/// The driver of a process that another test has started in its container. Otherwise the calling
/// test does nothing.
#[macro_export]
macro_rules! role {
    () => {
        match $crate::container::role() {
            Some(cuda) => cuda,
            None => return,
        }
    };
}

/// See the macro.
pub(crate) fn role() -> Option<Cuda> {
    env::var_os(INSIDE).map(|folder| Cuda::ready(Path::new(&folder)))
}

/// See the macro.
pub(crate) fn inside(place: &str, (limit, chip): (u64, u64), flags: u32) -> Option<Cuda> {
    if let Some(folder) = env::var_os(INSIDE) {
        return Some(Cuda::ready(Path::new(&folder)));
    }
    let test = place.strip_prefix("charges::").and_then(|place| place.strip_suffix("::here"));
    let container = made_with(limit, chip, flags);
    let mut command = program(container.path(), test.expect("a test"));
    if flags & limits::PAGES != 0 {
        command.env(VISIBLE, "0");
    }
    let output = command.output().expect("started");
    let ready_line = [output.stdout, output.stderr]
        .map(|ready_line| String::from_utf8_lossy(&ready_line).into_owned());
    assert!(output.status.success(), "{}", ready_line.concat());
    assert!(ready_line[0].contains("1 passed"), "the test is there: {}", ready_line.concat());
    None
}

/// The command that runs a test of this program in a container.
fn program(folder: &Path, test: &str) -> Command {
    let mut command = guarded(&env::current_exe().expect("this program"), folder);
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, folder);
    command
}

/// The command that runs a program in a container, with the guard preloaded.
pub(crate) fn guarded(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    let guard = env::var_os("LD_PRELOAD").unwrap_or_else(|| guard().into());
    command.current_dir(folder).env("LD_PRELOAD", guard);
    command
}

/// A container with a share of the given bytes, of a GPU of so many.
pub(crate) fn made(limit: u64, chip: u64) -> tempfile::TempDir {
    made_with(limit, chip, limits::STRICT)
}

/// As above, with flags of the limits file.
pub(crate) fn made_with(limit: u64, chip: u64, flags: u32) -> tempfile::TempDir {
    let container = tempfile::tempdir().expect("a folder");
    let driver = container.path().join("driver");
    fs::create_dir(&driver).expect("a folder");
    fs::copy(built("liboctavo_fake_cuda.so"), driver.join("libcuda.so.1")).expect("copied");
    fs::copy(built("liboctavo_fake_nvml.so"), driver.join("libnvidia-ml.so.1")).expect("copied");
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut machine = Machine::read(&machines.join("dgx-h100.yaml")).expect("a machine");
    machine.instantiate("charges");
    // Of several nodes, so that its memory can have fabric handles.
    if let Some(fabric) = &mut machine.fabric {
        "6f1c2a7e-94d3-4b58-8e0b-3d5a71c9f246".clone_into(&mut fabric.cluster_uuid);
    }
    machine.model.memory_mib = chip / MIB + machine.model.reserved_mib;
    fs::write(driver.join("machine.yaml"), machine.to_yaml().expect("text")).expect("written");

    let share = container.path().join("octavo/shares/one");
    fs::create_dir_all(&share).expect("a folder");
    let gpu = machine.gpus[0].uuid.as_deref().and_then(uuid::parse).expect("a UUID");
    let terms = Terms {
        generation: GENERATION,
        gpu,
        memory_bytes: limit,
        context_bytes: CONTEXT,
        compute_milli_percent: 0,
        flags,
    };
    fs::write(share.join("limits"), terms.file()).expect("written");
    let mut state = vec![0; state::SIZE];
    let header = state::header(GENERATION);
    state[..header.len()].copy_from_slice(&header);
    fs::write(share.join("state"), state).expect("written");
    container
}

/// Bytes charged to the share.
pub(crate) fn counted(folder: &Path) -> u64 {
    let file = fs::read(folder.join("octavo/shares/one/state")).expect("state");
    state::slots(&file, GENERATION).expect("a state file").map(|slot| slot.used_bytes).sum()
}

/// Number of refusals of this process.
pub(crate) fn refused(folder: &Path) -> u64 {
    let file = fs::read(folder.join("octavo/shares/one/state")).expect("state");
    let mut slots = state::slots(&file, GENERATION).expect("a state file");
    slots.find(|slot| slot.pid == u64::from(std::process::id())).expect("a slot").refused
}

/// Sets the state of the driver.
pub(crate) fn becomes(folder: &Path, state: &State) {
    state.write(&folder.join("driver/state.json")).expect("written");
}

/// Another process of this container, which runs a test of this program that begins with `role!`.
#[derive(Debug)]
pub(crate) struct Other {
    child: Child,
    input: Option<ChildStdin>,
    /// Its further output, which is not read.
    _lines: Lines<BufReader<ChildStdout>>,
    /// Its output with `ready`.
    pub(crate) ready_line: String,
}

impl Other {
    /// Starts it and waits for its line with `ready`.
    pub(crate) fn start(cuda: &Cuda, test: &str, arguments: &[(&str, String)]) -> Self {
        let mut command = program(&cuda.folder, test);
        Self::new(command.envs(arguments.iter().map(|(name, value)| (name, value))))
    }

    /// Starts it from outside of the container, with the first GPU alone.
    pub(crate) fn outside(folder: &Path, test: &str) -> Self {
        Self::new(program(folder, test).env(VISIBLE, "0"))
    }

    /// Starts one without a guard.
    pub(crate) fn bare(cuda: &Cuda, test: &str) -> Self {
        Self::new(program(&cuda.folder, test).env_remove("LD_PRELOAD"))
    }

    fn new(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        let input = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().expect("an output")).lines();
        let ready_line = lines.by_ref().map_while(Result::ok).find_map(|line| {
            line.split_once("ready ").map(|(_, ready_line)| ready_line.to_owned())
        });
        Self { child, input, _lines: lines, ready_line: ready_line.expect("it gets ready") }
    }

    /// Sends SIGKILL and waits for its end.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Lets it continue.
    pub(crate) fn go(&mut self) {
        drop(self.input.take());
    }

    /// Waits for its end, and fails if it failed.
    pub(crate) fn end(mut self) {
        let status = self.child.wait().expect("ended");
        assert!(status.success(), "{status}");
    }

    /// Its pid.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// In the other process: reports that it is ready, and waits until it may continue.
#[allow(clippy::print_stdout, reason = "it is how the processes of a test speak")]
pub(crate) fn ready(ready_line: &str) {
    println!("ready {ready_line}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The guard, with paths for tests.
fn guard() -> &'static Path {
    static GUARD: OnceLock<PathBuf> = OnceLock::new();
    GUARD.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guard");
        let mut cargo = Command::new(env::var_os("CARGO").expect("tests are run by cargo"));
        cargo
            .args(["rustc", "--quiet", "--package", "octavo-guard", "--profile", "guard"])
            .args(["--crate-type", "cdylib", "--features", "preload,test-paths"])
            .args(["--offline", "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR"] {
            cargo.env_remove(variable);
        }
        assert!(cargo.status().expect("cargo runs").success(), "the guard is built");
        target.join("guard/liboctavo_guard.so")
    })
}

/// A library of this workspace, as built by cargo for this test.
fn built(name: &str) -> PathBuf {
    let test = env::current_exe().expect("this program");
    let deps = test.parent().expect("a folder");
    let beside = [deps.join(name), deps.parent().expect("a folder").join(name)];
    let newest = beside
        .iter()
        .filter(|path| path.exists())
        .max_by_key(|path| fs::metadata(path).and_then(|about| about.modified()).expect("a file"));
    newest.expect("cargo builds the library before its tests").clone()
}
