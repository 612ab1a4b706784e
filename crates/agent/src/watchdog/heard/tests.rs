use octavo_guard_abi::message::{Frame, Kind};

use super::{Heard, MOST_CONNECTIONS, MOST_COUNTED, MOST_NAMES};
use crate::watchdog::decision::Process;

fn told(heard: &Heard, kind: Kind, value: u64, text: &str) {
    heard.take(&Frame::new(kind, 0, value, text.as_bytes()));
}

#[test]
fn what_was_taken_is_not_told_again_but_tampering_is() {
    let heard = Heard::default();
    told(&heard, Kind::Unknown, 1, "cuMemAllocNew");
    told(&heard, Kind::Unknown, 1, "cuMemAllocNew");
    told(&heard, Kind::Refused, 7, "");
    told(&heard, Kind::Tampered, 3, "");
    let report = heard.report();
    assert_eq!((report.unknown, report.refused, report.tampered), (2, 7, Some(3)));
    assert_eq!(report.names, [("cuMemAllocNew".to_owned(), true)].into());
    told(&heard, Kind::Unknown, 1, "cuMemAllocNew");
    let report = heard.report();
    assert_eq!((report.unknown, report.refused, report.tampered), (1, 0, Some(3)));
    assert!(report.names.is_empty(), "it is known");
}

#[test]
fn what_a_container_makes_up_stays_small_and_legible() {
    let heard = Heard::default();
    told(&heard, Kind::Refused, u64::MAX, "");
    told(&heard, Kind::Unknown, 0, "\u{1b}[2J\nrm -rf");
    for number in 0..1000 {
        told(&heard, Kind::Unknown, 0, &format!("cu{number}"));
    }
    let report = heard.report();
    assert_eq!((report.refused, report.unknown), (MOST_COUNTED, 1001));
    assert_eq!(report.names.len(), MOST_NAMES);
    assert!(report.names.contains_key("??2J?rm??rf"), "{:?}", report.names);
}

#[test]
fn a_process_has_few_connections_and_is_connected_as_long_as_one_is_there() {
    let heard = Heard::default();
    let process = Process { pid: 1, start_time: 2 };
    for _ in 0..MOST_CONNECTIONS {
        assert!(heard.connect(process));
    }
    assert!(!heard.connect(process));
    assert!(heard.connect(Process { pid: 1, start_time: 3 }), "another one with its pid");
    for _ in 0..MOST_CONNECTIONS {
        assert!(heard.is_connected(process));
        heard.disconnect(process);
    }
    assert!(!heard.is_connected(process));
}
