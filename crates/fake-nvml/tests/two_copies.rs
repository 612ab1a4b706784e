//! Two copies of the built library in one process, used through NVML's own bindings.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "tests call C functions with pointers to their own locals and may fail loudly"
)]

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{self as sys, NvmlLib, field_id};
use octavo_machine::{Ecc, Event, EventKind, GpuState, Machine, RecoveryAction, State};
use tempfile::TempDir;

/// A node with its own copy of the library.
struct Node {
    folder: TempDir,
    nvml: NvmlLib,
}

impl Node {
    fn new(machine: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../machines")
            .join(machine)
            .with_extension("yaml");
        Self::with_text(&fs::read_to_string(path).unwrap())
    }

    fn with_text(machine: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libnvidia-ml.so.1");
        fs::copy(built_library(), &library).unwrap();
        fs::write(folder.path().join("machine.yaml"), machine).unwrap();
        let nvml = unsafe { NvmlLib::new(&library) }.unwrap();
        Self { folder, nvml }
    }

    fn started(machine: &str) -> Self {
        let node = Self::new(machine);
        assert_eq!(unsafe { node.nvml.nvmlInit_v2() }, 0);
        node
    }

    fn becomes(&self, state: &State) {
        state.write(&self.folder.path().join("state.json")).unwrap();
    }

    fn gpu(&self, index: u32) -> sys::nvmlDevice_t {
        let mut gpu = std::ptr::null_mut();
        assert_eq!(unsafe { self.nvml.nvmlDeviceGetHandleByIndex_v2(index, &raw mut gpu) }, 0);
        gpu
    }

    fn name(&self, gpu: sys::nvmlDevice_t) -> Result<String, u32> {
        text(|buffer, length| unsafe { self.nvml.nvmlDeviceGetName(gpu, buffer, length) })
    }

    fn uuid(&self, gpu: sys::nvmlDevice_t) -> Result<String, u32> {
        text(|buffer, length| unsafe { self.nvml.nvmlDeviceGetUUID(gpu, buffer, length) })
    }

    fn events(&self, gpus: &[sys::nvmlDevice_t], types: u64) -> sys::nvmlEventSet_t {
        let mut set = std::ptr::null_mut();
        assert_eq!(unsafe { self.nvml.nvmlEventSetCreate(&raw mut set) }, 0);
        for &gpu in gpus {
            assert_eq!(unsafe { self.nvml.nvmlDeviceRegisterEvents(gpu, types, set) }, 0);
        }
        set
    }

    fn wait(&self, set: sys::nvmlEventSet_t, timeout: u32) -> Result<sys::nvmlEventData_t, u32> {
        let mut data = unsafe { std::mem::zeroed() };
        match unsafe { self.nvml.nvmlEventSetWait_v2(set, &raw mut data, timeout) } {
            0 => Ok(data),
            code => Err(code),
        }
    }

    fn field(&self, gpu: sys::nvmlDevice_t, field: u32) -> Result<u64, u32> {
        let mut value: sys::nvmlFieldValue_t = unsafe { std::mem::zeroed() };
        value.fieldId = field;
        let code = unsafe { self.nvml.nvmlDeviceGetFieldValues(gpu, 1, &raw mut value) };
        match (code, value.nvmlReturn) {
            (0, 0) => Ok(unsafe { value.value.ullVal }),
            (0, code) | (code, _) => Err(code),
        }
    }
}

fn built_library() -> PathBuf {
    let name = "liboctavo_fake_nvml.so";
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let beside = [deps.join(name), deps.parent().unwrap().join(name)];
    let built = beside.iter().filter(|path| path.exists());
    built
        .max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
        .expect("cargo builds the library before its tests")
        .clone()
}

fn text(call: impl Fn(*mut c_char, u32) -> u32) -> Result<String, u32> {
    let mut buffer = [0; 96];
    match call(buffer.as_mut_ptr(), 96) {
        0 => Ok(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_str().unwrap().to_owned()),
        code => Err(code),
    }
}

