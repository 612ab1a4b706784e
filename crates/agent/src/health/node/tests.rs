mod ends;
mod missing;
mod nics;
mod rebooted;
mod verified;

use std::time::Duration;

use octavo_gpu::{DriverError, NvLink, RecoveryAction};
use octavo_health::decide::Wait;
use octavo_health::policy::{Policy, Test};
use octavo_health::reason::Reason;
use octavo_health::remedy::Remedy;
use octavo_health::signal::{Outcome, Word};

use super::super::orders::Permit;
use super::*;
use crate::testing::{self, advice, lost, uuid, well};

const BOOT: &str = "boot";

fn node(file: Option<RecordFile>, boot: &str, gpus: u32) -> NodeHealth {
    let mut health = NodeHealth::open(file, boot);
    health.set_gpus(&testing::inventory(gpus), 0);
    health.set_orders(orders(Mode::Fence), 0);
    health
}

/// Decides while no process uses a GPU.
fn decide(health: &mut NodeHealth, now: u64) {
    health.decide(now, |_| false);
}

fn state(health: &NodeHealth, index: u32) -> &'static str {
    let state = health.health().remove(&uuid(index));
    state.map_or("Healthy", |state| state.fence.map_or("Healthy", |fence| fence.state.name()))
}

fn reason(health: &NodeHealth, index: u32) -> Option<Reason> {
    health.health().get(&uuid(index))?.fence?.reason
}

#[test]
fn an_xid_of_the_application_leaves_the_gpu_well() {
    let mut health = node(None, BOOT, 2);
    assert!(health.xid(&uuid(0), 13, LinkSeverity::Unknown, 1));
    health.answer(&uuid(0), &Ok(well()), 1);
    decide(&mut health, 1);
    assert_eq!(health.health(), Health::new());
}

#[test]
fn a_fault_fences_its_gpu_alone_until_a_remedy_and_a_test() {
    let mut health = node(None, BOOT, 2);
    assert!(health.xid(&uuid(1), 48, LinkSeverity::Unknown, 1));
    health.answer(&uuid(1), &Ok(advice(RecoveryAction::GpuReset)), 1);
    decide(&mut health, 1);
    assert_eq!((state(&health, 0), state(&health, 1)), ("Healthy", "Fenced"));
    assert_eq!(reason(&health, 1), Some(Reason::Xid(48)));
    let known = &health.health()[&uuid(1)];
    assert!(!known.takes_pods());
    let message = known.message();
    assert!(message.contains("XID 48") && message.contains("reset-function"), "{message}");
    // Time alone mends nothing.
    decide(&mut health, 1_000_000);
    assert_eq!(state(&health, 1), "Fenced");
    health.answer(&uuid(1), &Ok(well()), 1_000_001);
    decide(&mut health, 1_000_001);
    assert_eq!(state(&health, 1), "Probation");
    assert!(health.health()[&uuid(1)].takes_pods());
}

#[test]
fn an_xid_that_driver_and_kernel_report_is_one() {
    let mut health = node(None, BOOT, 1);
    assert!(health.xid(&uuid(0), 94, LinkSeverity::Unknown, 100));
    assert!(!health.xid(&uuid(0), 94, LinkSeverity::Unknown, 101));
    assert!(health.xid(&uuid(0), 94, LinkSeverity::Fatal, 101), "a graver one is another");
    assert!(health.xid(&uuid(0), 95, LinkSeverity::Unknown, 101));
    assert!(health.xid(&uuid(0), 94, LinkSeverity::Unknown, 200));
    assert!(!health.xid("GPU-unknown", 94, LinkSeverity::Unknown, 200));
}

#[test]
fn a_gpu_in_use_is_tested_once_it_is_idle() {
    let mut health = node(None, BOOT, 1);
    health.answer(&uuid(0), &Ok(advice(RecoveryAction::DrainP2p)), 1);
    health.decide(1, |_| true);
    assert_eq!(state(&health, 0), "Suspect");
    health.answer(&uuid(0), &Ok(well()), 2);
    health.decide(2, |_| true);
    assert_eq!(health.health()[&uuid(0)].wait.map(Wait::name), Some("Clients"));
    decide(&mut health, 3);
    assert_eq!(state(&health, 0), "Probation");
}

