use std::sync::Arc;

use octavo_engine::explain::PreemptionHint;
use octavo_kube_io::objects::{Budget, Change, Delta, LabelSelector, Meta, ObjectName};
use serde_json::{Value, json};

use super::fixtures::{Testbed, budget, member, node, pod, pod_group, with};
use crate::state::{HintSearch, SchedulerConfig};
use crate::status::StatusUpdate;

fn priority(pod: Value, priority: i32) -> Value {
    with(pod, "/spec/priority", json!(priority))
}

/// Runs a search. Returns whether there was one.
fn look(testbed: &mut Testbed, search: Option<HintSearch>) -> bool {
    search.map(|search| testbed.scheduler.store_hint_result(&search.run())).is_some()
}

fn disturbance(testbed: &mut Testbed, name: &str) -> Option<PreemptionHint> {
    let name = ObjectName::new("team", name);
    let search = testbed.scheduler.hint_search_for_pod(&name);
    look(testbed, search);
    let explained = testbed.scheduler.explain_pod(&name).expect("the pod");
    assert!(!explained.needs_search);
    explained.disturbance
}

fn line(testbed: &mut Testbed, name: &str) -> String {
    disturbance(testbed, name).expect("a victim").line()
}

/// A node with a running pod, and a pending pod that does not fit.
fn full(config: SchedulerConfig, running: &Value, waiting: &Value) -> Testbed {
    let mut testbed = Testbed::with_config(config);
    testbed.node(&node("a", 4));
    testbed.pod(running);
    assert_eq!(testbed.settle().len(), 1);
    testbed.pod(waiting);
    assert_eq!(testbed.ops(), []);
    testbed
}

/// The last message in the status of the gang.
fn status(testbed: &Testbed, group: &str) -> Option<String> {
    testbed.reports.iter().rev().find_map(|report| match report {
        StatusUpdate::Group(one) if &*one.name.name == group => {
            Some(one.status_text.message.clone())
        }
        _ => None,
    })
}

#[test]
fn a_hint_names_the_victim_and_the_obstacles() {
    let off = || SchedulerConfig { preemption: false, ..SchedulerConfig::default() };
    let (low, high) = (pod("low", "3"), priority(pod("high", "3"), 100));
    let mut testbed = full(off(), &low, &high);
    let found = disturbance(&mut testbed, "high").expect("the pod of lower priority");
    let [victim] = &*found.evictions else { panic!("{found:?}") };
    assert_eq!((&*victim.name, victim.priority, &*victim.node), ("pod team/low", 0, "a"));
    assert_eq!(
        found.line(),
        "it would help to evict pod team/low (priority 0) from node a; that is not done: \
         `preemption` is off in the scheduler's config"
    );
    let never = with(high, "/spec/preemptionPolicy", json!("Never"));
    let mut testbed = full(SchedulerConfig::default(), &low, &never);
    assert!(
        line(&mut testbed, "high")
            .ends_with("the `preemptionPolicy` of the pending pods is `Never`")
    );
    // Obstacles are combined.
    let mut testbed = full(off(), &low, &never);
    assert_eq!(disturbance(&mut testbed, "high").expect("the pod").hindrances.len(), 2);
}

#[test]
fn a_policy_without_preemption_is_named() {
    let mut testbed = Testbed::new();
    testbed.object(&json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "calm", "uid": "uid-calm", "generation": 1},
        "spec": {"preemption": false, "order": [{"unit": "hops"}]},
    }));
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    let calm = json!({"octavo.dev/placement-policy": "calm"});
    testbed.pod(&with(priority(pod("high", "3"), 100), "/metadata/annotations", calm));
    assert_eq!(testbed.ops(), []);
    assert!(line(&mut testbed, "high").ends_with("PlacementPolicy calm allows no preemption"));
}

#[test]
fn a_hint_names_an_equal_priority() {
    let mut testbed = full(
        SchedulerConfig::default(),
        &priority(pod("one", "3"), 7),
        &priority(pod("two", "3"), 7),
    );
    assert_eq!(
        line(&mut testbed, "two"),
        "it would help to evict pod team/one (priority 7) from node a; that is not done: the \
         priority 7 is not below 7, that of the pending pods"
    );
    assert_eq!(testbed.ops(), [], "a hint causes no operation");
    assert_eq!(disturbance(&mut testbed, "one"), None, "a placed pod needs no hint");
    // Not even all other pods together are enough.
    testbed.pod(&pod("huge", "5"));
    testbed.ops();
    assert_eq!(disturbance(&mut testbed, "huge"), None);
}

