mod health;

use serde_json::json;

use super::*;
use crate::placement_policy::UNITS;

fn schema(kind: &str) -> Value {
    let crds = crds().unwrap();
    let crd = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == kind).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn property(kind: &str, path: &str) -> Value {
    let mut found = schema(kind);
    for key in path.split('.') {
        found = match key {
            "[]" => found["items"].take(),
            _ => found["properties"][key].take(),
        };
    }
    found
}

/// All places of a schema, with their paths.
fn places(value: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    found.push((path.to_owned(), value.clone()));
    for (key, value) in value["properties"].as_object().into_iter().flatten() {
        places(value, &format!("{path}.{key}"), found);
    }
    if value.get("items").is_some() {
        places(&value["items"], &format!("{path}[]"), found);
    }
}

#[test]
fn definitions_are_structural_and_every_field_says_what_it_is() {
    for kind in ["HealthPolicy", "Maintenance", "NodeHealth", "PodGroup", "PlacementPolicy"] {
        let mut all = Vec::new();
        places(&schema(kind), kind, &mut all);
        assert!(all.len() > 20, "{kind} has only {} places", all.len());
        for (path, place) in all {
            let has_type = place.get("type").is_some()
                || place.get("x-kubernetes-int-or-string") == Some(&json!(true));
            assert!(has_type, "{path} has no type: {place}");
            for key in ["anyOf", "oneOf", "allOf", "$ref", "nullable"] {
                assert!(place.get(key).is_none(), "{path} has {key}: {place}");
            }
            let is_entry = path.ends_with("[]") || path.ends_with(".metadata");
            if !is_entry && path.contains('.') {
                let text = place["description"].as_str().unwrap_or_default();
                let is_one_line = text.ends_with('.') && !text.contains('\n');
                assert!(is_one_line, "{path} is described as {text:?}");
            }
        }
    }
}

#[test]
fn numbers_have_bounds() {
    let min = property("PodGroup", "spec.minMember");
    assert_eq!((&min["minimum"], &min["maximum"]), (&json!(1), &json!(100_000)));
    let size = property("PodGroup", "spec.subGroups.[].segment.size");
    assert_eq!(size["minimum"], 1);
    let watts = property("PlacementPolicy", "spec.constraints.maxWatts");
    assert_eq!(watts["minimum"], 1);
}

#[test]
fn lists_of_named_things_merge_by_their_names() {
    for (path, key) in
        [("spec.subGroups", "name"), ("status.conditions", "type"), ("status.subGroups", "name")]
    {
        let list = property("PodGroup", path);
        assert_eq!(list["x-kubernetes-list-type"], "map", "{path}: {list}");
        assert_eq!(list["x-kubernetes-list-map-keys"], json!([key]), "{path}");
    }
}

#[test]
fn a_group_that_contradicts_itself_is_refused_by_rules() {
    let rules = property("PodGroup", "spec")["x-kubernetes-validations"].to_string();
    assert!(rules.contains("minMember must be the sum"), "{rules}");
    let rules = property("PodGroup", "spec.subGroups.[]")["x-kubernetes-validations"].to_string();
    assert!(rules.contains("must divide"), "{rules}");
    let rules =
        property("PlacementPolicy", "spec.order.[]")["x-kubernetes-validations"].to_string();
    assert!(rules.contains("either a unit or a sum"), "{rules}");
}

#[test]
fn units_and_weights_are_bounded_by_the_schema() {
    let unit = property("PlacementPolicy", "spec.order.[].unit");
    assert_eq!(unit["enum"], json!(UNITS));
    let weight = property("PlacementPolicy", "spec.order.[].sum.[].weight");
    assert_eq!(weight["x-kubernetes-int-or-string"], true);
}

#[test]
fn all_have_a_status_and_columns_and_only_groups_have_a_namespace() {
    for crd in crds().unwrap() {
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["subresources"]["status"], json!({}));
        assert!(version["additionalPrinterColumns"].as_array().unwrap().len() >= 4);
        let is_group = crd["spec"]["names"]["kind"] == "PodGroup";
        let scope = if is_group { "Namespaced" } else { "Cluster" };
        assert_eq!(crd["spec"]["scope"], scope);
    }
}