#[test]
fn a_failed_row_remap_retires_the_gpu() {
    let mut health = node(None, BOOT, 1);
    let failed = GpuHealth { remap_failed: Some(true), ..well() };
    health.answer(&uuid(0), &Ok(failed), 1);
    decide(&mut health, 1);
    assert_eq!((state(&health, 0), reason(&health, 0)), ("Retired", Some(Reason::RemapFailed)));
}

#[test]
fn a_question_that_failed_says_nothing() {
    let mut health = node(None, BOOT, 1);
    let busy = DriverError::InUse { call: "nvmlDeviceGetFieldValues" };
    health.answer(&uuid(0), &Err(busy.clone()), 1);
    decide(&mut health, 1);
    assert_eq!(state(&health, 0), "Healthy");
    health.answer(&uuid(0), &Err(lost()), 2);
    decide(&mut health, 2);
    health.answer(&uuid(0), &Err(busy), 3);
    decide(&mut health, 3);
    assert_eq!((state(&health, 0), health.is_lost(&uuid(0))), ("Fenced", true));
}

#[test]
fn a_driver_that_is_away_taints_all_and_shows_a_remedy_when_it_is_back() {
    let mut health = node(None, BOOT, 2);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    decide(&mut health, 1);
    health.driver_gone(2);
    assert!(health.health().values().all(|state| state.is_driver_gone && !state.takes_pods()));
    assert_eq!(health.health().len(), 2);
    health.driver_released(3);
    assert!(health.health()[&uuid(1)].message().contains("released"));
    health.driver_back();
    // That of an application is no fault after the remedy.
    health.xid(&uuid(0), 13, LinkSeverity::Unknown, 4);
    decide(&mut health, 4);
    assert_eq!((state(&health, 0), state(&health, 1)), ("Fenced", "Healthy"));
    health.answer(&uuid(0), &Ok(well()), 5);
    decide(&mut health, 5);
    assert_eq!(state(&health, 0), "Probation");
}

#[test]
fn a_fatal_error_of_a_switch_fences_the_gpus_behind_it() {
    let mut gpus = testing::inventory(3).gpus;
    let link = |switched| NvLink { version: 4, links: 18, switched, peers: vec![] };
    gpus[0].nvlink = None;
    gpus[1].nvlink = Some(link(true));
    gpus[2].nvlink = Some(link(true));
    let mut health = NodeHealth::open(None, BOOT);
    health.set_gpus(&testing::found(&gpus), 0);
    health.switch_failed(1);
    decide(&mut health, 1);
    assert_eq!([0, 1, 2].map(|index| state(&health, index)), ["Healthy", "Fenced", "Fenced"]);
}

#[test]
fn bridged_gpus_are_one_island() {
    let mut gpus = testing::inventory(4).gpus;
    let peers = [vec![], vec![(2, 4)], vec![(1, 4), (3, 4)], vec![(2, 4)]];
    for (gpu, peers) in gpus.iter_mut().zip(peers) {
        gpu.nvlink = Some(NvLink { version: 3, links: 4, switched: false, peers });
    }
    assert_eq!(islands(&gpus).into_values().collect::<Vec<_>>(), [0, 1, 1, 1]);
}

#[test]
fn a_fence_outlives_the_agent_and_a_reboot_is_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let mut health = node(file(), BOOT, 2);
    health.xid(&uuid(1), 48, LinkSeverity::Unknown, 1);
    decide(&mut health, 1);
    health.store();
    let mut again = node(file(), BOOT, 2);
    again.answer(&uuid(1), &Ok(well()), 2);
    decide(&mut again, 2);
    assert_eq!((state(&again, 0), state(&again, 1)), ("Healthy", "Fenced"));
    let mut rebooted = node(file(), "other", 2);
    rebooted.answer(&uuid(1), &Ok(well()), 3);
    decide(&mut rebooted, 3);
    assert_eq!(state(&rebooted, 1), "Probation");
}

