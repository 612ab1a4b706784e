use std::collections::BTreeMap;

use octavo_health::ONE;
use octavo_health::budget::Budget;
use octavo_health::policy::{Mode, NetworkCards, Policy, Test};
use octavo_health::remedy::Remedy;
use octavo_health::risk::Model;
use octavo_health::xid::XidClass;

use super::*;

fn spec() -> HealthPolicySpec {
    let node_selector = BTreeMap::from([("pool".to_owned(), "h100".to_owned())]);
    HealthPolicySpec { node_selector, ..HealthPolicySpec::default() }
}

fn error(change: impl Fn(&mut HealthPolicySpec)) -> String {
    let mut spec = spec();
    change(&mut spec);
    spec.check().unwrap_err().to_string()
}

#[test]
fn the_defaults_of_a_spec_are_those_of_the_parts() {
    let policy = spec().check().unwrap();
    let defaults = Policy {
        node_selector: policy.node_selector.clone(),
        by_person: [Remedy::Reboot, Remedy::PowerCycle].into(),
        ..Policy::default()
    };
    assert_eq!(policy, defaults);
    assert_eq!(policy.mode, Mode::Fence);
}

#[test]
fn errors_name_the_field_and_the_reason() {
    assert_eq!(
        error(|spec| spec.node_selector.clear()),
        "nodeSelector: it is empty; name at least one label of the nodes to which the policy applies"
    );
    assert_eq!(
        error(|spec| spec.budget.remedies_percent = -5),
        "budget.remediesPercent: it is -5, and must be from 0 to 100"
    );
    assert_eq!(
        error(|spec| spec.breaker.nodes = 0),
        "breaker.nodes: it is 0, and must be from 1 to 1000000"
    );
    assert_eq!(
        error(|spec| spec.times.short_test_seconds = 0),
        "times.shortTestSeconds: it is 0, and must be from 1 to 31536000"
    );
    assert_eq!(
        error(|spec| spec.risk.times = 1),
        "risk.times: it is 1, and must be from 2 to 100000"
    );
    assert_eq!(
        error(|spec| spec.risk.watch_milli = 1_001),
        "risk.watchMilli: it is 1001, and must be from 1 to 1000"
    );
    assert_eq!(
        error(|spec| {
            spec.xid_classes.insert(5, XidClass::Reset);
        }),
        "xidClasses.5: NVIDIA's catalogue says that this XID is not used; remove it"
    );
    assert!(error(|spec| spec.remedies.reverse()).starts_with("remedies: each must be harsher"));
    let wrong = PreventiveDrainSpec { risk_removed_percent: 0, ..PreventiveDrainSpec::default() };
    assert_eq!(
        error(|spec| spec.preventive_drain = Some(wrong)),
        "preventiveDrain.riskRemovedPercent: it is 0, and must be from 1 to 100"
    );
}

#[test]
fn xids_of_newer_drivers_may_have_a_class() {
    let mut spec = spec();
    spec.xid_classes = BTreeMap::from([(200, XidClass::Reset), (31, XidClass::Notice)]);
    assert_eq!(spec.check().unwrap().xid_classes, spec.xid_classes);
}

#[test]
fn a_remedy_that_a_template_has_is_no_person_s() {
    let template = r#"{"remedies": ["reboot"], "apiVersion": "r.example/v1", "kind": "RestartTemplate",
        "namespace": "ops", "name": "restart"}"#;
    let template: TemplateSpec = serde_json::from_str(template).unwrap();
    let policy = HealthPolicySpec { template: Some(template.clone()), ..spec() }.check().unwrap();
    assert_eq!(policy.by_person, [Remedy::PowerCycle].into());
    assert_eq!(policy.by_template, [Remedy::Reboot].into());
    let wrong = TemplateSpec { kind: "Restart".to_owned(), ..template };
    let error = HealthPolicySpec { template: Some(wrong), ..spec() }.check().unwrap_err();
    assert!(error.to_string().starts_with("template.kind: "), "{error}");
}

#[test]
fn a_preventive_drain_has_the_risk_at_which_a_move_pays() {
    let of = |text: &str| {
        let preventive_drain = serde_json::from_str(text).unwrap();
        HealthPolicySpec { preventive_drain: Some(preventive_drain), ..spec() }.check()
    };
    assert_eq!(spec().check().unwrap().preventive_drain, None);
    // A move costs 30 s, 120 s and the short test, and nine tenths of 180 s, 600 s and half of 1,800 s are avoided.
    let drain = of("{}").unwrap().preventive_drain.unwrap();
    assert_eq!((drain.probability, drain.horizon), (210 * ONE / 1_512, 604_800));
    let dearer = of(r#"{"plannedRestartSeconds": 400}"#).unwrap().preventive_drain.unwrap();
    assert!(dearer.probability > drain.probability);
    let longer = of(r#"{"queueSeconds": 3600}"#).unwrap().preventive_drain.unwrap();
    assert!(longer.probability < drain.probability);
    assert_eq!(
        of(r#"{"plannedRestartSeconds": 100000}"#).unwrap_err().to_string(),
        "preventiveDrain: a move costs 100090 s, with checkpoint, planned restart and test, and a failure costs less; \
         correct the times, or leave preventiveDrain out"
    );
    assert!(serde_json::from_str::<PreventiveDrainSpec>(r#"{"horizon": 5}"#).is_err());
}

#[test]
fn a_spec_is_written_as_other_specs_are() {
    let text = r#"{
        "nodeSelector": {"pool": "h100"}, "mode": "Act", "evict": true,
        "remedies": ["resetFunction", "reboot"], "test": "Driver", "rebootBy": "Agent", "xidClasses": {"31": "reset"},
        "networkCards": "Ignore",
        "budget": {"remediesPercent": 10}, "risk": {"model": "twoClasses", "memorySeconds": 0}
    }"#;
    let spec: HealthPolicySpec = serde_json::from_str(text).unwrap();
    let policy = spec.check().unwrap();
    assert_eq!((policy.mode, policy.test), (Mode::Act, Test::Driver));
    assert_eq!(policy.network_cards, NetworkCards::Ignore);
    assert_eq!(policy.rules.ladder.remedies(), [Remedy::ResetFunction, Remedy::Reboot]);
    assert_eq!(policy.budget, Budget { remedies_percent: 10, ..Budget::default() });
    assert_eq!((policy.risk.model, policy.risk.memory_seconds), (Model::TwoClasses, None));
    assert_eq!(policy.by_person, [Remedy::PowerCycle].into());
    let written = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<HealthPolicySpec>(&written).unwrap(), spec);
    for wrong in [
        r#"{"budgets": {}}"#,
        r#"{"test": "driver"}"#,
        r#"{"networkCards": "Off"}"#,
        r#"{"xidClasses": {"31": "deadly"}}"#,
    ] {
        assert!(serde_json::from_str::<HealthPolicySpec>(wrong).is_err(), "{wrong}");
    }
}
