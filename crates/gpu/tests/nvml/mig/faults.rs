//! Failing calls, and instances in use.

use std::slice;

use octavo_gpu::mig::MigInstance;
use octavo_gpu::{Driver as _, DriverError, Inventory};

use super::{at, profiles, with_mode_on};
use crate::node::Node;

const CODES: [u32; 4] = [2, 15, 19, 999];

/// Calls that create an instance, in order.
const CREATING: [&str; 11] = [
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceGetInfo",
    "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceGetInfo_v2",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetUUID",
];

fn fail(node: &Node, call: &str, code: u32) {
    node.edit(|state| {
        let gpu = state.gpus.entry(0).or_default();
        gpu.failing_calls = [(call.to_owned(), code)].into();
    });
}

fn heal(node: &Node) {
    node.edit(|state| state.gpus.entry(0).or_default().failing_calls.clear());
}

/// Sets the processes of the compute instances of a GPU instance.
fn occupy(node: &Node, instance: &MigInstance, compute: u32, processes: u32) {
    node.edit(|state| {
        let mig = &mut state.gpus.get_mut(&0).unwrap().mig;
        let outer = mig.instances.get_mut(&instance.gpu_instance).unwrap();
        outer.compute_instances.get_mut(&compute).unwrap().processes = processes;
    });
}

#[test]
fn a_gpu_in_mig_mode_that_may_not_be_read_is_unreadable_and_not_empty() {
    const NO_PERMISSION: u32 = 4;
    let (node, driver, _) = with_mode_on("dgx-h100");
    for call in [
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
        "nvmlDeviceGetGpuInstances",
    ] {
        fail(&node, call, NO_PERMISSION);
        let inventory = Inventory::read(&driver).unwrap();
        let [gpu] = &inventory.unreadable[..] else { panic!("{call}: {:?}", inventory.gpus[0]) };
        assert_eq!(gpu.index, 0, "{call}");
        heal(&node);
    }
    assert!(Inventory::read(&driver).unwrap().unreadable.is_empty());
}

#[test]
fn whichever_call_of_making_one_fails_no_half_instance_is_left() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["2g.20gb"];
    for call in CREATING {
        for code in CODES {
            fail(&node, call, code);
            let answer = driver.create_mig(&uuid, profile, at(profile, 2));
            let error = answer.expect_err(call);
            assert!(!matches!(error, DriverError::HalfDone { .. }), "{call} {code}: {error}");
            assert_eq!(node.state().gpus[&0].mig.instances.len(), 0, "{call} answers {code}");
            heal(&node);
            assert_eq!(driver.mig_instances(&uuid).unwrap(), [], "{call} answers {code}");
        }
    }
    driver.create_mig(&uuid, profile, at(profile, 2)).unwrap();
}

#[test]
fn an_instance_that_cannot_be_removed_is_reported() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["2g.20gb"];
    node.edit(|state| {
        state.gpus.entry(0).or_default().failing_calls = [
            ("nvmlGpuInstanceCreateComputeInstance".to_owned(), 999),
            ("nvmlGpuInstanceDestroy".to_owned(), 19),
        ]
        .into();
    });
    let error = driver.create_mig(&uuid, profile, at(profile, 2)).unwrap_err();
    let DriverError::HalfDone { gpu_instance: Some(4), .. } = error else { panic!("{error:?}") };
    assert!(matches!(error.cause(), DriverError::Failed { code: 999, .. }));
    assert_eq!(
        error.to_string(),
        "nvmlGpuInstanceCreateComputeInstance: Unknown Error (code 999); GPU instance 4 is left \
         behind: nvmlGpuInstanceDestroy: the GPU is in use"
    );
    heal(&node);
    let [left] = &driver.mig_instances(&uuid).unwrap()[..] else { panic!("none is left") };
    assert_eq!((left.gpu_instance, left.compute_instances.len()), (4, 0));
    driver.destroy_mig(&uuid, 4).unwrap();
}

#[test]
fn an_instance_that_processes_use_stays_whole() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["1g.10gb"];
    let made = driver.create_mig(&uuid, profile, at(profile, 5)).unwrap();
    occupy(&node, &made, 0, 3);
    let refused = driver.destroy_mig(&uuid, made.gpu_instance);
    assert!(matches!(refused, Err(DriverError::InUse { .. })), "{refused:?}");
    assert_eq!(driver.mig_instances(&uuid).unwrap(), slice::from_ref(&made));
    occupy(&node, &made, 0, 0);
    driver.destroy_mig(&uuid, made.gpu_instance).unwrap();
}

