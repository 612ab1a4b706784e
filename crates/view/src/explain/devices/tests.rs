use insta::assert_snapshot;
use octavo_dra::{
    Allocation, AllocationResult, AllowedAmounts, Ask, AttributeValue, Capacity, Claim, Class,
    Device, DeviceRequest, DeviceTaint, Node, NodeScope, Quantity, Request, RequestPolicy, Slice,
    TaintEffect,
};

use super::{AllocatorInput, render, report};

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap()
}

/// A GPU whose memory and time may be given in parts.
fn gpu(name: &str, product: &str) -> Device {
    let part = |value: &str, default: &str| Capacity {
        value: quantity(value),
        policy: Some(RequestPolicy {
            default: Some(quantity(default)),
            allowed: AllowedAmounts::Range {
                min: quantity("0"),
                max: Some(quantity(value)),
                step: None,
            },
        }),
    };
    let text = |value: &str| AttributeValue::String(value.to_owned());
    Device {
        name: name.to_owned(),
        attributes: [("type".to_owned(), text("gpu")), ("productName".to_owned(), text(product))]
            .into(),
        capacity: [
            ("memory".to_owned(), part("80Gi", "80Gi")),
            ("compute".to_owned(), part("100", "0")),
        ]
        .into(),
        allow_multiple: true,
        ..Device::default()
    }
}

fn slice(node: &str, devices: Vec<Device>) -> Slice {
    Slice {
        name: format!("{node}-gpu.nvidia.com-000"),
        driver: "gpu.nvidia.com".to_owned(),
        pool: node.to_owned(),
        generation: 1,
        slice_count: 1,
        nodes: NodeScope::Node(node.to_owned()),
        devices,
        ..Slice::default()
    }
}

fn claim(name: &str, amounts: &[(&str, &str)], selectors: &[&str]) -> Claim {
    let capacity = amounts.iter().map(|(name, amount)| ((*name).to_owned(), quantity(amount)));
    Claim {
        namespace: "a".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        requests: vec![Request {
            name: "gpu".to_owned(),
            ask: Ask::Exactly(DeviceRequest {
                class: "gpu.nvidia.com".to_owned(),
                selectors: selectors.iter().map(|text| (*text).to_owned()).collect(),
                capacity: capacity.collect(),
                ..DeviceRequest::default()
            }),
        }],
        ..Claim::default()
    }
}

/// The claim, given a part of a device.
fn given(mut claim: Claim, node: &str, device: &str, amounts: &[(&str, &str)]) -> Claim {
    let consumed = amounts.iter().map(|(name, amount)| ((*name).to_owned(), quantity(amount)));
    claim.allocation = Some(Allocation {
        results: vec![AllocationResult {
            request: "gpu".to_owned(),
            driver: "gpu.nvidia.com".to_owned(),
            pool: node.to_owned(),
            device: device.to_owned(),
            share_id: Some(format!("share-{}", claim.name)),
            consumed: consumed.collect(),
            ..AllocationResult::default()
        }],
        nodes: None,
    });
    claim
}

fn input(slices: Vec<Slice>, claims: Vec<Claim>) -> AllocatorInput {
    let node = |slice: &Slice| {
        let node = Node { name: slice.pool.clone(), ..Node::default() };
        (node, std::collections::BTreeMap::new())
    };
    let class = Class {
        name: "gpu.nvidia.com".to_owned(),
        selectors: vec![
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
                .to_owned(),
        ],
        extended_resource: Some("nvidia.com/gpu".to_owned()),
    };
    AllocatorInput {
        nodes: slices.iter().map(node).collect(),
        slices,
        claims,
        classes: vec![(class, 0)],
        containers: Vec::new(),
    }
}