fn gpu_state(index: u32, state: GpuState) -> State {
    State { gpus: [(index, state)].into(), ..State::default() }
}

fn xid(gpu: u32, data: u64) -> Event {
    Event { gpu, kind: EventKind::Xid, data, gpu_instance: None, compute_instance: None }
}

#[test]
fn two_copies_answer_each_from_its_own_machine() {
    let (big, small) = (Node::started("dgx-h100"), Node::started("t4"));
    let mut count = 0;
    assert_eq!(unsafe { big.nvml.nvmlDeviceGetCount_v2(&raw mut count) }, 0);
    assert_eq!(count, 8);
    assert_eq!(unsafe { small.nvml.nvmlDeviceGetCount_v2(&raw mut count) }, 0);
    assert_eq!(count, 4);
    assert_eq!(big.name(big.gpu(7)).unwrap(), "NVIDIA H100 80GB HBM3");
    assert_eq!(small.name(small.gpu(0)).unwrap(), "Tesla T4");
    // A handle of one library is invalid in the other.
    assert_eq!(small.name(big.gpu(0)), Err(2));
    let uuid = big.uuid(big.gpu(3)).unwrap();
    let name = CString::new(uuid.clone()).unwrap();
    let mut found = std::ptr::null_mut();
    assert_eq!(unsafe { big.nvml.nvmlDeviceGetHandleByUUID(name.as_ptr(), &raw mut found) }, 0);
    assert_eq!(found, big.gpu(3));
    assert_eq!(unsafe { small.nvml.nvmlDeviceGetHandleByUUID(name.as_ptr(), &raw mut found) }, 6);
}

#[test]
fn versions_identity_and_place_are_those_of_the_description() {
    let node = Node::started("gb200-tray");
    let nvml = &node.nvml;
    let driver = text(|b, n| unsafe { nvml.nvmlSystemGetDriverVersion(b, n) }).unwrap();
    assert_eq!(driver, "580.95.05");
    let mut cuda = 0;
    assert_eq!(unsafe { nvml.nvmlSystemGetCudaDriverVersion_v2(&raw mut cuda) }, 0);
    assert_eq!(cuda, 13000);
    let gpu = node.gpu(2);
    let mut pci: sys::nvmlPciInfo_t = unsafe { std::mem::zeroed() };
    assert_eq!(unsafe { nvml.nvmlDeviceGetPciInfo_v3(gpu, &raw mut pci) }, 0);
    assert_eq!(unsafe { CStr::from_ptr(pci.busId.as_ptr()) }, c"00000018:01:00.0");
    assert_eq!((pci.domain, pci.bus, pci.pciDeviceId), (0x18, 1, 0x2941_10DE));
    let mut found = std::ptr::null_mut();
    for address in [c"0018:01:00.0", c"00000018:01:00.0"] {
        let code =
            unsafe { nvml.nvmlDeviceGetHandleByPciBusId_v2(address.as_ptr(), &raw mut found) };
        assert_eq!((code, found), (0, gpu));
    }
    let (mut major, mut minor, mut architecture, mut brand) = (0, 0, 0, 0);
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetCudaComputeCapability(gpu, &raw mut major, &raw mut minor) },
        0
    );
    assert_eq!((major, minor), (10, 0));
    assert_eq!(unsafe { nvml.nvmlDeviceGetArchitecture(gpu, &raw mut architecture) }, 0);
    assert_eq!(architecture, sys::NVML_DEVICE_ARCH_BLACKWELL);
    assert_eq!(unsafe { nvml.nvmlDeviceGetBrand(gpu, &raw mut brand) }, 0);
    assert_eq!(brand, sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA);
    let mut memory: sys::nvmlMemory_v2_t = unsafe { std::mem::zeroed() };
    assert_eq!(unsafe { nvml.nvmlDeviceGetMemoryInfo_v2(gpu, &raw mut memory) }, 25);
    memory.version = 0x0200_0028;
    assert_eq!(unsafe { nvml.nvmlDeviceGetMemoryInfo_v2(gpu, &raw mut memory) }, 0);
    assert_eq!((memory.total, memory.reserved), (189_471 << 20, 580 << 20));
    assert_eq!(memory.free, memory.total - memory.reserved);
}

