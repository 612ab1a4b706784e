//! Several processes, and NVML's report about them.
//!
//! Some tests are the other processes: the test binary, started again with one of them selected.
//! Without a machine they do nothing.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use nvml_wrapper_sys::bindings::{NvmlLib, nvmlMemory_v2_t, nvmlProcessInfo_t};
use octavo_fake_gpu::contexts::{SLICE, SWITCH};

use crate::call;
use crate::node::{CONTEXT, Cuda, GIB, INVALID_VALUE, MIB, NOT_READY, Node, OUT_OF_MEMORY, built};

/// Environment variable with the machine of another process.
const FOLDER: &str = "OCTAVO_TEST_MACHINE";

/// Another process, which prints `ready` and lives until its input ends.
pub(crate) struct Other {
    child: Child,
}

impl Other {
    /// Its pid.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    fn start(node: &Node, role: &str) -> Self {
        Self::start_by(Command::new(env::current_exe().unwrap()), node, role)
    }

    /// A process that is the test of this path.
    pub(crate) fn start_as(node: &Node, path: &str) -> Self {
        Self::start_test(Command::new(env::current_exe().unwrap()), node, path)
    }

    /// Kills it, without a chance to clean up.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_by(command: Command, node: &Node, role: &str) -> Self {
        Self::start_test(command, node, &format!("processes::{role}"))
    }

    /// A process that is the test of this path, by a command that runs this binary.
    pub(crate) fn start_test(mut command: Command, node: &Node, path: &str) -> Self {
        let child = command
            .args(["--exact", path, "--nocapture", "--test-threads=1"])
            .env(FOLDER, node.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut other = Self { child: child.unwrap() };
        let lines = BufReader::new(other.child.stdout.as_mut().unwrap()).lines();
        // The test harness prints its own lines before, and the name on the same line.
        let is_ready = |line: std::io::Result<String>| line.unwrap().ends_with("ready");
        assert!(lines.into_iter().any(is_ready), "the other process ended early");
        other
    }

    /// Ends its input, after which it must end well.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The machine of a process that another test has started.
pub(crate) fn machine() -> Option<PathBuf> {
    env::var_os(FOLDER).map(PathBuf::from)
}

pub(crate) fn say_ready_and_wait() {
    let mut out = std::io::stdout();
    out.write_all(b"ready\n").unwrap();
    out.flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn holds_five_gibibytes() {
    let Some(machine) = machine() else { return };
    let cuda = Cuda::load(&machine);
    assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
    cuda.context(0);
    cuda.allocate(5 * GIB).unwrap();
    say_ready_and_wait();
}

#[test]
fn computes_for_long() {
    let Some(machine) = machine() else { return };
    let cuda = Cuda::load(&machine);
    assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
    cuda.context(0);
    let kernel = cuda.kernel("long");
    for _ in 0..1000 {
        assert_eq!(cuda.launch(kernel, 0), 0);
    }
    say_ready_and_wait();
}

#[test]
fn a_killed_process_frees_its_memory_at_once() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let (free, _) = cuda.info();
    let mut other = Other::start(&node, "holds_five_gibibytes");
    assert_eq!(cuda.info().0, free - CONTEXT - 5 * GIB);
    assert_eq!(cuda.allocate(free / (2 * MIB) * (2 * MIB)), Err(OUT_OF_MEMORY));
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    assert!(cuda.allocate(free / (2 * MIB) * (2 * MIB)).is_ok());
}

#[test]
fn a_process_that_ends_gives_its_memory_back() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let (free, _) = cuda.info();
    Other::start(&node, "holds_five_gibibytes").finish();
    assert_eq!(cuda.info().0, free);
}

#[test]
fn a_process_with_much_to_do_has_its_turns_before_another() {
    let node = Node::with("t4", |machine| {
        machine.simulation.shortest_kernel_nanos = 100_000;
        machine.simulation.longest_kernel_nanos = 100_000;
    });
    let cuda = node.ready();
    let kernel = cuda.kernel("long");
    let (start, end) = (cuda.event(), cuda.event());
    let took = || {
        cuda.record(start, 0);
        assert_eq!(cuda.launch(kernel, 0), 0);
        cuda.record(end, 0);
        assert_eq!(cuda.synchronize(), 0);
        cuda.elapsed(start, end).unwrap()
    };
    assert_eq!(took(), 100_000);
    let other = Other::start(&node, "computes_for_long");
    // The other one has a slice, and the change to this one takes time.
    assert_eq!(took(), SLICE + SWITCH + 100_000);
    drop(other);
    assert_eq!(took(), 100_000, "the dead do not compute");
}

