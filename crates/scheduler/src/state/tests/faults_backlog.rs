//! A hundred thousand pods that fit nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, Kind, NodeName, Pod, PodUid};
use serde_json::json;

use super::fixtures::{Testbed, node, pod, with};
use crate::bind::OpKind;
use crate::status::StatusUpdate;

const WAITING: usize = 100_000;
/// More than the state of a waiting pod takes, in bytes.
const MAX_BYTES: usize = 16 << 10;

/// Pods that no node takes, from one template.
fn impossible() -> Vec<Arc<Pod>> {
    let selector = json!({"disk": "none"});
    let template = with(pod("waits", "1"), "/spec/nodeSelector", selector);
    let template = Pod::from_value(template).expect("an object");
    let copy = |number: usize| {
        let mut pod = template.clone();
        pod.meta.name.name = format!("waits-{number:06}").into();
        pod.meta.uid = format!("uid-waits-{number:06}").into();
        Arc::new(pod)
    };
    (0..WAITING).map(copy).collect()
}

/// Memory of this process in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("a process");
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number") * 4096
}

/// Counts the conditions that were reported by now, and the pods that are bound.
fn take(testbed: &mut Testbed, conditions: &mut BTreeMap<PodUid, usize>) -> Vec<NodeName> {
    for report in testbed.scheduler.take_reports() {
        if let StatusUpdate::PodUnschedulable { pod, .. } = report {
            *conditions.entry(pod.uid).or_default() += 1;
        }
    }
    let ops = testbed.scheduler.take_ops();
    let binds = ops.iter().filter_map(|op| match &op.kind {
        OpKind::Bind(bind) => Some(bind.node.clone()),
        _ => None,
    });
    let binds = binds.collect();
    for op in &ops {
        testbed.complete(op);
    }
    binds
}

#[test]
fn a_hundred_thousand_impossible_pods_get_one_condition_each_and_delay_no_other() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    let all = impossible();
    let before = memory();
    testbed.scheduler.apply(&Change::Pod(Delta::Replace(Kind::new("v1", "Pod"), all)));
    let mut conditions = BTreeMap::new();
    assert!(testbed.scheduler.decide(), "they are more than a batch");
    take(&mut testbed, &mut conditions);
    // A pod of higher priority is next, although most of the others have not been decided on.
    testbed.pod(&with(pod("urgent", "1"), "/spec/priority", json!(1)));
    testbed.scheduler.decide();
    assert_eq!(take(&mut testbed, &mut conditions).len(), 1);
    assert!(conditions.len() < WAITING);
    while testbed.scheduler.decide() {
        take(&mut testbed, &mut conditions);
    }
    take(&mut testbed, &mut conditions);
    assert_eq!(conditions.len(), WAITING);
    // An equal one is next once they wait.
    testbed.pod(&pod("fits", "1"));
    testbed.scheduler.decide();
    assert_eq!(take(&mut testbed, &mut conditions).len(), 1);
    // Changes that help none of them cost one look at their class, and no report.
    testbed.drop_pod("fits");
    testbed.node(&with(node("b", 4), "/metadata/labels/disk", json!("some")));
    for _ in 0..10 {
        testbed.time(1000);
        while testbed.scheduler.decide() {}
        take(&mut testbed, &mut conditions);
    }
    assert!(conditions.values().all(|count| *count == 1), "each condition is written once");
    assert_eq!(testbed.scheduler.queue.refused_before(u64::MAX).len(), 1, "they wait as one");
    let grown = memory().saturating_sub(before);
    assert!(grown < WAITING * MAX_BYTES, "{grown} bytes");
}
