use octavo_api::placement_policy::{
    PlacementPolicySpec, PolicyConstraints, PolicyStep, PolicyTerm, PolicyTolerance, SpareCount,
    SpareNodes, UNITS, Weight,
};
use octavo_engine::CostTerm;
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

fn set(policies: &mut Policies, object: WatchedObject) -> Vec<StatusUpdate> {
    policies.apply(&Delta::Upsert(Arc::new(object)))
}

/// Names and reasons of reports; an empty reason means that the policy is used.
fn summaries(reports: &[StatusUpdate]) -> Vec<(String, &'static str)> {
    let summary = |report: &StatusUpdate| match report {
        StatusUpdate::Policy { name, error, .. } => {
            (name.to_string(), error.as_ref().map_or("", |error| error.reason))
        }
        other => panic!("{other:?} is of no policy"),
    };
    reports.iter().map(summary).collect()
}

#[test]
fn default_policy_is_the_engines_without_objects() {
    let policies = Policies::default();
    assert_eq!(**policies.find(None).unwrap(), PlacementPolicy::default());
}

#[test]
fn named_policy_is_used_and_unnamed_get_the_default() {
    let mut policies = Policies::default();
    set(&mut policies, object("near", by("hops")));
    let mut usual = by("podsDisturbed");
    usual["isDefault"] = json!(true);
    let reports = set(&mut policies, object("usual", usual));
    assert_eq!(summaries(&reports), [("usual".to_owned(), "")]);
    assert_eq!(policies.find(Some("near")).unwrap().name(), "near");
    assert_eq!(policies.find(None).unwrap().name(), "usual");
}

#[test]
fn unknown_policy_error_lists_the_known_names() {
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
fn invalid_policy_is_reported_and_blocks_those_naming_it() {
    let mut policies = Policies::default();
    let reports = set(&mut policies, object("p", by("hop")));
    assert_eq!(summaries(&reports), [("p".to_owned(), "InvalidPolicy")]);
    let error = policies.find(Some("p")).unwrap_err().to_string();
    assert!(error.contains("did you mean \"hops\"?"), "{error}");
}

#[test]
fn last_valid_version_of_a_policy_stays_in_use() {
    let mut policies = Policies::default();
    set(&mut policies, object("p", by("hops")));
    let mut broken = object("p", json!({"order": []}));
    broken.generation = 2;
    let reports = set(&mut policies, broken);
    let [StatusUpdate::Policy { generation: 2, error: Some(error), .. }] = reports.as_slice()
    else {
        panic!("{reports:?}")
    };
    assert!(error.message.ends_with("Until then the previous version is used"), "{error:?}");
    assert!(policies.find(Some("p")).unwrap().has(CostTerm::Hops));
    set(&mut policies, object("p", by("podsDisturbed")));
    assert!(policies.find(Some("p")).unwrap().has(CostTerm::PodsDisturbed));
}

#[test]
fn recreated_policy_does_not_inherit_the_old_version() {
    let mut policies = Policies::default();
    set(&mut policies, object("p", by("hops")));
    let mut other = object("p", json!({"order": []}));
    other.meta.uid = "another".into();
    set(&mut policies, other);
    assert!(policies.find(Some("p")).is_err());
}

#[test]
fn older_of_two_defaults_wins_and_the_other_is_reported() {
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
    assert_eq!(summaries(&reports), expected);
    assert_eq!(policies.find(None).unwrap().name(), "old");
    // The younger one becomes the default and is reported.
    let reports = policies.apply(&Delta::Delete(Arc::new(default("old", 10))));
    assert_eq!(summaries(&reports), [("new".to_owned(), "")]);
    assert_eq!(policies.find(None).unwrap().name(), "new");
}

#[test]
fn relist_removes_missing_policies() {
    let mut policies = Policies::default();
    set(&mut policies, object("a", by("hops")));
    let list = vec![Arc::new(object("b", by("hops")))];
    let reports = policies.apply(&Delta::Replace(Policies::kind(), list));
    assert_eq!(summaries(&reports), [("b".to_owned(), "")]);
    assert!(policies.find(Some("a")).is_err());
    // A list of another kind does not affect policies.
    let other = Delta::Replace(Kind::new("octavo.dev/v1alpha1", "PodGroup"), Vec::new());
    assert_eq!(policies.apply(&other), []);
    assert!(policies.find(Some("b")).is_ok());
}

#[test]
fn unchanged_policies_are_not_reported_again() {
    let mut policies = Policies::default();
    assert_eq!(set(&mut policies, object("a", by("hops"))).len(), 1);
    assert_eq!(set(&mut policies, object("a", by("hops"))), []);
}

#[test]
fn engine_understands_every_field_of_the_crd() {
    let units: Vec<_> = CostTerm::ALL.into_iter().map(CostTerm::name).collect();
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
            spares: vec![SpareNodes {
                level: Some("rack".to_owned()),
                nodes: SpareCount::Auto("auto".to_owned()),
                refill_seconds: Some(3600),
                lend_below_priority: Some(0),
            }],
        }),
        below_minimum_seconds: Some(60),
        preemption: Some(true),
        is_default: true,
    };
    let written = serde_json::to_value(&spec).unwrap();
    let read = PolicySpec::from(read("all", &written).unwrap());
    let mut read = serde_json::to_value(read).unwrap();
    read.as_object_mut().unwrap().remove("name");
    // Fields that only the scheduler uses.
    read["isDefault"] = json!(true);
    read["belowMinimumSeconds"] = json!(60);
    // The engine writes weights as text.
    let mut written = written;
    written["order"][3]["sum"][1]["weight"] = json!("2");
    assert_eq!(read, written);
}

#[test]
fn malformed_specs_are_reported() {
    for spec in [json!(null), json!(7), json!({"order": "hops"}), json!({"orders": []})] {
        let mut policies = Policies::default();
        let reports = set(&mut policies, object("p", spec.clone()));
        assert_eq!(summaries(&reports), [("p".to_owned(), "InvalidPolicy")], "{spec}");
    }
}

#[test]
fn policies_that_count_what_a_cluster_has_no_figures_of_are_refused() {
    let limited = |limit: &str| {
        let mut spec = by("hops");
        spec["constraints"] = json!({ limit: 500_000 });
        spec
    };
    for (spec, field) in [
        (by("watts"), "spec.order: nodes and GPUs of a cluster have no watts"),
        (by("centsPerHour"), "spec.order"),
        (
            json!({"order": [{"sum": [{"unit": "hops", "weight": 1}, {"unit": "watts", "weight": 1}]}]}),
            "spec.order",
        ),
        (limited("maxWatts"), "spec.constraints.maxWatts"),
        (limited("maxCentsPerHour"), "spec.constraints.maxCentsPerHour"),
    ] {
        let mut policies = Policies::default();
        let reports = set(&mut policies, object("p", spec.clone()));
        let [StatusUpdate::Policy { error: Some(error), .. }] = reports.as_slice() else {
            panic!("{spec}: {reports:?}")
        };
        assert_eq!(error.reason, "InvalidPolicy");
        assert!(error.message.contains(field), "{spec}: {error:?}");
        assert!(policies.find(Some("p")).is_err(), "{spec}");
    }
}
