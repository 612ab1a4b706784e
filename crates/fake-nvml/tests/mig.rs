//! MIG through NVML's own bindings, as other programs use it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "tests call C functions with pointers to their own locals and may fail loudly"
)]

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;

use nvml_wrapper_sys::bindings::{self as sys, NvmlLib};
use octavo_machine::{Machine, MachineError, State};
use tempfile::TempDir;

const SUCCESS: u32 = 0;
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NO_PERMISSION: u32 = 4;
const NOT_FOUND: u32 = 6;
const RESET_REQUIRED: u32 = 16;
const IN_USE: u32 = 19;
const INSUFFICIENT_RESOURCES: u32 = 23;
const VERSION_MISMATCH: u32 = 25;

/// Profile ids.
const WHOLE: u32 = 0;
const THREE: u32 = 9;
const SINGLE: u32 = 19;

/// A node, its library and the handle of its first GPU.
struct Node {
    folder: TempDir,
    machine: Machine,
    nvml: NvmlLib,
    gpu: sys::nvmlDevice_t,
}

/// The output of a call, or its code.
fn output_of<T>(call: impl FnOnce(*mut T) -> u32) -> Result<T, u32> {
    let mut value = std::mem::MaybeUninit::zeroed();
    match call(value.as_mut_ptr()) {
        SUCCESS => Ok(unsafe { value.assume_init() }),
        code => Err(code),
    }
}

fn text(call: impl FnOnce(*mut c_char, u32) -> u32) -> Result<String, u32> {
    let mut buffer = [0; 96];
    match call(buffer.as_mut_ptr(), 96) {
        SUCCESS => Ok(letters(&buffer)),
        code => Err(code),
    }
}

fn letters(buffer: &[c_char; 96]) -> String {
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_str().unwrap().to_owned()
}

impl Node {
    fn new(machine: &str) -> Self {
        let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        let mut machine = Machine::read(&machines.join(machine).with_extension("yaml")).unwrap();
        machine.instantiate("node-0");
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libnvidia-ml.so.1");
        fs::copy(built_library(), &library).unwrap();
        fs::write(folder.path().join("machine.yaml"), machine.to_yaml().unwrap()).unwrap();
        let nvml = unsafe { NvmlLib::new(&library) }.unwrap();
        assert_eq!(unsafe { nvml.nvmlInit_v2() }, SUCCESS);
        let gpu = output_of(|gpu| unsafe { nvml.nvmlDeviceGetHandleByIndex_v2(0, gpu) }).unwrap();
        Self { folder, machine, nvml, gpu }
    }

    /// A node whose first GPU is in MIG mode.
    fn partitioned(machine: &str) -> Self {
        let node = Self::new(machine);
        node.edit(|state| state.gpus.entry(0).or_default().mig.enabled = Some(true));
        node
    }

    fn edit(&self, change: impl FnOnce(&mut State)) {
        octavo_machine::change(self.folder.path(), &self.machine, |state| {
            change(state);
            Ok::<_, MachineError>(())
        })
        .unwrap();
    }

    fn set_mode(&self, mode: u32) -> Result<u32, u32> {
        output_of(|activation| unsafe {
            self.nvml.nvmlDeviceSetMigMode(self.gpu, mode, activation)
        })
    }

    fn mode(&self) -> (u32, u32) {
        let (mut now, mut later) = (9, 9);
        let code =
            unsafe { self.nvml.nvmlDeviceGetMigMode(self.gpu, &raw mut now, &raw mut later) };
        assert_eq!(code, SUCCESS);
        (now, later)
    }

    fn create(&self, profile: u32) -> Result<sys::nvmlGpuInstance_t, u32> {
        output_of(|instance| unsafe {
            self.nvml.nvmlDeviceCreateGpuInstance(self.gpu, profile, instance)
        })
    }

    fn info(&self, instance: sys::nvmlGpuInstance_t) -> Result<sys::nvmlGpuInstanceInfo_t, u32> {
        output_of(|info| unsafe { self.nvml.nvmlGpuInstanceGetInfo(instance, info) })
    }

