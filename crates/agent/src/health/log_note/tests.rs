use octavo_health::signal::LinkSeverity;

use super::*;
use crate::health::{Periods, RecordFile, takes_pods};
use crate::testing::{self, uuid};

const BOOT: &str = "boot";

fn note(file: Option<(u64, u64)>, next: u64) -> LogNote {
    LogNote::new(Path::new("/dev/kmsg"), KernelLogPosition { file, next })
}

fn file(folder: &tempfile::TempDir) -> RecordFile {
    RecordFile::new(folder.path().join("health.json"))
}

/// The health of a node with one GPU, by its record.
fn node(folder: &tempfile::TempDir) -> NodeHealth {
    let mut health = NodeHealth::open(Some(file(folder)), BOOT);
    health.set_gpus(&testing::inventory(1), 0);
    health
}

fn decide(health: &mut NodeHealth, now: u64) {
    health.decide(now, |_| false);
}

#[test]
fn a_position_is_recorded_with_what_came_of_the_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut health = node(&folder);
    assert_eq!(health.log_note(), None);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    health.log_read(note(None, 7));
    // A record that is written before the decision has neither.
    assert!(health.store());
    let mut early = node(&folder);
    decide(&mut early, 2);
    assert_eq!((early.log_note(), takes_pods(&early.health(), &uuid(0))), (None, true));
    decide(&mut health, 2);
    assert!(health.store());
    let mut late = node(&folder);
    decide(&mut late, 3);
    assert_eq!(late.log_note(), Some(&note(None, 7)));
    assert!(!takes_pods(&late.health(), &uuid(0)));
}

#[test]
fn another_boot_has_another_log_and_a_file_may_have_lines_of_both() {
    let folder = tempfile::tempdir().unwrap();
    for (of_file, expected) in [(None, Some(note(None, 0))), (Some((1, 2)), None)] {
        let mut health = node(&folder);
        health.log_read(note(of_file, 7));
        decide(&mut health, 1);
        assert!(health.store());
        let of_boot = |boot: &str| NodeHealth::open(Some(file(&folder)), boot).log_note().cloned();
        assert_eq!(of_boot(BOOT), Some(note(of_file, 7)));
        assert_eq!(of_boot("other"), expected);
        assert_eq!(of_boot(""), None, "it may be any");
    }
}

#[test]
fn an_agent_that_gets_the_node_has_the_position_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut active = node(&folder);
    let mut newcomer = NodeHealth::observer(Some(file(&folder)), BOOT);
    assert!(active.is_active() && !newcomer.is_active());
    active.log_read(note(None, 7));
    decide(&mut active, 1);
    assert!(active.store());
    assert_eq!(newcomer.log_note(), None);
    newcomer.serve(Periods::default().begin(), None, 0);
    assert_eq!(newcomer.log_note(), Some(&note(None, 7)));
    assert!(newcomer.is_active());
    newcomer.forget_log();
    assert_eq!(newcomer.log_note(), None);
}

#[test]
fn a_position_is_that_of_one_log() {
    let position = KernelLogPosition { file: Some((1, 2)), next: 7 };
    let note = LogNote::new(Path::new("/var/log/kern.log"), position);
    assert_eq!(note.position(Path::new("/var/log/kern.log")), Some(position));
    assert_eq!(note.position(Path::new("/var/log/syslog")), None);
}
