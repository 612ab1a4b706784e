use octavo_kube_io::objects::ObjectName;
use serde_json::json;

use super::claims::{claim, claiming, class, slice};
use super::fixtures::{Testbed, node, pod, with};

/// A node whose GPUs are served by both a device plugin and the driver.
fn served_twice(testbed: &mut Testbed, name: &str) {
    testbed.node(&with(node(name, 64), "/status/allocatable/nvidia.com~1gpu", json!("2")));
    testbed.slice(&slice(name, 2));
}

#[test]
fn pods_waiting_for_gpus_name_unmodeled_nodes() {
    let mut testbed = Testbed::new();
    testbed.class(&class());
    testbed.node(&node("a", 64));
    testbed.slice(&slice("a", 1));
    for name in ["b", "c"] {
        served_twice(&mut testbed, name);
    }
    for name in ["p", "q"] {
        testbed.claim(&claim(&format!("{name}-gpu"), name));
        testbed.pod(&claiming(name));
    }
    testbed.pod(&pod("large", "100"));
    assert_eq!(testbed.settle().len(), 1, "one GPU is modeled");
    let (_, message) = testbed.reason("q").expect("a reason");
    assert!(
        message.contains("; GPUs of some nodes are not used: both the device plugin"),
        "{message}"
    );
    let explained = testbed.scheduler.explain_pod(&ObjectName::new("team", "q")).expect("the pod");
    let unmodeled = &explained.unmodeled_nodes[0];
    assert_eq!((&*unmodeled.reason, unmodeled.nodes), ("ServedTwice", 2));
    let named = "2 nodes (b, c) are not used for GPUs: both the device plugin";
    assert!(unmodeled.message.starts_with(named), "{}", unmodeled.message);
    // Pods that request no GPUs or are placed have no such nodes.
    for name in ["p", "large"] {
        let explained =
            testbed.scheduler.explain_pod(&ObjectName::new("team", name)).expect("the pod");
        assert_eq!(explained.unmodeled_nodes, [], "{name}");
    }
    let (_, message) = testbed.reason("large").expect("a reason");
    assert!(!message.contains("not used for GPUs"), "{message}");
    // One node is corrected; the other is still reported.
    testbed.node(&node("b", 64));
    assert_eq!(testbed.settle().len(), 1);
    assert_eq!(testbed.scheduler.unmodeled().keys().map(|name| &**name).collect::<Vec<_>>(), ["c"]);
}

#[test]
fn unmodeled_nodes_of_other_schedulers_are_not_reported() {
    let mut testbed = Testbed::new();
    testbed.class(&class());
    testbed.node(&node("a", 64));
    testbed.slice(&slice("a", 1));
    let other = with(node("b", 64), "/metadata/labels/octavo.dev~1scheduler", json!("other"));
    testbed.node(&other);
    let mixed = with(slice("b", 2), "/spec/devices/1/attributes/productName/string", json!("L4"));
    testbed.slice(&mixed);
    for name in ["p", "q"] {
        testbed.claim(&claim(&format!("{name}-gpu"), name));
        testbed.pod(&claiming(name));
    }
    assert_eq!(testbed.settle().len(), 1);
    assert_eq!(testbed.scheduler.unmodeled().len(), 1);
    let (_, message) = testbed.reason("q").expect("a reason");
    assert!(!message.contains("node b") && !message.contains("several models"), "{message}");
}
