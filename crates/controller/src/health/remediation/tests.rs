use octavo_api::node_health::Permit;
use octavo_health::reason::Reason;
use octavo_health::signal::Attempt;
use serde_json::{Value, json};

use super::*;
use crate::health::facts::{Change, OrderFacts, health, labels, policy};

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
        serde_json::from_value(object).unwrap()
    };
    let mut facts = Facts::default();
    let found = policy(&object("HealthPolicy", "p", json!({"spec": all})));
    facts.apply(Change::Put("p".to_owned(), found));
    for name in ["n0", "n1"] {
        let labels = labels(&[("pool".to_owned(), "a".to_owned())]);
        facts.nodes.insert(name.to_owned(), NodeFacts { labels, ..NodeFacts::default() });
        let devices = ["gpu-0", "gpu-1"].map(|gpu| {
            json!({"uuid": gpu, "name": gpu, "state": "Healthy", "since": "2026-01-01T00:00:00Z"})
        });
        let found = health(&object("NodeHealth", name, json!({"status": {"devices": devices}})));
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

fn nodes(facts: &Facts) -> Vec<(String, u64)> {
    remediations(facts)
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
    let found = remediations(&facts);
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
        let since = "2026-01-01T00:00:00Z".to_owned();
        let permit = Some(Permit { after_attempt, remedy: needs, since });
        vec![OrderFacts { uuid: "gpu-0".to_owned(), permit, ..OrderFacts::default() }]
    };
    facts.healths.get_mut("n0").unwrap().orders = permit(7);
    assert_eq!(nodes(&facts), [], "its agent begins, once no process is left");
    facts.nodes.get_mut("n0").unwrap().not_ready_since = Some(5);
    assert_eq!(nodes(&facts), [("n0".to_owned(), 8)]);
    facts.healths.get_mut("n0").unwrap().orders = permit(6);
    assert_eq!(nodes(&facts), [], "it was for an attempt that was");
}