/// A child of `fork` runs the closure; its result is the exit status.
fn forked(body: impl FnOnce() -> u8) -> i32 {
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = body();
        unsafe { libc::_exit(status.into()) };
    }
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status));
    libc::WEXITSTATUS(status)
}

#[test]
fn a_child_of_fork_can_use_nothing_and_harms_nothing() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let before = cuda.used();
    // Symbols are looked up before: little is safe in the child of a multi-threaded process.
    let init: libloading::Symbol<'_, unsafe extern "C" fn(u32) -> u32> =
        unsafe { cuda.library.get(b"cuInit\0") }.unwrap();
    let free: libloading::Symbol<'_, unsafe extern "C" fn(u64) -> u32> =
        unsafe { cuda.library.get(b"cuMemFree_v2\0") }.unwrap();
    let status = forked(|| {
        let answers = unsafe { (init(0), free(4096)) };
        u8::from(answers == (3, 3))
    });
    assert_eq!(status, 1);
    assert_eq!(cuda.used(), before, "the parent is there as before");
    assert!(cuda.allocate(MIB).is_ok());
}

#[test]
fn memory_of_a_parent_is_free_when_it_dies_before_its_child() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let before = cuda.used();
    let mut other = Other::start(&node, "has_a_child_that_outlives_it");
    assert_eq!(cuda.used() - before, CONTEXT + GIB);
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    assert_eq!(cuda.used(), before);
}

#[test]
fn has_a_child_that_outlives_it() {
    let Some(machine) = machine() else { return };
    let cuda = Cuda::load(&machine);
    assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
    cuda.context(0);
    cuda.allocate(GIB).unwrap();
    if unsafe { libc::fork() } == 0 {
        // The child itself prints it, after all its work.
        let line = b"ready\n";
        unsafe { libc::write(1, line.as_ptr().cast(), line.len()) };
        // Longer than its parent, but not endless.
        unsafe { libc::sleep(5) };
        unsafe { libc::_exit(0) };
    }
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// NVML of the same machine.
pub(crate) fn management(node: &Node) -> NvmlLib {
    let library = node.folder.path().join("libnvidia-ml.so.1");
    fs::copy(built("liboctavo_fake_nvml.so"), &library).unwrap();
    let nvml = unsafe { NvmlLib::new(&library) }.unwrap();
    assert_eq!(unsafe { nvml.nvmlInit_v2() }, 0);
    nvml
}

/// Pids and memory of the processes on the first GPU.
pub(crate) fn processes(nvml: &NvmlLib) -> Vec<(u32, u64)> {
    let mut gpu = std::ptr::null_mut();
    assert_eq!(unsafe { nvml.nvmlDeviceGetHandleByIndex_v2(0, &raw mut gpu) }, 0);
    let mut list: [nvmlProcessInfo_t; 8] = unsafe { std::mem::zeroed() };
    let mut count = 8;
    let code = unsafe {
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu, &raw mut count, list.as_mut_ptr())
    };
    assert_eq!(code, 0);
    list.iter().take(count as usize).map(|info| (info.pid, info.usedGpuMemory)).collect()
}

