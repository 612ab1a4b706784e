use octavo_guard_abi::message::{Frame, Kind};

use super::{GuardReports, MAX_CONNECTIONS_PER_PROCESS, MAX_COUNT_PER_FRAME, MAX_NAMES};
use crate::process::Process;

fn send(guard_reports: &GuardReports, kind: Kind, value: u64, text: &str) {
    guard_reports.take(&Frame::new(kind, 0, value, text.as_bytes()));
}

#[test]
fn taken_reports_are_not_repeated_but_tampering_is() {
    let guard_reports = GuardReports::default();
    send(&guard_reports, Kind::Unknown, 1, "cuMemAllocNew");
    send(&guard_reports, Kind::Unknown, 1, "cuMemAllocNew");
    send(&guard_reports, Kind::Refused, 7, "");
    send(&guard_reports, Kind::Tampered, 3, "");
    let report = guard_reports.take_new();
    assert_eq!((report.unknown, report.refused, report.tampered), (2, 7, Some(3)));
    assert_eq!(report.names, [("cuMemAllocNew".to_owned(), true)].into());
    send(&guard_reports, Kind::Unknown, 1, "cuMemAllocNew");
    let report = guard_reports.take_new();
    assert_eq!((report.unknown, report.refused, report.tampered), (1, 0, Some(3)));
    assert!(report.names.is_empty(), "it is known");
}

#[test]
fn what_a_container_makes_up_stays_small_and_legible() {
    let guard_reports = GuardReports::default();
    send(&guard_reports, Kind::Refused, u64::MAX, "");
    send(&guard_reports, Kind::Unknown, 0, "\u{1b}[2J\nrm -rf");
    for number in 0..1000 {
        send(&guard_reports, Kind::Unknown, 0, &format!("cu{number}"));
    }
    let report = guard_reports.take_new();
    assert_eq!((report.refused, report.unknown), (MAX_COUNT_PER_FRAME, 1001));
    assert_eq!(report.names.len(), MAX_NAMES);
    assert!(report.names.contains_key("??2J?rm??rf"), "{:?}", report.names);
}

#[test]
fn connections_per_process_are_bounded_and_counted() {
    let guard_reports = GuardReports::default();
    let process = Process { pid: 1, start_time: 2 };
    for _ in 0..MAX_CONNECTIONS_PER_PROCESS {
        assert!(guard_reports.connect(process));
    }
    assert!(!guard_reports.connect(process));
    assert!(guard_reports.connect(Process { pid: 1, start_time: 3 }), "another one with its pid");
    for _ in 0..MAX_CONNECTIONS_PER_PROCESS {
        assert!(guard_reports.is_connected(process));
        guard_reports.disconnect(process);
    }
    assert!(!guard_reports.is_connected(process));
}
