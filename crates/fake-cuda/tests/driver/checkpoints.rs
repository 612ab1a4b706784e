//! Checkpoints of processes, which other processes ask for.

use std::env;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use octavo_machine::{CheckpointState, GpuState, KernelFault, KernelState, MigState, State};

use crate::call;
use crate::node::{CONTEXT, Cuda, GIB, INVALID_VALUE, MIB, NOT_READY, Node, OUT_OF_MEMORY};
use crate::processes::{
    NO_NAMESPACE, Other, in_own_namespace, machine, management, processes, say_ready_and_wait,
};

const ILLEGAL_STATE: u32 = 401;
const NOT_PERMITTED: u32 = 800;
const NOT_SUPPORTED: u32 = 801;
const UNKNOWN: u32 = 999;

const RUNNING: u32 = 0;
const LOCKED: u32 = 1;
const CHECKPOINTED: u32 = 2;
const FAILED: u32 = 3;

/// Any of the structures of arguments.
type Args = *const [u64; 8];
const NONE: Args = std::ptr::null();

impl Cuda {
    fn state_of(&self, pid: i32) -> Result<u32, u32> {
        let mut state = 99;
        let code = call!(self, cuCheckpointProcessGetState(pid => i32, &raw mut state => *mut u32));
        if code == 0 { Ok(state) } else { Err(code) }
    }

    /// Locks a process; a timeout of 0 is none.
    fn lock(&self, pid: i32, millis: u32) -> u32 {
        let args = [u64::from(millis), 0, 0, 0, 0, 0, 0, 0];
        call!(self, cuCheckpointProcessLock(pid => i32, &raw const args => Args))
    }

    fn checkpoint(&self, pid: i32) -> u32 {
        call!(self, cuCheckpointProcessCheckpoint(pid => i32, NONE => Args))
    }

    fn restore(&self, pid: i32) -> u32 {
        call!(self, cuCheckpointProcessRestore(pid => i32, NONE => Args))
    }

    fn unlock(&self, pid: i32) -> u32 {
        call!(self, cuCheckpointProcessUnlock(pid => i32, NONE => Args))
    }
}

/// Memory of the process with a pattern: its context, its allocation and its code.
const PATTERN_HOLDER: u64 = CONTEXT + 5 * GIB + 2 * MIB;

/// The pattern in the memory of a process.
fn pattern() -> Vec<u8> {
    (0..3_u32 << 20).map(|number| number.to_le_bytes()[0] ^ 0x5a).collect()
}

/// The driver of the machine that this process is to use.
fn started() -> Option<Cuda> {
    let cuda = Cuda::load(&machine()?);
    assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
    Some(cuda)
}

#[test]
fn holds_a_pattern() {
    let Some(cuda) = started() else { return };
    cuda.context(0);
    let address = cuda.allocate(5 * GIB).unwrap();
    assert_eq!(cuda.upload(address + GIB, &pattern()), 0);
    // Its work is not done when it is locked.
    let kernel = cuda.kernel("long");
    assert_eq!(cuda.launch(kernel, 0), 0);
    say_ready_and_wait();
    assert_eq!(cuda.download(address + GIB, pattern().len()).unwrap(), pattern());
    assert_eq!(cuda.used(), PATTERN_HOLDER);
    assert!(cuda.allocate(MIB).is_ok());
}

#[test]
fn memory_is_free_for_others_until_it_is_restored() {
    let node = Node::new("t4");
    let (nvml, cuda) = (management(&node), node.start());
    let other = Other::start_as(&node, "checkpoints::holds_a_pattern");
    let pid = other.pid();
    let of_other = [(other.pid().unsigned_abs(), PATTERN_HOLDER)];
    assert_eq!((cuda.state_of(pid), processes(&nvml)), (Ok(RUNNING), of_other.to_vec()));
    assert_eq!(cuda.lock(pid, 0), 0);
    assert_eq!((cuda.state_of(pid), processes(&nvml)), (Ok(LOCKED), of_other.to_vec()));
    assert_eq!(cuda.checkpoint(pid), 0);
    assert_eq!((cuda.state_of(pid), processes(&nvml)), (Ok(CHECKPOINTED), vec![]));
    let context = cuda.context(0);
    let (free, total) = cuda.info();
    assert_eq!(free, total - CONTEXT);
    let rest = cuda.allocate((free - 5 * GIB) / (2 * MIB) * (2 * MIB)).unwrap();
    let left = cuda.info().0;
    assert_eq!(cuda.restore(pid), OUT_OF_MEMORY);
    assert_eq!((cuda.state_of(pid), cuda.info().0), (Ok(CHECKPOINTED), left));
    assert_eq!(cuda.free(rest), 0);
    assert_eq!(call!(cuda, cuCtxDestroy_v2(context => usize)), 0);
    assert_eq!(cuda.restore(pid), 0);
    assert_eq!((cuda.state_of(pid), processes(&nvml)), (Ok(LOCKED), of_other.to_vec()));
    assert_eq!(cuda.unlock(pid), 0);
    assert_eq!(cuda.state_of(pid), Ok(RUNNING));
    other.finish();
}

