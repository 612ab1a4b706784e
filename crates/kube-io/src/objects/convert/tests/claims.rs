//! Claims, classes and slices.

use octavo_dra::{Ask, Count, NodeScope, TaintEffect};
use serde_json::{Value, json};

use super::{read, sound};
use crate::objects::convert::{Reader, WatchedType};
use crate::objects::{Claim, DeviceClass, ResourceSlice};

/// A claim for a MIG device or else a share of a GPU, with the share allocated.
fn full() -> Value {
    serde_json::from_str(include_str!("fixtures/claim.json")).unwrap()
}

#[test]
fn a_claim_with_alternatives_and_a_share_is_read_whole() {
    let claim: Claim = sound(full());
    assert_eq!(claim.meta.name.to_string(), "team/train-gpus-x7k2p");
    assert_eq!(claim.meta.owner.as_ref().unwrap().kind, "Pod");
    assert_eq!(claim.fault, None);
    assert!(!claim.is_extended);
    let Ask::FirstAvailable(alternatives) = &claim.claim.requests[0].ask else { panic!("a list") };
    assert_eq!(alternatives[0].1.class, "mig.nvidia.com");
    assert_eq!(alternatives[0].1.count, Count::Exactly(2));
    let share = &alternatives[1].1;
    assert_eq!(share.capacity["memory"], "20Gi".parse().unwrap());
    assert_eq!(share.tolerations[0].key.as_deref(), Some("octavo.dev/scheduler"));
    let allocation = claim.claim.allocation.as_ref().unwrap();
    let result = &allocation.results[0];
    assert_eq!(result.request, "gpu/share");
    assert_eq!(result.share_id.as_deref(), Some("8b6f6ac4-3d0f-4f43-a5d0-5f6f8f1f0001"));
    assert_eq!(result.consumed["memory"], "20Gi".parse().unwrap());
    assert_eq!(allocation.nodes.as_ref().unwrap().terms[0].fields[0].values, ["node-7"]);
    assert_eq!(claim.allocated, Some(1_767_607_201));
    assert_eq!(claim.config[0].parameters["kind"], "GpuConfig");
    assert_eq!(claim.config[0].requests, ["gpu/share"]);
    assert_eq!((&*claim.reserved_for[0].name, &*claim.reserved_for[0].uid), ("train-0", "u-1"));
    let waits = &claim.conditions[0];
    assert_eq!(
        (&waits.awaited[0], &waits.failures[0]),
        (&"Attached".to_owned(), &"Broken".to_owned())
    );
    assert_eq!(waits.holding.keys().collect::<Vec<_>>(), ["Attached"]);
}

#[test]
fn a_claim_for_extended_resources_is_known_by_its_annotation() {
    let mut json = full();
    json["metadata"]["annotations"] =
        json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    assert!(sound::<Claim>(json).is_extended);
}

#[test]
fn a_claim_with_an_unknown_request_keeps_its_allocation() {
    let mut json = full();
    json["spec"]["devices"]["requests"] = json!([{"name": "gpu", "atLeast": {"count": 1}}]);
    let (claim, faults) = read::<Claim>(json);
    assert!(claim.fault.as_ref().unwrap().contains("request gpu"), "{:?}", claim.fault);
    assert_eq!(claim.claim.requests, []);
    assert_eq!(claim.claim.allocation.unwrap().results[0].device, "gpu-3");
    assert_eq!(faults.len(), 1);
}

#[test]
fn a_share_of_unreadable_size_is_the_whole_device() {
    let mut json = full();
    json["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"]["memory"] =
        "some".into();
    let (claim, faults) = read::<Claim>(json);
    assert_eq!(claim.fault, None);
    let result = &claim.claim.allocation.unwrap().results[0];
    assert_eq!((&result.share_id, result.consumed.len()), (&None, 0));
    assert!(faults[0].to_string().contains("gpu-3"), "{faults:?}");
}

#[test]
fn an_allocation_with_unreadable_nodes_is_on_none() {
    let mut json = full();
    let terms = &mut json["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"];
    terms[0]["matchFields"][0]["operator"] = "Resembles".into();
    let (claim, faults) = read::<Claim>(json);
    let allocation = claim.claim.allocation.unwrap();
    assert_eq!(allocation.nodes.unwrap().terms, []);
    assert_eq!(allocation.results.len(), 1);
    assert_eq!(faults.len(), 1);
}

#[test]
fn a_class_keeps_selectors_config_and_its_extended_resource() {
    let class: DeviceClass = sound(json!({"metadata": {"name": "gpu.nvidia.com"}, "spec": {
        "extendedResourceName": "nvidia.com/gpu",
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}],
        "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": {"a": 1}}}]}}));
    assert_eq!(class.class.name, "gpu.nvidia.com");
    assert_eq!(class.class.extended_resource.as_deref(), Some("nvidia.com/gpu"));
    assert_eq!(class.config[0].parameters, json!({"a": 1}));
    let (class, faults) = read::<DeviceClass>(json!({"metadata": {"name": "odd"}, "spec": {
        "selectors": [{"rego": "allow"}]}}));
    assert_eq!(class.class.selectors, ["false"]);
    assert_eq!(faults.len(), 1);
}

#[test]
fn a_slice_with_counters_and_mig_devices_is_read_whole() {
    let json: Value = serde_json::from_str(include_str!("fixtures/slice.json")).unwrap();
    let slice = sound::<ResourceSlice>(json).slice;
    assert_eq!((&*slice.driver, &*slice.pool), ("gpu.nvidia.com", "node-7"));
    assert_eq!((slice.generation, slice.slice_count), (4, 2));
    assert_eq!(slice.nodes, NodeScope::Node("node-7".to_owned()));
    let gpu = &slice.devices[0];
    assert!(gpu.allow_multiple);
    assert!(gpu.capacity["memory"].policy.is_some());
    assert_eq!(gpu.taints[0].effect, TaintEffect::NoSchedule);
    assert_eq!(gpu.consumes[0].counters["memory-slices"], "8".parse().unwrap());
    let mig = &slice.devices[1];
    assert_eq!(mig.consumes[0].counter_set, "gpu-0");
    assert_eq!(mig.binding_conditions, ["Attached"]);
}

#[test]
fn an_unknown_effect_of_a_device_taint_is_none_as_the_api_says() {
    let mut json: Value = serde_json::from_str(include_str!("fixtures/slice.json")).unwrap();
    json["spec"]["devices"][0]["taints"][0]["effect"] = "Explode".into();
    let (slice, faults) = read::<ResourceSlice>(json);
    assert_eq!(slice.slice.devices[0].taints[0].effect, TaintEffect::None);
    assert_eq!(faults.len(), 1);
}

#[test]
fn a_slice_with_an_unreadable_amount_is_not_there() {
    let mut json: Value = serde_json::from_str(include_str!("fixtures/slice.json")).unwrap();
    json["spec"]["devices"][1]["capacity"]["memory"]["value"] = "much".into();
    let mut reader = Reader::default();
    let wire = serde_json::from_value(json).unwrap();
    assert_eq!(ResourceSlice::read(wire, &mut reader), None);
    let fault = reader.take_faults().pop().unwrap().to_string();
    assert!(fault.contains("node-7-gpus") && fault.contains("much"), "{fault}");
}
