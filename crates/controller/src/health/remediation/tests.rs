use octavo_api::node_health::Permit;
use octavo_health::reason::Reason;
use octavo_health::signal::Attempt;
use serde_json::{Value, json};

use super::*;
use crate::health::facts::{Change, NodeFacts, OrderFacts, date, health, labels, policy};

fn facts(spec: &Value) -> Facts {
    let mut all = json!({"nodeSelector": {"pool": "a"}, "mode": "Act", "template": {
        "remedies": ["reboot"], "apiVersion": "r.example/v1", "kind": "RestartTemplate",
        "namespace": "ops", "name": "t",
    }});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = |kind: &str, name: &str, parts: Value| {
        let mut object = json!({
            "apiVersion": "octavo.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "uid": name},
        });
        object.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        object
    };
    let mut facts = Facts::default();
    let found = object("HealthPolicy", "p", json!({"spec": all}));
    let found = policy(&serde_json::from_value(found).unwrap());
    facts.apply(Change::Put("p".to_owned(), found));
    note_template(&mut facts);
    for name in ["n0", "n1"] {
        let labels = labels(&[("pool".to_owned(), "a".to_owned())]);
        facts.nodes.insert(name.to_owned(), NodeFacts { labels, ..NodeFacts::default() });
        let devices = ["gpu-0", "gpu-1"].map(|gpu| {
            json!({"uuid": gpu, "name": gpu, "state": "Healthy", "since": "2026-01-01T00:00:00Z"})
        });
        let found = object("NodeHealth", name, json!({"status": {"devices": devices}}));
        let found = health(serde_json::from_value(found).unwrap());
        facts.apply(Change::Put(name.to_owned(), found));
    }
    facts
}

fn set(facts: &mut Facts, device: usize, state: State, attempt: u64) {
    let known = &mut facts.healths.get_mut("n0").unwrap().devices[device];
    let track = &mut known.record.as_mut().unwrap().track;
    (track.state, track.attempt) = (state, Attempt(attempt));
}

fn resetting(remedy: Remedy) -> State {
    State::Resetting { reason: Reason::Lost, remedy }
}

/// The status names the template, as after a round.
fn note_template(facts: &mut Facts) {
    let policy = facts.policies.get_mut("p").unwrap();
    policy.status.template = policy.usable_template().cloned();
}

/// The time in the tests.
const NOW: u64 = 1_800_000_000;

fn nodes(facts: &Facts) -> Vec<(String, u64)> {
    nodes_at(facts, NOW)
}

fn nodes_at(facts: &Facts, now: u64) -> Vec<(String, u64)> {
    remediations(facts, now)
        .remove("p")
        .map(|found| found.nodes.into_iter().collect())
        .unwrap_or_default()
}

#[test]
fn an_object_exists_while_the_remedy_runs() {
    let mut facts = facts(&json!({}));
    assert_eq!(nodes(&facts), []);
    set(&mut facts, 0, resetting(Remedy::ResetBus), 2);
    assert_eq!(nodes(&facts), [], "the agent resets");
    set(&mut facts, 0, resetting(Remedy::Reboot), 3);
    set(&mut facts, 1, resetting(Remedy::Reboot), 3);
    assert_eq!(nodes(&facts), [("n0".to_owned(), 3)], "one a node");
    let found = remediations(&facts, NOW);
    assert_eq!((&*found["p"].uid, found["p"].template.object_kind()), ("p", "Restart"));
    let verifying = State::Verifying { reason: Reason::Lost, after: Remedy::Reboot };
    set(&mut facts, 0, verifying, 4);
    set(&mut facts, 1, verifying, 4);
    assert_eq!(nodes(&facts), []);
}

#[test]
fn a_policy_that_does_not_act_or_is_wrong_has_none() {
    for spec in [json!({"mode": "Fence"}), json!({"template": null}), json!({"remedies": ["x"]})] {
        let mut facts = facts(&spec);
        set(&mut facts, 0, resetting(Remedy::Reboot), 3);
        assert_eq!(nodes(&facts), [], "{spec}");
    }
}

