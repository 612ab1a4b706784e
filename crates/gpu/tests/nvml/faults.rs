//! One GPU or call fails, and all others work.

use std::collections::BTreeMap;

use octavo_gpu::nvml::Nvml;
use octavo_gpu::{Driver, DriverError, Gpu, GpuHealth, Inventory, RecoveryAction};
use octavo_machine::{Ecc, GpuState, State};

use crate::node::{Node, gpus, meshed, switched};

const IN_USE: u32 = 19;
const GPU_IS_LOST: u32 = 15;
const RESET_REQUIRED: u32 = 16;
const UNKNOWN: u32 = 999;
const NOT_SUPPORTED: u32 = 3;
const FUNCTION_NOT_FOUND: u32 = 13;
const NO_PERMISSION: u32 = 4;
const CODES: [u32; 4] = [IN_USE, GPU_IS_LOST, NO_PERMISSION, UNKNOWN];

/// Calls for mandatory facts of a GPU.
const MANDATORY: [&str; 9] = [
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetArchitecture",
];

/// Calls for optional facts of a GPU.
const OPTIONAL: [&str; 16] = [
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetAddressingMode",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkVersion",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetSupportedEventTypes",
];

/// Calls about the system, without which nothing can be read.
const SYSTEM: [&str; 4] = [
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetNVMLVersion",
    "nvmlDeviceGetCount_v2",
];

/// GPU `index` fails in `calls`.
fn failing(index: u32, calls: &[(&str, u32)]) -> State {
    let failing_calls = calls.iter().map(|&(call, code)| (call.to_owned(), code)).collect();
    State {
        gpus: BTreeMap::from([(index, GpuState { failing_calls, ..GpuState::default() })]),
        ..State::default()
    }
}

fn assert_code(error: &DriverError, code: u32, context: &str) {
    let same = match error {
        DriverError::InUse { .. } => code == IN_USE,
        DriverError::GpuLost { .. } => code == GPU_IS_LOST,
        DriverError::Failed { code: reported, .. } => *reported == code,
        _ => false,
    };
    assert!(same, "{context}: {error:?} for code {code}");
}

/// The facts of a GPU that do not depend on others.
fn alone(gpu: &Gpu) -> Gpu {
    let mut gpu = gpu.clone();
    if let Some(nvlink) = &mut gpu.nvlink {
        nvlink.peers.clear();
    }
    gpu
}

/// Asserts that GPUs other than 1 are as before the fault.
fn assert_others(well: &Inventory, driver: &Nvml, context: &str) {
    for (index, gpu) in gpus(driver).into_iter().enumerate().filter(|(index, _)| *index != 1) {
        let gpu = gpu.unwrap_or_else(|gpu| panic!("{context}: {gpu:?}"));
        assert_eq!(alone(&gpu), alone(&well.gpus[index]), "{context}");
    }
}

#[test]
fn a_gpu_that_fails_a_mandatory_call_is_unreadable_and_alone_in_that() {
    let node = Node::of(switched());
    let driver = node.open();
    let well = Inventory::read(&driver).unwrap();
    for call in MANDATORY {
        for code in CODES {
            // Memory has two calls, either of which suffices.
            node.set(&failing(1, &[(call, code), ("nvmlDeviceGetMemoryInfo_v2", UNKNOWN)]));
            let context = format!("{call} answers {code}");
            assert_others(&well, &driver, &context);
            let inventory = Inventory::read(&driver).unwrap();
            let [gpu] = &inventory.unreadable[..] else { panic!("{context}: all readable") };
            assert_eq!(gpu.index, 1, "{context}");
            assert_code(&gpu.error, code, &context);
        }
    }
    node.set(&State::default());
    assert_eq!(Inventory::read(&driver).unwrap(), well, "healed");
}

#[test]
fn a_gpu_that_fails_an_optional_call_is_read_without_the_fact() {
    let node = Node::of(switched());
    let driver = node.open();
    let well = Inventory::read(&driver).unwrap();
    for call in OPTIONAL {
        for code in [IN_USE, UNKNOWN, NOT_SUPPORTED, FUNCTION_NOT_FOUND] {
            node.set(&failing(1, &[(call, code)]));
            let context = format!("{call} answers {code}");
            assert_others(&well, &driver, &context);
            let gpu = gpus(&driver).remove(1);
            assert_eq!(gpu.unwrap().uuid, node.uuid(1), "{context}");
        }
    }
}

