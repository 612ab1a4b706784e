//! Reports of NVML.

#![allow(clippy::cast_possible_truncation, reason = "halves of words are what is looked at")]

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::process::Command;

use libloading::{Library, Symbol};
use octavo_machine::{GpuState, State};

use crate::container::{self, Other};
use crate::cuda::{CONTEXT, Cuda, GIB};
use crate::{call, inside, role};

const NO_PERMISSION: u32 = 4;
const INSUFFICIENT_SIZE: u32 = 7;

/// NVML in a process, and its first GPU.
struct Management {
    library: Library,
    gpu: usize,
}

/// `nvmlProcessInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Process {
    pid: u32,
    bytes: u64,
    instances: [u32; 2],
}

impl Management {
    fn load(cuda: &Cuda) -> Self {
        Self::open(&cuda.folder.join("driver/libnvidia-ml.so.1"))
    }

    fn open(path: &Path) -> Self {
        let library = unsafe { Library::new(path) }.expect("the library is loaded");
        let mut management = Self { library, gpu: 0 };
        assert_eq!(call!(management, nvmlInit_v2()), 0);
        management.gpu = management.device(0);
        management
    }

    fn function<T>(&self, name: &str) -> Symbol<'_, T> {
        unsafe { self.library.get(name.as_bytes()) }.expect(name)
    }

    fn device(&self, index: u32) -> usize {
        let mut device = 0_usize;
        let code =
            call!(self, nvmlDeviceGetHandleByIndex_v2(index => u32, &raw mut device => *mut usize));
        assert_eq!(code, 0);
        device
    }

    /// Total, free and used bytes.
    fn memory(&self, device: usize) -> [u64; 3] {
        let mut memory = [0; 3];
        let code =
            call!(self, nvmlDeviceGetMemoryInfo(device => usize, memory.as_mut_ptr() => *mut u64));
        assert_eq!(code, 0);
        memory
    }

    /// Utilisation of the GPU and of its memory, in percent.
    fn utilisation(&self, device: usize) -> [u32; 2] {
        let mut rates = [0; 2];
        let code = call!(self, nvmlDeviceGetUtilizationRates(
            device => usize, rates.as_mut_ptr() => *mut u32));
        assert_eq!(code, 0);
        rates
    }

    fn processes(&self) -> Vec<(u32, u64)> {
        let mut list = [Process::default(); 8];
        let mut count = 8;
        let code = call!(self, nvmlDeviceGetComputeRunningProcesses_v3(
            self.gpu => usize, &raw mut count => *mut u32, list.as_mut_ptr() => *mut Process));
        assert_eq!(code, 0);
        let mut found: Vec<_> =
            list.iter().take(count as usize).map(|process| (process.pid, process.bytes)).collect();
        found.sort_unstable();
        found
    }
}

#[test]
fn nvml_shows_the_share() {
    let cuda = inside!(4 * GIB);
    let management = Management::load(&cuda);
    assert_eq!(management.memory(management.gpu), [4 * GIB, 4 * GIB - CONTEXT, CONTEXT]);
    let address = cuda.allocate(GIB).unwrap();
    assert_eq!(management.memory(management.gpu), [4 * GIB, 3 * GIB - CONTEXT, GIB + CONTEXT]);
    // Version, total, reserved, free, used.
    let mut memory = [0_u64; 5];
    memory[0] = 0x0200_0028;
    let code = call!(management, nvmlDeviceGetMemoryInfo_v2(
        management.gpu => usize, memory.as_mut_ptr() => *mut u64));
    assert_eq!(code, 0);
    assert_eq!(memory[0] & 0xffff_ffff, 0x0200_0028);
    assert_eq!(memory[1..], [4 * GIB, 0, 3 * GIB - CONTEXT, GIB + CONTEXT]);
    // A structure of another version is not filled.
    memory = [0x0300_0028, 0, 0, 0, 0];
    let code = call!(management, nvmlDeviceGetMemoryInfo_v2(
        management.gpu => usize, memory.as_mut_ptr() => *mut u64));
    assert_ne!(code, 0);
    assert_eq!(memory[1..], [0; 4]);
    assert_eq!(cuda.free(address), 0);
}

#[test]
fn a_share_with_too_much_is_full_and_no_error() {
    let cuda = inside!(4 * GIB);
    cuda.set_untracked(20 * GIB);
    let management = Management::load(&cuda);
    assert_eq!(management.memory(management.gpu), [4 * GIB, 0, 4 * GIB]);
}