#[test]
fn each_step_needs_the_state_before_it() {
    let node = Node::new("t4");
    let cuda = node.start();
    let other = Other::start_as(&node, "checkpoints::holds_a_pattern");
    let pid = other.pid();
    let codes = || {
        let lock = || cuda.lock(pid, 0);
        let (checkpoint, restore) = (|| cuda.checkpoint(pid), || cuda.restore(pid));
        (lock, checkpoint, restore, || cuda.unlock(pid))
    };
    let (lock, checkpoint, restore, unlock) = codes();
    assert_eq!([checkpoint(), restore(), unlock()], [ILLEGAL_STATE; 3]);
    assert_eq!(lock(), 0);
    assert_eq!([lock(), restore()], [ILLEGAL_STATE; 2]);
    assert_eq!(checkpoint(), 0);
    assert_eq!([lock(), checkpoint(), unlock()], [ILLEGAL_STATE; 3]);
    assert_eq!(restore(), 0);
    assert_eq!([lock(), restore()], [ILLEGAL_STATE; 2]);
    assert_eq!(checkpoint(), 0, "again, without an unlock");
    assert_eq!([restore(), unlock()], [0; 2]);
    assert_eq!([checkpoint(), restore(), unlock()], [ILLEGAL_STATE; 3]);
    other.finish();
}

#[test]
fn calls_of_a_locked_process_wait() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let own = i32::try_from(std::process::id()).unwrap();
    assert_eq!((cuda.lock(own, 0), cuda.checkpoint(own)), (0, 0));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut version = 0;
            assert_eq!(call!(cuda, cuDriverGetVersion(&raw mut version => *mut i32)), 0);
            cuda.context(0);
            cuda.state_of(own)
        });
        // Now it is in its call, or about to be.
        let folder = node.folder.path();
        let gpu = octavo_fake_gpu::FakeGpu::existing(folder, 0, octavo_fake_gpu::Clock::Virtual);
        assert_eq!(gpu.unwrap().used(), 0);
        assert!(!waiter.is_finished());
        assert_eq!((cuda.restore(own), cuda.unlock(own)), (0, 0));
        assert_eq!(waiter.join().unwrap(), Ok(RUNNING));
    });
    assert_eq!(cuda.used(), 2 * CONTEXT);
}

#[test]
fn a_lock_waits_for_work_until_its_timeout() {
    let node = Node::new("t4");
    let endless = KernelState { fault: Some(KernelFault::NeverEnds), nanos: None };
    let kernels = [("endless".to_owned(), endless)].into();
    node.gpu_becomes(GpuState { kernels, ..GpuState::default() });
    let cuda = node.ready();
    let own = i32::try_from(std::process::id()).unwrap();
    let kernel = cuda.kernel("endless");
    assert_eq!(cuda.launch(kernel, 0), 0);
    assert_eq!(cuda.lock(own, 20), NOT_READY);
    assert_eq!(cuda.state_of(own), Ok(RUNNING));
    assert!(cuda.allocate(MIB).is_ok(), "nothing is locked");
}