#[test]
fn a_gpu_that_is_lost_in_an_optional_call_is_not_believed() {
    let node = Node::of(switched());
    let driver = node.open();
    let well = Inventory::read(&driver).unwrap();
    node.set(&failing(1, &[("nvmlDeviceGetEccMode", GPU_IS_LOST)]));
    assert_others(&well, &driver, "lost");
    let error = gpus(&driver).remove(1).unwrap_err().error;
    assert_eq!(error, DriverError::GpuLost { call: "nvmlDeviceGetEccMode" });
}

#[test]
fn a_gpu_with_unknown_mig_mode_is_unreadable() {
    let node = Node::of(switched());
    let driver = node.open();
    for code in CODES {
        node.set(&failing(1, &[("nvmlDeviceGetMigMode", code)]));
        let gpu = gpus(&driver).remove(1).unwrap_err();
        assert_code(&gpu.error, code, "nvmlDeviceGetMigMode");
    }
    for code in [NOT_SUPPORTED, FUNCTION_NOT_FOUND] {
        node.set(&failing(1, &[("nvmlDeviceGetMigMode", code)]));
        assert_eq!(gpus(&driver).remove(1).unwrap().mig, None);
    }
}

#[test]
fn an_old_driver_is_asked_in_its_own_way() {
    let node = Node::of(switched());
    let driver = node.open();
    let well = gpus(&driver).remove(1).unwrap();
    node.set(&failing(
        1,
        &[
            ("nvmlDeviceGetMemoryInfo_v2", FUNCTION_NOT_FOUND),
            ("nvmlDeviceGetGpuFabricInfoV", FUNCTION_NOT_FOUND),
        ],
    ));
    let old = gpus(&driver).remove(1).unwrap();
    assert!(well.reserved_bytes.is_some_and(|reserved| reserved > 0));
    assert_eq!(
        (old.memory_bytes, old.reserved_bytes),
        (well.memory_bytes, well.reserved_bytes),
        "the reserve is measured"
    );
    // It was measured once: what is in use later is not part of it.
    node.edit(|state| state.gpus.entry(1).or_default().memory_used_mib = 1000);
    assert_eq!(gpus(&driver).remove(1).unwrap().reserved_bytes, well.reserved_bytes);
    let (old, well) = (old.fabric.unwrap(), well.fabric.unwrap());
    assert_eq!((old.clique, old.health_mask), (well.clique, None));
    assert!(well.health_mask.is_some());
}

#[test]
fn a_gpu_without_memory_of_its_own_is_read() {
    let node = Node::of(switched());
    let driver = node.open();
    let calls = ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"];
    node.set(&failing(1, &calls.map(|call| (call, NOT_SUPPORTED))));
    let gpu = gpus(&driver).remove(1).unwrap();
    assert_eq!((gpu.memory_bytes, gpu.reserved_bytes), (0, None));
}

#[test]
fn a_peer_that_is_unreadable_is_no_peer_and_no_obstacle() {
    let node = Node::of(meshed());
    let driver = node.open();
    node.set(&failing(1, &[("nvmlDeviceGetUUID", UNKNOWN)]));
    let nvlink = gpus(&driver).remove(0).unwrap().nvlink.unwrap();
    assert_eq!((nvlink.links, nvlink.peers), (12, vec![(2, 4), (3, 4)]));
}

#[test]
fn a_call_of_the_system_that_fails_is_an_error_with_its_name() {
    let node = Node::of(switched());
    let driver = node.open();
    for call in SYSTEM {
        for code in CODES {
            let failing_calls = BTreeMap::from([(call.to_owned(), code)]);
            node.set(&State { failing_calls, ..State::default() });
            let error = Inventory::read(&driver).unwrap_err();
            assert_code(&error, code, call);
            assert!(error.to_string().starts_with(call), "{error}");
        }
    }
}

#[test]
fn a_call_that_fails_on_all_gpus_makes_each_of_them_unreadable() {
    let node = Node::of(switched());
    let driver = node.open();
    let failing_calls = BTreeMap::from([("nvmlDeviceGetName".to_owned(), UNKNOWN)]);
    node.set(&State { failing_calls, ..State::default() });
    let inventory = Inventory::read(&driver).unwrap();
    assert_eq!(inventory.gpus, []);
    let indexes: Vec<u32> = inventory.unreadable.iter().map(|gpu| gpu.index).collect();
    assert_eq!(indexes, [0, 1, 2, 3]);
}