#[test]
fn a_record_that_cannot_be_read_is_kept_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health.json");
    for text in ["{", r#"{"version": 2, "record": {}}"#, r#"{"version": 1, "record": {"what": 1}}"#]
    {
        std::fs::write(&path, text).unwrap();
        let mut health = node(Some(RecordFile::new(path.clone())), BOOT, 1);
        let aside = folder.path().join("health.json.unreadable");
        assert_eq!(std::fs::read_to_string(aside).unwrap(), text);
        decide(&mut health, 1);
        health.store();
        assert!(std::fs::read_to_string(&path).unwrap().contains(BOOT));
    }
}

#[test]
fn fields_of_a_later_agent_hide_no_fence_and_those_of_the_domain_refuse_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health.json");
    let file = || Some(RecordFile::new(path.clone()));
    let mut health = node(file(), BOOT, 1);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    decide(&mut health, 1);
    health.store();
    let text = std::fs::read_to_string(&path).unwrap();
    for (known, state) in [("\"order\":0", "Fenced"), ("\"isHeld\":false", "Healthy")] {
        assert!(text.contains(known), "{text}");
        std::fs::write(&path, text.replace(known, &format!("{known},\"later\":1"))).unwrap();
        let mut again = node(file(), BOOT, 1);
        decide(&mut again, 2);
        assert_eq!(self::state(&again, 0), state);
    }
}

/// Orders by which the driver's word is the test.
fn orders(mode: Mode) -> Orders {
    let by_person = [Remedy::Reboot].into();
    let policy = Policy { mode, by_person, test: Test::Driver, ..Policy::default() };
    Orders { policy, ..Orders::default() }
}

fn permit(after: u64, remedy: Remedy) -> Permit {
    Permit { after: Attempt(after), remedy, since: 0 }
}

#[test]
fn a_person_s_order_acts_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let mut health = node(file(), BOOT, 1);
    let mut wanted = orders(Mode::Fence);
    wanted.words.insert(uuid(0), (1, Word::Fence));
    health.set_orders(wanted.clone(), 1);
    decide(&mut health, 1);
    assert_eq!((state(&health, 0), reason(&health, 0)), ("Fenced", Some(Reason::Operator)));
    wanted.words.insert(uuid(0), (2, Word::Release));
    health.set_orders(wanted.clone(), 2);
    decide(&mut health, 2);
    assert_eq!(state(&health, 0), "Probation");
    health.store();
    // A new agent sees the order again.
    wanted.words.insert(uuid(0), (1, Word::Fence));
    let mut again = node(file(), BOOT, 1);
    again.set_orders(wanted, 3);
    decide(&mut again, 3);
    assert_eq!(state(&again, 0), "Probation");
    let shown = again.devices(&testing::inventory(1).gpus, 3).remove(0);
    assert_eq!((shown.order, shown.name.as_str()), (2, "gpu-0"));
}

#[test]
fn a_remedy_begins_once_it_is_permitted_idle_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let mut health = node(file(), BOOT, 2);
    let mut wanted = orders(Mode::Act);
    wanted.held.insert(uuid(0));
    health.set_orders(wanted.clone(), 1);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    decide(&mut health, 1);
    let wait = |health: &NodeHealth| health.health()[&uuid(0)].wait;
    assert_eq!(wait(&health), Some(Wait::Permit));
    for other in [permit(1, Remedy::ResetFunction), permit(0, Remedy::ResetBus)] {
        wanted.permits.insert(uuid(0), other);
        health.set_orders(wanted.clone(), 2);
        decide(&mut health, 2);
        assert_eq!(wait(&health), Some(Wait::Permit), "{other:?}");
    }
    wanted.permits.insert(uuid(0), permit(0, Remedy::ResetFunction));
    health.set_orders(wanted.clone(), 3);
    decide(&mut health, 3);
    assert_eq!((wait(&health), health.next_remedy()), (Some(Wait::Clients), None));
    wanted.held.clear();
    health.set_orders(wanted.clone(), 4);
    decide(&mut health, 4);
    let applied = (Attempt(1), Remedy::ResetFunction, vec![uuid(0)]);
    assert_eq!(health.next_remedy(), Some(applied));
    assert_eq!(health.next_remedy(), None, "not twice");
    // The agent is killed: the test decides what became of it.
    let mut again = node(file(), BOOT, 2);
    again.answer(&uuid(0), &Ok(advice(RecoveryAction::GpuReset)), 5);
    again.set_orders(wanted, 5);
    decide(&mut again, 5);
    assert_eq!((again.next_remedy(), state(&again, 0)), (None, "Fenced"));
    let shown = again.devices(&testing::inventory(2).gpus, 5).remove(0);
    assert_eq!((shown.needs, shown.attempt), (Some(Remedy::ResetBus), 1), "a harsher one is next");
}