/// The schema of a kind of NVIDIA's group, without descriptions.
fn nvidia(kind: &str) -> Value {
    fn plain(value: &Value) -> Value {
        match value {
            Value::Object(map) => map
                .iter()
                .filter(|(key, value)| {
                    !(matches!(key.as_str(), "description" | "format") && value.is_string())
                })
                .map(|(key, value)| (key.clone(), plain(value)))
                .collect(),
            Value::Array(list) => list.iter().map(plain).collect(),
            other => other.clone(),
        }
    }
    let crds = compute_domain_crds().unwrap();
    let crd = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == kind).unwrap();
    assert_eq!(
        (&crd["spec"]["group"], &crd["spec"]["scope"]),
        (&json!("resource.nvidia.com"), &json!("Namespaced"))
    );
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["name"], "v1beta1");
    plain(&version["schema"]["openAPIV3Schema"]["properties"])
}

/// What NVIDIA's driver of 2026-08-07 (95932046) has in its definitions.
#[test]
fn compute_domains_have_the_fields_and_rules_of_nvidia_s_driver() {
    let readiness = json!({"type": "string", "enum": ["Ready", "NotReady"], "default": "NotReady"});
    let text = json!({"type": "string"});
    let domain = nvidia("ComputeDomain");
    assert_eq!(
        domain["spec"],
        json!({
            "type": "object",
            "required": ["channel"],
            "x-kubernetes-validations": [{"message": "A computeDomain.spec is immutable", "rule": "self == oldSelf"}],
            "properties": {
                "numNodes": {"type": "integer", "default": 0, "minimum": 0},
                "channel": {
                    "type": "object",
                    "required": ["resourceClaimTemplate"],
                    "properties": {
                        "allocationMode": {"type": "string", "enum": ["All", "Single"], "default": "Single"},
                        "resourceClaimTemplate": {
                            "type": "object", "required": ["name"], "properties": {"name": text},
                        },
                    },
                },
            },
        })
    );
    let mut status = domain["status"].clone();
    let conditions = status["properties"].as_object_mut().unwrap().remove("conditions").unwrap();
    assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]), "Octavo's addition");
    let listed = |key: &str| {
        json!({
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [key],
            "items": {
                "type": "object",
                "properties": {
                    key: text, "ipAddress": text, "cliqueID": text,
                    "index": {"type": "integer"}, "status": readiness,
                },
            },
        })
    };
    let with_required = |mut list: Value, found: &Value| {
        let mut required: Vec<_> = found["items"]["required"].as_array().unwrap().clone();
        required.sort_by_key(Value::to_string);
        list["items"]["required"] = found["items"]["required"].clone();
        (list, required)
    };
    let nodes = &status["properties"]["nodes"];
    let (expected, required) = with_required(listed("name"), nodes);
    assert_eq!(
        (nodes, required),
        (&expected, vec![json!("cliqueID"), json!("ipAddress"), json!("name")])
    );
    assert_eq!(
        (&status["required"], &status["properties"]["status"]),
        (&json!(["status"]), &readiness)
    );

    let daemons = &nvidia("ComputeDomainClique")["daemons"];
    let (expected, required) = with_required(listed("nodeName"), daemons);
    assert_eq!(
        (daemons, required),
        (&expected, vec![json!("cliqueID"), json!("ipAddress"), json!("nodeName")])
    );
}

#[test]
fn channels_of_a_domain_are_one_a_clique() {
    let all = compute_domain_crds().unwrap();
    let domain = all.iter().find(|crd| crd["spec"]["names"]["kind"] == "ComputeDomain").unwrap();
    let schema = &domain["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let channels = &schema["properties"]["status"]["properties"]["channels"];
    assert_eq!(channels["x-kubernetes-list-type"], "map", "{channels}");
    assert_eq!(channels["x-kubernetes-list-map-keys"], json!(["cliqueID"]));
    let number = &channels["items"]["properties"]["channel"];
    assert_eq!((&number["minimum"], &number["maximum"]), (&json!(0), &json!(2047)));
    assert_eq!(channels["items"]["required"], json!(["channel", "cliqueID"]));
}
