use octavo_dra::{
    Allocation, AllocationResult, Ask, Count, Device, Node, NodeOperator, Rule, TaintEffect,
    Toleration,
};
use serde_json::{Value, json};

use super::*;

fn claim(value: Value) -> k8s_openapi::api::resource::v1::ResourceClaim {
    serde_json::from_value(value).unwrap()
}

/// A claim with all fields.
fn full() -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": "full", "uid": "u"},
        "spec": {"devices": {
            "requests": [
                {"name": "a", "exactly": {
                    "deviceClassName": "gpu",
                    "selectors": [{"cel": {"expression": "true"}}],
                    "adminAccess": true,
                    "allocationMode": "All",
                    "tolerations": [
                        {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
                        {"operator": "Exists"},
                        {"key": "k", "operator": "Like", "value": "v"},
                        {"key": "k", "effect": "Explode"}
                    ],
                    "capacity": {"requests": {"memory": "1.5Gi"}}
                }},
                {"name": "b", "firstAvailable": [
                    {"name": "x", "deviceClassName": "big"},
                    {"name": "y", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2,
                     "tolerations": [{"key": "k", "operator": "Exists"}]}
                ]}
            ],
            "constraints": [
                {"requests": ["a", "b/y"], "matchAttribute": "d/numa"},
                {"distinctAttribute": "d/index"}
            ],
            "config": [
                {"requests": ["b/x"], "opaque": {"driver": "d", "parameters": {"of": "b/x"}}},
                {"requests": ["b"], "opaque": {"driver": "d", "parameters": {"of": "b"}}},
                {"opaque": {"driver": "d", "parameters": {"of": "all"}}}
            ]
        }},
        "status": {"allocation": {
            "devices": {"results": [{
                "request": "b/y", "driver": "d", "pool": "p", "device": "gpu-0", "adminAccess": false,
                "shareID": "s", "consumedCapacity": {"memory": "1Gi"}
            }]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["node"]}
            ]}]}
        }}
    })
}

#[test]
fn a_claim_is_read_with_everything_it_says() {
    let read = claim_from_api(&claim(full())).unwrap();
    assert_eq!(
        (read.namespace.as_str(), read.name.as_str(), read.uid.as_str()),
        ("ns", "full", "u")
    );
    let Ask::Exactly(all) = &read.requests[0].ask else { panic!("{read:?}") };
    assert_eq!((all.class.as_str(), all.count, all.admin_access), ("gpu", Count::All, true));
    assert_eq!(all.capacity["memory"], "1536Mi".parse().unwrap());
    let some = |text: &str| Some(text.to_owned());
    // An unknown toleration tolerates nothing.
    assert_eq!(
        all.tolerations,
        [
            Toleration {
                key: some("k"),
                value: some("v"),
                effect: Some(TaintEffect::NoSchedule),
                seconds: None,
            },
            Toleration { key: None, value: None, effect: None, seconds: None },
        ]
    );
    let Ask::FirstAvailable(alternatives) = &read.requests[1].ask else { panic!("{read:?}") };
    let counts: Vec<_> =
        alternatives.iter().map(|(name, asked)| (name.as_str(), asked.count)).collect();
    assert_eq!(counts, [("x", Count::Exactly(1)), ("y", Count::Exactly(2))]);
    assert_eq!(read.constraints[0].requests, ["a", "b/y"]);
    assert_eq!(read.constraints[0].rule, Rule::Match("d/numa".to_owned()));
    assert_eq!(read.constraints[1].rule, Rule::Distinct("d/index".to_owned()));
    let allocation = read.allocation.unwrap();
    assert_eq!(allocation.results[0].share_id.as_deref(), Some("s"));
    assert_eq!(allocation.results[0].consumed["memory"], "1Gi".parse().unwrap());
    let nodes = allocation.nodes.unwrap();
    assert_eq!(nodes.terms[0].fields[0].operator, NodeOperator::In);
}

