use std::fs;

use octavo_fake_gpu::locate::MachineLocation;
use octavo_machine::{GpuState, State};

use super::{Session, without_version};
use crate::code::Code;
use crate::handle::Handles;

const MACHINE: &str = include_str!("../../../../machines/l4.yaml");

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("machine.yaml"), MACHINE).unwrap();
    folder
}

fn open(folder: &tempfile::TempDir, number: u32) -> Session {
    let location = MachineLocation { folder: folder.path().to_owned(), devices: None };
    Session::open(&location, Handles::new(0x1000, number)).unwrap()
}

#[test]
fn a_handle_of_an_earlier_session_is_noticed() {
    let folder = folder();
    let old = open(&folder, 1).handle(0);
    let mut session = open(&folder, 2);
    assert_eq!(session.device("call", old).err(), Some(Code::INVALID_ARGUMENT));
    assert_eq!(session.device("call", std::ptr::null_mut()).err(), Some(Code::INVALID_ARGUMENT));
    let beyond = session.handle(4);
    assert_eq!(session.device("call", beyond).err(), Some(Code::INVALID_ARGUMENT));
    let third = session.handle(3);
    assert_eq!(session.device("call", third).ok().map(|gpu| gpu.index), Some(3));
}

#[test]
fn an_event_set_is_no_gpu_and_a_freed_one_is_nothing() {
    let folder = folder();
    let mut session = open(&folder, 1);
    let set = session.create_set().unwrap();
    assert_eq!(session.device("call", set.cast()).err(), Some(Code::INVALID_ARGUMENT));
    assert!(session.set(set).is_ok());
    session.free_set(set).unwrap();
    assert_eq!(session.set(set).err(), Some(Code::INVALID_ARGUMENT));
    assert_eq!(session.free_set(set), Err(Code::INVALID_ARGUMENT));
}

#[test]
fn a_call_fails_for_the_machine_or_for_one_gpu() {
    let folder = folder();
    let mut session = open(&folder, 1);
    let failing = GpuState {
        failing_calls: [("nvmlDeviceGetUUID".to_owned(), 999)].into(),
        ..GpuState::default()
    };
    let state = State {
        gpus: [(1, failing)].into(),
        failing_calls: [("nvmlDeviceGetCount".to_owned(), 4)].into(),
        ..State::default()
    };
    state.write(&folder.path().join("state.json")).unwrap();
    assert_eq!(session.begin("nvmlDeviceGetCount_v2"), Err(Code(4)));
    assert_eq!(session.begin("nvmlDeviceGetUUID"), Ok(()));
    let (first, second) = (session.handle(0), session.handle(1));
    assert!(session.device("nvmlDeviceGetUUID", first).is_ok());
    assert_eq!(session.device("nvmlDeviceGetUUID", second).err(), Some(Code::UNKNOWN));
    assert!(session.device("nvmlDeviceGetName", second).is_ok());
}

#[test]
fn energy_never_falls_when_power_does() {
    let folder = folder();
    let mut session = open(&folder, 1);
    let gpu = session.handle(0);
    let first = session.device("call", gpu).map_or(u64::MAX, |mut gpu| gpu.energy());
    let off = GpuState { power_milliwatts: Some(0), ..GpuState::default() };
    let state = State { gpus: [(0, off)].into(), ..State::default() };
    state.write(&folder.path().join("state.json")).unwrap();
    session.begin("call").unwrap();
    let second = session.device("call", gpu).map_or(0, |mut gpu| gpu.energy());
    assert!(second >= first);
}

#[test]
fn only_a_version_at_the_end_is_left_out() {
    assert_eq!(without_version("nvmlInit_v2"), "nvmlInit");
    assert_eq!(without_version("nvmlDeviceGetGpuFabricInfoV"), "nvmlDeviceGetGpuFabricInfoV");
    assert_eq!(without_version("a_vX"), "a_vX");
}

#[test]
fn a_container_sees_the_gpus_whose_device_nodes_it_has() {
    let (folder, devices) = (folder(), tempfile::tempdir().unwrap());
    for name in ["nvidiactl", "nvidia1", "nvidia3"] {
        fs::write(devices.path().join(name), "").unwrap();
    }
    let location = MachineLocation {
        folder: folder.path().to_owned(),
        devices: Some(devices.path().to_owned()),
    };
    assert!(location.may_open("nvidiactl") && !location.may_open("nvidia0"));
    let mut session = Session::open(&location, Handles::new(0x1000, 1)).unwrap();
    assert_eq!(session.count(), 2);
    let at = |session: &Session, wanted| {
        session.find("call", Code::NOT_FOUND, &|index, _| index == wanted)
    };
    for (index, place) in [(0, 1), (1, 3)] {
        let handle = at(&session, index).unwrap();
        let gpu = session.device("call", handle).unwrap();
        assert_eq!((gpu.index, gpu.place, gpu.gpu.minor), (index, place, place));
    }
    assert_eq!(at(&session, 2), Err(Code::NOT_FOUND));
}
