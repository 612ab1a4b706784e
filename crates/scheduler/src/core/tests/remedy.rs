use std::sync::Arc;

use octavo_engine::explain::DisturbanceSaid;
use octavo_kube_io::objects::{Budget, Change, Delta, LabelSelector, Meta, ObjectName};
use serde_json::{Value, json};

use super::kit::{Bed, budget, member, node, pod, pod_group, with};
use crate::core::{CoreConfig, Search};
use crate::status::Report;

fn priority(pod: Value, priority: i32) -> Value {
    with(pod, "/spec/priority", json!(priority))
}

/// Runs a search and those that follow it; how many that were.
fn look(bed: &mut Bed, first: Option<Search>) -> usize {
    let (mut next, mut count) = (first, 0);
    while let Some(search) = next {
        count += 1;
        next = bed.core.take_found(search.run());
    }
    count
}

fn disturbance(bed: &mut Bed, name: &str) -> Option<DisturbanceSaid> {
    let name = ObjectName::new("team", name);
    let search = bed.core.search_for_pod(&name);
    look(bed, search);
    let explained = bed.core.explain_pod(&name).expect("the pod");
    assert!(!explained.is_open);
    explained.disturbance
}

fn line(bed: &mut Bed, name: &str) -> String {
    disturbance(bed, name).expect("somebody who could go").line()
}

/// A node with a pod on it, and another pod that finds no room.
fn full(config: CoreConfig, running: &Value, waiting: &Value) -> Bed {
    let mut bed = Bed::with_config(config);
    bed.node(&node("a", 4));
    bed.pod(running);
    assert_eq!(bed.settle().len(), 1);
    bed.pod(waiting);
    assert_eq!(bed.orders(), []);
    bed
}

/// What the status of the gang says last.
fn status(bed: &Bed, group: &str) -> Option<String> {
    bed.reports.iter().rev().find_map(|report| match report {
        Report::Group(one) if &*one.name.name == group => Some(one.statement.message.clone()),
        _ => None,
    })
}

#[test]
fn who_would_have_to_go_is_named_with_what_stands_against_it() {
    let off = || CoreConfig { preemption: false, ..CoreConfig::default() };
    let (low, high) = (pod("low", "3"), priority(pod("high", "3"), 100));
    let mut bed = full(off(), &low, &high);
    let found = disturbance(&mut bed, "high").expect("the pod of lower priority");
    let [victim] = &*found.evictions else { panic!("{found:?}") };
    assert_eq!((&*victim.name, victim.priority, &*victim.node), ("pod team/low", 0, "a"));
    assert_eq!(
        found.line(),
        "it would help to evict pod team/low (priority 0) from node a; that is not done: \
         `preemption` is off in the scheduler's config"
    );
    let never = with(high, "/spec/preemptionPolicy", json!("Never"));
    let mut bed = full(CoreConfig::default(), &low, &never);
    assert!(line(&mut bed, "high").ends_with("the `preemptionPolicy` of who waits is `Never`"));
    // Settings come together.
    let mut bed = full(off(), &low, &never);
    assert_eq!(disturbance(&mut bed, "high").expect("the pod").hindrances.len(), 2);
}

#[test]
fn a_policy_without_preemption_is_named() {
    let mut bed = Bed::new();
    bed.object(&json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "calm", "uid": "uid-calm", "generation": 1},
        "spec": {"preemption": false, "order": [{"unit": "hops"}]},
    }));
    bed.node(&node("a", 4));
    bed.pod(&pod("low", "3"));
    bed.settle();
    let calm = json!({"octavo.dev/placement-policy": "calm"});
    bed.pod(&with(priority(pod("high", "3"), 100), "/metadata/annotations", calm));
    assert_eq!(bed.orders(), []);
    assert!(line(&mut bed, "high").ends_with("PlacementPolicy calm allows no preemption"));
}

#[test]
fn a_priority_that_is_not_higher_is_said() {
    let mut bed =
        full(CoreConfig::default(), &priority(pod("one", "3"), 7), &priority(pod("two", "3"), 7));
    assert_eq!(
        line(&mut bed, "two"),
        "it would help to evict pod team/one (priority 7) from node a; that is not done: the \
         priority 7 is not below that of who waits, 7"
    );
    assert_eq!(bed.orders(), [], "asking does nothing");
    assert_eq!(disturbance(&mut bed, "one"), None, "who has its place needs nothing");
    // Not even all others are enough.
    bed.pod(&pod("huge", "5"));
    bed.orders();
    assert_eq!(disturbance(&mut bed, "huge"), None);
}

