use octavo_api::placement_policy::{
    PlacementPolicySpec, PolicyConstraints, PolicyStep, PolicyTerm, PolicyTolerance, SpareNodes,
    UNITS, Weight,
};
use octavo_engine::Unit;
use octavo_kube_io::objects::{Meta, ObjectName};
use serde_json::json;

use super::*;

fn object(name: &str, spec: Value) -> WatchedObject {
    WatchedObject {
        api_version: "octavo.dev/v1alpha1".to_owned(),
        kind: "PlacementPolicy".to_owned(),
        meta: Meta { name: ObjectName::new("", name), uid: name.into(), ..Meta::default() },
        generation: 1,
        spec,
        status: Value::Null,
    }
}

fn by(unit: &str) -> Value {
    json!({"order": [{"unit": unit}]})
}

fn set(policies: &mut Policies, object: WatchedObject) -> Vec<Report> {
    policies.apply(&Delta::Upsert(Arc::new(object)))
}

/// Names and reasons of reports; no reason: it is used.
fn told(reports: &[Report]) -> Vec<(String, &'static str)> {
    let told = |report: &Report| match report {
        Report::Policy { name, error, .. } => {
            (name.to_string(), error.as_ref().map_or("", |error| error.reason))
        }
        other => panic!("{other:?} is of no policy"),
    };
    reports.iter().map(told).collect()
}

#[test]
fn who_names_no_policy_has_the_engines_default_where_no_object_is() {
    let policies = Policies::default();
    assert_eq!(**policies.find(None).unwrap(), PlacementPolicy::default());
}

#[test]
fn who_names_a_policy_has_it_and_others_have_the_default_one() {
    let mut policies = Policies::default();
    set(&mut policies, object("near", by("hops")));
    let mut usual = by("watts");
    usual["isDefault"] = json!(true);
    let reports = set(&mut policies, object("usual", usual));
    assert_eq!(told(&reports), [("usual".to_owned(), "")]);
    assert_eq!(policies.find(Some("near")).unwrap().name(), "near");
    assert_eq!(policies.find(None).unwrap().name(), "usual");
}

#[test]
fn a_name_that_is_not_there_is_refused_with_the_names_that_are() {
    let mut policies = Policies::default();
    assert!(policies.find(Some("x")).unwrap_err().to_string().ends_with("one of: none"));
    set(&mut policies, object("near", by("hops")));
    let error = policies.find(Some("nera")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no PlacementPolicy \"nera\"; create it, or name one of: near"
    );
}

#[test]
fn a_policy_that_makes_no_sense_is_told_and_those_that_name_it_wait() {
    let mut policies = Policies::default();
    let reports = set(&mut policies, object("p", by("hop")));
    assert_eq!(told(&reports), [("p".to_owned(), "InvalidPolicy")]);
    let error = policies.find(Some("p")).unwrap_err().to_string();
    assert!(error.contains("did you mean \"hops\"?"), "{error}");
}

#[test]
fn a_policy_that_is_broken_later_counts_on_as_it_was() {
    let mut policies = Policies::default();
    set(&mut policies, object("p", by("hops")));
    let mut broken = object("p", json!({"order": []}));
    broken.generation = 2;
    let reports = set(&mut policies, broken);
    let [Report::Policy { generation: 2, error: Some(error), .. }] = reports.as_slice() else {
        panic!("{reports:?}")
    };
    assert!(error.message.ends_with("Until then the version before it is used"), "{error:?}");
    assert!(policies.find(Some("p")).unwrap().has(Unit::Hops));
    set(&mut policies, object("p", by("watts")));
    assert!(policies.find(Some("p")).unwrap().has(Unit::Watts));
}

#[test]
fn a_policy_made_anew_under_the_name_of_another_does_not_inherit_from_it() {
    let mut policies = Policies::default();
    set(&mut policies, object("p", by("hops")));
    let mut other = object("p", json!({"order": []}));
    other.meta.uid = "another".into();
    set(&mut policies, other);
    assert!(policies.find(Some("p")).is_err());
}

