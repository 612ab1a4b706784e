//! The command against the simulated driver: a process is swapped out and in again.
//!
//! One test is that process: the test binary, started again with it selected. Without a machine it does nothing.

#![allow(
    clippy::unwrap_used,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "tests call C functions with pointers to their own locals and may fail loudly"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use std::{env, fs};

use octavo_gpu::Driver as _;
use octavo_gpu::nvml::Nvml;
use octavo_machine::{CheckpointState, GpuState, Machine, State};
use octavo_process_checkpoint::{Action, CheckpointError, ProcessCheckpointArgs, run};
use octavo_testkit::{simulated_cuda, simulated_nvml};
use tempfile::TempDir;

/// Environment variable with the folder of the driver's libraries.
const LIBRARIES: &str = "OCTAVO_TEST_LIBRARIES";

type Init = unsafe extern "C" fn(u32) -> u32;
type Create = unsafe extern "C" fn(*mut usize, u32, i32) -> u32;
type Allocate = unsafe extern "C" fn(*mut u64, usize) -> u32;
type Upload = unsafe extern "C" fn(u64, *const u8, usize) -> u32;
type Download = unsafe extern "C" fn(*mut u8, u64, usize) -> u32;

/// What the process writes to the GPU.
const PATTERN: [u8; 4096] = [0xa5; 4096];

/// A driver's root with a machine of T4s.
struct Node {
    root: TempDir,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let node = Self { root };
        let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/t4.yaml");
        let machine = Machine::read(&machines).unwrap();
        fs::create_dir_all(node.libraries()).unwrap();
        let put = |from: PathBuf, name| fs::copy(from, node.libraries().join(name)).unwrap();
        put(simulated_cuda(), "libcuda.so.1");
        put(simulated_nvml(), "libnvidia-ml.so.1");
        fs::write(node.libraries().join("machine.yaml"), machine.to_yaml().unwrap()).unwrap();
        node
    }

    fn libraries(&self) -> PathBuf {
        self.root.path().join("usr/lib64")
    }

    fn becomes(&self, state: &State) {
        state.write(&self.libraries().join("state.json")).unwrap();
    }

    /// Carries an action out. Returns the report, or the exit code's reason with the message.
    fn act(
        &self,
        action: Action,
        pid: u32,
    ) -> Result<serde_json::Value, (CheckpointError, String)> {
        let args = ProcessCheckpointArgs {
            action,
            pid: pid.try_into().unwrap(),
            timeout: Duration::from_millis(50),
            driver_root: self.root.path().to_owned(),
        };
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        match run(&args, &mut out, &mut errors) {
            Ok(ExitCode::SUCCESS) => Ok(serde_json::from_slice(&out).unwrap()),
            Ok(code) => {
                let of = |error: &u8| ExitCode::from(*error) == code;
                let code = (0..=u8::MAX).find(of).unwrap();
                let reason = CheckpointError::from_exit_code(Some(code.into()));
                Err((reason, String::from_utf8(errors).unwrap()))
            }
            Err(error) => Err((CheckpointError::Failed, error.to_string())),
        }
    }

    fn state(&self, pid: u32) -> String {
        let report = self.act(Action::State, pid).unwrap();
        report["state"].as_str().unwrap().to_owned()
    }

    /// Pids of the processes on the first GPU, as NVML lists them.
    fn pids(&self) -> Vec<u32> {
        let library = self.libraries().join("libnvidia-ml.so.1");
        let nvml = Nvml::open(&library, Path::new("/sys")).unwrap();
        let gpu = nvml.gpus().unwrap().remove(0).unwrap();
        let processes = nvml.processes(&gpu.uuid).unwrap();
        processes.into_iter().map(|process| process.pid).collect()
    }
}

/// A process with a pattern on the GPU.
struct Worker(Child);

