//! The clock leaps. The event loop hides pauses of the process from the state; a clock that leaps
//! nevertheless does no harm beyond what is due.

use serde_json::{Value, json};

use super::fixtures::{Testbed, evicted, member, node, pod, pod_group, with};
use crate::bind::FailureKind;

const DAY_MS: u64 = 24 * 3600 * 1000;

fn with_priority(pod: Value, priority: i32) -> Value {
    with(pod, "/spec/priority", json!(priority))
}

/// A scheduler in the middle of everything: a preemption, a gang that runs, a bind with an unknown
/// outcome, one that has failed, and pods that wait.
fn busy() -> Testbed {
    let mut testbed = Testbed::new();
    for (name, cpu) in [("a", 4), ("b", 4), ("c", 5)] {
        testbed.node(&node(name, cpu));
    }
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&with_priority(member("g", name, "4"), 100));
    }
    testbed.pod(&pod("low", "3"));
    assert_eq!(testbed.settle().len(), 3);
    testbed.pod(&with_priority(pod("high", "3"), 100));
    for op in testbed.ops() {
        testbed.complete(&op);
    }
    for (name, kind) in [("unknown", FailureKind::Indeterminate), ("failed", FailureKind::Rejected)]
    {
        testbed.pod(&pod(name, "500m"));
        for op in testbed.ops() {
            testbed.fail(&op, kind);
        }
    }
    testbed.pod(&pod("waits", "4"));
    testbed.ops();
    testbed
}

#[test]
fn a_preemption_ends_well_after_a_leap_of_a_day() {
    let mut testbed = busy();
    let ops = testbed.after(DAY_MS);
    assert_eq!(evicted(&ops), [""; 0]);
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod("low");
    testbed.time(1000);
    let bound = testbed.settle();
    assert!(bound.iter().any(|(name, _)| name == "high"), "{bound:?}");
}

#[test]
fn the_largest_time_is_survived_and_time_never_goes_back() {
    let mut testbed = busy();
    testbed.scheduler.tick(u64::MAX);
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    testbed.scheduler.tick(0);
    testbed.scheduler.tick(u64::MAX);
    testbed.pod(&with_priority(pod("other", "500m"), 200));
    let bound = testbed.settle();
    assert!(bound.iter().any(|(name, _)| name == "other"), "{bound:?}");
}
