use octavo_guard_abi::state::SlotCopy;

use super::{DriverUsage, UsageSplit};
use crate::process::Process;
use crate::process::proc::NamespacedPid;
use crate::watchdog::identity::OwnedProcess;

const START: u64 = 5;

fn slot(pid: u64, used_bytes: u64) -> SlotCopy {
    SlotCopy {
        index: 0,
        used_bytes,
        context_bytes: 0,
        peak_bytes: 0,
        pid,
        start_time: START,
        pid_namespace: 1,
        refused: 0,
        unknown: 0,
        launches: 0,
    }
}

/// A process of the shares `a` and `b`.
fn found(pid: u32, driver_bytes: Option<u64>) -> DriverUsage {
    let owned = OwnedProcess {
        process: Process { pid, start_time: START },
        shares: vec!["a".to_owned(), "b".to_owned()],
        is_asked: false,
        is_unreadable: false,
        inside: Some(NamespacedPid { pid: u64::from(pid), namespace: Some(1) }),
    };
    DriverUsage { owned, driver_bytes }
}

/// Shares of 100 bytes each with these slots.
fn split(a: Vec<SlotCopy>, b: Vec<SlotCopy>) -> UsageSplit {
    let mut split = UsageSplit::default();
    split.add("a", 100, || a);
    split.add("b", 100, || b);
    split.add("b", 100, || unreachable!("it is there"));
    split
}

fn parts(split: &mut UsageSplit, found: &DriverUsage) -> Vec<(String, Option<u64>)> {
    split.split(found).into_iter().map(|(name, part)| (name, part.driver_bytes)).collect()
}

fn both(a: u64, b: u64) -> Vec<(String, Option<u64>)> {
    vec![("a".to_owned(), Some(a)), ("b".to_owned(), Some(b))]
}

#[test]
fn each_share_has_what_its_ledger_says_and_the_roomiest_has_the_rest() {
    let mut split = split(vec![slot(1, 80)], vec![slot(1, 30)]);
    assert_eq!(parts(&mut split, &found(1, Some(125))), both(80, 45));
    // Charged bytes are not available to the next process. If none are left, one share is charged with all.
    assert_eq!(parts(&mut split, &found(2, Some(70))), both(15, 55));
    let more: u64 = split.split(&found(3, Some(30))).iter().filter_map(|p| p.1.driver_bytes).sum();
    assert_eq!(more, 30);
}

#[test]
fn a_driver_that_counts_less_than_the_ledgers_is_believed() {
    let mut split = split(vec![slot(1, 80)], vec![slot(1, u64::MAX)]);
    assert_eq!(parts(&mut split, &found(1, Some(90))), both(80, 10));
}

#[test]
fn a_process_that_has_nothing_in_a_share_is_not_counted_there() {
    let mut split = split(vec![slot(1, 0)], vec![slot(2, 10)]);
    assert_eq!(parts(&mut split, &found(1, Some(0))), [("a".to_owned(), Some(0))]);
    assert_eq!(parts(&mut split, &found(7, Some(0))), []);
    let unknown = parts(&mut split, &found(1, None));
    assert_eq!(unknown, [("a".to_owned(), None), ("b".to_owned(), None)]);
}