#[test]
fn the_permit_counts_where_the_agent_cannot_begin() {
    let mut facts = facts(&json!({}));
    let needs = Remedy::Reboot;
    set(&mut facts, 0, State::Fenced { reason: Reason::Lost, needs }, 7);
    let permit = |after_attempt| {
        let since = date(NOW);
        let permit = Some(Permit { after_attempt, remedy: needs, since });
        vec![OrderFacts { uuid: "gpu-0".into(), permit, ..OrderFacts::default() }]
    };
    facts.healths.get_mut("n0").unwrap().orders = permit(7);
    assert_eq!(nodes(&facts), [], "its agent begins, once no process is left");
    facts.nodes.get_mut("n0").unwrap().not_ready_since = Some(5);
    assert_eq!(nodes(&facts), [("n0".to_owned(), 8)]);
    // The node is ready for a moment.
    let seen = facts.nodes.get_mut("n0").unwrap().not_ready_since.take();
    assert_eq!(remediations(&facts, NOW)["p"].stays, [("n0".to_owned(), 8)].into());
    facts.nodes.get_mut("n0").unwrap().not_ready_since = seen;
    facts.healths.get_mut("n0").unwrap().orders = permit(6);
    assert_eq!(nodes(&facts), [], "it was for an attempt that was");
}

#[test]
fn objects_of_a_template_that_is_not_in_use_any_more_are_to_go() {
    let mut facts = facts(&json!({}));
    set(&mut facts, 0, resetting(Remedy::Reboot), 3);
    assert_eq!(nodes(&facts).len(), 1);
    let without: fn(&mut Facts) = |facts| facts.policies.get_mut("p").unwrap().template = None;
    let invalid: fn(&mut Facts) =
        |facts| facts.policies.get_mut("p").unwrap().policy = Err("budget: no".to_owned());
    let other: fn(&mut Facts) = |facts| {
        let template = facts.policies.get_mut("p").unwrap().template.as_mut().unwrap();
        "PowerTemplate".clone_into(&mut template.kind);
    };
    for change in [without, invalid, other] {
        let mut facts = facts.clone();
        change(&mut facts);
        let found = remediations(&facts, NOW).remove("p").unwrap();
        assert!(!found.is_in_use && found.nodes.is_empty());
        assert_eq!(found.template.object_kind(), "Restart");
    }
    facts.policies.get_mut("p").unwrap().status.template = None;
    assert!(remediations(&facts, NOW).is_empty(), "the status names it before an object is made");
}

#[test]
fn a_remedy_that_runs_on_a_node_that_is_not_ready_keeps_its_object() {
    let mut facts = facts(&json!({}));
    set(&mut facts, 0, resetting(Remedy::Reboot), 8);
    let track = &mut facts.healths.get_mut("n0").unwrap().devices[0].record.as_mut().unwrap().track;
    track.since = NOW;
    set(&mut facts, 1, State::Fenced { reason: Reason::Lost, needs: Remedy::Reboot }, 9);
    let permit = Permit { after_attempt: 9, remedy: Remedy::Reboot, since: date(NOW) };
    let orders = OrderFacts { uuid: "gpu-1".into(), permit: Some(permit), ..OrderFacts::default() };
    facts.healths.get_mut("n0").unwrap().orders = vec![orders];
    assert_eq!(nodes(&facts), [("n0".to_owned(), 8)]);
    facts.nodes.get_mut("n0").unwrap().not_ready_since = Some(5);
    assert_eq!(nodes(&facts), [("n0".to_owned(), 8)], "the node goes down for it");
}

#[test]
fn the_next_remedy_of_a_node_that_does_not_come_back_has_another_object() {
    let remedies = json!({"template": {
        "remedies": ["reboot", "powerCycle"], "apiVersion": "r.example/v1", "kind": "RestartTemplate",
        "namespace": "ops", "name": "t",
    }});
    let mut facts = facts(&remedies);
    set(&mut facts, 0, State::Fenced { reason: Reason::Lost, needs: Remedy::Reboot }, 7);
    facts.nodes.get_mut("n0").unwrap().not_ready_since = Some(5);
    let mut permit = |remedy, since| {
        let permit = Some(Permit { after_attempt: 7, remedy, since: date(since) });
        let orders = OrderFacts { uuid: "gpu-0".into(), permit, ..OrderFacts::default() };
        facts.healths.get_mut("n0").unwrap().orders = vec![orders];
        nodes(&facts)
    };
    assert_eq!(permit(Remedy::Reboot, NOW), [("n0".to_owned(), 8)]);
    assert_eq!(permit(Remedy::Reboot, NOW - 1_800), [], "its time is over");
    assert_eq!(permit(Remedy::PowerCycle, NOW), [("n0".to_owned(), 9)]);
}