#[test]
fn fabric_has_three_versions_and_an_unknown_one_is_refused() {
    let node = Node::started("gb200-tray");
    let gpu = node.gpu(0);
    let mut first: sys::nvmlGpuFabricInfo_t = unsafe { std::mem::zeroed() };
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetGpuFabricInfo(gpu, &raw mut first) }, 0);
    assert_eq!((u32::from(first.state), first.cliqueId, first.clusterUuid[0]), (3, 1, 0x6f));

    let mut second: sys::nvmlGpuFabricInfo_v2_t = unsafe { std::mem::zeroed() };
    let place = (&raw mut second).cast();
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetGpuFabricInfoV(gpu, place) }, 25);
    second.version = u32::try_from(size_of_val(&second)).unwrap() | (2 << 24);
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetGpuFabricInfoV(gpu, place) }, 0);
    assert_eq!((second.clusterUuid, second.healthMask), (first.clusterUuid, 0x1AA));

    let mut third: sys::nvmlGpuFabricInfo_v3_t = unsafe { std::mem::zeroed() };
    third.version = u32::try_from(size_of_val(&third)).unwrap() | (3 << 24);
    let place = &raw mut third;
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetGpuFabricInfoV(gpu, place) }, 0);
    assert_eq!((third.clusterUuid, third.healthSummary), (first.clusterUuid, 1));
    node.becomes(&gpu_state(0, GpuState { fabric_health: Some(0x19A), ..GpuState::default() }));
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetGpuFabricInfoV(gpu, place) }, 0);
    assert_eq!((third.healthMask, third.healthSummary), (0x19A, 2));
}

#[test]
fn fabric_of_a_chassis_is_all_zero_and_older_gpus_know_none() {
    let node = Node::started("dgx-h100");
    let mut info: sys::nvmlGpuFabricInfo_t = unsafe { std::mem::zeroed() };
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetGpuFabricInfo(node.gpu(0), &raw mut info) }, 0);
    assert_eq!((u32::from(info.state), info.clusterUuid), (3, [0; 16]));
    let old = Node::started("dgx-a100-80");
    assert_eq!(unsafe { old.nvml.nvmlDeviceGetGpuFabricInfo(old.gpu(0), &raw mut info) }, 3);
}

#[test]
fn links_and_ancestors_tell_the_topology() {
    let node = Node::started("dgx-a100-40");
    let nvml = &node.nvml;
    let gpu = node.gpu(0);
    let (mut state, mut version) = (0, 0);
    assert_eq!(unsafe { nvml.nvmlDeviceGetNvLinkState(gpu, 11, &raw mut state) }, 0);
    assert_eq!(state, 1);
    assert_eq!(unsafe { nvml.nvmlDeviceGetNvLinkState(gpu, 12, &raw mut state) }, 2);
    assert_eq!(unsafe { nvml.nvmlDeviceGetNvLinkVersion(gpu, 0, &raw mut version) }, 0);
    assert_eq!(version, sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_0);
    let level = |other: u32| {
        let mut level = 0;
        let other = node.gpu(other);
        let code = unsafe { nvml.nvmlDeviceGetTopologyCommonAncestor(gpu, other, &raw mut level) };
        (code, level)
    };
    assert_eq!([level(0), level(1), level(2)], [(0, 0), (0, 10), (0, 50)]);
    let pcie = Node::started("l4");
    let mut status = 0;
    let (one, two, far) = (pcie.gpu(0), pcie.gpu(1), pcie.gpu(2));
    assert_eq!(unsafe { pcie.nvml.nvmlDeviceGetNvLinkState(one, 0, &raw mut state) }, 3);
    assert_eq!(unsafe { pcie.nvml.nvmlDeviceGetP2PStatus(one, two, 0, &raw mut status) }, 0);
    assert_eq!(status, 0);
    assert_eq!(unsafe { pcie.nvml.nvmlDeviceGetP2PStatus(one, far, 0, &raw mut status) }, 0);
    assert_eq!(status, 1);
}