#[test]
fn the_management_library_lists_processes_with_their_memory() {
    let node = Node::new("t4");
    let nvml = management(&node);
    assert_eq!(processes(&nvml), []);
    let cuda = node.ready();
    cuda.allocate(GIB).unwrap();
    let other = Other::start(&node, "holds_five_gibibytes");
    let mut both = [(std::process::id(), CONTEXT + GIB), (other.child.id(), CONTEXT + 5 * GIB)];
    both.sort_unstable();
    assert_eq!(processes(&nvml), both);
    let mut gpu = std::ptr::null_mut();
    assert_eq!(unsafe { nvml.nvmlDeviceGetHandleByIndex_v2(0, &raw mut gpu) }, 0);
    let mut memory: nvmlMemory_v2_t = unsafe { std::mem::zeroed() };
    memory.version = 0x0200_0028;
    assert_eq!(unsafe { nvml.nvmlDeviceGetMemoryInfo_v2(gpu, &raw mut memory) }, 0);
    assert_eq!(memory.used, 2 * CONTEXT + 6 * GIB);
    let mut count = 1;
    let mut one: nvmlProcessInfo_t = unsafe { std::mem::zeroed() };
    let code =
        unsafe { nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu, &raw mut count, &raw mut one) };
    assert_eq!((code, count), (7, 2), "there is no room for both");
    drop(other);
    assert_eq!(processes(&nvml), [(std::process::id(), CONTEXT + GIB)]);
}

#[test]
fn a_program_with_a_context_keeps_the_mig_mode_from_changing() {
    const IN_USE: u32 = 19;
    let node = Node::new("dgx-h100");
    let nvml = management(&node);
    let mut gpu = std::ptr::null_mut();
    assert_eq!(unsafe { nvml.nvmlDeviceGetHandleByIndex_v2(0, &raw mut gpu) }, 0);
    let set_mode = |mode| {
        let mut activation = 0;
        assert_eq!(unsafe { nvml.nvmlDeviceSetMigMode(gpu, mode, &raw mut activation) }, 0);
        activation
    };
    let other = Other::start(&node, "holds_five_gibibytes");
    assert_eq!(set_mode(1), IN_USE);
    drop(other);
    assert_eq!(set_mode(1), 0);
}

pub(crate) const NO_NAMESPACE: &str =
    "this account may not make process namespaces (unshare --user --pid)";

/// A command that runs this binary in a namespace of its own; `None` if this account may make none.
pub(crate) fn in_own_namespace() -> Option<Command> {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]);
    let works = Command::new("unshare")
        .args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        return None;
    }
    // It prints an error when its child is killed.
    unshare.arg(env::current_exe().unwrap()).stderr(Stdio::null());
    Some(unshare)
}

#[test]
fn a_process_in_a_namespace_of_its_own_is_listed_by_the_hosts_id() {
    let Some(unshare) = in_own_namespace() else {
        println!("skipped: {NO_NAMESPACE}");
        return;
    };
    let node = Node::new("t4");
    let nvml = management(&node);
    let other = Other::start_by(unshare, &node, "holds_five_gibibytes");
    let listed = processes(&nvml);
    assert_eq!(listed.len(), 1);
    let (pid, used) = listed[0];
    assert_eq!(used, CONTEXT + 5 * GIB);
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    let status = status.unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim();
    assert_eq!(parent, other.child.id().to_string(), "it is the child of unshare");
    let own = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    assert_eq!(own.split_ascii_whitespace().next_back(), Some("1"), "and the first of its own");
    // Killing the namespace's first process ends it; unshare follows.
    unsafe { libc::kill(libc::pid_t::try_from(pid).unwrap(), libc::SIGKILL) };
}

#[test]
fn memory_is_opened_by_handle_in_another_process() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let address = cuda.allocate(64 * MIB).unwrap();
    assert_eq!(cuda.upload(address + MIB, b"by handle"), 0);
    let mut handle = [0_u8; 64];
    let code = call!(cuda, cuIpcGetMemHandle(handle.as_mut_ptr() => *mut u8, address => u64));
    assert_eq!(code, 0);
    fs::write(node.folder.path().join("handle"), handle).unwrap();
    let before = cuda.used();
    let other = Other::start(&node, "opens_memory_by_handle");
    assert_eq!(cuda.used() - before, CONTEXT, "it is one memory");
    assert_eq!(cuda.download(address, 6).unwrap(), b"answer");
    assert_eq!(cuda.free(address), 0);
    assert_eq!(cuda.used() - before, CONTEXT, "the other one has it still");
    drop(other);
    assert_eq!(before - cuda.used(), 64 * MIB);
}

