//! A driver that lacks most functions, in C beside this file.

use std::path::Path;
use std::process::Command;

use octavo_gpu::mig::{MigPlacement, MigProfile, MigShape, MigVariant};
use octavo_gpu::nvml::{LIBRARY_NAME, Nvml};
use octavo_gpu::{Driver, DriverError, GpuHealth, GpuProcess, Inventory, Mig};

/// Builds the old driver with `flags` and opens it. The folder may be deleted once the library is
/// loaded.
fn open(flags: &[&str]) -> Nvml {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join(LIBRARY_NAME);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml/old_driver.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-o"])
        .args([&library, &source])
        .args(flags)
        .status()
        .unwrap();
    assert!(built.success());
    Nvml::open(&library, Path::new("/nonexistent")).unwrap()
}

#[test]
fn a_gpu_is_read_with_what_the_driver_knows() {
    let inventory = Inventory::read(&open(&[])).unwrap();
    assert_eq!(inventory.unreadable, []);
    assert_eq!(inventory.versions.cuda, (11, 4));
    let [gpu] = &inventory.gpus[..] else { panic!("{:?}", inventory.gpus) };
    assert_eq!((gpu.uuid.as_str(), gpu.name.as_str()), ("GPU-old", "A100-SXM4-40GB"));
    assert_eq!((gpu.brand.as_str(), gpu.architecture.as_str()), ("Unknown", "Unknown"));
    assert_eq!((gpu.memory_bytes, gpu.reserved_bytes), (40960 << 20, None));
    assert_eq!(gpu.multiprocessors, Some(108), "6912 cores, 64 each");
    assert_eq!(gpu.pci.to_string(), "0000:c1:00.1");
    assert_eq!(gpu.mig, Some(Mig { enabled: false, pending: true }));
    assert_eq!((&gpu.nvlink, &gpu.fabric, gpu.ecc), (&None, &None, None));
    assert_eq!((gpu.sm_clock_mhz, gpu.power_limit_milliwatts), (None, None));
}

#[test]
fn missing_health_is_no_error() {
    assert_eq!(open(&[]).health("GPU-old"), Ok(GpuHealth::default()));
}

#[test]
fn events_that_the_driver_has_not_are_missing_by_name() {
    let events = open(&[]).events();
    assert_eq!(events.err(), Some(DriverError::Missing { call: "nvmlEventSetCreate" }));
}

#[test]
fn an_error_without_words_keeps_its_code() {
    let error = open(&[]).health("other").unwrap_err();
    let reported = "nvmlDeviceGetHandleByUUID: the driver gave no reason (code 999)";
    assert_eq!(error.to_string(), reported);
}

#[test]
fn mig_profiles_come_with_names_and_placements() {
    let profiles = open(&[]).mig_profiles("GPU-old").unwrap();
    let shape = |variant| MigShape { compute_slices: 1, gpu_slices: 1, variant };
    let plain = MigProfile {
        number: 0,
        id: 19,
        name: "1g.5gb".to_owned(),
        shape: shape(MigVariant::Plain),
        memory_mib: 4864,
        instances: 7,
        multiprocessors: 14,
        copy_engines: 1,
        decoders: 0,
        encoders: 0,
        jpeg_engines: 0,
        ofa_engines: 0,
        placements: vec![MigPlacement { start: 0, size: 1 }, MigPlacement { start: 4, size: 1 }],
    };
    let media = MigProfile {
        number: 7,
        id: 20,
        name: "1g.5gb+me".to_owned(),
        shape: shape(MigVariant::Media),
        instances: 1,
        decoders: 1,
        jpeg_engines: 1,
        ofa_engines: 1,
        placements: Vec::new(),
        ..plain.clone()
    };
    assert_eq!(profiles, [plain, media]);
}

#[test]
fn the_call_with_versions_is_preferred_where_there_is_one() {
    let multiprocessors = |flags: &[&str]| -> Vec<u32> {
        let profiles = open(flags).mig_profiles("GPU-old").unwrap();
        profiles.iter().map(|profile| profile.multiprocessors).collect()
    };
    assert_eq!(multiprocessors(&[]), [14, 14]);
    assert_eq!(multiprocessors(&["-DVERSIONED"]), [100, 100]);
}

#[test]
fn mig_calls_that_the_driver_has_not_are_missing_by_name() {
    let driver = open(&[]);
    let profile = &driver.mig_profiles("GPU-old").unwrap()[0];
    let missing = |call| Some(DriverError::Missing { call });
    assert_eq!(driver.mig_instances("GPU-old"), Ok(Vec::new()), "the mode is off");
    assert_eq!(driver.set_mig_mode("GPU-old", true).err(), missing("nvmlDeviceSetMigMode"));
    let made = driver.create_mig("GPU-old", profile, profile.placements[0]);
    assert_eq!(made.err(), missing("nvmlDeviceCreateGpuInstanceWithPlacement"));
    let destroyed = driver.destroy_mig("GPU-old", 1);
    assert_eq!(destroyed.err(), missing("nvmlDeviceGetGpuInstanceById"));
}

#[test]
fn a_gpu_whose_instances_the_driver_cannot_list_is_read_without_them() {
    let driver = open(&["-DMIG_ON"]);
    let call = "nvmlDeviceGetGpuInstances";
    assert_eq!(driver.mig_instances("GPU-old").err(), Some(DriverError::Missing { call }));
    let inventory = Inventory::read(&driver).unwrap();
    let [gpu] = &inventory.gpus[..] else { panic!("{:?}", inventory.unreadable) };
    assert_eq!(gpu.mig, Some(Mig { enabled: true, pending: true }));
    assert_eq!(gpu.mig_instances, []);
}

#[test]
fn processes_of_all_lists_are_merged_in_order() {
    let processes = open(&["-DPROCESSES"]).processes("GPU-old").unwrap();
    assert_eq!(processes.len(), 41);
    let is_ordered = processes.is_sorted_by_key(|process| process.pid);
    assert!(is_ordered, "{processes:?}");
    let of = |pid| processes.iter().find(|process| process.pid == pid).copied();
    assert_eq!(of(7), Some(GpuProcess { pid: 7, used_bytes: Some(70) }), "it only draws");
    assert_eq!(of(999), Some(GpuProcess { pid: 999, used_bytes: Some(5000) }), "it does both");
    assert_eq!(of(1000), Some(GpuProcess { pid: 1000, used_bytes: None }), "not available");
    assert_eq!(of(961), Some(GpuProcess { pid: 961, used_bytes: Some(39_000) }));
}

#[test]
fn a_reserve_that_the_driver_does_not_say_is_what_an_idle_gpu_has_in_use() {
    let reserve = |flags: &[&str]| {
        let inventory = Inventory::read(&open(flags)).unwrap();
        inventory.gpus[0].reserved_bytes
    };
    assert_eq!(reserve(&["-DIDLE"]), Some(450 << 20));
    assert_eq!(reserve(&["-DPROCESSES"]), None, "part of it is the processes'");
    assert_eq!(reserve(&[]), None, "whether the GPU is idle is not known");
}

#[test]
fn a_driver_without_the_list_says_so_by_its_name() {
    let call = "nvmlDeviceGetComputeRunningProcesses_v3";
    assert_eq!(open(&[]).processes("GPU-old"), Err(DriverError::Missing { call }));
}