#[test]
fn what_a_claim_says_that_is_not_known_is_an_error() {
    let broken = |path: &str, value: Value| {
        let mut object = full();
        *object.pointer_mut(path).unwrap() = value;
        claim_from_api(&claim(object)).unwrap_err().to_string()
    };
    let exactly = "/spec/devices/requests/0/exactly";
    assert!(broken(exactly, Value::Null).contains("request a has neither"));
    assert!(broken(&format!("{exactly}/allocationMode"), json!("Most")).contains("Most"));
    assert!(broken(&format!("{exactly}/selectors"), json!([{}])).contains("request a"));
    assert!(broken(&format!("{exactly}/capacity/requests/memory"), json!("much")).contains("much"));
    let count = "/spec/devices/requests/1/firstAvailable/1/count";
    assert!(broken(count, json!(-1)).contains("request b/y asks for -1"));
    assert!(broken("/spec/devices/constraints/1", json!({})).contains("constraint 1"));
    let operator = "/status/allocation/nodeSelector/nodeSelectorTerms/0/matchFields/0/operator";
    assert!(broken(operator, json!("Near")).contains("Near"));
}

#[test]
fn classes_and_nodes_are_read() {
    let class = class_from_api(
        &serde_json::from_value(json!({
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "x/gpu"}
        }))
        .unwrap(),
    );
    let class = class.unwrap();
    assert_eq!(
        (class.name.as_str(), class.selectors.as_slice()),
        ("gpu", &["true".to_owned()][..])
    );
    assert_eq!(class.extended_resource.as_deref(), Some("x/gpu"));
    let node = node_from_api(
        &serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"a": "b"}}})).unwrap(),
    );
    let labels = [("a".to_owned(), "b".to_owned())].into();
    assert_eq!(node, Node { name: "n".to_owned(), labels });
}

#[test]
fn requests_survive_the_way_through_the_api() {
    let read = claim_from_api(&claim(full())).unwrap();
    let written: Vec<_> = read.requests.iter().map(request_to_api).collect();
    let mut object = claim(full());
    object.spec.devices.as_mut().unwrap().requests = Some(written);
    assert_eq!(claim_from_api(&object).unwrap().requests, read.requests);
}

#[test]
fn an_allocation_carries_tolerations_conditions_and_configuration() {
    let result = |request: &str| AllocationResult {
        request: request.to_owned(),
        driver: "d".to_owned(),
        pool: "p".to_owned(),
        device: "gpu-0".to_owned(),
        ..AllocationResult::default()
    };
    let allocation =
        Allocation { results: vec![result("a"), result("b/y"), result("b/y")], nodes: None };
    let classes = serde_json::from_value(json!([
        {"metadata": {"name": "gpu"}, "spec": {"config": [
            {"opaque": {"driver": "d", "parameters": {"of": "gpu"}}}
        ]}},
        {"metadata": {"name": "big"}, "spec": {"config": [
            {"opaque": {"driver": "d", "parameters": {"of": "big"}}}
        ]}}
    ]));
    let classes: Vec<_> = classes.unwrap();
    let device = Device { binding_conditions: vec!["ready".to_owned()], ..Device::default() };
    let written = allocation_to_api(&allocation, &claim(full()), &classes, |_| Some(&device));
    let devices = written.devices.unwrap();
    let results = devices.results.unwrap();
    assert_eq!(results[0].tolerations.as_ref().unwrap().len(), 4);
    assert_eq!(results[1].tolerations.as_ref().unwrap().len(), 1);
    assert_eq!(results[1].binding_conditions.as_deref(), Some(&["ready".to_owned()][..]));
    let config: Vec<_> = devices
        .config
        .unwrap()
        .into_iter()
        .map(|config| {
            let of = config.opaque.unwrap().parameters.0["of"].as_str().unwrap().to_owned();
            (config.source, config.requests.unwrap_or_default().join(" "), of)
        })
        .collect();
    let expected = [
        // Neither the alternative that was not chosen nor its class adds a configuration.
        ("FromClass", "a b/y", "gpu"),
        ("FromClaim", "b", "b"),
        ("FromClaim", "", "all"),
    ];
    let expected =
        expected.map(|(source, requests, of)| (source.into(), requests.into(), of.into()));
    assert_eq!(config, expected);
}