#[test]
fn the_utilisation_is_that_of_the_share() {
    let cuda = inside!(4 * GIB);
    let busy = GpuState { utilisation_percent: 80, ..GpuState::default() };
    container::becomes(&cuda.folder, &State { gpus: [(0, busy)].into(), ..State::default() });
    let management = Management::load(&cuda);
    // Without GPU time leases the agent does not know it.
    assert_eq!(management.utilisation(management.gpu), [80, 40]);
    cuda.set_utilisation(Some(295));
    assert_eq!(management.utilisation(management.gpu), [30, 15]);
    cuda.set_utilisation(Some(1));
    assert_eq!(management.utilisation(management.gpu), [1, 0], "work is never shown as none");
    cuda.set_utilisation(Some(0));
    assert_eq!(management.utilisation(management.gpu), [0, 0]);
    // An agent that is gone cannot let an idle GPU look busy.
    cuda.set_utilisation(Some(900));
    assert_eq!(management.utilisation(management.gpu), [80, 40]);
    assert_eq!(management.utilisation(management.device(2)), [0, 0], "it has no share");
}

#[test]
fn a_gpu_without_a_share_is_shown_as_it_is() {
    let cuda = inside!(4 * GIB);
    let management = Management::load(&cuda);
    let [total, free, used] = management.memory(management.device(2));
    assert!(total > 79 * GIB && used < GIB && free + used <= total);
}

#[test]
fn only_the_shares_processes_are_listed_by_their_own_numbers() {
    let cuda = inside!(4 * GIB);
    let management = Management::load(&cuda);
    cuda.allocate(GIB).unwrap();
    let own = (std::process::id(), GIB + CONTEXT);
    assert_eq!(management.processes(), [own]);
    let other = Other::start(&cuda, "view::holds_two_gibibytes", &[]);
    let mut both = [own, (other.id(), 2 * GIB + CONTEXT)];
    both.sort_unstable();
    assert_eq!(management.processes(), both);
    // Both do not fit.
    let (mut one, mut count) = (Process::default(), 1);
    let code = call!(management, nvmlDeviceGetComputeRunningProcesses_v3(
        management.gpu => usize, &raw mut count => *mut u32, &raw mut one => *mut Process));
    assert_eq!((code, count), (INSUFFICIENT_SIZE, 2));
    // The required size, by the oldest version.
    let mut count = 0;
    let code = call!(management, nvmlDeviceGetComputeRunningProcesses(
        management.gpu => usize, &raw mut count => *mut u32, 0 => usize));
    assert_eq!((code, count), (INSUFFICIENT_SIZE, 2));
    let mut list = [(0_u32, 0_u64); 4];
    let mut count = 4;
    let code = call!(management, nvmlDeviceGetComputeRunningProcesses(
        management.gpu => usize, &raw mut count => *mut u32, list.as_mut_ptr().cast::<u8>() => *mut u8));
    assert_eq!((code, count), (0, 2));
    drop(other);
    assert_eq!(management.processes(), [own]);
}

#[test]
fn holds_two_gibibytes() {
    let cuda = role!();
    cuda.allocate(2 * GIB).unwrap();
    container::ready("");
}

#[test]
fn a_process_of_another_container_on_the_same_gpu_is_not_listed() {
    let cuda = inside!(4 * GIB);
    let management = Management::load(&cuda);
    // A process without a guard: only the driver lists it.
    let stranger = Other::bare(&cuda, "view::is_a_stranger");
    let chip = cuda.used();
    assert!(chip >= GIB, "it has memory on the chip: {chip}");
    assert_eq!(management.processes(), [(std::process::id(), CONTEXT)]);
    assert_eq!(management.memory(management.gpu)[2], CONTEXT);
    drop(stranger);
}

#[test]
fn is_a_stranger() {
    let cuda = role!();
    cuda.allocate(GIB).unwrap();
    container::ready("");
}

#[test]
fn nothing_can_be_set() {
    let cuda = inside!(4 * GIB);
    let management = Management::load(&cuda);
    let gpu = management.gpu;
    let mut mode = 0_u32;
    assert_eq!(
        call!(management, nvmlDeviceSetPersistenceMode(gpu => usize, 1 => u32)),
        NO_PERMISSION
    );
    assert_eq!(call!(management, nvmlDeviceSetComputeMode(gpu => usize, 2 => u32)), NO_PERMISSION);
    let place = &raw mut mode;
    assert_eq!(
        call!(management, nvmlDeviceSetMigMode(gpu => usize, 1 => u32, place => *mut u32)),
        NO_PERMISSION
    );
    let limits = [0_u64; 8];
    assert_eq!(
        call!(management, nvmlDeviceSetMemoryLimits_v1(gpu => usize, limits.as_ptr() => *const u64)),
        NO_PERMISSION
    );
    // Reading is allowed, and shows that nothing was set.
    assert_eq!(
        call!(management, nvmlDeviceGetPersistenceMode(gpu => usize, &raw mut mode => *mut u32)),
        0
    );
    let mut name = [0 as c_char; 96];
    assert_eq!(
        call!(management, nvmlDeviceGetName(gpu => usize, name.as_mut_ptr() => *mut c_char, 96 => u32)),
        0
    );
    assert!(!unsafe { CStr::from_ptr(name.as_ptr()) }.is_empty());
    // The driver decides for a GPU without a share.
    let free = management.device(3);
    assert_eq!(call!(management, nvmlDeviceSetPersistenceMode(free => usize, 1 => u32)), 0);
}