    fn create_inner(
        &self,
        instance: sys::nvmlGpuInstance_t,
        profile: u32,
    ) -> Result<sys::nvmlComputeInstance_t, u32> {
        output_of(|inner| unsafe {
            self.nvml.nvmlGpuInstanceCreateComputeInstance(instance, profile, inner)
        })
    }

    fn device(&self, index: u32) -> Result<sys::nvmlDevice_t, u32> {
        output_of(|device| unsafe {
            self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.gpu, index, device)
        })
    }

    fn most(&self) -> u32 {
        output_of(|most| unsafe { self.nvml.nvmlDeviceGetMaxMigDeviceCount(self.gpu, most) })
            .unwrap()
    }
}

fn built_library() -> PathBuf {
    let name = "liboctavo_fake_nvml.so";
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let beside = [deps.join(name), deps.parent().unwrap().join(name)];
    let built = beside.into_iter().filter(|path| path.exists());
    built
        .max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
        .expect("cargo builds the library before its tests")
}

#[test]
fn profiles_and_placements_are_listed_with_the_mode_off() {
    let node = Node::new("dgx-h100");
    assert_eq!((node.mode(), node.most()), ((0, 0), 0));
    let info = |number| {
        output_of(|info| unsafe {
            node.nvml.nvmlDeviceGetGpuInstanceProfileInfo(node.gpu, number, info)
        })
    };
    let three = info(2).unwrap();
    assert_eq!((three.id, three.sliceCount, three.instanceCount), (THREE, 3, 2));
    assert_eq!((three.multiprocessorCount, three.memorySizeMB), (60, 40448));
    let known: Vec<u32> = (0..18).filter(|number| info(*number).is_ok()).collect();
    assert_eq!(known, [0, 1, 2, 3, 4, 7, 9]);
    assert_eq!((info(5).err(), info(18).err()), (Some(NOT_SUPPORTED), Some(INVALID_ARGUMENT)));

    let places = |id, places| {
        output_of(|count| unsafe {
            let call = sys::NvmlLib::nvmlDeviceGetGpuInstancePossiblePlacements_v2;
            call(&node.nvml, node.gpu, id, places, count)
        })
    };
    assert_eq!(places(THREE, null_mut()), Ok(2), "how much room a caller needs");
    let mut room = [sys::nvmlGpuInstancePlacement_t { start: 9, size: 9 }; 3];
    assert_eq!(places(THREE, room.as_mut_ptr()), Ok(2));
    assert_eq!(room.map(|place| (place.start, place.size)), [(0, 4), (4, 4), (9, 9)]);
    assert_eq!(places(3, null_mut()), Err(INVALID_ARGUMENT), "a number is no id");
}

#[test]
fn profile_information_comes_in_three_versions() {
    let node = Node::new("dgx-h100");
    let mut second: sys::nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    let ask = |number, info: *mut sys::nvmlGpuInstanceProfileInfo_v2_t| unsafe {
        node.nvml.nvmlDeviceGetGpuInstanceProfileInfoV(node.gpu, number, info)
    };
    assert_eq!(ask(7, &raw mut second), VERSION_MISMATCH);
    second.version = u32::try_from(size_of_val(&second)).unwrap() | 2 << 24;
    assert_eq!(ask(7, &raw mut second), SUCCESS);
    assert_eq!(
        (second.id, second.ofaCount, letters(&second.name).as_str()),
        (20, 1, "MIG 1g.10gb+me")
    );
    let mut third: sys::nvmlGpuInstanceProfileInfo_v3_t = unsafe { std::mem::zeroed() };
    third.version = u32::try_from(size_of_val(&third)).unwrap() | 3 << 24;
    assert_eq!(ask(9, (&raw mut third).cast()), SUCCESS);
    assert_eq!((third.id, third.multiprocessorCount, third.memorySizeMB), (15, 26, 20096));
    let by_id = unsafe {
        node.nvml.nvmlDeviceGetGpuInstanceProfileInfoByIdV(node.gpu, WHOLE, &raw mut second)
    };
    assert_eq!((by_id, second.sliceCount), (SUCCESS, 7));
}