#[test]
fn a_lost_gpu_answers_nothing_and_the_others_go_on() {
    let node = Node::started("dgx-h100");
    let (sick, well) = (node.gpu(2), node.gpu(3));
    let uuid = CString::new(node.uuid(sick).unwrap()).unwrap();
    node.becomes(&gpu_state(2, GpuState { lost: true, ..GpuState::default() }));
    assert_eq!(node.name(sick), Err(15));
    let mut found = std::ptr::null_mut();
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetHandleByIndex_v2(2, &raw mut found) }, 15);
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut found) }, 15);
    assert!(node.name(well).is_ok());
    node.becomes(&State::default());
    assert!(node.name(sick).is_ok());
}

#[test]
fn faults_counters_and_fields_follow_the_state() {
    let node = Node::started("dgx-h100");
    let gpu = node.gpu(1);
    let action = field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
    assert_eq!(node.field(gpu, action), Ok(0));
    node.becomes(&gpu_state(
        1,
        GpuState {
            recovery_action: RecoveryAction::DrainAndReset,
            ecc: Ecc { volatile_uncorrected: 7, ..Ecc::default() },
            remap_pending: true,
            temperature_celsius: Some(93),
            failing_calls: [("nvmlDeviceGetPowerUsage".to_owned(), 999)].into(),
            ..GpuState::default()
        },
    ));
    assert_eq!(node.field(gpu, action), Ok(4));
    assert_eq!(node.field(gpu, field_id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL), Ok(7));
    assert_eq!(node.field(gpu, field_id::NVML_FI_DEV_REMAPPED_PENDING), Ok(1));
    assert_eq!(node.field(gpu, field_id::NVML_FI_DEV_NVLINK_LINK_COUNT), Ok(18));
    assert_eq!(node.field(gpu, 9999), Err(3));
    let (mut celsius, mut milliwatts, mut errors) = (0, 0, 0);
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetTemperature(gpu, 0, &raw mut celsius) }, 0);
    assert_eq!(celsius, 93);
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetPowerUsage(gpu, &raw mut milliwatts) }, 999);
    assert_eq!(unsafe { node.nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0, &raw mut errors) }, 0);
    assert_eq!(errors, 7);
    let (mut a, mut b, mut pending, mut failed) = (9, 9, 9, 9);
    let code = unsafe {
        node.nvml.nvmlDeviceGetRemappedRows(
            gpu,
            &raw mut a,
            &raw mut b,
            &raw mut pending,
            &raw mut failed,
        )
    };
    assert_eq!((code, a, b, pending, failed), (0, 0, 1, 1, 0));
}

#[test]
fn events_wake_the_waiter_once_each_in_order() {
    let node = Node::started("dgx-h100");
    node.becomes(&State { events: vec![xid(0, 13)], ..State::default() });
    let gpus: Vec<_> = (0..8).map(|index| node.gpu(index)).collect();
    let set = node.events(&gpus, 8);
    assert_eq!(node.wait(set, 0).err(), Some(10));
    let path = node.folder.path().join("state.json");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A burst in one write, after an event that was over before the set was created.
            let events = vec![xid(0, 13), xid(5, 79), xid(6, 48), xid(5, 31)];
            State { events, ..State::default() }.write(&path).unwrap();
        });
        let start = Instant::now();
        let codes = [(); 3].map(|()| node.wait(set, 30_000).unwrap().eventData);
        assert_eq!(codes, [79, 48, 31]);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(20), "waited {took:?} although the file changed");
    });
    assert_eq!(node.wait(set, 1).err(), Some(10));
    assert_eq!(unsafe { node.nvml.nvmlEventSetFree(set) }, 0);
    assert_eq!(node.wait(set, 1).err(), Some(2));
}

