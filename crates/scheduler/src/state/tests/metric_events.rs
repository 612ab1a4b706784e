use std::collections::BTreeMap;

use serde_json::json;

use super::fixtures::{Testbed, member, node, pod, pod_group, with};
use crate::metrics::Subject;
use crate::state::MetricEvent;
use crate::status::GroupPhase;

fn events(testbed: &mut Testbed) -> Vec<MetricEvent> {
    testbed.scheduler.take_metric_events()
}

fn decided(subject: Subject, result: &'static str, reason: &'static str) -> MetricEvent {
    MetricEvent::Decided { subject, result, reason }
}

fn phases(testbed: &Testbed) -> BTreeMap<GroupPhase, usize> {
    testbed.scheduler.gang_phases().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_bound_pod_counts_the_time_since_it_was_observed() {
    let mut testbed = Testbed::new();
    testbed.time(1000);
    testbed.pod(&pod("p", "1"));
    assert_eq!(testbed.settle(), []);
    assert_eq!(events(&mut testbed), [decided(Subject::Pod, "refused", "Unschedulable")]);
    testbed.time(700);
    testbed.node(&node("a", 4));
    let ops = testbed.ops();
    testbed.time(50);
    for op in &ops {
        testbed.complete(op);
    }
    let expected = [decided(Subject::Pod, "placed", ""), MetricEvent::PodBound { after_ms: 750 }];
    assert_eq!(events(&mut testbed), expected);
}

#[test]
fn a_preempted_gang_counts_once() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "2"));
    }
    assert_eq!(testbed.settle().len(), 2);
    events(&mut testbed);
    testbed.pod(&with(pod("high", "4"), "/spec/priority", json!(100)));
    testbed.ops();
    let preempted = events(&mut testbed).into_iter();
    let preempted = preempted.filter(|event| matches!(event, MetricEvent::Preempted(_)));
    assert_eq!(preempted.collect::<Vec<_>>(), [MetricEvent::Preempted(Subject::Gang)]);
}

#[test]
fn each_gang_with_pods_counts_in_one_phase() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.object(&pod_group("g", 2, json!({})));
    testbed.pod(&member("g", "m0", "2"));
    testbed.settle();
    assert_eq!(phases(&testbed), BTreeMap::from([(GroupPhase::Gathering, 1)]));
    testbed.pod(&member("g", "m1", "2"));
    assert_eq!(testbed.settle().len(), 2);
    assert_eq!(phases(&testbed), BTreeMap::from([(GroupPhase::Scheduled, 1)]));
    for name in ["m0", "m1"] {
        testbed.drop_pod(name);
    }
    assert_eq!(phases(&testbed), BTreeMap::new());
}