/// The library of `management.c`, for functions that the simulated one lacks.
fn other_library(cuda: &Cuda) -> Management {
    let machine = octavo_machine::Machine::read(&cuda.folder.join("driver/machine.yaml")).unwrap();
    let uuid = machine.gpus[0].uuid.clone().unwrap();
    let folder = cuda.folder.join("other");
    std::fs::create_dir(&folder).unwrap();
    let library = folder.join("libnvidia-ml.so.1");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1,-Bsymbolic"])
        .arg(format!("-DUUID=\"{uuid}\""))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/charges/management.c"))
        .arg("-o")
        .arg(&library)
        .env_remove("LD_PRELOAD");
    assert!(cc.status().expect("a C compiler, as rustc needs one").success());
    Management::open(&library)
}

#[test]
fn strangers_are_in_no_list() {
    let cuda = inside!(4 * GIB);
    let management = other_library(&cuda);
    let (own, gpu) = (std::process::id(), management.gpu);

    let mut list = [[9_u64; 4]; 4];
    let mut details = [24 + (1 << 24), 4, list.as_mut_ptr() as u64];
    let code = call!(management, nvmlDeviceGetRunningProcessDetailList(
        gpu => usize, details.as_mut_ptr() => *mut u64));
    assert_eq!((code, details[1] as u32), (0, 1));
    assert_eq!((list[0][0] as u32, list[0][1]), (own, CONTEXT));
    details[1] = 0;
    let code = call!(management, nvmlDeviceGetRunningProcessDetailList(
        gpu => usize, details.as_mut_ptr() => *mut u64));
    assert_eq!((code, details[1] as u32), (INSUFFICIENT_SIZE, 1));
    details[0] = 7;
    let code = call!(management, nvmlDeviceGetRunningProcessDetailList(
        gpu => usize, details.as_mut_ptr() => *mut u64));
    assert_eq!(code, 25, "the driver knows no such version");

    let mut count = 4;
    let place = &raw mut count;
    let mut processes = [Process::default(); 4];
    let list = processes.as_mut_ptr();
    let code = call!(management, nvmlDeviceGetGraphicsRunningProcesses_v3(
        gpu => usize, place => *mut u32, list => *mut Process));
    assert_eq!((code, unsafe { place.read() }), (0, 0));
    unsafe { place.write(4) };
    let code = call!(management, nvmlDeviceGetMPSComputeRunningProcesses_v3(
        gpu => usize, place => *mut u32, list => *mut Process));
    assert_eq!((code, unsafe { place.read() }), (0, 0));

    let mut samples = [[0_u64; 4]; 4];
    let code = call!(management, nvmlDeviceGetProcessUtilization(
        gpu => usize, samples.as_mut_ptr() => *mut [u64; 4], place => *mut u32, 100 => u64));
    assert_eq!((code, unsafe { place.read() }), (0, 1));
    assert_eq!((samples[0][0] as u32, samples[0][1]), (own, 101));
    let mut samples = [[0_u64; 5]; 4];
    let mut info = [0, 100, samples.as_mut_ptr() as u64];
    let code = call!(management, nvmlDeviceGetProcessesUtilizationInfo(
        gpu => usize, info.as_mut_ptr() => *mut u64));
    assert_eq!((code, info[0] >> 32), (0, 1));
    assert_eq!((samples[0][0], samples[0][1] as u32), (102, own));
    let mut pids = [0_u32; 4];
    let code = call!(management, nvmlDeviceGetAccountingPids(
        gpu => usize, place => *mut u32, pids.as_mut_ptr() => *mut u32));
    assert_eq!((code, unsafe { place.read() }, pids[0]), (0, 1, own));
    let stats = |pid: u32| call!(management, nvmlDeviceGetAccountingStats(gpu => usize, pid => u32, 0 => usize));
    assert_eq!((stats(own), stats(1)), (0, 6));
}

#[test]
fn neither_power_nor_clocks_nor_instances_can_be_set() {
    let cuda = inside!(4 * GIB);
    let management = other_library(&cuda);
    let answers = |device: usize| {
        [
            call!(management, nvmlDeviceSetPowerManagementLimit(device => usize, 300_000 => u32)),
            call!(management, nvmlDeviceResetGpuLockedClocks(device => usize)),
        ]
    };
    assert_eq!(answers(management.gpu), [NO_PERMISSION; 2]);
    // Another GPU has no share; settings of no GPU affect all.
    assert_eq!(answers(management.device(1)), [0; 2]);
    assert_eq!(call!(management, nvmlGpuInstanceDestroy(8 => usize)), NO_PERMISSION);
    assert_eq!(
        call!(management, nvmlDeviceRemoveGpu_v2(8 => usize, 0 => u32, 0 => u32)),
        NO_PERMISSION
    );
}