#[test]
fn a_disruption_budget_is_named() {
    let app = json!({"app": "web"});
    let mut bed = Bed::new();
    let budget = Budget {
        meta: Meta { name: ObjectName::new("team", "web-pdb"), ..Meta::default() },
        selector: Some(LabelSelector {
            labels: [("app".to_owned(), "web".to_owned())].into(),
            ..LabelSelector::default()
        }),
        ..Budget::default()
    };
    bed.core.apply(&Change::Budget(Delta::Upsert(Arc::new(budget))));
    bed.node(&node("a", 4));
    bed.pod(&with(pod("low", "3"), "/metadata/labels", app));
    bed.settle();
    bed.pod(&priority(pod("high", "3"), 100));
    assert_eq!(bed.orders(), []);
    let line = line(&mut bed, "high");
    assert!(line.contains("evict pod team/low"), "{line}");
    assert!(line.ends_with("PodDisruptionBudget team/web-pdb allows no disruption now"), "{line}");
}

#[test]
fn a_gang_that_would_have_to_go_is_named_as_one() {
    let mut bed = Bed::new();
    for name in ["a", "b"] {
        bed.node(&node(name, 2));
    }
    let group = pod_group("old", 2, json!({}));
    bed.object(&with(group, "/spec/preemptible", json!(false)));
    for name in ["o0", "o1"] {
        bed.pod(&member("old", name, "2"));
    }
    assert_eq!(bed.settle().len(), 2);
    bed.object(&pod_group("new", 2, json!({})));
    for name in ["n0", "n1"] {
        bed.pod(&priority(member("new", name, "2"), 100));
    }
    assert_eq!(bed.orders(), []);
    let name = ObjectName::new("team", "new");
    let search = bed.core.search_for_group(&name);
    look(&mut bed, search);
    let explained = bed.core.explain_group(&name).expect("the gang");
    assert_eq!(
        explained.disturbance.expect("the other gang").line(),
        "it would help to evict 2 pods of PodGroup team/old (priority 0) from 2 nodes; that is not \
         done: PodGroup team/old says `preemptible: false`"
    );
}

#[test]
fn a_pod_that_could_be_moved_is_named_with_where_to() {
    let owned = |name: &str, on: &str| {
        let owners = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs",
            "controller": true,
        }]);
        let pod = with(pod(name, "2"), "/metadata/ownerReferences", owners);
        with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": on}))
    };
    let mut bed = Bed::new();
    for name in ["a", "b"] {
        bed.node(&node(name, 4));
    }
    for (name, on) in [("one", "a"), ("two", "b")] {
        bed.pod(&owned(name, on));
        bed.settle();
        // It could be on either node from here on.
        let mut pod = bed.pods[name].clone();
        pod["spec"].as_object_mut().expect("a spec").remove("nodeSelector");
        bed.pod(&pod);
    }
    bed.pod(&pod("large", "4"));
    assert_eq!(bed.orders(), []);
    let found = disturbance(&mut bed, "large").expect("a move");
    let [victim] = &*found.moves else { panic!("{found:?}") };
    assert!(found.evictions.is_empty(), "{found:?}");
    let (name, to) = (victim.name.clone(), victim.to.as_deref().expect("where to"));
    assert_eq!(
        found.line(),
        format!(
            "it would help to move {name} (priority 0) from node {} to node {to}; that is not done: \
             `defragmentation` is off in the scheduler's config; {name} does not say \
             `octavo.dev/movable: \"true\"`",
            victim.node
        )
    );
}

#[test]
fn the_status_of_a_gang_that_waits_says_it_after_a_while() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("low", "3"));
    bed.settle();
    for group in ["g", "h"] {
        bed.object(&pod_group(group, 2, json!({})));
        for number in 0..2 {
            bed.pod(&member(group, &format!("{group}{number}"), "2"));
        }
    }
    bed.orders();
    let is_told = |bed: &Bed, group: &str| {
        status(bed, group).expect("a status").contains("it would help to evict pod team/low")
    };
    assert!(!is_told(&bed, "g") && !is_told(&bed, "h"), "the refusal is told at once, and alone");
    bed.after(1000);
    assert!(is_told(&bed, "g") && !is_told(&bed, "h"), "one a second");
    bed.after(1000);
    assert!(is_told(&bed, "g") && is_told(&bed, "h"));
    let (_, message) = bed.reason("g0").expect("a reason");
    assert!(!message.contains("evict"), "the conditions of pods stay as they were: {message}");
    // Another is to go soon after, and it is not looked for again at once.
    bed.drop_pod("low");
    bed.pod(&with(pod("other", "3"), "/spec/nodeName", json!("a")));
    bed.orders();
    bed.after(1000);
    assert!(is_told(&bed, "g"));
    bed.after(10_000);
    let message = status(&bed, "g").expect("a status");
    assert!(message.contains("it would help to evict pod team/other"), "{message}");
}