#[test]
fn faults_of_the_machine_make_steps_hang_or_break() {
    let node = Node::new("t4");
    let becomes = |checkpoints| node.becomes(&State { checkpoints, ..State::default() });
    let cuda = node.start();
    for (fault, step) in [
        (CheckpointState { checkpoint_breaks: true, ..CheckpointState::default() }, 0),
        (CheckpointState { restore_breaks: true, ..CheckpointState::default() }, 1),
    ] {
        let mut other = Other::start_as(&node, "checkpoints::expects_unknown_errors");
        let pid = other.pid();
        becomes(CheckpointState { lock_hangs: true, ..CheckpointState::default() });
        assert_eq!(cuda.lock(pid, 5), NOT_READY);
        assert_eq!(cuda.state_of(pid), Ok(RUNNING));
        becomes(fault);
        assert_eq!(cuda.lock(pid, 0), 0);
        if step == 0 {
            assert_eq!(cuda.checkpoint(pid), UNKNOWN);
        } else {
            assert_eq!((cuda.checkpoint(pid), cuda.restore(pid)), (0, UNKNOWN));
        }
        assert_eq!((cuda.state_of(pid), cuda.unlock(pid)), (Ok(FAILED), ILLEGAL_STATE));
        becomes(CheckpointState::default());
        if step == 0 {
            other.finish();
        } else {
            other.kill();
        }
    }
    let failing_calls = [("cuCheckpointProcessLock".to_owned(), NOT_SUPPORTED)].into();
    node.becomes(&State { failing_calls, ..State::default() });
    assert_eq!(cuda.lock(1, 0), NOT_SUPPORTED, "a call fails as any other");
}

#[test]
fn expects_unknown_errors() {
    let Some(cuda) = started() else { return };
    cuda.context(0);
    say_ready_and_wait();
    assert_eq!(cuda.allocate(MIB), Err(UNKNOWN));
}

#[test]
fn shared_and_managed_memory_is_refused() {
    for role in ["has_managed_memory", "has_exported_memory", "has_exported_physical_memory"] {
        let node = Node::new("t4");
        let cuda = node.start();
        let other = Other::start_as(&node, &format!("checkpoints::{role}"));
        let pid = other.pid();
        assert_eq!(cuda.lock(pid, 0), 0);
        assert_eq!(cuda.checkpoint(pid), NOT_SUPPORTED, "{role}");
        assert_eq!((cuda.state_of(pid), cuda.unlock(pid)), (Ok(LOCKED), 0));
        other.finish();
    }
}

#[test]
fn has_managed_memory() {
    let Some(cuda) = started() else { return };
    cuda.context(0);
    let mut address = 0_u64;
    let made = call!(cuda, cuMemAllocManaged(&raw mut address => *mut u64, MIB => u64, 1 => u32));
    assert_eq!(made, 0);
    say_ready_and_wait();
    assert_eq!(cuda.free(address), 0);
}

#[test]
fn has_exported_memory() {
    let Some(cuda) = started() else { return };
    cuda.context(0);
    let address = cuda.allocate(4 * MIB).unwrap();
    let mut handle = [0_u8; 64];
    let code = call!(cuda, cuIpcGetMemHandle(handle.as_mut_ptr() => *mut u8, address => u64));
    assert_eq!(code, 0);
    say_ready_and_wait();
    assert_eq!(cuda.free(address), 0);
}

#[test]
fn has_exported_physical_memory() {
    let Some(cuda) = started() else { return };
    cuda.context(0);
    let mut memory = 0_usize;
    // Pinned memory of GPU 0 with a file descriptor as handle.
    let prop: [u32; 8] = [1, 1, 1, 0, 0, 0, 0, 0];
    let made = call!(cuda, cuMemCreate(
        &raw mut memory => *mut usize, 2 * MIB => u64, prop.as_ptr() => *const u32, 0 => u64));
    assert_eq!(made, 0);
    let mut file = -1;
    let exported = call!(cuda, cuMemExportToShareableHandle(
        &raw mut file => *mut i32, memory => usize, 1 => u32, 0 => u64));
    assert_eq!(exported, 0);
    say_ready_and_wait();
}

#[test]
fn a_process_on_a_gpu_with_mig_is_refused() {
    let node = Node::new("dgx-h100");
    let cuda = node.ready();
    let own = i32::try_from(std::process::id()).unwrap();
    let mig = MigState { enabled: Some(true), ..MigState::default() };
    node.gpu_becomes(GpuState { mig, ..GpuState::default() });
    assert_eq!((cuda.lock(own, 0), cuda.checkpoint(own)), (0, NOT_SUPPORTED));
    assert_eq!(cuda.unlock(own), 0);
}