#[test]
fn without_a_record_no_remedy_begins() {
    let mut health = node(None, BOOT, 1);
    let mut wanted = orders(Mode::Act);
    wanted.permits.insert(uuid(0), permit(0, Remedy::ResetFunction));
    health.set_orders(wanted, 1);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    decide(&mut health, 1);
    assert_eq!((state(&health, 0), health.next_remedy()), ("Resetting", None));
}

#[test]
fn what_became_of_a_remedy_is_followed_by_its_test() {
    let folder = tempfile::tempdir().unwrap();
    let mut health = node(Some(RecordFile::new(folder.path().join("health.json"))), BOOT, 1);
    let mut wanted = orders(Mode::Act);
    wanted.permits.insert(uuid(0), permit(0, Remedy::ResetFunction));
    health.set_orders(wanted, 1);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    decide(&mut health, 1);
    let (attempt, ..) = health.next_remedy().unwrap();
    health.ended(attempt, Outcome::Remedied, Duration::ZERO, 2);
    decide(&mut health, 2);
    assert_eq!(state(&health, 0), "Probation");
    let shown = health.devices(&testing::inventory(1).gpus, 2).remove(0);
    assert_eq!((shown.state.as_str(), shown.reason), ("Probation", None));
    assert!(shown.record.is_some());
}

#[test]
fn a_remedy_that_the_agent_cannot_apply_waits_for_a_person() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let mut health = node(file(), BOOT, 1);
    let mut wanted = orders(Mode::Act);
    wanted.permits.insert(uuid(0), permit(0, Remedy::Reboot));
    health.set_orders(wanted, 1);
    health.answer(&uuid(0), &Err(lost()), 1);
    decide(&mut health, 1);
    assert_eq!((state(&health, 0), health.next_remedy()), ("Fenced", None));
    assert_eq!(health.health()[&uuid(0)].wait, Some(Wait::Person));
    health.store();
    let mut rebooted = node(file(), "other", 1);
    rebooted.answer(&uuid(0), &Ok(well()), 2);
    decide(&mut rebooted, 2);
    assert_eq!(state(&rebooted, 0), "Probation");
}

#[test]
fn a_permit_ends_with_the_time_that_a_remedy_may_take() {
    let folder = tempfile::tempdir().unwrap();
    let mut health = node(Some(RecordFile::new(folder.path().join("health.json"))), BOOT, 1);
    let mut wanted = orders(Mode::Act);
    wanted.permits.insert(uuid(0), permit(0, Remedy::ResetFunction));
    let limit = wanted.policy.rules.limit;
    health.set_orders(wanted, limit);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, limit);
    decide(&mut health, limit);
    assert_eq!(health.health()[&uuid(0)].wait, Some(Wait::Permit));
}