#[test]
fn a_disruption_budget_is_named() {
    let app = json!({"app": "web"});
    let mut testbed = Testbed::new();
    let budget = Budget {
        meta: Meta { name: ObjectName::new("team", "web-pdb"), ..Meta::default() },
        selector: Some(LabelSelector {
            labels: [("app".to_owned(), "web".to_owned())].into(),
            ..LabelSelector::default()
        }),
        ..Budget::default()
    };
    testbed.scheduler.apply(&Change::Budget(Delta::Upsert(Arc::new(budget))));
    testbed.node(&node("a", 4));
    testbed.pod(&with(pod("low", "3"), "/metadata/labels", app));
    testbed.settle();
    testbed.pod(&priority(pod("high", "3"), 100));
    assert_eq!(testbed.ops(), []);
    let line = line(&mut testbed, "high");
    assert!(line.contains("evict pod team/low"), "{line}");
    assert!(line.ends_with("PodDisruptionBudget team/web-pdb allows no disruption now"), "{line}");
}

#[test]
fn a_hint_names_a_gang_as_one_victim() {
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&node(name, 2));
    }
    let group = pod_group("old", 2, json!({}));
    testbed.object(&with(group, "/spec/preemptible", json!(false)));
    for name in ["o0", "o1"] {
        testbed.pod(&member("old", name, "2"));
    }
    assert_eq!(testbed.settle().len(), 2);
    testbed.object(&pod_group("new", 2, json!({})));
    for name in ["n0", "n1"] {
        testbed.pod(&priority(member("new", name, "2"), 100));
    }
    assert_eq!(testbed.ops(), []);
    let name = ObjectName::new("team", "new");
    let search = testbed.scheduler.hint_search_for_group(&name);
    look(&mut testbed, search);
    let explained = testbed.scheduler.explain_group(&name).expect("the gang");
    assert_eq!(
        explained.disturbance.expect("the other gang").line(),
        "it would help to evict 2 pods of PodGroup team/old (priority 0) from 2 nodes; that is not \
         done: PodGroup team/old has `preemptible: false`"
    );
}

#[test]
fn a_hint_names_a_movable_pod_and_its_target() {
    let owned = |name: &str, on: &str| {
        let owners = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs",
            "controller": true,
        }]);
        let pod = with(pod(name, "2"), "/metadata/ownerReferences", owners);
        with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": on}))
    };
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&node(name, 4));
    }
    for (name, on) in [("one", "a"), ("two", "b")] {
        testbed.pod(&owned(name, on));
        testbed.settle();
        // From here on it could run on either node.
        let mut pod = testbed.pods[name].clone();
        pod["spec"].as_object_mut().expect("a spec").remove("nodeSelector");
        testbed.pod(&pod);
    }
    testbed.pod(&pod("large", "4"));
    assert_eq!(testbed.ops(), []);
    let found = disturbance(&mut testbed, "large").expect("a move");
    let [victim] = &*found.moves else { panic!("{found:?}") };
    assert!(found.evictions.is_empty(), "{found:?}");
    let (name, to) = (victim.name.clone(), victim.to.as_deref().expect("a target node"));
    assert_eq!(
        found.line(),
        format!(
            "it would help to move {name} (priority 0) from node {} to node {to}; that is not done: \
             `defragmentation` is off in the scheduler's config; {name} does not have \
             `octavo.dev/movable: \"true\"`",
            victim.node
        )
    );
}

#[test]
fn the_status_of_a_pending_gang_gets_its_hint_later() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    for group in ["g", "h"] {
        testbed.object(&pod_group(group, 2, json!({})));
        for number in 0..2 {
            testbed.pod(&member(group, &format!("{group}{number}"), "2"));
        }
    }
    testbed.ops();
    let has_hint = |testbed: &Testbed, group: &str| {
        status(testbed, group).expect("a status").contains("it would help to evict pod team/low")
    };
    assert!(
        !has_hint(&testbed, "g") && !has_hint(&testbed, "h"),
        "the refusal is reported first, without a hint"
    );
    testbed.after(1000);
    assert!(has_hint(&testbed, "g") && !has_hint(&testbed, "h"), "one gang per second");
    testbed.after(1000);
    assert!(has_hint(&testbed, "g") && has_hint(&testbed, "h"));
    let (_, message) = testbed.reason("g0").expect("a reason");
    assert!(!message.contains("evict"), "pod conditions have no hint: {message}");
    // The victim is replaced soon after; the next search is not due yet.
    testbed.drop_pod("low");
    testbed.pod(&with(pod("other", "3"), "/spec/nodeName", json!("a")));
    testbed.ops();
    testbed.after(1000);
    assert!(has_hint(&testbed, "g"));
    testbed.after(10_000);
    let message = status(&testbed, "g").expect("a status");
    assert!(message.contains("it would help to evict pod team/other"), "{message}");
}

#[test]
fn a_budget_that_allows_too_few_disruptions_is_named() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    for name in ["one", "two"] {
        testbed.pod(&with(pod(name, "2"), "/metadata/labels", json!({"app": "web"})));
    }
    testbed.settle();
    testbed.budget(&budget("web", json!({"app": "web"}), 1));
    testbed.pod(&priority(pod("high", "4"), 100));
    assert_eq!(testbed.ops(), []);
    let line = line(&mut testbed, "high");
    let hindrance =
        "that is not done: PodDisruptionBudget team/web allows 1 disruptions now, and 2 are needed";
    assert!(line.ends_with(hindrance), "{line}");
}