#[test]
fn a_partly_destroyed_instance_is_reported() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["3g.40gb"];
    let made = driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    node.edit(|state| {
        let table = octavo_machine::MigTable::find("h100-80").unwrap();
        let mig = &mut state.gpus.get_mut(&0).unwrap().mig;
        mig.destroy_compute(made.gpu_instance, 0).unwrap();
        for _ in 0..3 {
            mig.create_compute(&table, made.gpu_instance, 0, None).unwrap();
        }
    });
    occupy(&node, &made, 2, 1);
    let error = driver.destroy_mig(&uuid, made.gpu_instance).unwrap_err();
    assert!(matches!(error.cause(), DriverError::InUse { .. }), "{error}");
    assert!(error.to_string().ends_with("has lost its compute instances 0, 1"), "{error}");
    let [left] = &driver.mig_instances(&uuid).unwrap()[..] else { panic!("it is gone") };
    assert_eq!(left.compute_instances.len(), 1);
}

#[test]
fn a_failed_destroy_can_be_repeated() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["2g.20gb"];
    for call in [
        "nvmlDeviceGetGpuInstanceById",
        "nvmlGpuInstanceGetComputeInstanceProfileInfo",
        "nvmlGpuInstanceGetComputeInstances",
        "nvmlComputeInstanceGetInfo_v2",
        "nvmlComputeInstanceDestroy",
        "nvmlGpuInstanceDestroy",
    ] {
        for code in [15, 19, 999] {
            let made = driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
            fail(&node, call, code);
            let error = driver.destroy_mig(&uuid, made.gpu_instance).expect_err(call);
            let part_is_gone = matches!(error, DriverError::HalfDone { .. });
            assert_eq!(part_is_gone, call == "nvmlGpuInstanceDestroy", "{error}");
            heal(&node);
            let left = driver.mig_instances(&uuid).unwrap();
            assert_eq!(left.len(), 1, "{call} answers {code}");
            assert_eq!(left[0].compute_instances.is_empty(), part_is_gone);
            driver.destroy_mig(&uuid, made.gpu_instance).unwrap();
        }
    }
}

#[test]
fn a_mode_that_cannot_be_changed_is_what_it_was() {
    let node = Node::shipped("dgx-h100");
    let (driver, uuid) = (node.open(), node.uuid(0));
    for call in ["nvmlDeviceSetMigMode", "nvmlDeviceGetMigMode"] {
        for code in CODES {
            fail(&node, call, code);
            driver.set_mig_mode(&uuid, true).expect_err(call);
            heal(&node);
            let mig = Inventory::read(&driver).unwrap().gpus[0].mig.unwrap();
            assert!(!mig.enabled && !mig.pending, "{call} answers {code}");
        }
    }
}

#[test]
fn unlisted_instances_make_only_their_gpu_unreadable() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["1g.10gb"];
    driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    for call in [
        "nvmlDeviceGetGpuInstances",
        "nvmlGpuInstanceGetInfo",
        "nvmlGpuInstanceGetComputeInstances",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetGpuInstanceId",
    ] {
        fail(&node, call, 999);
        let inventory = Inventory::read(&driver).unwrap();
        assert_eq!(inventory.gpus.len(), 7, "{call}");
        let [gpu] = &inventory.unreadable[..] else { panic!("{call}: all readable") };
        assert!(gpu.error.to_string().starts_with(call), "{}", gpu.error);
    }
}

#[test]
fn a_lost_gpu_is_lost_to_mig_too() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["1g.10gb"];
    let made = driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    node.edit(|state| state.gpus.get_mut(&0).unwrap().lost = true);
    for answer in [
        driver.mig_instances(&uuid).map(drop),
        driver.create_mig(&uuid, profile, at(profile, 1)).map(drop),
        driver.destroy_mig(&uuid, made.gpu_instance),
        driver.set_mig_mode(&uuid, false).map(drop),
    ] {
        assert!(matches!(answer, Err(DriverError::GpuLost { .. })), "{answer:?}");
    }
    node.edit(|state| state.gpus.get_mut(&0).unwrap().lost = false);
    assert_eq!(driver.mig_instances(&uuid).unwrap(), [made]);
}