impl Worker {
    fn start(node: &Node) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "a_worker", "--nocapture", "--test-threads=1"])
            .env(LIBRARIES, node.libraries())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut worker = Self(child.unwrap());
        let lines = BufReader::new(worker.0.stdout.as_mut().unwrap()).lines();
        let is_ready = |line: std::io::Result<String>| line.unwrap().ends_with("ready");
        assert!(lines.into_iter().any(is_ready), "the worker ended early");
        worker
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Lets it read its pattern, and end.
    fn finish(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_worker() {
    let Some(libraries) = env::var_os(LIBRARIES) else { return };
    let path = PathBuf::from(libraries).join("libcuda.so.1");
    let cuda = unsafe { libloading::Library::new(path) }.unwrap();
    let (mut context, mut address, mut read) = (0, 0, [0; PATTERN.len()]);
    unsafe {
        assert_eq!(cuda.get::<Init>(b"cuInit\0").unwrap()(0), 0);
        let create = cuda.get::<Create>(b"cuCtxCreate_v2\0").unwrap();
        assert_eq!(create(&raw mut context, 0, 0), 0);
        let allocate = cuda.get::<Allocate>(b"cuMemAlloc_v2\0").unwrap();
        assert_eq!(allocate(&raw mut address, 10 << 30), 0);
        let upload = cuda.get::<Upload>(b"cuMemcpyHtoD_v2\0").unwrap();
        assert_eq!(upload(address, PATTERN.as_ptr(), PATTERN.len()), 0);
    }
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    unsafe {
        let download = cuda.get::<Download>(b"cuMemcpyDtoH_v2\0").unwrap();
        assert_eq!(download(read.as_mut_ptr(), address, PATTERN.len()), 0);
    }
    assert_eq!(read, PATTERN);
}

#[test]
fn two_processes_take_turns_on_a_gpu_that_has_room_for_one() {
    let node = Node::new();
    let first = Worker::start(&node);
    assert_eq!((node.state(first.pid()), node.pids()), ("running".into(), vec![first.pid()]));
    let report = node.act(Action::Out, first.pid()).unwrap();
    assert_eq!((&report["pid"], &report["state"]), (&first.pid().into(), &"checkpointed".into()));
    assert!(
        report["milliseconds"]["lock"].is_f64() && report["milliseconds"]["checkpoint"].is_f64()
    );
    assert!(node.pids().is_empty());
    let report = node.act(Action::Out, first.pid()).unwrap();
    assert_eq!(report["milliseconds"], serde_json::json!({}), "again, which does nothing");

    let second = Worker::start(&node);
    assert_eq!(node.pids(), [second.pid()]);
    let (reason, message) = node.act(Action::In, first.pid()).unwrap_err();
    assert_eq!(reason, CheckpointError::NoMemory, "{message}");
    assert_eq!(node.state(first.pid()), "checkpointed");
    node.act(Action::Out, second.pid()).unwrap();
    node.act(Action::In, first.pid()).unwrap();
    assert_eq!(node.act(Action::In, first.pid()).unwrap()["state"], "running");
    assert_eq!(node.pids(), [first.pid()]);
    first.finish();
    node.act(Action::In, second.pid()).unwrap();
    second.finish();
}

#[test]
fn each_reason_of_a_failure_has_its_exit_code() {
    let node = Node::new();
    let worker = Worker::start(&node);
    let reason = |state: State, action, pid| {
        node.becomes(&state);
        let (reason, message) = node.act(action, pid).unwrap_err();
        node.becomes(&State::default());
        assert!(message.len() > 20, "{message}");
        reason
    };
    let fails = |call: &str, code| State {
        failing_calls: [(call.to_owned(), code)].into(),
        ..State::default()
    };
    let pid = worker.pid();
    let own = std::process::id();
    let missing = ["cuCheckpointProcessLock".to_owned()].into();
    let older = State { missing_functions: missing, ..State::default() };
    assert_eq!(reason(older, Action::State, pid), CheckpointError::NoSupport);
    let refused = fails("cuCheckpointProcessGetState", 801);
    assert_eq!(reason(refused, Action::Out, pid), CheckpointError::NoSupport);
    let hangs = CheckpointState { lock_hangs: true, ..CheckpointState::default() };
    let hangs = State { checkpoints: hangs, ..State::default() };
    assert_eq!(reason(hangs, Action::Out, pid), CheckpointError::LockTimedOut);
    assert_eq!(node.state(pid), "running");
    let refused = fails("cuCheckpointProcessCheckpoint", 801);
    assert_eq!(reason(refused, Action::Out, pid), CheckpointError::Refused);
    assert_eq!(node.state(pid), "running", "it is unlocked again");
    assert_eq!(reason(State::default(), Action::Out, u32::MAX >> 1), CheckpointError::NoProcess);
    let refused = fails("cuInit", 999);
    assert_eq!(reason(refused, Action::State, own), CheckpointError::Failed);
    let forbidden = fails("cuCheckpointProcessGetState", 800);
    assert_eq!(reason(forbidden, Action::State, pid), CheckpointError::Failed);
    let lost = GpuState { lost: true, ..GpuState::default() };
    node.becomes(&State { gpus: [(0, lost)].into(), ..State::default() });
    assert_eq!(node.act(Action::State, pid).unwrap()["state"], "running");
    node.becomes(&State::default());
    worker.finish();
}

#[test]
fn a_process_that_broke_half_way_is_lost() {
    let node = Node::new();
    let worker = Worker::start(&node);
    let breaks = CheckpointState { restore_breaks: true, ..CheckpointState::default() };
    node.becomes(&State { checkpoints: breaks, ..State::default() });
    node.act(Action::Out, worker.pid()).unwrap();
    for _ in 0..2 {
        let (reason, message) = node.act(Action::In, worker.pid()).unwrap_err();
        assert_eq!(reason, CheckpointError::Failed, "{message}");
    }
    assert_eq!(node.state(worker.pid()), "failed");
}
