use serde_json::json;

use super::kit::{Bed, member, node, pod, pod_group, with};
use crate::bind::OpKind;
use crate::core::CoreConfig;

/// Decides round by round. After each a node comes that helps nobody, and some time goes by. After how many
/// rounds a pod was placed.
fn rounds_until_placed(bed: &mut Bed, name: &str, milliseconds: u64) -> Option<usize> {
    (0..100).find(|round| {
        bed.core.decide();
        let orders = bed.core.take_orders();
        let is_placed = orders
            .iter()
            .any(|order| matches!(&order.kind, OpKind::Bind(bind) if &*bind.pod.name.name == name));
        bed.node(&node(&format!("small-{round}"), 1));
        bed.core.tick(milliseconds * (*round as u64 + 1));
        is_placed
    })
}

fn bed(batch: usize) -> Bed {
    let mut bed =
        Bed::with_config(CoreConfig { batch, preemption: false, ..CoreConfig::default() });
    bed.node(&node("a", 8));
    bed
}

#[test]
fn who_waits_behind_many_that_are_refused_again_and_again_is_decided_on() {
    let mut bed = bed(2);
    for number in 0..6 {
        let large = pod(&format!("large-{number}"), &format!("{}", 50 + number));
        bed.pod(&with(large, "/spec/priority", json!(100)));
    }
    // It was refused once itself: there was no room for it.
    bed.pod(&with(pod("first", "4"), "/spec/nodeName", json!("a")));
    bed.pod(&pod("late", "8"));
    while bed.core.decide() {}
    assert!(bed.reason("late").is_none() && bed.core.take_orders().is_empty());
    bed.drop_pod("first");
    let rounds = rounds_until_placed(&mut bed, "late", 250).expect("a place");
    assert!(rounds >= 3, "those before it have the first turns: {rounds}");
}

#[test]
fn gangs_that_are_refused_again_and_again_keep_no_pod_waiting() {
    let mut bed = bed(256);
    for name in ["g", "h", "i"] {
        bed.object(&pod_group(name, 2, json!({})));
        for number in 0..2 {
            let member = member(name, &format!("{name}-{number}"), "50");
            bed.pod(&with(member, "/spec/priority", json!(100)));
        }
    }
    bed.pod(&pod("late", "1"));
    assert!(rounds_until_placed(&mut bed, "late", 250).is_some());
}

#[test]
fn what_becomes_free_is_of_those_before_others_as_long_as_the_end_is_reached() {
    let mut bed = bed(2);
    for number in 0..5 {
        let other = pod(&format!("other-{number}"), &format!("{}", 50 + number));
        bed.pod(&with(other, "/spec/priority", json!(10)));
    }
    bed.pod(&with(pod("before", "16"), "/spec/priority", json!(5)));
    bed.pod(&pod("behind", "15"));
    while bed.core.decide() {}
    for round in 0..20_u64 {
        bed.node(&node(&format!("small-{round}"), 1));
        bed.core.tick(250 * (round + 1));
        while bed.core.decide() {}
    }
    bed.node(&node("large", 16));
    let bound = bed.settle();
    assert_eq!(bound, [("before".to_owned(), "large".to_owned())]);
}

#[test]
fn of_those_behind_a_gang_that_is_refused_again_and_again_the_more_important_comes_first() {
    for names in [["important", "other"], ["z-important", "a-other"]] {
        let mut bed = bed(256);
        for name in ["g", "h"] {
            bed.object(&pod_group(name, 2, json!({})));
            for number in 0..2 {
                let member = member(name, &format!("{name}-{number}"), "50");
                bed.pod(&with(member, "/spec/priority", json!(100)));
            }
        }
        bed.pod(&with(pod("first", "4"), "/spec/nodeName", json!("a")));
        // Of both only one has room later; the more important one was asked about before.
        bed.pod(&with(pod(names[0], "8"), "/spec/priority", json!(10)));
        while bed.core.decide() {}
        assert!(bed.core.take_orders().is_empty());
        bed.pod(&pod(names[1], "8"));
        bed.drop_pod("first");
        assert!(rounds_until_placed(&mut bed, names[0], 250).is_some(), "{names:?}");
    }
}