#[test]
fn the_reset_of_an_island_waits_for_the_clients_of_all_its_gpus() {
    let folder = tempfile::tempdir().unwrap();
    let mut gpus = testing::inventory(2).gpus;
    for (gpu, peer) in gpus.iter_mut().zip([1, 0]) {
        gpu.compute_capability = (8, 0);
        let peers = vec![(peer, 4)];
        gpu.nvlink = Some(NvLink { version: 3, links: 4, switched: false, peers });
    }
    let file = RecordFile::new(folder.path().join("health.json"));
    let mut health = NodeHealth::open(Some(file), BOOT);
    health.set_gpus(&testing::found(&gpus), 0);
    let mut wanted = orders(Mode::Act);
    wanted.permits.insert(uuid(0), permit(0, Remedy::ResetFunction));
    health.set_orders(wanted, 1);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    health.decide(1, |gpu| gpu == uuid(1));
    assert_eq!((health.next_remedy(), health.health()[&uuid(0)].wait), (None, Some(Wait::Clients)));
    assert_eq!(state(&health, 1), "Suspect", "it makes room");
    decide(&mut health, 2);
    let (_, _, uuids) = health.next_remedy().unwrap();
    assert_eq!(uuids, [uuid(0), uuid(1)]);
}

#[test]
fn the_record_is_of_the_agent_that_has_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let gpus = testing::inventory(2).gpus;
    let (mut active, periods) = (NodeHealth::observer(file(), BOOT), Periods::default());
    active.serve(periods.begin(), Some(&testing::found(&gpus)), 0);
    let mut newcomer = NodeHealth::observer(file(), BOOT);
    newcomer.set_gpus(&testing::found(&gpus), 0);
    active.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    decide(&mut active, 1);
    assert!(active.store());
    // Both see the second fault.
    for health in [&mut active, &mut newcomer] {
        health.xid(&uuid(1), 95, LinkSeverity::Unknown, 2);
        decide(health, 2);
    }
    assert!(!newcomer.store(), "it does not overwrite the record");
    assert_eq!((state(&newcomer, 0), state(&newcomer, 1)), ("Healthy", "Fenced"));
    newcomer.serve(Periods::default().begin(), Some(&testing::found(&gpus)), 0);
    decide(&mut newcomer, 3);
    assert_eq!(
        (reason(&newcomer, 0), reason(&newcomer, 1)),
        (Some(Reason::Xid(48)), Some(Reason::Xid(95)))
    );
    periods.end();
    assert!(!active.store(), "nor does one that has not heard yet that it has the node no more");
    active.rest();
    assert!(!active.store());
    assert!(newcomer.store());
}

#[test]
fn a_fault_seen_before_the_record_is_read_keeps_attempts_and_relapses() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let gpus = testing::inventory(1).gpus;
    let mut before = NodeHealth::observer(file(), BOOT);
    before.serve(Periods::default().begin(), Some(&testing::found(&gpus)), 0);
    before.answer(&uuid(0), &Ok(well()), 1);
    decide(&mut before, 1);
    let track = &mut before.record.domain.devices.get_mut(&DeviceId(0)).unwrap().track;
    (track.attempt, track.relapses, track.returned) = (Attempt(3), 2, Some(1));
    assert!(before.store());

    let mut after = NodeHealth::observer(file(), BOOT);
    after.set_gpus(&testing::found(&gpus), 0);
    after.xid(&uuid(0), 48, LinkSeverity::Unknown, 2);
    decide(&mut after, 2);
    after.serve(Periods::default().begin(), Some(&testing::found(&gpus)), 0);
    let track = after.record.domain.devices[&DeviceId(0)].track;
    assert_eq!((track.attempt, track.relapses, track.returned), (Attempt(3), 2, Some(1)));
    assert_eq!(state(&after, 0), "Fenced");
}

#[test]
fn a_gpu_of_which_the_driver_says_nothing_passes_no_test() {
    let mut health = node(None, BOOT, 1);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    decide(&mut health, 1);
    health.driver_gone(2);
    health.driver_back();
    health.answer(&uuid(0), &Ok(well()), 3);
    let silent = DriverError::InUse { call: "nvmlDeviceGetFieldValues" };
    health.answer(&uuid(0), &Err(silent), 3);
    decide(&mut health, 3);
    assert_eq!(state(&health, 0), "Verifying");
    decide(&mut health, 100);
    assert_eq!((state(&health, 0), reason(&health, 0)), ("Fenced", Some(Reason::TestFailed)));
}