#[test]
fn a_mig_device_is_known_by_index_and_uuid_and_says_what_it_is() {
    let node = Node::partitioned("dgx-h100");
    let nvml = &node.nvml;
    assert_eq!((node.mode(), node.most()), ((1, 1), 7));
    assert_eq!(node.device(0), Err(NOT_FOUND));
    assert_eq!(node.device(7), Err(INVALID_ARGUMENT));
    let outer = node.create(THREE).unwrap();
    let info = node.info(outer).unwrap();
    assert_eq!((info.device, info.id, info.profileId), (node.gpu, 2, THREE));
    assert_eq!((info.placement.start, info.placement.size), (4, 4));
    let inner = node.create_inner(outer, 1).unwrap();
    let inner_info =
        output_of(|info| unsafe { nvml.nvmlComputeInstanceGetInfo_v2(inner, info) }).unwrap();
    assert_eq!((inner_info.gpuInstance, inner_info.id, inner_info.profileId), (outer, 0, 1));
    assert_eq!((inner_info.placement.start, inner_info.placement.size), (0, 2));

    let device = node.device(0).unwrap();
    let uuid = text(|b, n| unsafe { nvml.nvmlDeviceGetUUID(device, b, n) }).unwrap();
    assert!(uuid.starts_with("MIG-"), "{uuid}");
    let name = CString::new(uuid).unwrap();
    let found = output_of(|found| unsafe { nvml.nvmlDeviceGetHandleByUUID(name.as_ptr(), found) });
    assert_eq!(found, Ok(device));
    let is_mig = |device| output_of(|is| unsafe { nvml.nvmlDeviceIsMigDeviceHandle(device, is) });
    assert_eq!((is_mig(device), is_mig(node.gpu)), (Ok(1), Ok(0)));
    let parent =
        output_of(|gpu| unsafe { nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, gpu) });
    assert_eq!(parent, Ok(node.gpu));
    assert_eq!(output_of(|id| unsafe { nvml.nvmlDeviceGetGpuInstanceId(device, id) }), Ok(2));
    assert_eq!(output_of(|id| unsafe { nvml.nvmlDeviceGetComputeInstanceId(device, id) }), Ok(0));
    assert_eq!(
        output_of(|id| unsafe { nvml.nvmlDeviceGetGpuInstanceId(node.gpu, id) }),
        Err(NOT_SUPPORTED)
    );
    let name = text(|b, n| unsafe { nvml.nvmlDeviceGetName(device, b, n) }).unwrap();
    assert_eq!(name, "NVIDIA H100 80GB HBM3 MIG 2c.3g.40gb");
    let memory: sys::nvmlMemory_t =
        output_of(|memory| unsafe { nvml.nvmlDeviceGetMemoryInfo(device, memory) }).unwrap();
    assert_eq!(memory.total, 40448 << 20);
    let attributes =
        output_of(|values| unsafe { nvml.nvmlDeviceGetAttributes_v2(device, values) }).unwrap();
    assert_eq!((attributes.multiprocessorCount, attributes.sharedDecoderCount), (40, 3));
    assert_eq!((attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount), (3, 2));
    let minor = output_of::<u32>(|minor| unsafe { nvml.nvmlDeviceGetMinorNumber(device, minor) });
    assert_eq!(minor, Err(INVALID_ARGUMENT), "a call on whole GPUs");
}

#[test]
fn what_is_in_something_goes_first_and_handles_outlive_nothing() {
    let node = Node::partitioned("dgx-h100");
    let nvml = &node.nvml;
    let outer = node.create(SINGLE).unwrap();
    let inner = node.create_inner(outer, 0).unwrap();
    let device = node.device(0).unwrap();
    assert_eq!(node.create_inner(outer, 0), Err(INSUFFICIENT_RESOURCES));
    assert_eq!(node.create_inner(outer, 1), Err(INVALID_ARGUMENT));
    assert_eq!(unsafe { nvml.nvmlGpuInstanceDestroy(outer) }, IN_USE);
    assert_eq!(node.set_mode(0), Err(IN_USE));
    assert_eq!(unsafe { nvml.nvmlComputeInstanceDestroy(inner) }, SUCCESS);
    assert_eq!(unsafe { nvml.nvmlComputeInstanceDestroy(inner) }, INVALID_ARGUMENT);
    let uuid = text(|b, n| unsafe { nvml.nvmlDeviceGetUUID(device, b, n) });
    assert_eq!(uuid, Err(NOT_FOUND));
    assert_eq!(unsafe { nvml.nvmlGpuInstanceDestroy(outer) }, SUCCESS);
    assert_eq!(node.info(outer).err(), Some(INVALID_ARGUMENT));
    assert_eq!(unsafe { nvml.nvmlGpuInstanceDestroy(outer) }, INVALID_ARGUMENT);
    assert_eq!(unsafe { nvml.nvmlGpuInstanceDestroy(node.gpu.cast()) }, INVALID_ARGUMENT);
    assert_eq!(node.set_mode(0), Ok(SUCCESS));
    assert_eq!(node.create(SINGLE), Err(NOT_SUPPORTED));
}

