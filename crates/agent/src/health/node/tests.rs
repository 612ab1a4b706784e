use octavo_gpu::{NvLink, RecoveryAction};
use octavo_health::decide::Wait;
use octavo_health::reason::Reason;

use super::*;
use crate::testing::{self, advice, lost, uuid, well};

const BOOT: &str = "boot";

fn node(file: Option<RecordFile>, boot: &str, gpus: u32) -> NodeHealth {
    let mut health = NodeHealth::open(file, boot);
    health.set_gpus(&testing::inventory(gpus).gpus);
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
    health.set_gpus(&gpus);
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
fn a_gpu_that_was_taken_out_stays_known_unless_it_was_well() {
    let mut health = node(None, BOOT, 2);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    decide(&mut health, 1);
    let mut gpus = testing::inventory(4).gpus;
    health.set_gpus(&gpus.split_off(2));
    decide(&mut health, 2);
    assert_eq!(health.record.gpus.keys().collect::<Vec<_>>(), [&uuid(0), &uuid(2), &uuid(3)]);
    health.set_gpus(&testing::inventory(2).gpus);
    decide(&mut health, 3);
    assert_eq!((state(&health, 0), state(&health, 1)), ("Fenced", "Healthy"));
    let ids: BTreeSet<_> = health.record.gpus.values().map(|known| known.id).collect();
    assert_eq!(ids.len(), health.record.gpus.len());
}
