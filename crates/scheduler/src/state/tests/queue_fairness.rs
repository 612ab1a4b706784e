use serde_json::json;

use super::fixtures::{Testbed, member, node, pod, pod_group, with};
use crate::bind::OpKind;
use crate::state::SchedulerConfig;

/// Decides cycle by cycle. After each cycle all entries wake for a change and the clock advances.
/// Returns the number of cycles until the pod was placed.
fn cycles_until_placed(testbed: &mut Testbed, name: &str, milliseconds: u64) -> Option<usize> {
    (0..100).find(|cycle| {
        testbed.scheduler.decide();
        let ops = testbed.scheduler.take_ops();
        let is_placed = ops
            .iter()
            .any(|op| matches!(&op.kind, OpKind::Bind(bind) if &*bind.pod.name.name == name));
        testbed.scheduler.cache.cluster_changed();
        testbed.scheduler.tick(milliseconds * (*cycle as u64 + 1));
        is_placed
    })
}

fn testbed(batch: usize) -> Testbed {
    let mut testbed = Testbed::with_config(SchedulerConfig {
        batch,
        preemption: false,
        ..SchedulerConfig::default()
    });
    testbed.node(&node("a", 8));
    testbed
}

#[test]
fn a_pod_behind_many_unschedulable_pods_is_tried() {
    let mut testbed = testbed(2);
    for number in 0..6 {
        let large = pod(&format!("large-{number}"), &format!("{}", 50 + number));
        testbed.pod(&with(large, "/spec/priority", json!(100)));
    }
    // It was unschedulable once itself, for lack of capacity.
    testbed.pod(&with(pod("first", "4"), "/spec/nodeName", json!("a")));
    testbed.pod(&pod("late", "8"));
    while testbed.scheduler.decide() {}
    assert!(testbed.reason("late").is_none() && testbed.scheduler.take_ops().is_empty());
    testbed.drop_pod("first");
    testbed.scheduler.cache.cluster_changed();
    let cycles = cycles_until_placed(&mut testbed, "late", 250).expect("a place");
    assert!(cycles >= 3, "entries at the head go first: {cycles}");
}

#[test]
fn unschedulable_gangs_starve_no_pod() {
    let mut testbed = testbed(256);
    for name in ["g", "h", "i"] {
        testbed.object(&pod_group(name, 2, json!({})));
        for number in 0..2 {
            let member = member(name, &format!("{name}-{number}"), "50");
            testbed.pod(&with(member, "/spec/priority", json!(100)));
        }
    }
    testbed.pod(&pod("late", "1"));
    assert!(cycles_until_placed(&mut testbed, "late", 250).is_some());
}

#[test]
fn freed_capacity_goes_to_the_head_while_cycles_reach_the_tail() {
    let mut testbed = testbed(2);
    for number in 0..5 {
        let other = pod(&format!("other-{number}"), &format!("{}", 50 + number));
        testbed.pod(&with(other, "/spec/priority", json!(10)));
    }
    testbed.pod(&with(pod("before", "16"), "/spec/priority", json!(5)));
    testbed.pod(&pod("behind", "15"));
    while testbed.scheduler.decide() {}
    for cycle in 0..20_u64 {
        testbed.node(&node(&format!("small-{cycle}"), 1));
        testbed.scheduler.tick(250 * (cycle + 1));
        while testbed.scheduler.decide() {}
    }
    testbed.node(&node("large", 16));
    let bound = testbed.settle();
    assert_eq!(bound, [("before".to_owned(), "large".to_owned())]);
}

#[test]
fn priority_decides_behind_an_unschedulable_gang() {
    for names in [["important", "other"], ["z-important", "a-other"]] {
        let mut testbed = testbed(256);
        for name in ["g", "h"] {
            testbed.object(&pod_group(name, 2, json!({})));
            for number in 0..2 {
                let member = member(name, &format!("{name}-{number}"), "50");
                testbed.pod(&with(member, "/spec/priority", json!(100)));
            }
        }
        testbed.pod(&with(pod("first", "4"), "/spec/nodeName", json!("a")));
        // Later only one of them fits. The more important one was tried before.
        testbed.pod(&with(pod(names[0], "8"), "/spec/priority", json!(10)));
        while testbed.scheduler.decide() {}
        assert!(testbed.scheduler.take_ops().is_empty());
        testbed.pod(&pod(names[1], "8"));
        testbed.drop_pod("first");
        assert!(cycles_until_placed(&mut testbed, names[0], 250).is_some(), "{names:?}");
    }
}