#[test]
fn processes_without_cuda_are_unknown() {
    let node = Node::new("t4");
    let cuda = node.start();
    let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
    for pid in [i32::MAX, -1, 0, parent] {
        assert_eq!(cuda.state_of(pid), Err(INVALID_VALUE));
        assert_eq!((cuda.lock(pid, 0), cuda.checkpoint(pid)), (INVALID_VALUE, INVALID_VALUE));
        assert_eq!((cuda.restore(pid), cuda.unlock(pid)), (INVALID_VALUE, INVALID_VALUE));
    }
}

#[test]
fn a_process_that_is_killed_leaves_nothing() {
    let node = Node::new("t4");
    let (nvml, cuda) = (management(&node), node.ready());
    let before = cuda.used();
    for is_checkpointed in [false, true] {
        let mut other = Other::start_as(&node, "processes::has_a_child_that_outlives_it");
        let pid = other.pid();
        assert_eq!(cuda.lock(pid, 0), 0);
        assert!(!is_checkpointed || cuda.checkpoint(pid) == 0);
        other.kill();
        assert_eq!((cuda.state_of(pid), cuda.used()), (Err(INVALID_VALUE), before));
        assert_eq!(processes(&nvml).len(), 1);
    }
}

/// Environment variable with the pid that a caller is to control, and the step at which it stays.
const CALLER: &str = "OCTAVO_TEST_CALLER";

/// A step of a caller.
type StepOf = fn(&Cuda, i32) -> u32;

#[test]
fn a_caller() {
    let Ok(text) = env::var(CALLER) else { return };
    let (pid, step) = text.split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    let cuda = started().unwrap();
    let steps: [(&str, StepOf); 4] = [
        ("lock", |cuda, pid| cuda.lock(pid, 0)),
        ("checkpoint", Cuda::checkpoint),
        ("restore", Cuda::restore),
        ("unlock", Cuda::unlock),
    ];
    for (name, call) in steps {
        if step == format!("in {name}") {
            println!("ready");
        }
        assert_eq!(call(&cuda, pid), 0);
        if step == format!("after {name}") {
            say_ready_and_wait();
        }
    }
}

#[test]
fn a_caller_may_be_killed_at_each_step() {
    let slow = CheckpointState { checkpoint_millis: 50, restore_millis: 50, ..Default::default() };
    for (step, states, lock_hangs) in [
        ("in lock", &[RUNNING][..], true),
        ("after lock", &[LOCKED], false),
        ("in checkpoint", &[LOCKED, CHECKPOINTED], false),
        ("after checkpoint", &[CHECKPOINTED], false),
        ("in restore", &[CHECKPOINTED, LOCKED], false),
        ("after restore", &[LOCKED], false),
        ("in unlock", &[LOCKED, RUNNING], false),
        ("after unlock", &[RUNNING], false),
    ] {
        let node = Node::new("t4");
        node.becomes(&State {
            checkpoints: CheckpointState { lock_hangs, ..slow },
            ..State::default()
        });
        let cuda = node.start();
        let target = Other::start_as(&node, "checkpoints::holds_a_pattern");
        let pid = target.pid();
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(CALLER, format!("{pid} {step}"));
        let mut caller = Other::start_test(command, &node, "checkpoints::a_caller");
        caller.kill();
        let state = cuda.state_of(pid).unwrap();
        assert!(states.contains(&state), "{step}: {state}");
        if state == CHECKPOINTED {
            assert_eq!(cuda.restore(pid), 0);
        }
        if state != RUNNING {
            assert_eq!(cuda.unlock(pid), 0);
        }
        target.finish();
    }
}

#[test]
fn another_user_needs_a_privilege() {
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can be two users");
        return;
    }
    let node = Node::new("t4");
    let open = Permissions::from_mode(0o755);
    std::fs::set_permissions(node.folder.path(), open).unwrap();
    let cuda = node.start();
    let own = std::process::id();
    let command = || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(CALLER, own.to_string()).uid(65534).gid(65534);
        command
    };
    if command().arg("--list").output().is_err() {
        println!("skipped: another user cannot run this binary here");
        return;
    }
    let other = Other::start_test(command(), &node, "checkpoints::may_not_lock_another_user");
    assert_eq!(cuda.state_of(other.pid()), Ok(RUNNING), "root may");
    other.finish();
}

#[test]
fn may_not_lock_another_user() {
    let Some(cuda) = started() else { return };
    let pid = env::var(CALLER).unwrap().parse().unwrap();
    assert_eq!(cuda.state_of(pid), Err(NOT_PERMITTED));
    assert_eq!(cuda.lock(pid, 0), NOT_PERMITTED);
    say_ready_and_wait();
}