#[test]
fn capacity_is_counted_and_lists_are_by_profile() {
    let node = Node::partitioned("dgx-h100");
    let left = |profile| {
        output_of(|count| unsafe {
            node.nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(node.gpu, profile, count)
        })
    };
    assert_eq!((left(SINGLE), left(THREE), left(WHOLE)), (Ok(7), Ok(2), Ok(1)));
    let three = node.create(THREE).unwrap();
    let single = node.create(SINGLE).unwrap();
    assert_eq!((left(SINGLE), left(THREE), left(WHOLE)), (Ok(3), Ok(0), Ok(0)));
    assert_eq!(node.create(WHOLE), Err(INSUFFICIENT_RESOURCES));
    let list = |profile| {
        let mut room = [null_mut(); 7];
        let count = output_of::<u32>(|count| unsafe {
            node.nvml.nvmlDeviceGetGpuInstances(node.gpu, profile, room.as_mut_ptr(), count)
        })?;
        Ok::<_, u32>(room[..count as usize].to_vec())
    };
    assert_eq!(
        (list(SINGLE), list(THREE), list(14)),
        (Ok(vec![single]), Ok(vec![three]), Ok(vec![]))
    );
    assert_eq!(list(1), Err(INVALID_ARGUMENT));
    let by_id = |id| {
        output_of(|instance| unsafe {
            node.nvml.nvmlDeviceGetGpuInstanceById(node.gpu, id, instance)
        })
    };
    assert_eq!((by_id(2), by_id(0)), (Ok(three), Err(NOT_FOUND)));
}

#[test]
fn a_gpu_instance_says_what_it_can_be_cut_into() {
    let node = Node::partitioned("dgx-h100");
    let nvml = &node.nvml;
    let outer = node.create(WHOLE).unwrap();
    let info = |number| {
        output_of(|info| unsafe {
            nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(outer, number, 0, info)
        })
    };
    let cuts: Vec<_> = (0..8)
        .filter_map(|n| info(n).ok())
        .map(|i| (i.id, i.sliceCount, i.instanceCount))
        .collect();
    assert_eq!(cuts, [(0, 1, 7), (1, 2, 3), (2, 3, 2), (3, 4, 1), (4, 7, 1)]);
    assert_eq!((info(5).err(), info(8).err()), (Some(NOT_SUPPORTED), Some(INVALID_ARGUMENT)));
    let mut second: sys::nvmlComputeInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    second.version = u32::try_from(size_of_val(&second)).unwrap() | 2 << 24;
    let code =
        unsafe { nvml.nvmlGpuInstanceGetComputeInstanceProfileInfoV(outer, 2, 0, &raw mut second) };
    assert_eq!((code, letters(&second.name).as_str()), (SUCCESS, "MIG 3c.7g.80gb"));
    let place = sys::nvmlComputeInstancePlacement_t { start: 4, size: 3 };
    let inner: sys::nvmlComputeInstance_t = output_of(|inner| unsafe {
        nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(outer, 2, &raw const place, inner)
    })
    .unwrap();
    let left = output_of(|count| unsafe {
        nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(outer, 0, count)
    });
    assert_eq!(left, Ok(4));
    let mut room = [null_mut(); 2];
    let count = output_of(|count| unsafe {
        nvml.nvmlGpuInstanceGetComputeInstances(outer, 2, room.as_mut_ptr(), count)
    });
    assert_eq!((count, room[0]), (Ok(1_u32), inner));
    let by_id =
        output_of(|inner| unsafe { nvml.nvmlGpuInstanceGetComputeInstanceById(outer, 0, inner) });
    assert_eq!(by_id, Ok(inner));
}

