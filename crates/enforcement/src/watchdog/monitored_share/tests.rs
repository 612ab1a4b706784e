use octavo_guard_abi::state::SlotCopy;

use super::{DriverUsage, NamespacedPid, OwnedProcess, Process, is_slot_of, usages};

fn slot(pid: u64, namespace: u64, start_time: u64, used_bytes: u64) -> SlotCopy {
    SlotCopy {
        index: 0,
        used_bytes,
        context_bytes: 0,
        peak_bytes: 0,
        pid,
        start_time,
        pid_namespace: namespace,
        refused: 0,
        unknown: 0,
        launches: 0,
    }
}

#[test]
fn a_slot_is_found_by_pid_namespace_and_start() {
    let process = Process { pid: 4711, start_time: 5 };
    let inside = |pid, namespace| Some(NamespacedPid { pid, namespace });
    assert!(is_slot_of(&slot(7, 30, 5, 0), process, inside(7, Some(30))));
    assert!(
        is_slot_of(&slot(7, 30, 5, 0), process, inside(7, None)),
        "the namespace may not be read"
    );
    assert!(!is_slot_of(&slot(7, 31, 5, 0), process, inside(7, Some(30))), "of another container");
    assert!(
        !is_slot_of(&slot(7, 30, 6, 0), process, inside(7, Some(30))),
        "of a process before it"
    );
    assert!(!is_slot_of(&slot(8, 30, 5, 0), process, inside(7, Some(30))));
    assert!(!is_slot_of(&slot(7, 30, 5, 0), process, None));
}

#[test]
fn slots_of_a_process_are_added_without_wrapping() {
    let owned = OwnedProcess {
        process: Process { pid: 1, start_time: 5 },
        shares: Vec::new(),
        is_asked: false,
        is_unreadable: false,
        inside: Some(NamespacedPid { pid: 7, namespace: None }),
    };
    let found = [DriverUsage { owned, driver_bytes: Some(3) }];
    let slots = [slot(7, 1, 5, u64::MAX), slot(7, 1, 5, 2), slot(9, 1, 5, 100)];
    assert_eq!(usages(&found, &slots)[0].slot_bytes, Some(u64::MAX));
    assert_eq!(usages(&found, &slots[2..])[0].slot_bytes, None);
}
