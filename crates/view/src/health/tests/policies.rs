use std::collections::BTreeSet;

use insta::assert_snapshot;

use super::{facts, options};
use crate::health::facts::HealthFacts;
use crate::health::{policies, render_policies};
use crate::output;
use crate::snapshot::{Gap, GapKind};

#[test]
fn policies_say_whether_they_are_in_use_and_what_they_do() {
    let report = policies(&facts(), &[].into()).unwrap();
    assert_snapshot!(render_policies(&report, options(true)), @r"
    NAME  ACCEPTED  MODE   NODES  REMEDIES  EVICTIONS  STOPPED UNTIL         GPUS                                       NODE SELECTOR
    a100  False     Fence  0      0         0                                                                           pool=a100
    h100  True      Act    1      1         1          2026-01-05T12:20:00Z  1 Healthy, 1 Watch, 1 Fenced, 1 Resetting  pool=h100
    new   Unknown   Fence  0      0         0                                                                           pool=new

    a100: budget.remediesPercent: it is 500, and must be from 0 to 100.
    h100: no remedy begins until 12:20.
    new: the controller has not looked at this version of it: check that `octavo controller` runs.
    ");
}

#[test]
fn a_policy_that_changed_since_is_not_known_to_be_in_use() {
    let mut facts = facts();
    facts.policies.get_mut("h100").unwrap().metadata.generation = Some(4);
    let report = policies(&facts, &["h100".to_owned()].into()).unwrap();
    assert_eq!(report.policies[0].accepted, "Unknown");
    assert!(report.policies[0].remarks[0].contains("`octavo controller`"));
}

#[test]
fn an_unknown_policy_is_an_error_with_those_that_are_known() {
    let error = policies(&facts(), &["b200".to_owned()].into()).unwrap_err();
    assert_eq!(error.to_string(), "there is no HealthPolicy \"b200\"");
    assert_eq!(error.hint().unwrap(), "those that exist are: a100, h100, new");
    let error = policies(&HealthFacts::default(), &[].into()).unwrap_err();
    assert!(error.hint().unwrap().contains("`octavo upgrade`"));
}

#[test]
fn without_policies_the_defaults_of_agents_are_named() {
    let facts = HealthFacts { is_defined: true, ..HealthFacts::default() };
    let text = render_policies(&policies(&facts, &[].into()).unwrap(), options(false));
    assert!(text.starts_with("There is no HealthPolicy."), "{text}");
    assert!(text.contains("reset nothing"), "{text}");
}

#[test]
fn policies_that_may_not_be_read_are_not_called_missing() {
    let gap = |kind| Gap { kind, message: "no right".to_owned() };
    let gaps = vec![gap(GapKind::HealthPolicies), gap(GapKind::Pods)];
    let facts = HealthFacts { is_defined: true, gaps, ..HealthFacts::default() };
    let text = |names: &BTreeSet<String>| {
        render_policies(&policies(&facts, names).unwrap(), options(false))
    };
    let denied = "Not shown, because reading is denied: healthpolicies (no right).\n";
    assert_eq!(text(&[].into()), denied);
    assert_eq!(text(&["h100".to_owned()].into()), denied);
}

#[test]
fn programs_get_policies() {
    let report = policies(&facts(), &["h100".to_owned()].into()).unwrap();
    let text = output::json("HealthPolicies", &report).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let policy = &value["policies"][0];
    assert_eq!((&policy["accepted"], &policy["mode"]), (&"True".into(), &"Act".into()));
    assert_eq!(policy["gpus"]["resetting"], 1);
    assert_eq!(policy["stoppedUntil"], "2026-01-05T12:20:00Z");
}