#[test]
fn an_accepted_mode_tells_what_it_waits_for() {
    let node = Node::new("dgx-a100-40");
    assert_eq!(node.set_mode(2), Err(INVALID_ARGUMENT));
    assert_eq!(node.set_mode(1), Ok(RESET_REQUIRED));
    assert_eq!(node.mode(), (0, 1));
    assert_eq!(node.create(SINGLE), Err(NOT_SUPPORTED));
    assert_eq!(node.set_mode(0), Ok(SUCCESS));
    assert_eq!(node.mode(), (0, 0));
    node.edit(|state| state.gpus.entry(0).or_default().processes = 1);
    assert_eq!(node.set_mode(1), Ok(IN_USE));
    assert_eq!(node.mode(), (0, 1));
    let without = Node::new("t4");
    assert_eq!(without.set_mode(1), Err(NOT_SUPPORTED));
}

#[test]
fn remapped_rows_are_hidden_while_instances_exist() {
    let node = Node::partitioned("dgx-h100");
    let rows = || {
        let mut rows = [0; 4];
        let [a, b, c, d] = &mut rows;
        unsafe { node.nvml.nvmlDeviceGetRemappedRows(node.gpu, a, b, c, d) }
    };
    assert_eq!(rows(), SUCCESS);
    node.create(SINGLE).unwrap();
    assert_eq!(rows(), NOT_SUPPORTED);
}

#[test]
fn making_and_destroying_may_take_a_while_and_fail_on_command() {
    let node = Node::partitioned("dgx-h100");
    node.edit(|state| {
        state.mig_create_millis = 1;
        state.mig_destroy_millis = 1;
    });
    let outer = node.create(SINGLE).unwrap();
    node.edit(|state| {
        let failing = &mut state.gpus.get_mut(&0).unwrap().failing_calls;
        failing.insert("nvmlGpuInstanceDestroy".to_owned(), 999);
        failing.insert("nvmlDeviceCreateGpuInstance".to_owned(), 4);
    });
    assert_eq!(unsafe { node.nvml.nvmlGpuInstanceDestroy(outer) }, 999);
    assert_eq!(node.create(SINGLE), Err(4));
    assert_eq!(unsafe { node.nvml.nvmlGpuInstanceDestroy(null_mut()) }, INVALID_ARGUMENT);
    node.edit(|state| state.gpus.get_mut(&0).unwrap().failing_calls.clear());
    assert_eq!(unsafe { node.nvml.nvmlGpuInstanceDestroy(outer) }, SUCCESS);
}

/// Set where a test runs as root without the capability `SYS_ADMIN`.
const INSIDE: &str = "OCTAVO_TEST_WITHOUT_SYS_ADMIN";

#[test]
fn root_without_the_capability_may_look_and_change_nothing() {
    if std::env::var_os(INSIDE).is_some() {
        return look_and_try();
    }
    let output = Command::new("unshare")
        .args(["--map-root-user", "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "root_without_the_capability_may_look_and_change_nothing"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

fn look_and_try() {
    let node = Node::new("dgx-h100");
    assert_eq!(node.mode(), (0, 0));
    assert_eq!(node.set_mode(1), Err(NO_PERMISSION));
    assert_eq!(node.create(SINGLE), Err(NO_PERMISSION));
    let (mut instance, mut count) = (null_mut(), 0);
    let listed = unsafe {
        node.nvml.nvmlDeviceGetGpuInstances(node.gpu, SINGLE, &raw mut instance, &raw mut count)
    };
    assert_eq!(listed, NO_PERMISSION);
    let persistence = unsafe { node.nvml.nvmlDeviceSetPersistenceMode(node.gpu, 0) };
    assert_eq!(persistence, NO_PERMISSION);
    let used = output_of(|used| unsafe { node.nvml.nvmlDeviceGetUtilizationRates(node.gpu, used) });
    assert!(used.is_ok(), "{used:?}");
}