#[test]
fn a_lost_gpu_is_lost_to_every_question_and_the_others_are_not() {
    let node = Node::of(switched());
    let driver = node.open();
    let well = Inventory::read(&driver).unwrap();
    let lost = GpuState { lost: true, ..GpuState::default() };
    node.set(&State { gpus: BTreeMap::from([(1, lost)]), ..State::default() });
    assert_others(&well, &driver, "GPU 1 lost");
    assert!(matches!(gpus(&driver).remove(1).unwrap_err().error, DriverError::GpuLost { .. }));
    assert!(matches!(driver.health(&node.uuid(1)), Err(DriverError::GpuLost { .. })));
    assert!(driver.health(&node.uuid(0)).is_ok());
    node.set(&State::default());
    assert_eq!(Inventory::read(&driver).unwrap(), well);
}

#[test]
fn a_uuid_that_names_no_gpu_is_not_found() {
    let driver = Node::of(switched()).open();
    for uuid in ["GPU-00000000-0000-0000-0000-000000000000", "", "MIG-1", "a\0b"] {
        let answer = driver.health(uuid);
        assert!(matches!(answer, Err(DriverError::NotFound { .. })), "{uuid:?}: {answer:?}");
    }
}

#[test]
fn health_is_what_the_driver_counts_and_advises() {
    let node = Node::of(switched());
    let driver = node.open();
    let well = driver.health(&node.uuid(1)).unwrap();
    assert_eq!(
        well,
        GpuHealth {
            recovery_action: Some(RecoveryAction::None),
            uncorrected_errors: Some(0),
            corrected_errors: Some(0),
            remap_failed: Some(false),
            remap_pending: Some(false),
        }
    );
    let sick = GpuState {
        recovery_action: octavo_machine::RecoveryAction::DrainAndReset,
        ecc: Ecc { volatile_corrected: 12, volatile_uncorrected: 3, ..Ecc::default() },
        remap_failed: true,
        remap_pending: true,
        ..GpuState::default()
    };
    node.set(&State { gpus: BTreeMap::from([(1, sick)]), ..State::default() });
    assert_eq!(
        driver.health(&node.uuid(1)).unwrap(),
        GpuHealth {
            recovery_action: Some(RecoveryAction::DrainAndReset),
            uncorrected_errors: Some(3),
            corrected_errors: Some(12),
            remap_failed: Some(true),
            remap_pending: Some(true),
        }
    );
    assert_eq!(driver.health(&node.uuid(0)).unwrap(), well, "the others are well");
}

#[test]
fn health_without_one_of_its_calls_lacks_only_that() {
    let node = Node::of(switched());
    let driver = node.open();
    node.set(&failing(1, &[("nvmlDeviceGetFieldValues", NOT_SUPPORTED)]));
    let health = driver.health(&node.uuid(1)).unwrap();
    assert_eq!((health.recovery_action, health.remap_failed), (None, Some(false)));
    for code in [IN_USE, UNKNOWN, NOT_SUPPORTED] {
        node.set(&failing(1, &[("nvmlDeviceGetRemappedRows", code)]));
        let health = driver.health(&node.uuid(1)).unwrap();
        assert_eq!((health.remap_failed, health.corrected_errors), (None, Some(0)));
        node.set(&failing(1, &[("nvmlDeviceGetTotalEccErrors", code)]));
        let health = driver.health(&node.uuid(1)).unwrap();
        assert_eq!((health.corrected_errors, health.remap_pending), (None, Some(false)));
    }
}

#[test]
fn a_failed_recovery_action_is_not_an_old_driver() {
    let node = Node::of(switched());
    let driver = node.open();
    for code in [IN_USE, UNKNOWN] {
        node.set(&failing(1, &[("nvmlDeviceGetFieldValues", code)]));
        assert_code(&driver.health(&node.uuid(1)).unwrap_err(), code, "no advice");
    }
    node.set(&failing(1, &[("nvmlDeviceGetFieldValues", RESET_REQUIRED)]));
    let health = driver.health(&node.uuid(1)).unwrap();
    assert_eq!(health.recovery_action, Some(RecoveryAction::GpuReset));
}
