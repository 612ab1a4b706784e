use super::*;
use crate::testing::{advice, lost, well};

fn answer(health: &Result<GpuHealth, DriverError>) -> HealthReading {
    HealthReading::of(health)
}

#[test]
fn an_xid_of_the_application_leaves_the_gpu_well() {
    let mut watch = GpuHealthTracker::default();
    let class = watch.on_xid(13, HealthReading::Well, Some(RecoveryAction::None), 1);
    assert_eq!(class, XidClass::Application);
    assert_eq!(watch.state(), None);
}

#[test]
fn reset_xid_taints_until_the_driver_reports_recovery() {
    let mut watch = GpuHealthTracker::default();
    watch.on_xid(79, HealthReading::Lost, None, 5);
    let state = watch.state().unwrap();
    assert_eq!((state.is_lost, state.xid, state.since), (true, Some(79), 5));
    assert!(state.message().contains("XID 79"), "{}", state.message());
    watch.on_answer(HealthReading::Lost, 6);
    watch.on_answer(answer(&Ok(advice(RecoveryAction::GpuReset))), 7);
    assert!(watch.state().unwrap().message().contains("gpu-reset"));
    assert_eq!(watch.state().unwrap().since, 5);
    watch.on_answer(answer(&Ok(well())), 8);
    assert_eq!(watch.state(), None);
}

#[test]
fn advice_makes_an_application_s_xid_count() {
    let mut watch = GpuHealthTracker::default();
    let action = RecoveryAction::DrainAndReset;
    watch.on_xid(13, answer(&Ok(advice(action))), Some(action), 1);
    assert_eq!(watch.state().unwrap().xid, Some(13));
    assert_eq!(watch.state().unwrap().advice, Some("drain-and-reset"));
}

#[test]
fn an_xid_that_the_driver_never_took_up_is_forgotten_after_a_quiet_time() {
    let mut watch = GpuHealthTracker::default();
    watch.on_xid(48, HealthReading::Well, Some(RecoveryAction::None), 0);
    watch.on_answer(HealthReading::Well, XID_FORGET_SECONDS - 1);
    assert_eq!(watch.state().unwrap().xid, Some(48));
    // A further XID restarts the time.
    watch.on_xid(48, HealthReading::Well, Some(RecoveryAction::None), XID_FORGET_SECONDS);
    watch.on_answer(HealthReading::Well, XID_FORGET_SECONDS + 1);
    assert!(watch.state().is_some());
    watch.on_answer(HealthReading::Well, 2 * XID_FORGET_SECONDS);
    assert_eq!(watch.state(), None);
}

#[test]
fn a_driver_that_does_not_advise_leaves_an_xid_standing() {
    let mut watch = GpuHealthTracker::default();
    watch.on_xid(48, HealthReading::Silent, None, 1);
    for _ in 0..100 {
        watch.on_answer(HealthReading::Silent, 2);
    }
    assert_eq!(watch.state().unwrap().xid, Some(48));
    // It was gone and came back: that was the reset.
    watch.on_answer(HealthReading::Lost, 3);
    watch.on_answer(HealthReading::Silent, 4);
    assert_eq!(watch.state(), None);
}

#[test]
fn a_question_that_failed_says_nothing() {
    let mut watch = GpuHealthTracker::default();
    let busy = DriverError::InUse { call: "nvmlDeviceGetFieldValues" };
    watch.on_answer(answer(&Err(busy.clone())), 1);
    assert_eq!(watch.state(), None);
    watch.on_answer(answer(&Err(lost())), 2);
    watch.on_answer(answer(&Err(busy)), 3);
    assert!(watch.state().unwrap().is_lost);
}

#[test]
fn a_failed_row_remap_is_a_fault_whatever_else_the_driver_says() {
    let health = GpuHealth { remap_failed: Some(true), ..well() };
    assert_eq!(answer(&Ok(health)), HealthReading::Advises("replace-board"));
    let pending = GpuHealth { remap_pending: Some(true), ..GpuHealth::default() };
    assert_eq!(answer(&Ok(pending)), HealthReading::Silent);
}