#[test]
fn a_disruption_budget_that_lets_fewer_go_than_would_have_to_is_named() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    for name in ["one", "two"] {
        bed.pod(&with(pod(name, "2"), "/metadata/labels", json!({"app": "web"})));
    }
    bed.settle();
    bed.budget(&budget("web", json!({"app": "web"}), 1));
    bed.pod(&priority(pod("high", "4"), 100));
    assert_eq!(bed.orders(), []);
    let line = line(&mut bed, "high");
    let hindrance = "that is not done: PodDisruptionBudget team/web lets 1 go now, and 2 would";
    assert!(line.ends_with(hindrance), "{line}");
}

#[test]
fn who_asks_again_is_told_what_was_found_until_something_changes() {
    let mut bed = full(CoreConfig::default(), &pod("one", "3"), &pod("two", "3"));
    let two = ObjectName::new("team", "two");
    let asked = |bed: &mut Bed| {
        let search = bed.core.search_for_pod(&two);
        look(bed, search)
    };
    assert!(bed.core.explain_pod(&two).expect("the pod").is_open);
    assert_eq!(asked(&mut bed), 2, "among those who may leave, then among all");
    assert_eq!(asked(&mut bed), 0, "it is known");
    bed.after(2000);
    assert_eq!(asked(&mut bed), 0);
    // Another comes to where there is room, which helps nobody who waits.
    bed.node(&node("b", 1));
    bed.orders();
    let other = with(pod("other", "1"), "/spec/nodeName", json!("b"));
    bed.pod(&with(other.clone(), "/status/phase", json!("Running")));
    assert_eq!(asked(&mut bed), 2, "the picture is another");
    bed.after(2000);
    bed.pod(&with(priority(other, 1), "/status/phase", json!("Running")));
    assert_eq!(asked(&mut bed), 2, "who would have to go may be another");
    bed.after(2000);
    bed.budget(&budget("web", json!({"app": "web"}), 1));
    assert_eq!(asked(&mut bed), 2, "what stands against it may be another");
    bed.after(20_000);
    assert_eq!(asked(&mut bed), 2, "some of what stands against it passes by itself");
}

#[test]
fn an_answer_outlives_changes_for_a_second_so_that_there_is_one_at_all() {
    let mut bed = full(CoreConfig::default(), &pod("one", "3"), &pod("two", "3"));
    let two = ObjectName::new("team", "two");
    let first = bed.core.search_for_pod(&two).expect("a search");
    let second = bed.core.take_found(first.run());
    bed.node(&node("b", 1));
    bed.orders();
    assert_eq!(look(&mut bed, second), 1);
    assert!(bed.core.explain_pod(&two).expect("the pod").disturbance.is_some());
    bed.after(1000);
    assert!(bed.core.explain_pod(&two).expect("the pod").is_open, "it was of another cluster");
}

#[test]
fn what_was_found_of_somebody_who_has_his_place_meanwhile_is_not_said() {
    let mut bed = full(CoreConfig::default(), &pod("one", "3"), &pod("two", "3"));
    let two = ObjectName::new("team", "two");
    let first = bed.core.search_for_pod(&two).expect("a search");
    bed.node(&node("b", 4));
    assert_eq!(bed.settle().len(), 1);
    look(&mut bed, Some(first));
    let explained = bed.core.explain_pod(&two).expect("the pod");
    assert!(!explained.is_open && explained.disturbance.is_none());
}

#[test]
fn that_those_who_may_be_disturbed_were_not_searched_to_the_end_is_said_of_what_others_would_do() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("low", "1"));
    bed.pod(&priority(pod("peer", "3"), 100));
    assert_eq!(bed.settle().len(), 2);
    bed.pod(&priority(pod("high", "4"), 100));
    assert_eq!(bed.orders(), []);
    let high = ObjectName::new("team", "high");
    let mut first = bed.core.search_for_pod(&high).expect("a search");
    first.steps = 0;
    let second = bed.core.take_found(first.run());
    assert_eq!(look(&mut bed, second), 1, "that was no end");
    let explained = bed.core.explain_pod(&high).expect("the pod");
    assert!(explained.disturbance.is_some());
    let note = explained.disturbance_note.expect("a note");
    assert!(note.starts_with("those who may be disturbed were not searched to the end"), "{note}");
    // A search to the end needs no note.
    bed.after(20_000);
    let search = bed.core.search_for_pod(&high);
    assert_eq!(look(&mut bed, search), 2);
    assert_eq!(bed.core.explain_pod(&high).expect("the pod").disturbance_note, None);
}
