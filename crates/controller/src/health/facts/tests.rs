use octavo_health::decide::Device as Record;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;

fn object<T: DeserializeOwned>(data: &Value) -> T {
    let mut all = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "X",
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "generation": 3},
    });
    all.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

fn health_of(data: &Value) -> HealthFacts {
    let Fact::Health(facts) = health(object(data)) else { panic!() };
    facts
}

fn device_json(record: &Value) -> Value {
    json!({
        "uuid": "GPU-1", "name": "gpu-0", "state": "Fenced", "since": "2028-01-01T00:00:00Z",
        "island": 2, "resetsAlone": true, "occupied": true, "record": record,
    })
}

#[test]
fn a_device_that_cannot_be_read_is_no_obstacle_to_the_others() {
    let good = serde_json::to_value(Record::default()).unwrap();
    let mut newer = device_json(&good);
    newer["record"]["colour"] = "red".into();
    let mut strange = device_json(&good);
    strange["island"] = "west".into();
    let devices = json!([device_json(&good), newer, strange, {"name": "nameless"}]);
    let found = health_of(&json!({"status": {"devices": devices}})).devices;
    assert_eq!(found.len(), 3);
    assert_eq!(found[0].record, Ok(Record::default()));
    assert_eq!((found[0].island, found[0].resets_alone, found[0].is_occupied), (2, true, true));
    let problem = found[1].record.as_ref().unwrap_err();
    assert!(problem.contains("unknown field `colour`"), "{problem}");
    let problem = found[2].record.as_ref().unwrap_err();
    assert!(problem.contains("west"), "{problem}");
    let without = |state: &str| {
        let device = json!({"uuid": "GPU-1", "name": "gpu-0", "state": state,
            "since": "2028-01-01T00:00:00Z"});
        health_of(&json!({"status": {"devices": [device]}})).devices.remove(0).record
    };
    assert_eq!(without("Fenced"), Err("there is none".to_owned()));
    assert_eq!(without("Healthy"), Ok(Record::default()), "there is nothing to remember");
}

#[test]
fn orders_are_read_back_as_they_were_written() {
    let record = serde_json::to_value(Record::default()).unwrap();
    let permit = json!({"afterAttempt": 4, "remedy": "resetBus", "since": date(1_000)});
    let orders =
        json!([{"uuid": "GPU-1", "permit": permit, "evictsSince": date(60), "history": record}]);
    let found = health_of(&json!({"spec": {"devices": orders}})).orders;
    assert_eq!(found[0].evicts_since, Some(60));
    assert_eq!(found[0].copy, Some(Record::default()));
    assert_eq!(serde_json::to_value(&found[0].permit).unwrap(), permit);
}

#[test]
fn policies_are_refused_with_field_and_reason() {
    let error = |spec: Value| {
        let Fact::Policy(facts) = policy(&object(&json!({"spec": spec}))) else { panic!() };
        facts.policy.unwrap_err()
    };
    let empty = error(json!({"nodeSelector": {}}));
    assert!(empty.starts_with("nodeSelector: it is empty"), "{empty}");
    let unknown = error(json!({"nodeSelector": {"a": "b"}, "remedies": ["prayer"]}));
    assert!(unknown.contains("prayer"), "{unknown}");
    let Fact::Policy(good) = policy(&object(&json!({"spec": {"nodeSelector": {"a": "b"}}}))) else {
        panic!()
    };
    assert!(good.policy.is_ok() && good.generation == Some(3));
    let later = json!({"spec": {"nodeSelector": {"a": "b"}, "ofALaterVersion": 1}});
    let Fact::Policy(later) = policy(&object(&later)) else { panic!() };
    assert!(later.policy.is_err());
    assert_eq!(later.selector, good.selector, "the nodes of a policy that is not valid are known");
}