#[test]
fn what_dead_processes_left_of_shared_memory_is_swept_away() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let [old, young] = ["0.00000000deadbeef", "0.00000000feedbeef"]
        .map(|n| node.folder.path().join("chip").join(n));
    fs::write(&young, "").unwrap();
    fs::write(&old, "").unwrap();
    let long_ago = SystemTime::now() - Duration::from_hours(1);
    fs::File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    let mut handle = [0_u8; 64];
    for _ in 0..2 {
        let address = cuda.allocate(4 * MIB).unwrap();
        let code = call!(cuda, cuIpcGetMemHandle(handle.as_mut_ptr() => *mut u8, address => u64));
        assert_eq!(code, 0);
    }
    assert_eq!((old.exists(), young.exists()), (false, true));
    // The GPU, the socket of this process, the recent file and the files in use.
    assert_eq!(fs::read_dir(young.parent().unwrap()).unwrap().count(), 5);
}

#[test]
fn opens_memory_by_handle() {
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Handle([u8; 64]);
    let Some(machine) = machine() else { return };
    let cuda = Cuda::load(&machine);
    assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
    cuda.context(0);
    let handle = Handle(fs::read(machine.join("handle")).unwrap().try_into().unwrap());
    let mut address = 0_u64;
    let code = call!(cuda, cuIpcOpenMemHandle_v2(
        &raw mut address => *mut u64, handle => Handle, 1 => u32));
    assert_eq!(code, 0);
    assert_eq!(cuda.download(address + MIB, 9).unwrap(), b"by handle");
    assert_eq!(cuda.upload(address, b"answer"), 0);
    say_ready_and_wait();
}

/// `CU_EVENT_DISABLE_TIMING` and `CU_EVENT_INTERPROCESS`.
const SHARED_EVENT: u32 = 2 | 4;

#[derive(Clone, Copy)]
#[repr(C)]
struct EventHandle([u8; 64]);

#[test]
fn an_event_of_another_process_stands_for_its_work() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let other = Other::start(&node, "shares_an_event");
    let handle =
        EventHandle(fs::read(node.folder.path().join("event")).unwrap().try_into().unwrap());
    let mut event = 0_usize;
    let open = |event: &mut usize, handle| call!(cuda, cuIpcOpenEventHandle(&raw mut *event => *mut usize, handle => EventHandle));
    assert_eq!(open(&mut event, handle), 0);
    assert_eq!(call!(cuda, cuEventQuery(event => usize)), NOT_READY);
    assert_eq!(call!(cuda, cuStreamWaitEvent(0 => usize, event => usize, 0 => u32)), 0);
    assert_eq!(call!(cuda, cuEventQuery(event => usize)), 0);
    assert_eq!(call!(cuda, cuEventSynchronize(event => usize)), 0);
    other.finish();
    assert_eq!(call!(cuda, cuEventSynchronize(event => usize)), 0, "its work ended with it");
    assert_eq!(open(&mut event, handle), INVALID_VALUE, "it is gone");
    assert_eq!(open(&mut event, EventHandle([0; 64])), INVALID_VALUE);
}

#[test]
fn shares_an_event() {
    let Some(machine) = machine() else { return };
    let cuda = Cuda::load(&machine);
    assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
    cuda.context(0);
    let kernel = cuda.kernel("long");
    let (mut event, mut plain) = (0_usize, 0_usize);
    let create = |event: &mut usize, flags| call!(cuda, cuEventCreate(&raw mut *event => *mut usize, flags => u32));
    assert_eq!(create(&mut plain, 4), INVALID_VALUE, "it must have no time");
    assert_eq!((create(&mut plain, 0), create(&mut event, SHARED_EVENT)), (0, 0));
    assert_eq!(cuda.launch(kernel, 0), 0);
    assert_eq!(call!(cuda, cuEventRecord(event => usize, 0 => usize)), 0);
    let mut handle = [0_u8; 64];
    let export = |event: usize, handle: &mut [u8; 64]| call!(cuda, cuIpcGetEventHandle(handle.as_mut_ptr() => *mut u8, event => usize));
    assert_eq!(export(plain, &mut handle), INVALID_VALUE);
    assert_eq!(export(event, &mut handle), 0);
    fs::write(machine.join("event"), handle).unwrap();
    say_ready_and_wait();
}