#[test]
fn each_device_is_named_with_what_rules_it_out() {
    let mut sick = gpu("gpu-2", "H100");
    sick.taints.push(DeviceTaint {
        key: "gpu.nvidia.com/xid".to_owned(),
        value: "79".to_owned(),
        effect: TaintEffect::NoSchedule,
    });
    let slices = vec![
        slice("node-1", vec![gpu("gpu-0", "H100"), gpu("gpu-1", "H100"), sick]),
        slice("node-2", vec![gpu("gpu-0", "A100")]),
    ];
    let all = [("memory", "80Gi"), ("compute", "0")];
    let share = [("memory", "70Gi"), ("compute", "50")];
    let selector = "device.attributes['gpu.nvidia.com'].productName == 'H100'";
    let claims = vec![
        given(claim("whole", &[], &[]), "node-1", "gpu-0", &all),
        given(claim("share", &share, &[]), "node-1", "gpu-1", &share),
        claim("wanted", &[("memory", "20Gi")], &[selector]),
    ];
    let report = report(&input(slices, claims), "a", &["wanted"], false).unwrap();
    assert_eq!(report.fits, Vec::<String>::new());
    assert_snapshot!(render(&report, false), @r"
    node-1
      request gpu of a/wanted wants 1; 0 of 3 devices could serve
        gpu-0: 20Gi of memory wanted, 0 left beside a/whole
        gpu-1: 20Gi of memory wanted, 10Gi left beside a/share
        gpu-2: tainted gpu.nvidia.com/xid=79:NoSchedule
    node-2
      request gpu of a/wanted wants 1; 0 of 1 devices could serve
        gpu-0: the request does not want it: device.attributes['gpu.nvidia.com'].productName == 'H100'
    ");
}

#[test]
fn nodes_that_would_serve_are_named_and_equal_nodes_share_their_lines() {
    let slices = (0..5).map(|index| slice(&format!("node-{index}"), vec![gpu("gpu-0", "A100")]));
    let mut slices: Vec<_> = slices.collect();
    slices.push(slice("node-5", vec![gpu("gpu-0", "H100")]));
    let selector = "device.attributes['gpu.nvidia.com'].productName == 'H100'";
    let claims = vec![claim("wanted", &[], &[selector])];
    let report = report(&input(slices, claims), "a", &["wanted"], false).unwrap();
    assert_eq!(report.fits, ["node-5"]);
    assert_snapshot!(render(&report, false), @r"
    Devices would serve it on node-5.
    node-0, node-1, node-2, node-3, node-4
      request gpu of a/wanted wants 1; 0 of 1 devices could serve
        gpu-0: the request does not want it: device.attributes['gpu.nvidia.com'].productName == 'H100'
    ");
}

#[test]
fn a_claim_that_is_wrong_in_itself_is_told_for_no_node() {
    let mut wrong = claim("wrong", &[], &[]);
    let Ask::Exactly(ask) = &mut wrong.requests[0].ask else { unreachable!() };
    ask.class = "gone".to_owned();
    let slices = vec![slice("node-0", vec![gpu("gpu-0", "A100")])];
    let report = report(&input(slices, vec![wrong]), "a", &["wrong"], false).unwrap();
    assert!(report.defect.as_ref().unwrap().contains("gone"), "{report:?}");
    assert!(report.nodes.is_empty() && report.fits.is_empty());
}

#[test]
fn nothing_is_said_without_open_claims_or_of_claims_that_are_not_there() {
    let slices = vec![slice("node-0", vec![gpu("gpu-0", "A100")])];
    assert_eq!(report(&input(slices.clone(), Vec::new()), "a", &[], false), None);
    assert_eq!(report(&input(slices, Vec::new()), "a", &["gone"], false), None);
}

#[test]
fn limits_are_explained_by_the_claim_that_the_scheduler_would_make() {
    let slices = vec![slice("node-0", vec![gpu("gpu-0", "A100")])];
    let all = [("memory", "80Gi"), ("compute", "0")];
    let holder = given(claim("holder", &[], &[]), "node-0", "gpu-0", &all);
    let mut input = input(slices, vec![holder]);
    input.containers.push(octavo_dra::Container {
        name: "main".to_owned(),
        stage: octavo_dra::Stage::Main,
        requests: [("nvidia.com/gpu".to_owned(), quantity("1"))].into(),
    });
    let report = report(&input, "a", &[], true).unwrap();
    assert_eq!(report.fits, Vec::<String>::new());
    let devices = &report.nodes[0].requests[0].devices;
    assert!(devices[0].ruled_out.as_ref().unwrap().contains("a/holder"), "{devices:?}");
}