#[test]
fn a_hint_is_cached_until_the_cluster_changes() {
    let mut testbed = full(SchedulerConfig::default(), &pod("one", "3"), &pod("two", "3"));
    let two = ObjectName::new("team", "two");
    let asked = |testbed: &mut Testbed| {
        let search = testbed.scheduler.hint_search_for_pod(&two);
        look(testbed, search)
    };
    assert!(testbed.scheduler.explain_pod(&two).expect("the pod").needs_search);
    assert!(asked(&mut testbed));
    assert!(!asked(&mut testbed), "the hint is cached");
    testbed.after(2000);
    assert!(!asked(&mut testbed));
    // A pod comes to a node with room, which helps no pending pod.
    testbed.node(&node("b", 1));
    testbed.ops();
    let other = with(pod("other", "1"), "/spec/nodeName", json!("b"));
    testbed.pod(&with(other.clone(), "/status/phase", json!("Running")));
    assert!(asked(&mut testbed), "the engine cache has changed");
    testbed.after(2000);
    testbed.pod(&with(priority(other, 1), "/status/phase", json!("Running")));
    assert!(asked(&mut testbed), "the victim may have changed");
    testbed.after(2000);
    testbed.budget(&budget("web", json!({"app": "web"}), 1));
    assert!(asked(&mut testbed), "the obstacles may have changed");
    testbed.after(20_000);
    assert!(asked(&mut testbed), "some obstacles pass by themselves");
}

#[test]
fn a_hint_outlives_changes_for_one_second() {
    let mut testbed = full(SchedulerConfig::default(), &pod("one", "3"), &pod("two", "3"));
    let two = ObjectName::new("team", "two");
    let search = testbed.scheduler.hint_search_for_pod(&two);
    testbed.node(&node("b", 1));
    testbed.ops();
    assert!(look(&mut testbed, search));
    assert!(testbed.scheduler.explain_pod(&two).expect("the pod").disturbance.is_some());
    testbed.after(1000);
    assert!(
        testbed.scheduler.explain_pod(&two).expect("the pod").needs_search,
        "the hint was for another state of the cluster"
    );
}

#[test]
fn a_hint_for_a_pod_placed_meanwhile_is_dropped() {
    let mut testbed = full(SchedulerConfig::default(), &pod("one", "3"), &pod("two", "3"));
    let two = ObjectName::new("team", "two");
    let first = testbed.scheduler.hint_search_for_pod(&two).expect("a search");
    testbed.node(&node("b", 4));
    assert_eq!(testbed.settle().len(), 1);
    look(&mut testbed, Some(first));
    let explained = testbed.scheduler.explain_pod(&two).expect("the pod");
    assert!(!explained.needs_search && explained.disturbance.is_none());
}

#[test]
fn a_hint_for_a_gang_that_lost_a_member_meanwhile_is_dropped() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "2"));
    }
    testbed.ops();
    testbed.time(1000);
    let search = testbed.scheduler.due_hint_search().expect("a search");
    testbed.drop_pod("m1");
    while testbed.scheduler.decide() {}
    look(&mut testbed, Some(search));
    testbed.reports.extend(testbed.scheduler.take_reports());
    let message = status(&testbed, "g").expect("a status");
    assert!(!message.contains("evict"), "{message}");
}

#[test]
fn a_hint_notes_that_the_first_search_was_truncated() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "1"));
    testbed.pod(&priority(pod("peer", "3"), 100));
    assert_eq!(testbed.settle().len(), 2);
    testbed.pod(&priority(pod("high", "4"), 100));
    assert_eq!(testbed.ops(), []);
    let high = ObjectName::new("team", "high");
    let search = testbed.scheduler.hint_search_for_pod(&high).expect("a search");
    let steps = search.steps;
    testbed.scheduler.store_hint_result(&search.run_within(0, steps));
    let explained = testbed.scheduler.explain_pod(&high).expect("the pod");
    assert!(explained.disturbance.is_some());
    let note = explained.disturbance_note.expect("a note");
    assert!(note.starts_with("the search among pods that may be disturbed ended after"), "{note}");
    // A complete search needs no note.
    testbed.after(20_000);
    let search = testbed.scheduler.hint_search_for_pod(&high);
    assert!(look(&mut testbed, search));
    assert_eq!(testbed.scheduler.explain_pod(&high).expect("the pod").disturbance_note, None);
}

#[test]
fn an_explanation_needs_more_than_a_short_search_that_was_truncated() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "2"));
    }
    while testbed.scheduler.decide() {}
    testbed.time(1000);
    let search = testbed.scheduler.due_hint_search().expect("a search");
    testbed.scheduler.store_hint_result(&search.run_within(0, 0));
    let name = ObjectName::new("team", "g");
    assert!(testbed.scheduler.explain_group(&name).expect("the gang").needs_search);
    let search = testbed.scheduler.hint_search_for_group(&name);
    assert!(look(&mut testbed, search));
    let explained = testbed.scheduler.explain_group(&name).expect("the gang");
    assert!(!explained.needs_search && explained.disturbance.is_some());
}
