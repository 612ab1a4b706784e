use insta::assert_snapshot;
use octavo_dra::{
    Allocation, AllocationResult, AllowedAmounts, Ask, AttributeValue, Capacity, Claim, Class,
    Count, Device, DeviceRequest, DeviceTaint, Node, NodeOperator, NodeRequirement, NodeScope,
    NodeSelector, NodeSelectorTerm, Quantity, Request, RequestPolicy, Slice, TaintEffect,
};

use super::{AllocatorInput, DeviceReport, Options, PodClaims, render};

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap()
}

/// A GPU whose memory and time can be shared.
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

/// Of open claims by name.
fn report(input: &AllocatorInput, open: &[&str]) -> Option<DeviceReport> {
    let open = open.iter().map(|name| (*name).to_owned()).collect();
    super::report(input, &PodClaims { namespace: "a", open, ..PodClaims::default() })
}

fn drawn(report: &DeviceReport) -> String {
    render(report, Options::default())
}

/// Changes the request of a claim.
fn asking(mut claim: Claim, change: impl FnOnce(&mut DeviceRequest)) -> Claim {
    let Ask::Exactly(ask) = &mut claim.requests[0].ask else { unreachable!() };
    change(ask);
    claim
}

/// A selector for one node.
fn only(node: &str) -> NodeSelector {
    let name = NodeRequirement {
        key: "metadata.name".to_owned(),
        operator: NodeOperator::In,
        values: vec![node.to_owned()],
    };
    NodeSelector { terms: vec![NodeSelectorTerm { labels: Vec::new(), fields: vec![name] }] }
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
    let report = report(&input(slices, claims), &["wanted"]).unwrap();
    assert_eq!(report.fits, Vec::<String>::new());
    assert_snapshot!(drawn(&report), @r"
    node-1
      request gpu of a/wanted wants 1; 0 of 3 devices could serve
        gpu-0: 20Gi of memory wanted, 0 left beside a/whole
        gpu-1: 20Gi of memory wanted, 10Gi left beside a/share
        gpu-2: tainted gpu.nvidia.com/xid=79:NoSchedule
    node-2
      request gpu of a/wanted wants 1; 0 of 1 devices could serve
        gpu-0: the request excludes it: device.attributes['gpu.nvidia.com'].productName == 'H100'
    ");
}

#[test]
fn fitting_nodes_are_named_and_equal_nodes_share_lines() {
    let slices = (0..5).map(|index| slice(&format!("node-{index}"), vec![gpu("gpu-0", "A100")]));
    let mut slices: Vec<_> = slices.collect();
    slices.push(slice("node-5", vec![gpu("gpu-0", "H100")]));
    let selector = "device.attributes['gpu.nvidia.com'].productName == 'H100'";
    let claims = vec![claim("wanted", &[], &[selector])];
    let report = report(&input(slices, claims), &["wanted"]).unwrap();
    assert_eq!(report.fits, ["node-5"]);
    assert_snapshot!(drawn(&report), @r"
    Devices would serve it on node-5.
    node-0, node-1, node-2, node-3, node-4
      request gpu of a/wanted wants 1; 0 of 1 devices could serve
        gpu-0: the request excludes it: device.attributes['gpu.nvidia.com'].productName == 'H100'
    ");
}

#[test]
fn claim_defect_is_reported_once_for_all_nodes() {
    let wrong = asking(claim("wrong", &[], &[]), |ask| ask.class = "gone".to_owned());
    let slices = vec![slice("node-0", vec![gpu("gpu-0", "A100")])];
    let report = report(&input(slices, vec![wrong]), &["wrong"]).unwrap();
    assert!(report.defect.as_ref().unwrap().contains("gone"), "{report:?}");
    assert!(report.nodes.is_empty() && report.fits.is_empty());
}

#[test]
fn no_report_without_open_or_existing_claims() {
    let slices = vec![slice("node-0", vec![gpu("gpu-0", "A100")])];
    assert_eq!(report(&input(slices.clone(), Vec::new()), &[]), None);
    assert_eq!(report(&input(slices, Vec::new()), &["gone"]), None);
}

#[test]
fn limits_are_explained_by_the_extended_resource_claim() {
    let slices = vec![slice("node-0", vec![gpu("gpu-0", "A100")])];
    let all = [("memory", "80Gi"), ("compute", "0")];
    let holder = given(claim("holder", &[], &[]), "node-0", "gpu-0", &all);
    let mut input = input(slices, vec![holder]);
    input.containers.push(octavo_dra::Container {
        name: "main".to_owned(),
        kind: octavo_dra::ContainerKind::Main,
        requests: [("nvidia.com/gpu".to_owned(), quantity("1"))].into(),
    });
    let pod = PodClaims { namespace: "a", has_extended: true, ..PodClaims::default() };
    let report = super::report(&input, &pod).unwrap();
    assert_eq!(report.fits, Vec::<String>::new());
    let devices = &report.nodes[0].requests[0].devices;
    assert!(devices[0].ruled_out.as_ref().unwrap().contains("a/holder"), "{devices:?}");
}

#[test]
fn allocation_mode_all_on_an_incomplete_pool_is_no_claim_defect() {
    let mut part = slice("node-0", vec![gpu("gpu-0", "A100")]);
    part.slice_count = 2;
    let slices = vec![part, slice("node-1", vec![gpu("gpu-0", "A100")])];
    let all = asking(claim("all", &[], &[]), |ask| ask.count = Count::All);
    let report = report(&input(slices, vec![all]), &["all"]).unwrap();
    assert_eq!((report.fits.as_slice(), &report.defect), (&["node-1".to_owned()][..], &None));
    assert_snapshot!(drawn(&report), @r"
    Devices would serve it on node-1.
    node-0
      claim a/all, request gpu: it asks for all devices, but pool gpu.nvidia.com/node-0 is being updated
    ");
}

#[test]
fn selector_error_is_reported_for_its_node_only() {
    let mut bare = gpu("gpu-0", "A100");
    bare.attributes.remove("productName");
    let slices = vec![slice("node-0", vec![bare]), slice("node-1", vec![gpu("gpu-0", "H100")])];
    let selector = "device.attributes['gpu.nvidia.com'].productName == 'H100'";
    let claims = vec![claim("wanted", &[], &[selector])];
    let report = report(&input(slices, claims), &["wanted"]).unwrap();
    assert_eq!((report.fits.as_slice(), &report.defect), (&["node-1".to_owned()][..], &None));
    assert!(drawn(&report).contains("failed for device gpu-0"), "{report:?}");
}

#[test]
fn a_selector_that_is_not_evaluated_here_decides_nothing() {
    let slices = vec![slice("node-0", vec![gpu("gpu-0", "A100")])];
    let claims = vec![claim("wanted", &[], &["timestamp('2026-01-05T10:00:00Z') != null"])];
    let report = report(&input(slices, claims), &["wanted"]).unwrap();
    assert_eq!((report.undecided.as_slice(), &report.defect), (&["node-0".to_owned()][..], &None));
    assert!(report.not_evaluated.as_ref().unwrap().contains("timestamp"), "{report:?}");
}

#[test]
fn nodes_that_an_allocated_claim_does_not_reach_are_left_out() {
    let slices = ["node-0", "node-1"].map(|node| slice(node, vec![gpu("gpu-0", "A100")]));
    let whole = [("memory", "80Gi"), ("compute", "0")];
    let mut had = given(claim("had", &[], &[]), "node-0", "gpu-0", &whole);
    had.allocation.as_mut().unwrap().nodes = Some(only("node-0"));
    let input = input(slices.into(), vec![had, claim("wanted", &[], &[])]);
    let names = |name: &str| vec![name.to_owned()];
    let (open, allocated) = (names("wanted"), names("had"));
    let pod = PodClaims { namespace: "a", open, allocated, ..PodClaims::default() };
    let report = super::report(&input, &pod).unwrap();
    assert_eq!(report.fits, [""; 0]);
    assert_eq!(report.nodes.iter().map(|verdict| &*verdict.node).collect::<Vec<_>>(), ["node-0"]);
}

#[test]
fn a_search_that_is_given_up_decides_nothing() {
    // Two GPUs of one product cannot have different products. The other request can be served in
    // many ways, so the search is long.
    let devices = (0..20).map(|index| gpu(&format!("gpu-{index}"), "A100")).collect();
    let slices = vec![slice("node-0", devices)];
    let mut hard = asking(claim("hard", &[], &[]), |ask| ask.count = Count::Exactly(10));
    for name in ["x", "y"] {
        let request = Request { name: name.to_owned(), ..claim("", &[], &[]).requests.remove(0) };
        hard.requests.push(request);
    }
    hard.constraints.push(octavo_dra::Constraint {
        requests: vec!["x".to_owned(), "y".to_owned()],
        rule: octavo_dra::Rule::Distinct("gpu.nvidia.com/productName".to_owned()),
    });
    let report = report(&input(slices, vec![hard]), &["hard"]).unwrap();
    assert_eq!(report.undecided, ["node-0"]);
    assert_eq!(report.nodes, []);
    assert_eq!(drawn(&report), "  Not decided here: node-0.\n");
}

#[test]
fn device_plugin_node_is_counted_and_hides_no_other_node() {
    let slices = ["node-0", "node-1"].map(|node| slice(node, vec![gpu("gpu-0", "A100")]));
    let mut input = input(slices.into(), Vec::new());
    input.nodes[0].1.insert("nvidia.com/gpu".to_owned(), 8);
    input.containers.push(octavo_dra::Container {
        name: "main".to_owned(),
        kind: octavo_dra::ContainerKind::Main,
        requests: [("nvidia.com/gpu".to_owned(), quantity("1"))].into(),
    });
    let pod = PodClaims { namespace: "a", has_extended: true, ..PodClaims::default() };
    let report = super::report(&input, &pod).unwrap();
    assert_eq!((report.by_plugins, report.fits.as_slice()), (1, &["node-1".to_owned()][..]));
    assert_snapshot!(drawn(&report), @r"
    Devices would serve it on node-1.
    Device plugins serve it on 1 node; whether any are free is not known here.
    ");
}

#[test]
fn a_list_lacks_devices_only_if_no_alternative_has_enough() {
    let slices = vec![slice("node-0", vec![gpu("gpu-0", "A100")])];
    let ask = |product: &str| DeviceRequest {
        class: "gpu.nvidia.com".to_owned(),
        selectors: vec![format!("device.attributes['gpu.nvidia.com'].productName == '{product}'")],
        ..DeviceRequest::default()
    };
    let list = |products: &[&str]| {
        let alternatives = products.iter().map(|name| ((*name).to_owned(), ask(name)));
        Ask::FirstAvailable(alternatives.collect())
    };
    let mut either = claim("either", &[], &[]);
    either.requests[0].ask = list(&["H100", "A100"]);
    let mut neither = claim("neither", &[], &[]);
    neither.requests[0].ask = list(&["H100", "B200"]);
    let open = ["either", "neither"];
    let report = report(&input(slices, vec![either, neither]), &open).unwrap();
    assert_eq!(report.nodes[0].lacking(), ["a/neither/gpu"]);
}

#[test]
fn a_clash_counts_what_is_placed_and_names_the_claims() {
    let slices = vec![slice("node-0", vec![gpu("gpu-0", "A100"), gpu("gpu-1", "A100")])];
    let claims = vec![
        claim("one", &[], &[]),
        asking(claim("two", &[], &[]), |ask| ask.count = Count::Exactly(2)),
    ];
    let report = report(&input(slices, claims), &["one", "two"]).unwrap();
    assert_eq!(report.nodes[0].lacking(), ["a/two/gpu"]);
    assert_snapshot!(drawn(&report), @r"
    node-0
      request gpu of a/one wants 1; 2 of 2 devices could serve
      request gpu of a/two wants 2; 2 of 2 devices could serve
      request gpu of a/two beside gpu of a/one on gpu-0 wants 2; 1 of 2 devices could serve
        gpu-0: 80Gi of memory wanted, 0 left
    ");
    let slices = vec![slice("node-0", vec![gpu("gpu-0", "A100"), gpu("gpu-1", "H100")])];
    let mut alike = asking(claim("alike", &[], &[]), |ask| ask.count = Count::Exactly(2));
    alike.constraints.push(octavo_dra::Constraint {
        requests: Vec::new(),
        rule: octavo_dra::Rule::Match("gpu.nvidia.com/productName".to_owned()),
    });
    let report = self::report(&input(slices, vec![alike]), &["alike"]).unwrap();
    let expected = "    request gpu of a/alike wants 2 and has 1; 0 of 2 devices could serve\n";
    assert!(drawn(&report).contains(expected), "{}", drawn(&report));
}

#[test]
fn of_many_nodes_the_nearest_are_kept_and_the_others_counted() {
    let busy = |index: usize| format!("node-{index}");
    let mut slices: Vec<_> =
        (0..200).map(|index| slice(&busy(index), vec![gpu("gpu-0", "A100")])).collect();
    // The last node to be examined is the nearest.
    slices.push(slice("near", vec![gpu("gpu-0", "H100"), gpu("gpu-1", "A100")]));
    let selector = "device.attributes['gpu.nvidia.com'].productName == 'H100'";
    let wanted = asking(claim("wanted", &[], &[selector]), |ask| ask.count = Count::Exactly(2));
    let report = report(&input(slices, vec![wanted]), &["wanted"]).unwrap();
    let kept: Vec<&str> = report.nodes.iter().map(|verdict| &*verdict.node).collect();
    assert_eq!((kept.len(), report.more), (64, 137));
    assert_eq!(&kept[..3], ["near", "node-0", "node-1"]);
    assert!(
        drawn(&report).ends_with("and 137 more nodes further away, not listed in any format\n")
    );
}

#[test]
fn every_device_is_named_when_all_are_asked_for() {
    let devices = (0..8).map(|index| gpu(&format!("gpu-{index}"), "A100")).collect();
    let slices = vec![slice("node-0", devices)];
    let selector = "device.attributes['gpu.nvidia.com'].productName == 'H100'";
    let report =
        report(&input(slices, vec![claim("wanted", &[], &[selector])]), &["wanted"]).unwrap();
    assert!(drawn(&report).contains("gpu-0 and 7 more: "));
    let all = render(&report, Options { all: true, is_partial: false });
    assert!(all.contains("gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, gpu-7: "), "{all}");
}
