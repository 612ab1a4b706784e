use super::{XidClass, classify, lookup, table};
use crate::RecoveryAction;

fn class(xid: u64) -> XidClass {
    classify(xid, None)
}

#[test]
fn every_row_of_the_table_is_read_once_and_has_all_columns() {
    let lines = include_str!("../../data/xid.csv").lines().count() - 2;
    assert_eq!(table().count(), lines);
    assert_eq!(lines, 172);
    let numbers: std::collections::BTreeSet<u64> = table().map(|xid| xid.number).collect();
    assert_eq!(numbers, (1..=172).collect());
    assert!(table().all(|xid| !xid.mnemonic.is_empty() && !xid.description.is_empty()));
}

#[test]
fn the_data_file_uses_only_actions_that_are_known() {
    const ACTIONS: [&str; 10] = [
        "restart_app",
        "follow_other",
        "none",
        "reset_gpu",
        "reboot_node",
        "restart_vm",
        "workflow",
        "support",
        "unused",
        "none_listed",
    ];
    for line in include_str!("../../data/xid.csv").lines().skip(2) {
        let action = line.split(',').nth(1).unwrap();
        assert!(ACTIONS.contains(&action), "{line}");
    }
}

#[test]
fn faults_of_applications_leave_the_gpu_usable() {
    for xid in [8, 13, 31, 32, 39, 43, 45, 60, 68, 94, 126, 139] {
        assert!(class(xid).leaves_gpu_usable(), "{xid}");
    }
    assert_eq!(class(13), XidClass::Application);
    assert_eq!(class(43), XidClass::Ignore);
}

#[test]
fn faults_of_the_gpu_call_for_a_reset() {
    for xid in [46, 48, 62, 64, 74, 95, 110, 119, 120, 136, 140, 143, 155, 156, 158] {
        assert_eq!(class(xid), XidClass::ResetGpu, "{xid}");
    }
}

#[test]
fn a_context_switch_timeout_is_a_reset_and_no_application_error() {
    assert_eq!(class(109), XidClass::ResetGpu);
    assert!(!class(109).leaves_gpu_usable());
}

#[test]
fn a_gpu_off_the_bus_calls_for_a_reboot() {
    assert_eq!(class(79), XidClass::Reboot);
    assert_eq!(class(151), XidClass::Reboot);
    let xid = lookup(79).unwrap();
    assert_eq!(xid.mnemonic, "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS");
    assert_eq!(xid.description, "GPU has fallen off the bus");
}

#[test]
fn a_description_keeps_its_commas() {
    assert!(lookup(45).unwrap().description.starts_with("Preemptive cleanup, due to"));
}

#[test]
fn numbers_that_do_not_decide_are_left_to_a_workflow() {
    for xid in (144..=150).chain([154, 159]) {
        assert_eq!(class(xid), XidClass::Workflow, "{xid}");
    }
}

#[test]
fn what_the_catalogue_does_not_know_is_unknown_and_not_harmless() {
    for xid in [0, 1, 162, 172, 173, u64::MAX] {
        assert_eq!(class(xid), XidClass::Unknown, "{xid}");
        assert!(!class(xid).leaves_gpu_usable());
    }
}

#[test]
fn the_drivers_advice_goes_before_the_table() {
    assert_eq!(classify(13, Some(RecoveryAction::GpuReset)), XidClass::ResetGpu);
    assert_eq!(classify(79, Some(RecoveryAction::GpuReset)), XidClass::ResetGpu);
    assert_eq!(classify(48, Some(RecoveryAction::NodeReboot)), XidClass::Reboot);
    assert_eq!(classify(95, Some(RecoveryAction::DrainAndReset)), XidClass::DrainAndReset);
    assert_eq!(classify(13, Some(RecoveryAction::DrainP2p)), XidClass::DrainP2p);
}

#[test]
fn no_advice_leaves_the_tables_word() {
    assert_eq!(classify(109, Some(RecoveryAction::None)), XidClass::ResetGpu);
    assert_eq!(classify(13, Some(RecoveryAction::None)), XidClass::Application);
}

#[test]
fn advice_that_is_not_known_is_never_harmless() {
    for advice in [RecoveryAction::Other(77), RecoveryAction::RecoverImexDomain] {
        assert_eq!(classify(13, Some(advice)), XidClass::Workflow);
        assert_eq!(classify(79, Some(advice)), XidClass::Reboot);
    }
}
