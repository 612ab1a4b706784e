use octavo_kube_io::objects::ObjectName;
use serde_json::json;

use super::claims::{claim, claiming, class, slice};
use super::kit::{Bed, node, pod, with};

/// A node of which both a device plugin and the driver serve the GPUs.
fn served_twice(bed: &mut Bed, name: &str) {
    bed.node(&with(node(name, 64), "/status/allocatable/nvidia.com~1gpu", json!("2")));
    bed.slice(&slice(name, 2));
}

#[test]
fn who_waits_for_gpus_is_told_of_nodes_that_are_left_out() {
    let mut bed = Bed::new();
    bed.class(&class());
    bed.node(&node("a", 64));
    bed.slice(&slice("a", 1));
    for name in ["b", "c"] {
        served_twice(&mut bed, name);
    }
    for name in ["p", "q"] {
        bed.claim(&claim(&format!("{name}-gpu"), name));
        bed.pod(&claiming(name));
    }
    bed.pod(&pod("large", "100"));
    assert_eq!(bed.settle().len(), 1, "one GPU is counted");
    let (_, message) = bed.reason("q").expect("a reason");
    assert!(message.contains("; 2 nodes (b, c) are left out: both the device plugin"), "{message}");
    let explained = bed.core.explain_pod(&ObjectName::new("team", "q")).expect("the pod");
    let left_out = &explained.left_out[0];
    assert_eq!((&*left_out.reason, left_out.nodes), ("ServedTwice", 2));
    assert!(message.ends_with(&left_out.message), "{message}");
    // Who asks for no GPUs is not concerned, nor is who has its place.
    for name in ["p", "large"] {
        let explained = bed.core.explain_pod(&ObjectName::new("team", name)).expect("the pod");
        assert_eq!(explained.left_out, [], "{name}");
    }
    let (_, message) = bed.reason("large").expect("a reason");
    assert!(!message.contains("left out"), "{message}");
    // One is put right: the other is still there to be told of.
    bed.node(&node("b", 64));
    assert_eq!(bed.settle().len(), 1);
    assert_eq!(bed.core.outside().keys().map(|name| &**name).collect::<Vec<_>>(), ["c"]);
}

#[test]
fn nodes_of_other_schedulers_are_nobodys_concern() {
    let mut bed = Bed::new();
    bed.class(&class());
    bed.node(&node("a", 64));
    bed.slice(&slice("a", 1));
    let other = with(node("b", 64), "/metadata/labels/octavo.dev~1scheduler", json!("other"));
    bed.node(&other);
    let mixed = with(slice("b", 2), "/spec/devices/1/attributes/productName/string", json!("L4"));
    bed.slice(&mixed);
    for name in ["p", "q"] {
        bed.claim(&claim(&format!("{name}-gpu"), name));
        bed.pod(&claiming(name));
    }
    assert_eq!(bed.settle().len(), 1);
    assert_eq!(bed.core.outside().len(), 1);
    let (_, message) = bed.reason("q").expect("a reason");
    assert!(!message.contains("node b") && !message.contains("several models"), "{message}");
}