#[test]
fn an_event_names_its_gpu_and_instances() {
    let node = Node::started("dgx-h100");
    let set = node.events(&[node.gpu(4)], 8 | 2);
    let of_instance = Event { gpu_instance: Some(3), ..xid(4, 43) };
    let ecc = Event { kind: EventKind::DoubleBitEcc, ..xid(4, 0) };
    node.becomes(&State { events: vec![xid(1, 79), of_instance, ecc], ..State::default() });
    let first = node.wait(set, 10_000).unwrap();
    assert_eq!((first.device, first.eventType, first.eventData), (node.gpu(4), 8, 43));
    assert_eq!((first.gpuInstanceId, first.computeInstanceId), (3, u32::MAX));
    let second = node.wait(set, 10_000).unwrap();
    assert_eq!((second.eventType, second.gpuInstanceId), (2, u32::MAX));
    assert_eq!(unsafe { node.nvml.nvmlDeviceRegisterEvents(node.gpu(0), 4, set) }, 3);
}

#[test]
fn initialisation_is_counted_and_wrong_use_is_refused() {
    let node = Node::new("t4");
    let nvml = &node.nvml;
    let mut count = 0;
    assert_eq!(unsafe { nvml.nvmlDeviceGetCount_v2(&raw mut count) }, 1);
    assert_eq!(unsafe { nvml.nvmlShutdown() }, 1);
    assert_eq!(unsafe { nvml.nvmlInit_v2() }, 0);
    assert_eq!(unsafe { nvml.nvmlInitWithFlags(0) }, 0);
    let gpu = node.gpu(0);
    assert_eq!(unsafe { nvml.nvmlShutdown() }, 0);
    assert!(node.name(gpu).is_ok());
    assert_eq!(unsafe { nvml.nvmlDeviceGetCount_v2(std::ptr::null_mut()) }, 2);
    assert_eq!(unsafe { nvml.nvmlDeviceGetName(gpu, std::ptr::null_mut(), 96) }, 2);
    let mut short = [0; 8];
    assert_eq!(unsafe { nvml.nvmlDeviceGetName(gpu, short.as_mut_ptr(), 8) }, 7);
    let mut exact = [0; 9];
    assert_eq!(unsafe { nvml.nvmlDeviceGetName(gpu, exact.as_mut_ptr(), 9) }, 0);
    assert_eq!(node.name(std::ptr::null_mut()), Err(2));
    assert_eq!(unsafe { nvml.nvmlShutdown() }, 0);
    assert_eq!(node.name(gpu), Err(1));
    assert_eq!(unsafe { nvml.nvmlInit_v2() }, 0);
    assert_eq!(node.name(gpu), Err(2), "the handle is of before the shutdown");
}

#[test]
fn a_machine_that_cannot_be_read_fails_to_start_and_says_why() {
    let node = Node::with_text("name: broken\nwings: 2\n");
    assert_eq!(unsafe { node.nvml.nvmlInit_v2() }, 999);
    let note = node.folder.path().join("machine.error");
    let reason = fs::read_to_string(&note).unwrap();
    assert!(reason.starts_with("not a machine description: "), "{reason}");
    fs::remove_file(node.folder.path().join("machine.yaml")).unwrap();
    assert_eq!(unsafe { node.nvml.nvmlInit_v2() }, 12);
    let words = unsafe { CStr::from_ptr(node.nvml.nvmlErrorString(12)) };
    assert_eq!(words, c"NVML Shared Library Not Found");
    let good =
        Machine::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/gh200.yaml"));
    fs::write(node.folder.path().join("machine.yaml"), good.unwrap().to_yaml().unwrap()).unwrap();
    assert_eq!(unsafe { node.nvml.nvmlInit_v2() }, 0);
    assert!(!note.exists());
    assert_eq!(node.name(node.gpu(0)).unwrap(), "NVIDIA GH200 144G HBM3e");
}