#[test]
fn a_process_in_a_namespace_of_its_own_is_reached_by_the_hosts_id() {
    let Some(unshare) = in_own_namespace() else {
        println!("skipped: {NO_NAMESPACE}");
        return;
    };
    let node = Node::new("t4");
    let (nvml, cuda) = (management(&node), node.start());
    let other = Other::start_test(unshare, &node, "checkpoints::holds_a_pattern");
    let pid = i32::try_from(processes(&nvml)[0].0).unwrap();
    assert_ne!(pid, other.pid(), "it is a child of the one that made the namespace");
    let mut thread = 0;
    let code = call!(cuda, cuCheckpointProcessGetRestoreThreadId(
        pid => i32, &raw mut thread => *mut i32));
    assert_eq!(code, 0);
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).unwrap();
    assert_eq!(name.trim(), "cuda-restore");
    assert_eq!((cuda.lock(pid, 0), cuda.checkpoint(pid)), (0, 0));
    assert_eq!(processes(&nvml), []);
    assert_eq!((cuda.restore(pid), cuda.unlock(pid)), (0, 0));
    other.finish();
}

#[test]
fn pairs_of_gpus_name_each_gpu() {
    #[repr(C)]
    struct RestoreArgs {
        pairs: *const [u8; 32],
        count: u32,
        rest: [u32; 13],
    }
    let node = Node::new("t4");
    let cuda = node.ready();
    let own = i32::try_from(std::process::id()).unwrap();
    assert_eq!((cuda.lock(own, 0), cuda.checkpoint(own)), (0, 0));
    let restore = |pair: [u8; 32], last| {
        let mut rest = [0; 13];
        rest[12] = last;
        let args = RestoreArgs { pairs: &raw const pair, count: 1, rest };
        call!(cuda, cuCheckpointProcessRestore(own => i32, &raw const args => *const RestoreArgs))
    };
    assert_eq!(restore([7; 32], 0), INVALID_VALUE, "it was on another GPU");
    assert_eq!(cuda.restore(own), 0);
    assert_eq!(cuda.unlock(own), 0);
    let mut uuid = [0_u8; 16];
    let code = call!(cuda, cuDeviceGetUuid_v2(uuid.as_mut_ptr() => *mut u8, 0 => i32));
    assert_eq!(code, 0);
    assert_eq!((cuda.lock(own, 0), cuda.checkpoint(own)), (0, 0));
    let pair = |new: [u8; 16]| [uuid, new].concat().try_into().unwrap();
    assert_eq!(restore(pair([1; 16]), 0), NOT_SUPPORTED);
    assert_eq!(restore(pair(uuid), 1), INVALID_VALUE, "what is reserved must be zero");
    assert_eq!(restore(pair(uuid), 0), 0);
    assert_eq!(cuda.unlock(own), 0);
}

#[test]
fn a_process_leaves_all_its_gpus_and_returns_to_all_or_none() {
    let node = Node::with("t4", |machine| assert!(machine.gpus.len() > 1));
    let cuda = node.start();
    let other = Other::start_as(&node, "checkpoints::uses_two_gpus");
    let pid = other.pid();
    assert_eq!((cuda.lock(pid, 0), cuda.checkpoint(pid)), (0, 0));
    let context = cuda.context(1);
    let (free, _) = cuda.info();
    let rest = cuda.allocate(free / GIB * GIB).unwrap();
    assert_eq!(cuda.restore(pid), OUT_OF_MEMORY);
    cuda.context(0);
    assert_eq!(cuda.used(), CONTEXT, "it is on neither");
    assert_eq!(cuda.free(rest), 0);
    assert_eq!(call!(cuda, cuCtxDestroy_v2(context => usize)), 0);
    assert_eq!((cuda.restore(pid), cuda.unlock(pid)), (0, 0));
    assert_eq!(cuda.used(), 2 * CONTEXT + GIB);
    other.finish();
}

#[test]
fn uses_two_gpus() {
    let Some(cuda) = started() else { return };
    for ordinal in [1, 0] {
        cuda.context(ordinal);
        cuda.allocate(GIB).unwrap();
    }
    say_ready_and_wait();
    assert_eq!(cuda.used(), 2 * CONTEXT + GIB, "the other one has a context here");
}
