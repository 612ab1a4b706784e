//! Privileged calls of a process without privileges.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "tests call C functions with pointers to their own locals and may fail loudly"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nvml_wrapper_sys::bindings::NvmlLib;
use octavo_machine::Machine;

const SUCCESS: u32 = 0;
const NO_PERMISSION: u32 = 4;

/// Set where the test runs as root without the capability.
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
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut machine = Machine::read(&machines.join("dgx-h100.yaml")).unwrap();
    machine.instantiate("node-0");
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libnvidia-ml.so.1");
    fs::copy(built_library(), &library).unwrap();
    fs::write(folder.path().join("machine.yaml"), machine.to_yaml().unwrap()).unwrap();
    let nvml = unsafe { NvmlLib::new(&library) }.unwrap();
    assert_eq!(unsafe { nvml.nvmlInit_v2() }, SUCCESS);
    let mut gpu = std::ptr::null_mut();
    assert_eq!(unsafe { nvml.nvmlDeviceGetHandleByIndex_v2(0, &raw mut gpu) }, SUCCESS);
    let (mut now, mut later) = (9, 9);
    let looked = unsafe { nvml.nvmlDeviceGetMigMode(gpu, &raw mut now, &raw mut later) };
    assert_eq!((looked, now), (SUCCESS, 0));
    assert_eq!(unsafe { nvml.nvmlDeviceSetMigMode(gpu, 1, &raw mut now) }, NO_PERMISSION);
    let mut instance = std::ptr::null_mut();
    let created = unsafe { nvml.nvmlDeviceCreateGpuInstance(gpu, 19, &raw mut instance) };
    assert_eq!(created, NO_PERMISSION);
    let mut count = 0;
    let listed =
        unsafe { nvml.nvmlDeviceGetGpuInstances(gpu, 19, &raw mut instance, &raw mut count) };
    assert_eq!(listed, NO_PERMISSION);
    assert_eq!(unsafe { nvml.nvmlDeviceSetPersistenceMode(gpu, 0) }, NO_PERMISSION);
    let mut utilization = unsafe { std::mem::zeroed() };
    let looked = unsafe { nvml.nvmlDeviceGetUtilizationRates(gpu, &raw mut utilization) };
    assert_eq!(looked, SUCCESS);
}

fn built_library() -> PathBuf {
    let name = "liboctavo_fake_nvml.so";
    let test = std::env::current_exe().unwrap();
    let mut places = test.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    places.find(|path| path.exists()).expect("cargo builds the library beside the tests")
}