#[test]
fn of_two_defaults_the_older_counts_and_the_other_is_told() {
    let mut policies = Policies::default();
    let default = |name: &str, created| {
        let mut spec = by("hops");
        spec["isDefault"] = json!(true);
        let mut object = object(name, spec);
        object.meta.created = created;
        object
    };
    set(&mut policies, default("new", 20));
    assert_eq!(policies.find(None).unwrap().name(), "new");
    let reports = set(&mut policies, default("old", 10));
    let expected = [("new".to_owned(), "SecondDefault"), ("old".to_owned(), "")];
    assert_eq!(told(&reports), expected);
    assert_eq!(policies.find(None).unwrap().name(), "old");
    // The younger one moves up, and is told so.
    let reports = policies.apply(&Delta::Delete(Arc::new(default("old", 10))));
    assert_eq!(told(&reports), [("new".to_owned(), "")]);
    assert_eq!(policies.find(None).unwrap().name(), "new");
}

#[test]
fn a_list_anew_forgets_what_is_not_in_it() {
    let mut policies = Policies::default();
    set(&mut policies, object("a", by("hops")));
    let list = vec![Arc::new(object("b", by("hops")))];
    let reports = policies.apply(&Delta::Replace(Policies::kind(), list));
    assert_eq!(told(&reports), [("b".to_owned(), "")]);
    assert!(policies.find(Some("a")).is_err());
    // A list of another kind is not about policies.
    let other = Delta::Replace(Kind::new("octavo.dev/v1alpha1", "PodGroup"), Vec::new());
    assert_eq!(policies.apply(&other), []);
    assert!(policies.find(Some("b")).is_ok());
}

#[test]
fn nothing_is_told_twice() {
    let mut policies = Policies::default();
    assert_eq!(set(&mut policies, object("a", by("hops"))).len(), 1);
    assert_eq!(set(&mut policies, object("a", by("hops"))), []);
}

#[test]
fn every_field_that_the_resource_has_the_engine_understands() {
    let units: Vec<_> = Unit::ALL.into_iter().map(Unit::name).collect();
    assert_eq!(units, UNITS);
    let unit = |unit: &str| PolicyStep { unit: Some(unit.to_owned()), ..PolicyStep::default() };
    let term = |unit: &str, weight| PolicyTerm { unit: unit.to_owned(), weight };
    let percent = PolicyTolerance { percent: Some(10), absolute: None };
    let absolute = PolicyTolerance { percent: None, absolute: Some(3) };
    let sum = vec![
        term("gpuMilliStranded", Weight::Decimal("1.5".to_owned())),
        term("watts", Weight::Whole(2)),
    ];
    let spec = PlacementPolicySpec {
        order: vec![
            unit("podsDisturbed"),
            PolicyStep { tolerance: Some(percent), ..unit("hops") },
            PolicyStep { tolerance: Some(absolute), ..unit("centsPerHour") },
            PolicyStep { sum, ..PolicyStep::default() },
        ],
        constraints: Some(PolicyConstraints {
            max_watts: Some(500_000),
            max_cents_per_hour: Some(9),
            max_pods_disturbed: Some(4),
            spares: vec![SpareNodes { level: Some("rack".to_owned()), nodes: 1 }],
        }),
        preemption: Some(true),
        is_default: true,
    };
    let mut policies = Policies::default();
    let written = serde_json::to_value(&spec).unwrap();
    let reports = set(&mut policies, object("all", written.clone()));
    assert_eq!(told(&reports), [("all".to_owned(), "")]);
    let read = PolicySpec::from((**policies.find(None).unwrap()).clone());
    let mut read = serde_json::to_value(read).unwrap();
    read.as_object_mut().unwrap().remove("name");
    read["isDefault"] = json!(true);
    // The engine writes weights as texts.
    let mut written = written;
    written["order"][3]["sum"][1]["weight"] = json!("2");
    assert_eq!(read, written);
}

#[test]
fn specs_that_are_no_policies_are_told_by_their_form() {
    for spec in [json!(null), json!(7), json!({"order": "hops"}), json!({"orders": []})] {
        let mut policies = Policies::default();
        let reports = set(&mut policies, object("p", spec.clone()));
        assert_eq!(told(&reports), [("p".to_owned(), "InvalidPolicy")], "{spec}");
    }
}
