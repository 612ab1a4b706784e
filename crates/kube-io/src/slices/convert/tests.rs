use octavo_dra::{AttributeValue, Capacity, Device, DeviceTaint, Quantity, TaintEffect};

use super::*;

fn slice() -> Slice {
    let attributes = [
        ("uuid", AttributeValue::String("GPU-1".to_owned())),
        ("numaNode", AttributeValue::Int(-1)),
        ("isWarm", AttributeValue::Bool(false)),
        ("driverVersion", AttributeValue::Version("580.95.5".to_owned())),
    ];
    let taint = |key: &str, value: &str, effect| DeviceTaint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect,
    };
    Slice {
        name: String::new(),
        driver: "gpu.nvidia.com".to_owned(),
        pool: "node".to_owned(),
        generation: 3,
        slice_count: 1,
        nodes: NodeScope::Node("node".to_owned()),
        counters: Vec::new(),
        devices: vec![Device {
            name: "gpu-0".to_owned(),
            attributes: attributes.map(|(name, value)| (name.to_owned(), value)).into(),
            capacity: [("memory".to_owned(), Capacity::whole(Quantity::binary(80 << 30)))].into(),
            taints: vec![
                taint("a", "", TaintEffect::None),
                taint("b", "79", TaintEffect::NoSchedule),
                taint("c", "", TaintEffect::NoExecute),
            ],
            ..Device::default()
        }],
    }
}

#[test]
fn a_slice_survives_the_way_through_the_api() {
    let object = api::ResourceSlice { spec: to_api(&slice()), ..api::ResourceSlice::default() };
    let text = serde_json::to_string(&object).unwrap();
    assert!(text.contains(r#""memory":{"value":"80Gi"}"#), "{text}");
    assert!(text.contains(r#""nodeName":"node""#), "{text}");
    let read: api::ResourceSlice = serde_json::from_str(&text).unwrap();
    assert_eq!(from_api(&read).unwrap(), slice());
}

#[test]
fn what_cannot_be_understood_is_named() {
    let mut object = api::ResourceSlice { spec: to_api(&slice()), ..api::ResourceSlice::default() };
    let device = &mut object.spec.devices.as_mut().unwrap()[0];
    device.taints.as_mut().unwrap()[1].effect = "Explode".to_owned();
    let error = from_api(&object).unwrap_err().to_string();
    assert!(error.contains("gpu-0") && error.contains("Explode"), "{error}");
    let device = &mut object.spec.devices.as_mut().unwrap()[0];
    device.taints = None;
    device.capacity.as_mut().unwrap().get_mut("memory").unwrap().value.0 = "much".to_owned();
    let error = from_api(&object).unwrap_err().to_string();
    assert!(error.contains("memory") && error.contains("much"), "{error}");
}

#[test]
fn attributes_of_later_versions_are_left_out() {
    let mut object = api::ResourceSlice { spec: to_api(&slice()), ..api::ResourceSlice::default() };
    let attributes = object.spec.devices.as_mut().unwrap()[0].attributes.as_mut().unwrap();
    let list = api::DeviceAttribute { ints: Some(vec![1, 2]), ..api::DeviceAttribute::default() };
    attributes.insert("numaNodes".to_owned(), list);
    assert_eq!(from_api(&object).unwrap(), slice());
}

#[test]
fn a_slice_that_does_not_say_where_it_is_is_nowhere() {
    let mut object = api::ResourceSlice { spec: to_api(&slice()), ..api::ResourceSlice::default() };
    object.spec.node_name = None;
    object.spec.all_nodes = Some(false);
    let NodeScope::Selector(selector) = from_api(&object).unwrap().nodes else {
        panic!("it matches some nodes")
    };
    let node = octavo_dra::Node { name: "node".to_owned(), ..octavo_dra::Node::default() };
    assert_eq!(selector.matches(&node), Ok(false));
}
