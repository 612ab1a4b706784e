//! What the API server refuses is what the check refuses, and the names are those of the types.

use std::collections::BTreeSet;

use octavo_health::policy::Policy;
use octavo_health::remedy::{Ladder, Remedy};
use octavo_health::xid::XidClass;
use serde::de::DeserializeOwned;

use super::*;
use crate::health_policy::{HealthPolicySpec, LADDER, XID_CLASSES};
use crate::node_health::{REMEDIES, STATES};

const GROUPS: [&str; 4] = ["budget", "breaker", "times", "risk"];

fn checked(spec: &Value) -> Result<Policy, String> {
    let spec: HealthPolicySpec =
        serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
    spec.check().map_err(|error| error.to_string())
}

fn spec() -> Value {
    json!({"nodeSelector": {"pool": "h100"}})
}

#[test]
fn bounds_of_the_schema_are_those_of_the_check() {
    let mut numbers = 0;
    for group in GROUPS {
        let schema = property("HealthPolicy", &format!("spec.{group}"));
        for (name, field) in schema["properties"].as_object().unwrap() {
            if field["type"] != "integer" {
                continue;
            }
            numbers += 1;
            let bound = |name: &str| field[name].as_i64().unwrap();
            let (least, most) = (bound("minimum"), bound("maximum"));
            let with = |value: i64| {
                let mut spec = spec();
                spec[group] = json!({name: value});
                checked(&spec)
            };
            for good in [least, most] {
                with(good).unwrap();
            }
            for wrong in [least - 1, most + 1] {
                let error = with(wrong).unwrap_err();
                assert!(error.starts_with(&format!("{group}.{name}: it is {wrong}")), "{error}");
            }
        }
    }
    assert_eq!(numbers, 3 + 4 + 10 + 7);
}

#[test]
fn defaults_of_the_schema_are_those_of_the_type() {
    let defaults = serde_json::to_value(HealthPolicySpec::default()).unwrap();
    let schema = property("HealthPolicy", "spec");
    assert_eq!(schema["required"], json!(["nodeSelector"]));
    for (name, field) in schema["properties"].as_object().unwrap() {
        if name == "nodeSelector" {
            assert_eq!((&field["minProperties"], &field["default"]), (&json!(1), &Value::Null));
        } else if !["template", "xidClasses"].contains(&name.as_str()) {
            assert_eq!(field["default"], defaults[name], "{name}");
        }
    }
    for group in GROUPS {
        for (name, field) in
            property("HealthPolicy", &format!("spec.{group}"))["properties"].as_object().unwrap()
        {
            assert_eq!(field["default"], defaults[group][name], "{group}.{name}");
        }
    }
}

fn all<T: DeserializeOwned>(names: &[&str]) -> Vec<T> {
    names.iter().map(|name| serde_json::from_value(json!(name)).unwrap()).collect()
}

#[test]
fn names_in_the_schema_are_those_of_the_types() {
    let ladder: Vec<Remedy> = all(&LADDER);
    assert_eq!(Ladder::new(ladder.clone()).unwrap().remedies(), ladder);
    let remedies: Vec<Remedy> = all(&REMEDIES);
    assert!(remedies.is_sorted() && remedies.first() == Some(&Remedy::Test));
    assert_eq!(remedies.last(), Some(&Remedy::Replace));
    let automatic = remedies.iter().filter(|remedy| remedy.is_automatic()).count();
    assert_eq!(automatic, ladder.len());
    let classes: BTreeSet<XidClass> = all(&XID_CLASSES).into_iter().collect();
    assert_eq!(classes.len(), XID_CLASSES.len());
    let state = property("NodeHealth", "status.devices.[].state");
    assert_eq!(state["enum"], json!(STATES));
    let items = property("HealthPolicy", "spec.remedies");
    assert_eq!(items["items"]["enum"], json!(LADDER));
    let rules = property("HealthPolicy", "spec")["x-kubernetes-validations"].to_string();
    assert!(LADDER.iter().all(|name| rules.contains(name)), "{rules}");
}

#[test]
fn devices_merge_by_uuid_and_records_keep_all_fields() {
    for list in ["spec.devices", "status.devices"] {
        let devices = property("NodeHealth", list);
        assert_eq!(devices["x-kubernetes-list-type"], "map", "{list}");
        assert_eq!(devices["x-kubernetes-list-map-keys"], json!(["uuid"]), "{list}");
    }
    for record in ["spec.devices.[].history", "status.devices.[].record"] {
        let record = property("NodeHealth", record);
        assert_eq!(record["x-kubernetes-preserve-unknown-fields"], true);
    }
    let permit = property("NodeHealth", "spec.devices.[].permit");
    assert_eq!(permit["required"], json!(["afterAttempt", "remedy", "since"]));
}