#[test]
fn nodes_that_do_not_report_are_not_ready() {
    let seen = |taints: Value| {
        let node_json = json!({
            "metadata": {"name": "n", "labels": {"pool": "h100", "topology.octavo.dev/rack": "r1"}},
            "spec": {"taints": taints},
        });
        let Fact::Node(facts) = node(&serde_json::from_value(node_json).unwrap()) else { panic!() };
        facts
    };
    let ready = seen(json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]));
    assert_eq!((ready.not_ready_since, ready.rack.as_deref()), (None, Some("r1")));
    let taint = |time: &str| {
        json!([
            {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": time},
        ])
    };
    assert_eq!(seen(taint("1970-01-01T00:01:00Z")).not_ready_since, Some(60));
    let selector = |value: &str| BTreeMap::from([("pool".to_owned(), value.to_owned())]);
    assert!(ready.labels.are_selected_by(&selector("h100")));
    assert!(!ready.labels.are_selected_by(&selector("a100")));
    assert!(!ready.labels.are_selected_by(&BTreeMap::new()), "as on the node itself");
}

#[test]
fn lists_end_what_they_do_not_have_and_old_versions_change_nothing() {
    let named = |version: &str| {
        let mut object: SeenHealth = object(&json!({"spec": {}}));
        object.metadata.resource_version = Some(version.to_owned());
        Change::Put("n".to_owned(), health(object))
    };
    let mut facts = Facts::default();
    for kind in KINDS {
        assert!(!facts.are_complete());
        facts.apply(Change::Begin(kind));
        facts.apply(Change::End(kind));
    }
    assert!(facts.are_complete());
    facts.apply(named("9"));
    facts.apply(named("8"));
    assert_eq!(facts.healths["n"].version.resource, "9");
    facts.apply(Change::Begin(Kind::Health));
    facts.apply(named("9"));
    facts.apply(Change::End(Kind::Health));
    assert_eq!(facts.healths.len(), 1);
    facts.apply(Change::Begin(Kind::Health));
    facts.apply(Change::End(Kind::Health));
    assert!(facts.healths.is_empty());
}

#[test]
fn health_goes_on_where_work_on_nodes_cannot_be_read() {
    let mut facts = Facts::default();
    for kind in [Kind::Policy, Kind::Node, Kind::Health] {
        facts.apply(Change::End(kind));
    }
    assert!(!facts.are_complete(), "its list may be on its way");
    facts.apply(Change::Unserved(Kind::Maintenance));
    assert!(facts.are_complete() && !facts.have_maintenances());
    facts.apply(Change::Begin(Kind::Maintenance));
    facts.apply(Change::End(Kind::Maintenance));
    assert!(facts.are_complete() && facts.have_maintenances());
    let mut without_policies = Facts::default();
    for kind in [Kind::Node, Kind::Health, Kind::Maintenance] {
        without_policies.apply(Change::End(kind));
    }
    without_policies.apply(Change::Unserved(Kind::Policy));
    assert!(!without_policies.are_complete());
}

#[test]
fn a_node_is_in_maintenance_by_key_and_effect_and_has_gpus_by_a_label() {
    let seen = |effect: &str, present: &str| {
        let node_json = json!({
            "metadata": {"name": "n", "labels": {"nvidia.com/gpu.present": present}},
            "spec": {"taints": [{"key": "octavo.dev/maintenance", "effect": effect}]},
        });
        NodeFacts::of(&serde_json::from_value(node_json).unwrap())
    };
    let found = seen("NoSchedule", "true");
    assert!(found.is_in_maintenance && found.is_labelled_with_gpus);
    let other = seen("NoExecute", "false");
    assert!(!other.is_in_maintenance && !other.is_labelled_with_gpus);
}

#[test]
fn nodes_are_meant_by_all_labels_or_by_name() {
    let node = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        NodeFacts { labels: labels(&pairs), ..NodeFacts::default() }
    };
    let plan = |spec: Value| {
        let object = object(&json!({"spec": spec}));
        MaintenanceFacts::of(&object).plan.unwrap()
    };
    let times = json!({"startTime": "2028-01-01T00:00:00Z", "endTime": "2028-01-01T01:00:00Z"});
    let with = |key: &str, value: Value| {
        let mut spec = times.clone();
        spec[key] = value;
        plan(spec)
    };
    let racks = with("nodeSelector", json!({"rack": "r7", "pool": "h100"}));
    assert!(is_meant(&racks, "n2", &node(&[("rack", "r7"), ("pool", "h100"), ("zone", "a")])));
    assert!(!is_meant(&racks, "n2", &node(&[("rack", "r7")])));
    let named = with("nodeNames", json!(["n1"]));
    assert!(is_meant(&named, "n1", &node(&[])));
    assert!(!is_meant(&named, "n2", &node(&[("rack", "r7")])), "an empty selector means no node");
}
